"""Publishing: the readable names of what was built, and the record of what a name was last built from."""

from pathlib import Path
from typing import Any

import msgspec

from corpusbuild.durable import disk, replace_link, write_atomic
from corpusbuild.errors import IntegrityError, LockError
from corpusbuild.lock import corpus_digest, differences, lock_of, lock_path, read_lock
from corpusbuild.model import Counts, Key, Record
from corpusbuild.plan import ORIGIN, Plan
from corpusbuild.stage import Step
from corpusbuild.store import Store


class StepRecord(Record):
    label: str
    stage: str
    version: int
    key: Key
    params: Any
    """What of the parameters decides the output, as plain data."""
    inputs: dict[str, tuple[str, ...]]
    """Role -> labels of the steps that fill it."""
    counts: Counts
    follows: tuple[str, ...] = ()
    """Labels of the steps that decided about these documents before: what they kept is what came in here."""


class BuildRecord(Record):
    """``builds/NAME.json``: what was last built under a name. It is written last, in one step."""

    name: str
    id: str
    dataset: str
    version: str
    tokenizer: str | None
    config_sha256: str
    config: dict[str, Any]
    licenses: dict[str, str]
    steps: tuple[StepRecord, ...]

    def step(self, label: str) -> StepRecord | None:
        return next((step for step in self.steps if step.label == label), None)


def links(plan: Plan, store: Store) -> dict[Path, Path]:
    """The readable names of a plan's results, and the store entries that they stand for."""
    corpus = plan.loaded.corpus
    names = {corpus_name(plan, store): store.path("ledger", plan.corpus.key)}
    if plan.tokens is not None:
        names[store.root / "tokens" / corpus.tokenizer.id / corpus.dataset] = store.path("tokenize", plan.tokens.key)
    return names


def corpus_name(plan: Plan, store: Store) -> Path:
    return store.root / "corpus" / plan.loaded.corpus.dataset / plan.loaded.corpus.version


def publish(plan: Plan, store: Store) -> BuildRecord:
    """Give the results of a finished plan their names, then record it. Every step must be in the store.

    ``LockError`` when the build is locked and gave another result; its names then stand for what they stood for.
    """
    check_lock(plan, store)
    made = record(plan, store)
    path = record_path(store, plan.name)
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        for name, entry in links(plan, store).items():
            name.parent.mkdir(parents=True, exist_ok=True)
            replace_link(name, entry)
        write_atomic(path, msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")
    return made


def publish_corpus(plan: Plan, store: Store) -> None:
    """Give the corpus of a plan its name before there are tokens. Its ledger step must be in the store. ``LockError`` as ``publish``."""
    path = lock_path(plan.loaded.path)
    locked, given = read_lock(path), corpus_digest(plan, store)
    if locked is not None and locked.manifest_sha256 != given:
        raise LockError(
            f"the corpus of {plan.name} is another than {path} allows (manifest {given[:12]}, not {locked.manifest_sha256[:12]}). "
            f"If it is wanted: doit lock {plan.name}"
        )
    name, entry = corpus_name(plan, store), store.path("ledger", plan.corpus.key)
    with disk(name):
        name.parent.mkdir(parents=True, exist_ok=True)
        replace_link(name, entry)


def stands(name: Path, entry: Path) -> bool:
    """Whether a readable name stands for an entry that is there."""
    return name.is_symlink() and name.resolve() == entry.resolve() and entry.is_dir()


def is_published(plan: Plan, store: Store) -> bool:
    """Whether the plan, as it stands, is what its names stand for, and whole."""
    last = read_record(store, plan.name)
    return (
        last is not None
        and last.config_sha256 == plan.loaded.sha256
        and [(s.label, s.key) for s in last.steps] == [(s.label, s.key) for s in plan.steps]
        and all(store.has(s.stage.name, s.key) for s in plan.steps)
        and all(stands(name, entry) for name, entry in links(plan, store).items())
        and _keeps_lock(plan, store)
    )


def check_lock(plan: Plan, store: Store) -> None:
    """Refuse a finished plan that its lock does not allow: ``LockError`` says what differs."""
    path = lock_path(plan.loaded.path)
    locked = read_lock(path)
    if locked is None:
        return
    given = lock_of(plan, store)
    found = differences(locked, given)
    if found:
        more = f"; and {len(found) - 4} more" if len(found) > 4 else ""
        rows = " (the rows are the same, so other versions of the libraries wrote them)" if locked.rows_blake3 == given.rows_blake3 else ""
        raise LockError(
            f"build:{plan.name} gives another result than {path} allows: {'; '.join(found[:4])}{more}{rows}. "
            f"What was published stays. If this result is wanted: doit lock {plan.name}, then doit build:{plan.name}"
        )


def record(plan: Plan, store: Store) -> BuildRecord:
    corpus = plan.loaded.corpus
    return BuildRecord(
        name=plan.name,
        id=plan.id,
        dataset=corpus.dataset,
        version=corpus.version,
        tokenizer=corpus.tokenizer.id if plan.tokens is not None else None,
        config_sha256=plan.loaded.sha256,
        config=plan.loaded.config,
        licenses={source.id: source.license_spdx for source in plan.loaded.sources},
        steps=tuple(
            StepRecord(
                label=step.label,
                stage=step.stage.name,
                version=step.stage.version,
                key=step.key,
                params=decides(step),
                inputs={role: tuple(s.label for s in by) for role, by in step.inputs.items()},
                follows=tuple(s.label for s in step.follows),
                counts=store.contents(step.stage.name, step.key).counts,
            )
            for step in plan.steps
        ),
    )


def record_path(store: Store, name: str) -> Path:
    return store.root / "builds" / f"{name}.json"


def read_record(store: Store, name: str) -> BuildRecord | None:
    """What was last built under ``name``, or None. A record that cannot be read counts as none: the store is the truth."""
    try:
        return msgspec.json.decode(record_path(store, name).read_bytes(), type=BuildRecord)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _keeps_lock(plan: Plan, store: Store) -> bool:
    try:
        check_lock(plan, store)
    except IntegrityError:
        return False  # publishing tells it
    return True


def decides(step: Step) -> Any:
    return msgspec.to_builtins(step.stage.names_output(step.params))


def state(step: Step, store: Store, last: BuildRecord | None) -> tuple[str, str]:
    """A step's state (fresh, partial, stale, missing) and, when it is stale, why in one line."""
    if store.has(step.stage.name, step.key):
        return "fresh", ""
    before = last.step(step.label) if last else None
    why = _why(step, before) if before else ""
    if store.is_partial(step.key):
        return "partial", why or "finished parts wait to be taken up"
    return ("stale", why) if before else ("missing", "")


def changed_fields(step: Step, before: StepRecord) -> list[tuple[str, str, str]]:
    """Every field in which a step is not what it was: (name as a configuration has it, then, now)."""
    now = msgspec.json.decode(msgspec.json.encode(decides(step)))  # as a record gives them back: a tuple is a list
    found = [(name, _shown(old), _shown(new)) for name, old, new in changes(before.params, now, _origin(step))]
    if before.version != step.stage.version:
        found.insert(0, (f"corpusbuild's {step.stage.name} version", str(before.version), str(step.stage.version)))
    return found


def _why(step: Step, before: StepRecord) -> str:
    changed = [f"{name} {old} -> {new}" for name, old, new in changed_fields(step, before)]
    if changed:
        return "; ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
    if before.key == step.key:
        return "its entry is gone from the store"
    return "what it takes changed"


def changes(old: Any, new: Any, name: str) -> list[tuple[str, Any, Any]]:
    """Every leaf in which two plain values differ: (dotted name, old, new). A missing leaf is None."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = [*old, *(n for n in new if n not in old)]
        return [c for n in names for c in changes(old.get(n), new.get(n), _join(name, n))]
    if isinstance(old, list | tuple) and isinstance(new, list | tuple) and any(isinstance(v, dict) for v in [*old, *new]):
        pairs = [(old[i] if i < len(old) else None, new[i] if i < len(new) else None) for i in range(max(len(old), len(new)))]
        return [c for i, (a, b) in enumerate(pairs) for c in changes(a, b, f"{name}[{i}]")]
    return [] if old == new else [(name, old, new)]


_INNER = ("limits", "sign", "sharding", "params", "tokenizer")  # how parameters are grouped inside, which no configuration shows


def _join(name: str, field: str) -> str:
    if field in _INNER:
        return name
    if field in ("sources", "policy", "pii"):
        return field
    return f"{name}.{field}" if name else field


def _origin(step: Step) -> str:
    origin = ORIGIN[step.stage.name]
    return f"{origin}.{step.source}" if step.source and origin == "sources" else origin


def _shown(value: Any) -> str:
    text = "none" if value is None else msgspec.json.encode(value).decode()
    return text if len(text) <= 40 else text[:37] + "..."
