"""The last line of a run: one JSON object that says what was built. Equal builds give equal lines, whatever the machine, workers or time."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corpusbuild.hashing import file_sha256
from corpusbuild.model import Tally, total
from corpusbuild.pii import MANIFEST_KEYS
from corpusbuild.plan import Plan
from corpusbuild.publish import links
from corpusbuild.stage import Step
from corpusbuild.staging import CONTENTS
from corpusbuild.store import Store


def statement(plan: Plan, store: Store, until: str) -> dict[str, Any]:
    """What a finished run up to the stage ``until`` gave, as plain data. A number that no step up to there gives is None."""
    corpus = plan.loaded.corpus
    there = [step for step in plan.steps if store.has(step.stage.name, step.key)]

    def of(stage: str) -> Tally | None:
        tallies = [t for step in there if step.stage.name == stage for t in store.contents(stage, step.key).counts.values()]
        return total(tallies) if tallies else None

    filtered, shards, tokens = of("filter"), of("ledger"), of("tokenize")
    return {
        "dataset": corpus.dataset,
        "version": corpus.version,
        "stage": until,
        "filters": dict(sorted(filtered.dropped.items())) if filtered else None,
        "exact_dropped": _dropped(of("exact_dedup")),
        "near_dropped": _dropped(of("near_dedup")),
        "decontaminated": _dropped(of("decontaminate")),
        "pii_redactions": {name: shards.also.get(kind, 0) for kind, name in MANIFEST_KEYS.items()} if shards else None,
        "n_docs": shards.kept if shards else None,
        "n_shards": _shards(store, plan.corpus) if shards else None,
        "train_tokens": tokens.also.get("train_tokens", 0) if tokens else None,
        "val_tokens": tokens.also.get("val_tokens", 0) if tokens else None,
        "output_sha256": output_sha256(plan, store),
    }


def output_sha256(plan: Plan, store: Store) -> str:
    """The SHA-256 of a line ``<path>\\t<sha256>\\n`` for every file of the corpus and the tokens, sorted by path; of nothing where there are none yet."""
    files = sorted(_files(plan, store))
    return hashlib.sha256("".join(f"{name}\t{file_sha256(path)}\n" for name, path in files).encode()).hexdigest()


def _files(plan: Plan, store: Store) -> Iterator[tuple[str, Path]]:
    """The files under the readable names, but for the store's own page."""
    for name, entry in links(plan, store).items():
        if (entry / CONTENTS).exists():
            for path in entry.rglob("*"):
                if path.is_file() and path != entry / CONTENTS:
                    yield str((name / path.relative_to(entry)).relative_to(store.root)), path


def _dropped(tally: Tally | None) -> int | None:
    return sum(tally.dropped.values()) if tally else None


def _shards(store: Store, step: Step) -> int:
    return sum(file.path.endswith(".parquet") for file in store.contents(step.stage.name, step.key).files)
