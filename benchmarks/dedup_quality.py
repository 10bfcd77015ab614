"""How well near duplicates are found, and how well other tools find them: against every pair there is, on real text with planted copies.

    python benchmarks/dedup_quality.py [--work FOLDER] [--report FILE] [--peers NAME ...]

The stages run as in any build; the truth is an exact join of the documents' shingle sets that shares no code with them. Prints what it measures,
writes it as a report, and exits with 1 when it is below the bars at the bands that it recommends. Needs ``pip install -e .``, and for
the text what ``real_text.py`` says. The first run takes about half an hour on two cores and leaves 3 GB in the folder.
"""

import argparse
import asyncio
import hashlib
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import environments
import numba
import numpy as np
import peers
import planted
import pyarrow as pa
import pyarrow.parquet as pq
import real_text
import similarity_join
from numpy.typing import NDArray
from similarity_join import F64, I64, Pairs, Sets

from corpusbuild import minhash
from corpusbuild.config import load
from corpusbuild.fetch import fetch_all
from corpusbuild.hashing import file_sha256
from corpusbuild.model import Tally, total
from corpusbuild.parts import read_arrow
from corpusbuild.plan import Plan, plan
from corpusbuild.signfile import read_signs
from corpusbuild.store import Store
from corpusbuild.workshop import Workshop, realise

HERE = Path(__file__).parent
THRESHOLD = 0.8
TRUTH_FROM = 0.5
WORKERS = 2
DEFAULT = (16, 8)
RECOMMENDED = (25, 5)
BANDS = (DEFAULT, (20, 6), RECOMMENDED, (32, 4))
WIDTHS = (3, 5, 9)
BUCKETS = (
    ("0.5 to 0.6", 0.5, 0.6),
    ("0.6 to 0.7", 0.6, 0.7),
    ("0.7 to 0.8", 0.7, 0.8),
    ("0.8 to 0.85", 0.8, 0.85),
    ("from 0.85", 0.85, 1.1),
)
BARS = {"0.8 to 0.85": 0.97, "from 0.85": 0.995}
LEAST_PAIRS = 2_000
PEERS = (
    ("rensa", DEFAULT, None), ("datasketch", DEFAULT, None), ("text-dedup", DEFAULT, None), ("datatrove", (14, 8), 20_000),
    ("rensa", RECOMMENDED, None), ("datasketch", RECOMMENDED, None),
)  # fmt: skip
"""Tool, bands x rows, and how many documents it gets, the first ones, unless ``--whole`` is given."""

Mask = NDArray[np.bool_]

CONFIG = """dataset = "planted"
version = "v1"

[[sources]]
id = "first"
url = "first.jsonl"
sha256 = "{first}"
license_spdx = "LicenseRef-PublicDomain"
id_field = "id"

[[sources]]
id = "second"
url = "second.jsonl"
sha256 = "{second}"
license_spdx = "LicenseRef-PublicDomain"
id_field = "id"

[stages]
filter = {others}
scrub = {others}
exact_dedup = {others}

[shard]
shard_rows = 100000

[tokenizer]
id = "bytes"
"""


@dataclass(frozen=True)
class Result:
    """What a tool did with the first documents of the corpus: which it kept, in plan order, and how long it took by the clock and in all processes, where
    that can be told."""

    name: str
    kept: Mask
    seconds: float
    cpu_seconds: float | None


@dataclass(frozen=True)
class Ours:
    """A build up to the near duplicates. ``survivors`` and ``similarity`` are of ``removed``, as its table of removals says."""

    bands: tuple[int, int]
    shingle: int
    result: Result
    removed: I64
    survivors: I64
    similarity: F64
    also: dict[str, int]
    meet: Callable[[Pairs], tuple[Mask, Mask]]
    """Which pairs share a bucket or a set, and which of them the stage compared: the earlier is among the first 64 of a bucket they share."""


@dataclass
class Report:
    lines: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def say(self, text: str = "") -> None:
        print(text, flush=True)
        self.lines.append(text)

    def table(self, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        self.say(f"| {' | '.join(head)} |")
        self.say("|" + "---|" * len(head))
        for row in rows:
            self.say(f"| {' | '.join(f'{cell:,}' if isinstance(cell, int) else str(cell) for cell in row)} |")
        self.say()

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            self.failures.append(what)


@dataclass(frozen=True)
class Truth:
    """All pairs from TRUTH_FROM up. ``planted`` marks those of a copy and its original, ``alone`` those of them that are like nothing else, and
    ``template`` those of two variants of one text."""

    docs: list[planted.Doc]
    sets: Sets
    pairs: Pairs
    planted: Mask
    alone: Mask
    template: Mask

    def due(self) -> Pairs:
        return self.pairs.take(self.pairs.similarity >= THRESHOLD)

    def buckets(self) -> list[tuple[str, Mask]]:
        s = self.pairs.similarity
        return [(name, (s >= low) & (s < high)) for name, low, high in BUCKETS]


class Project:
    """The corpus as a project of its own, built again from nothing for each of what is measured."""

    def __init__(self, folder: Path, docs: Sequence[planted.Doc]):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(HERE.parent / "configs" / "policy", folder / "configs" / "policy")
        self.store = Store(folder / "cache")
        self._folder = folder
        half = len(docs) // 2
        digests = {}
        for name, some in (("first", docs[:half]), ("second", docs[half:])):
            data = "".join(json.dumps({"id": doc.id, "text": doc.text}, ensure_ascii=False) + "\n" for doc in some).encode()
            (folder / "configs" / f"{name}.jsonl").write_bytes(data)
            digests[name] = hashlib.sha256(data).hexdigest()
        for name, others in (("near", "false"), ("every", "true")):
            (folder / "configs" / f"{name}.toml").write_text(CONFIG.format(others=others, **digests))

    def plan(self, name: str, bands: tuple[int, int], shingle: int) -> Plan:
        settings = {"num_perm": bands[0] * bands[1], "bands": bands[0], "shingle": shingle, "jaccard_threshold": THRESHOLD}
        return plan(load(self._folder / "configs" / f"{name}.toml", tuple(f"dedup.{key}={value}" for key, value in settings.items())))

    def build(self, made: Plan, stages: Collection[str]) -> dict[str, float]:
        """Build the steps of these stages and give the seconds that each stage took; nothing for what was there before."""
        taken: dict[str, float] = {}
        with Workshop(self.store, "local", WORKERS, 8 * 10**9, print, kernels="compiled") as shop:
            shop.pool()
            for step in made.steps:
                if step.stage.name not in stages or self.store.has(step.stage.name, step.key):
                    continue
                started = time.perf_counter()
                if step.stage.name == "fetch":
                    asyncio.run(fetch_all([step.params], self.store.root))
                else:
                    realise(step, shop)
                taken[step.stage.name] = taken.get(step.stage.name, 0.0) + time.perf_counter() - started
        return taken

    def tally(self, made: Plan, stage: str) -> Tally:
        steps = [step for step in made.steps if step.stage.name == stage]
        return total([tally for step in steps for tally in self.store.contents(stage, step.key).counts.values()])

    def tables(self, made: Plan, stage: str, suffix: str) -> list[Path]:
        """The files of a stage, in plan order."""
        found = []
        for step in made.steps:
            if step.stage.name == stage:
                folder = self.store.path(stage, step.key)
                found += sorted(folder / f.path for f in self.store.contents(stage, step.key).files if f.path.endswith(suffix))
        return found

    def documents(self, made: Plan) -> tuple[list[str], list[str]]:
        """Ids and texts in plan order, as filter gives them."""
        table = pa.concat_tables([read_arrow(path, ["id", "text"]) for path in self.tables(made, "filter", ".docs.arrow")])
        return table.column("id").to_pylist(), table.column("text").to_pylist()


def run_ours(project: Project, ids: Sequence[str], bands: tuple[int, int], shingle: int) -> Ours:
    made = project.plan("near", bands, shingle)
    before = cpu_seconds()
    taken = project.build(made, ("sign", "near_dedup"))
    spent = cpu_seconds() - before
    place = {id: i for i, id in enumerate(ids)}
    rows = pa.concat_tables([pq.read_table(path) for path in project.tables(made, "near_dedup", ".removed.parquet")])
    removed, survivors = (np.array([place[id] for id in rows.column(name).to_pylist()], np.int64) for name in ("id", "survivor"))
    kept = np.ones(len(ids), np.bool_)
    kept[removed] = False
    signs = minhash.join([read_signs(path, bands[0]) for path in project.tables(made, "sign", ".signs.arrow")], bands[0])
    seconds = taken["sign"] + taken["near_dedup"]
    name = f"corpusbuild {bands[0]} x {bands[1]}"
    also = project.tally(made, "near_dedup").also
    params = made.step("near_dedup").params
    return Ours(
        bands, shingle, Result(name, kept, seconds, spent), removed, survivors, rows.column("similarity").to_numpy(), also,
        lambda pairs: meet(signs, pairs, params.max_bucket),
    )  # fmt: skip


def meet(signs: minhash.Signs, pairs: Pairs, cap: int) -> tuple[Mask, Mask]:
    """Read from what sign published: whether two documents, or the first ones of equal sets, share a bucket, and whether they were compared."""
    _, first, which = np.unique(np.stack([signs.hi, signs.lo]), axis=1, return_index=True, return_inverse=True)
    stands_for = first[which]
    a, b = stands_for[pairs.earlier], stands_for[pairs.later]
    a, b = np.minimum(a, b), np.maximum(a, b)
    shared: Mask = a == b
    compared = shared.copy()
    members = np.unique(stands_for)
    for keys in signs.bands:
        order = members[np.argsort(keys[members], kind="stable")]
        starts = np.flatnonzero(np.concatenate([[True], keys[order[1:]] != keys[order[:-1]]]))
        rank = np.empty(len(keys), np.int64)
        rank[order] = np.arange(len(order)) - np.repeat(starts, np.diff([*starts, len(order)]))
        same = keys[a] == keys[b]
        shared |= same
        compared |= same & (rank[a] < cap)
    return shared, compared


def known_pairs(texts: Sequence[str], width: int, work: Path) -> tuple[Sets, Pairs]:
    """The sets and all pairs, found now or remembered from a run on the same texts."""
    digest = hashlib.sha256(f"{width} {TRUTH_FROM} {file_sha256(HERE / 'similarity_join.py')}".encode())
    for text in texts:
        digest.update(f"{len(text)} {text}".encode())
    path = work / "results" / f"pairs-{digest.hexdigest()[:16]}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        sets = similarity_join.shingle_sets(texts, width)
        pairs = similarity_join.join(sets, TRUTH_FROM)
        np.savez(path, **sets._asdict(), **pairs._asdict())
    found = np.load(path)
    return Sets(*(found[name] for name in Sets._fields)), Pairs(*(found[name] for name in Pairs._fields))


def find_truth(docs: list[planted.Doc], texts: Sequence[str], work: Path, width: int = planted.SHINGLE) -> Truth:
    sets, pairs = known_pairs(texts, width, work)
    place = {doc.id: i for i, doc in enumerate(docs)}
    family = np.array([int(doc.of[-2:]) if doc.kind == "template" else -1 for doc in docs])
    original = np.array([place.get(doc.of, -1) for doc in docs])
    copies = (original[pairs.later] == pairs.earlier) | (original[pairs.earlier] == pairs.later)
    alike = np.bincount(np.concatenate([pairs.earlier, pairs.later]), minlength=len(docs))
    alone = copies & (alike[pairs.earlier] == 1) & (alike[pairs.later] == 1)
    return Truth(docs, sets, pairs, copies, alone, (family[pairs.earlier] == family[pairs.later]) & (family[pairs.later] >= 0))


def check_join(docs: Sequence[planted.Doc], texts: Sequence[str]) -> int:
    """Compare the join with trying all pairs, on some documents that are much alike. Gives how many pairs that were."""
    some = sorted(range(len(docs)), key=lambda i: (docs[i].of or docs[i].id, docs[i].id))
    some = some[:500] + some[-200:]
    sets = similarity_join.shingle_sets([texts[i] for i in some], planted.SHINGLE)
    ours, theirs = similarity_join.join(sets, TRUTH_FROM), similarity_join.join_by_trying_all(sets, TRUTH_FROM)
    if not all(np.array_equal(x, y) for x, y in zip(ours, theirs, strict=True)):
        raise SystemExit("the exact join misses a pair or gives a wrong similarity: nothing below it can be believed")
    return len(ours.later)


def decide_by_all_pairs(due: Pairs, n: int) -> Mask:
    """Who is kept when no pair is missed: in plan order a document goes if an earlier kept one is similar enough."""
    kept = np.ones(n, np.bool_)
    for earlier, later in zip(due.earlier.tolist(), due.later.tolist(), strict=True):
        if kept[earlier]:
            kept[later] = False
    return kept


def has_kept_partner(pairs: Pairs, kept: Mask) -> Mask:
    """For each document whether some pair joins it with a kept one."""
    has = np.zeros(len(kept), np.bool_)
    has[pairs.later[kept[pairs.earlier]]] = True
    has[pairs.earlier[kept[pairs.later]]] = True
    return has


def settled(pairs: Pairs, kept: Mask) -> Mask:
    return ~(kept[pairs.earlier] & kept[pairs.later])


def peer(tool: str, bands: tuple[int, int], lines: Sequence[str], ids: Sequence[str], work: Path) -> Result:
    """What another tool does, run now or remembered from a run on the same corpus with the same settings."""
    corpus = work / f"corpus-{len(lines)}.jsonl"
    corpus.write_text("".join(lines))
    asked = json.dumps([tool, bands, environments.version(tool, tool), file_sha256(corpus), file_sha256(HERE / "peers.py")])
    path = work / "results" / f"{hashlib.sha256(asked.encode()).hexdigest()[:16]}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(run_peer(tool, bands, corpus, work)))
    found = json.loads(path.read_text())
    names = set(found.pop("kept"))
    return Result(f"{tool} {bands[0]} x {bands[1]}", np.array([id in names for id in ids]), **found)


def run_peer(tool: str, bands: tuple[int, int], corpus: Path, work: Path) -> dict[str, Any]:
    """Run a tool in its own environment, which is made where it is missing."""
    python = environments.python(tool, work)
    folder, kept_file, log = work / "peer", work / "peer.txt", work / f"{tool}.log"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    command: list[str | Path] = [python, HERE / "peers.py", tool, *map(str, bands), corpus, kept_file, folder]
    with log.open("w") as out:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, "HF_HUB_OFFLINE": "1"})
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
    if status:
        raise SystemExit(f"{tool} failed: {log.read_text()[-500:]}")
    kept = kept_file.read_text().splitlines()
    return {"kept": kept, "seconds": seconds, "cpu_seconds": None if tool in peers.FORK_SERVER else usage.ru_utime + usage.ru_stime}


def cpu_seconds() -> float:
    """Of this process and all that it has seen the end of."""
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


def share(part: int, whole: int, digits: int = 2) -> str:
    return f"{100 * part / whole:.{digits}f} %" if whole else "-"


def recalls(found: Mask, truth: Truth, which: Mask) -> list[str]:
    return [share(int((found & bucket & which).sum()), int((bucket & which).sum())) for _, bucket in truth.buckets()]


def tell_corpus(report: Report, truth: Truth, megabytes: float, checked: int) -> None:
    kinds: dict[str, list[float]] = {}
    for doc in truth.docs:
        kinds.setdefault(doc.kind, []).append(doc.rate)
    report.say("## The text")
    report.say()
    report.say(
        f"{len(truth.docs):,} documents, {megabytes:.1f} MB, in two sources, from the packages of `real_text.txt`. Planted by `planted.py`:"
    )
    report.say()
    what = {
        "real": "as they are; pages made from one pattern, and pages translated in part, are much alike by themselves",
        "words": "single words replaced, dropped or put in: {} of all words",
        "passage": "one run of words replaced: {} of all words",
        "frame": "under a header, over a footer, or both",
        "exact": "unchanged",
        "template": f"variants of {len(planted.TEMPLATES)} texts, of one of them {max(planted.TEMPLATES):,}",
    }
    by_size = sorted(kinds.items(), key=lambda item: -len(item[1]))
    report.table(
        ("kind", "documents", "what"),
        [(kind, len(rates), what[kind].format(f"{min(rates):.1%} to {max(rates):.0%}")) for kind, rates in by_size],
    )
    report.say(
        f"All {len(truth.pairs.later):,} pairs with a Jaccard similarity of their sets of 5 words of at least {TRUTH_FROM} are known "
        f"(`similarity_join.py`; on 700 documents compared with trying all pairs: {checked:,} pairs, the same). Of these by similarity:"
    )
    report.say()
    groups: tuple[tuple[str, Mask], ...] = (
        ("a copy and its original", truth.planted),
        ("of these, both like nothing else", truth.alone),
        ("two variants of a template", truth.template),
        ("others", ~truth.planted & ~truth.template),
    )
    report.table(
        ("pairs", *(name for name, *_ in BUCKETS)),
        [(name, *(int((bucket & which).sum()) for _, bucket in truth.buckets())) for name, which in groups],
    )
    for name, bucket in truth.buckets():
        n = int((bucket & truth.planted).sum())
        report.require(n >= LEAST_PAIRS, f"only {n:,} planted pairs of similarity {name}; {LEAST_PAIRS:,} are wanted")


def tell_bands(report: Report, truth: Truth, runs: Sequence[Ours]) -> None:
    report.say("## What bands find")
    report.say()
    report.say(
        f"Threshold {THRESHOLD}, shingles of {planted.SHINGLE} words. Of a pair can be said that its documents\n\n"
        "- *meet*: they share a bucket, or have equal sets. That is what bands are for;\n"
        "- are *compared*: the earlier is among the first 64 members of a bucket they share, so that the stage has counted out their similarity. Of\n"
        "  hundreds of pages made from one pattern only the first are compared with;\n"
        "- are *settled*: the later went, or the earlier did, each in favour of a document that stays. That is what a pair from the threshold up must come\n"
        "  to, and of tools that name no pairs it is all that can be seen."
    )
    report.say()
    names = [name for name, *_ in BUCKETS]
    every = np.ones(len(truth.template), np.bool_)
    met = {run.bands: run.meet(truth.pairs) for run in runs}
    report.table(("meet, all pairs", *names), [(run.result.name, *recalls(met[run.bands][0], truth, every)) for run in runs])
    for head, which in (("copies and originals like nothing else", truth.alone), ("all pairs", every)):
        report.table((f"compared, {head}", *names), [(run.result.name, *recalls(met[run.bands][1], truth, which)) for run in runs])
    report.table(
        ("settled", *(f"all pairs, {name}" for name in names[3:]), *(f"copies and originals, {name}" for name in names[3:])),
        [(run.result.name, *recalls(settled(truth.pairs, run.result.kept), truth, every)[3:],
          *recalls(settled(truth.pairs, run.result.kept), truth, truth.planted)[3:]) for run in runs],
    )  # fmt: skip
    ideal = decide_by_all_pairs(truth.due(), len(truth.docs))
    rows = []
    for run in runs:
        verified, right = run.also["verified"], verify_removals(truth, run)
        rows.append(
            (run.result.name, run.also["candidates"], verified, share(verified, run.also["candidates"], 1), len(run.removed), right,
             int((~run.result.kept & ideal).sum()), int((run.result.kept & ~ideal).sum()), run.also["not_compared"], f"{run.result.cpu_seconds:.1f}")
        )  # fmt: skip
        report.require(right == len(run.removed), f"{run.result.name}: {len(run.removed) - right:,} removals are not true")
    report.say(
        "Each removal is checked against the truth: the survivor that its row names is kept and comes earlier, their true similarity is what the row\n"
        f"says, and it is at least the threshold. A law that misses no pair would remove {int((~ideal).sum()):,}; *beyond* and *short of* it are told. A\n"
        "document may stay because an earlier one stayed too that should have gone, and the other way round, so neither is an error of a row."
    )
    report.say()
    report.table(
        (
            "",
            "pairs compared",
            "verified",
            "precision before verification",
            "removed",
            "of these true",
            "beyond",
            "short of",
            "not compared",
            "CPU s",
        ),
        rows,
    )
    chosen = next(run for run in runs if run.bands == RECOMMENDED)
    wanted = (
        ("all pairs {} meet", met[RECOMMENDED][0], every),
        ("copies like nothing else {} compared with their original", met[RECOMMENDED][1], truth.alone),
        ("all pairs {} settled", settled(truth.pairs, chosen.result.kept), every),
        ("copies and originals {} settled", settled(truth.pairs, chosen.result.kept), truth.planted),
    )
    for name, bucket in truth.buckets():
        for what, found, which in wanted if name in BARS else ():
            recall = float(found[bucket & which].mean())
            report.require(recall >= BARS[name], f"{recall:.4f} of {what.format(name)}, {BARS[name]} wanted")


def verify_removals(truth: Truth, run: Ours) -> int:
    """How many rows of removals are true in every respect."""
    true = similarity_join.similarities(truth.sets, run.removed, run.survivors)
    fine = run.result.kept[run.survivors] & (run.survivors < run.removed) & (true >= THRESHOLD) & (np.abs(true - run.similarity) < 1e-12)
    return int(fine.sum())


def tell_peers(report: Report, truth: Truth, results: Sequence[Result]) -> None:
    report.say("## Other tools on the same text")
    report.say()
    report.say(
        "*Settled* as above, of all pairs. *True*: of the removed, those that have a partner of at least 0.8 among the kept; *alone*: those that\n"
        "have no partner of even 0.5 among them. The truth is of our words (`\\w`, lower case); datatrove and text-dedup cut words in their own way, so for\n"
        "them a similarity next to a border may fall on its other side. Seconds are of the whole process, from JSON lines to the ids that are kept; for\n"
        "corpusbuild of sign and near_dedup, which start from documents in its store. Slow tools got the first documents only."
    )
    report.say()
    rows = []
    for result in results:
        n = len(result.kept)
        among = truth.pairs.later < n
        pairs = truth.pairs.take(among)
        removed = ~result.kept
        cpu = ("-", "-") if result.cpu_seconds is None else (f"{result.cpu_seconds:.0f}", f"{n / result.cpu_seconds:.0f}")
        true = has_kept_partner(pairs.take(pairs.similarity >= THRESHOLD), result.kept)
        near = has_kept_partner(pairs, result.kept)
        done = np.zeros(len(among), np.bool_)
        done[among] = settled(pairs, result.kept)
        rows.append(
            (result.name, n, *recalls(done, truth, among)[3:], n - int(removed.sum()), int(removed.sum()),
             share(int((removed & true).sum()), int(removed.sum())), int((removed & ~near).sum()), f"{result.seconds:.0f}", *cpu)
        )  # fmt: skip
    settled_heads = [f"settled {name}" for name, *_ in BUCKETS[3:]]
    head = (
        "tool, bands x rows",
        "documents",
        *settled_heads,
        "kept",
        "removed",
        "true",
        "alone",
        "s",
        "CPU s",
        "documents a CPU second",
    )
    report.table(head, rows)


def tell_widths(report: Report, truth: Truth, runs: Sequence[Ours]) -> None:
    report.say(f"## Words in a shingle, at {RECOMMENDED[0]} x {RECOMMENDED[1]}")
    report.say()
    kinds = ("exact", "frame", "passage", "words", "template", "real")
    rows = []
    for run in runs:
        gone = {
            kind: int(sum(doc.kind == kind and not kept for doc, kept in zip(truth.docs, run.result.kept, strict=True))) for kind in kinds
        }
        rows.append(
            (run.shingle, int(run.result.kept.sum()), len(run.removed), share(run.also["verified"], run.also["candidates"], 1),
             run.also["candidates"], f"{run.result.cpu_seconds:.1f}", *gone.values())
        )  # fmt: skip
    head = ("words", "kept", "removed", "precision before verification", "pairs compared", "CPU s", *(f"removed: {kind}" for kind in kinds))
    report.table(head, rows)
    report.say(
        "Of copies with single words changed whose original is like no other document: how many go, or make it go, by the share of words changed:"
    )
    report.say()
    edges = (0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.06, 0.1, 0.6)
    place = {doc.id: i for i, doc in enumerate(truth.docs)}
    others = np.zeros(len(truth.docs), np.bool_)
    for ends in (truth.pairs.earlier, truth.pairs.later):
        others[ends[~truth.planted]] = True
    copies = [
        (place[doc.of], i, doc.rate) for i, doc in enumerate(truth.docs) if doc.kind == "words" and not others[[i, place[doc.of]]].any()
    ]
    original, copy, rate = (np.array(column) for column in zip(*copies, strict=True))
    spans = [(low, high, (rate >= low) & (rate < high)) for low, high in pairwise(edges) if ((rate >= low) & (rate < high)).any()]
    report.table(
        ("words", *(f"{low:.1%} to {high:.1%}" for low, high, _ in spans)),
        [(run.shingle, *(share(int((~(run.result.kept[original] & run.result.kept[copy]))[here].sum()), int(here.sum()), 1) for *_, here in spans))
         for run in runs],
    )  # fmt: skip


def tell_speed(report: Report, project: Project, megabytes: float, docs: int) -> None:
    """Build everything up to the shards, with all stages on and the default settings."""
    made = project.plan("every", RECOMMENDED, planted.SHINGLE)
    shutil.rmtree(project.store.root)
    taken = project.build(made, {step.stage.name for step in made.steps} - {"ledger", "tokenize"})
    report.say("## Speed of the stages")
    report.say()
    report.say(
        f"A build of all stages with the default filters, {WORKERS} workers, from an empty store. MB are of all text that was fetched, though later stages\n"
        "see less of it: that is what a person waits for."
    )
    report.say()
    rows = []
    for stage, seconds in taken.items():
        tally = project.tally(made, stage)
        rows.append((stage, tally.docs_in, tally.kept, f"{seconds:.1f}", f"{megabytes / seconds:.0f}"))
    whole = sum(taken.values())
    report.table(
        ("stage", "documents in", "kept", "s", "MB/s"), [*rows, ("all", docs, rows[-1][2], f"{whole:.1f}", f"{megabytes / whole:.0f}")]
    )


def machine() -> str:
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), ""
    )
    return f"{len(os.sched_getaffinity(0))} cores of {model or platform.machine()}, {platform.system()} {platform.machine()}"


def versions(names: Iterable[str]) -> str:
    ours = f"Python {platform.python_version()}, numpy {np.__version__}, pyarrow {pa.__version__}, numba {numba.__version__}"
    return f"{ours}; {', '.join(f'{name}=={environments.version(name, name)}' for name in names)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=real_text.WORK, help="folder for everything that is made (default: benchmarks/.work)")
    parser.add_argument("--report", type=Path, default=HERE / "dedup_quality.md", help="where the tables go")
    parser.add_argument("--peers", nargs="*", default=sorted({name for name, *_ in PEERS}), choices=sorted(peers.TOOLS))
    parser.add_argument("--whole", action="store_true", help="give every tool all documents, the slow ones too")
    options = parser.parse_args()
    work = options.work.resolve()
    report = Report()
    report.say("# How well near duplicates are found")
    report.say()
    report.say(
        "Written by `pip install -e . && python benchmarks/dedup_quality.py`, which fails when the bars are not reached. Do not edit."
    )
    report.say()
    report.say(
        f"{machine()}; {versions(options.peers)}. Other work ran on the machine, so seconds by the clock say little; CPU seconds are of all processes together."
    )
    report.say()

    docs = planted.plant(real_text.texts(work))
    project = Project(work / "project", docs)
    runs = {}
    made = project.plan("near", DEFAULT, planted.SHINGLE)
    project.build(made, ("fetch", "filter"))
    ids, texts = project.documents(made)
    if [id.split(":", 1)[1] for id in ids] != [doc.id for doc in docs]:
        raise SystemExit("the documents in the store are not those that were planted")
    for bands, width in [*((bands, planted.SHINGLE) for bands in BANDS), *((RECOMMENDED, w) for w in WIDTHS if w != planted.SHINGLE)]:
        runs[bands, width] = run_ours(project, ids, bands, width)
    megabytes = sum(len(text.encode()) for text in texts) / 1e6

    truth = find_truth(docs, texts, work)
    tell_corpus(report, truth, megabytes, check_join(docs, texts))
    by_bands = [runs[bands, planted.SHINGLE] for bands in BANDS]
    tell_bands(report, truth, by_bands)

    lines = [json.dumps({"id": id, "text": text}, ensure_ascii=False) + "\n" for id, text in zip(ids, texts, strict=True)]
    ours = [runs[bands, planted.SHINGLE].result for bands in BANDS]
    theirs = [
        peer(tool, bands, lines[: None if options.whole else first], ids[: None if options.whole else first], work)
        for tool, bands, first in PEERS
        if tool in options.peers
    ]
    tell_peers(report, truth, [*ours, *theirs])
    tell_widths(report, truth, [runs[RECOMMENDED, width] for width in WIDTHS])
    tell_speed(report, project, megabytes, len(docs))

    report.say("## Verdict")
    report.say()
    bars = "; ".join(f"pairs of {name} at least {bar}" for name, bar in BARS.items())
    report.say(
        f"Bars at {RECOMMENDED[0]} x {RECOMMENDED[1]}: {bars}, in each of the ways above; every removal true; {LEAST_PAIRS:,} planted pairs a bucket. "
    )
    report.say("All reached." if not report.failures else "Not reached: " + "; ".join(report.failures) + ".")
    options.report.write_text("\n".join(report.lines) + "\n")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
