"""Locks: ``configs/NAME.lock`` holds, for git, what a build must give: the digests of its manifests and of its rows, and the keys of its steps."""

from hashlib import sha256
from pathlib import Path

import msgspec

from corpusbuild.durable import write_atomic
from corpusbuild.errors import IntegrityError
from corpusbuild.model import Record
from corpusbuild.plan import Plan
from corpusbuild.stage import Step
from corpusbuild.stages.shard import MANIFEST
from corpusbuild.store import Store


class Lock(Record):
    """What a build gave. Equal builds give equal locks, byte for byte, on any machine that has the pinned versions."""

    build: str
    config_sha256: str
    manifest_sha256: str
    rows_blake3: str
    """Of the rows alone: equal where only the files differ, for instance because another Parquet library wrote them."""
    tokens_manifest_sha256: str | None
    steps: dict[str, str]
    """Label -> key, in plan order."""


def lock_path(config: Path) -> Path:
    """Where the lock of the configuration at ``config`` stands: beside it."""
    return config.with_suffix(".lock")


def lock_of(plan: Plan, store: Store) -> Lock:
    """The lock of a plan of which every step is in the store, published or not."""
    manifest = _manifest(store, plan.corpus)
    return Lock(
        build=plan.name,
        config_sha256=plan.loaded.sha256,
        manifest_sha256=corpus_digest(plan, store),
        rows_blake3=msgspec.json.decode(manifest)["rows_blake3"],
        tokens_manifest_sha256=sha256(_manifest(store, plan.tokens)).hexdigest() if plan.tokens else None,
        steps={step.label: step.key for step in plan.steps},
    )


def corpus_digest(plan: Plan, store: Store) -> str:
    """The SHA-256 of the corpus's manifest."""
    return sha256(_manifest(store, plan.corpus)).hexdigest()


def encode(lock: Lock) -> bytes:
    return msgspec.json.format(msgspec.json.encode(lock), indent=1) + b"\n"


def write_lock(path: Path, lock: Lock) -> None:
    write_atomic(path, encode(lock))


def read_lock(path: Path) -> Lock | None:
    """The lock at ``path``, or None where there is none. ``IntegrityError`` when it is no lock."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Lock)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise IntegrityError(f"{path} is not a lock ({error}): restore it from git, or write it anew with doit lock {path.stem}") from None


def differences(locked: Lock, given: Lock) -> list[str]:
    """What ``given`` has otherwise than ``locked``, a line each; empty when they are the same.

    >>> a = Lock(build="b", config_sha256="0" * 64, manifest_sha256="1" * 64, rows_blake3="2" * 64, tokens_manifest_sha256=None, steps={"shard": "3" * 64})
    >>> differences(a, msgspec.structs.replace(a, rows_blake3="4" * 64))
    ['rows_blake3: 222222222222 is locked, this build has 444444444444']
    """
    lines = []
    for name in ("build", "config_sha256", "manifest_sha256", "rows_blake3", "tokens_manifest_sha256"):
        old, new = getattr(locked, name), getattr(given, name)
        if old != new:
            lines.append(f"{name}: {_short(old)} is locked, this build has {_short(new)}")
    for label in [*locked.steps, *(s for s in given.steps if s not in locked.steps)]:
        old, new = locked.steps.get(label), given.steps.get(label)
        if old != new:
            lines.append(f"step {label}: {_short(old)} is locked, this build has {_short(new)}")
    return lines


def _manifest(store: Store, step: Step) -> bytes:
    entry = store.path(step.stage.name, step.key)
    try:
        return (entry / MANIFEST).read_bytes()
    except FileNotFoundError:
        raise IntegrityError(f"{entry / MANIFEST} is missing: delete {entry} and build again") from None


def _short(value: str | None) -> str:
    return "nothing" if value is None else value[:12]
