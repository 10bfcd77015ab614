"""Preflight: how much disk a build will take, from the sizes that are known, and a refusal where it cannot fit."""

import os
import shutil
from collections.abc import Iterable

from corpusbuild.errors import DiskError
from corpusbuild.model import Key
from corpusbuild.plan import Plan
from corpusbuild.progress import size
from corpusbuild.sources import Source, is_local, local_path
from corpusbuild.store import Store

UNPACKED = 4.0
"""Bytes of text in a byte of a compressed file. Measured on prose: gzip 2.6, zstd 3 2.8, xz 3.4; rounded up."""

PER_TEXT_BYTE = {
    "raw parts": 0.45,
    "documents": 0.45,
    "decisions and signatures": 0.35,
    "scratch": 0.5,
    "shards": 0.45,
}
"""Bytes on disk for a byte of text, by what is kept. Measured on the sample (0.35, 0.35, 0.15, 0.3, 0.30) and rounded up for shorter documents."""

TOKEN_BYTES = {"bytes": 2.0, "learned": 1.0}
"""Bytes of ids for a byte of text: two bytes an id for the byte tokenizer; a learned one has at least two letters an id in two bytes, or four in four."""

_COMPRESSED = (".gz", ".zst", ".xz", ".bz2", ".parquet")


def needed(plan: Plan, store: Store) -> dict[str, int]:
    """Bytes that the steps still to be built will take at most, by what they are for. Sources of unknown size count as nothing."""
    missing = {step.label for step in plan.steps if not store.has(step.stage.name, step.key)}
    text = text_by_source(plan, store)
    whole = sum(text.values())
    unfetched = [step.params for step in plan.steps if step.stage.name == "fetch" and step.label in missing]
    unfiltered = sum(n for source, n in text.items() if f"filter:{source}" in missing)
    learned = plan.loaded.tokenizer.path is not None or plan.loaded.corpus.tokenizer.train is not None
    tokens = TOKEN_BYTES["learned" if learned else "bytes"] * whole
    wants = {
        "downloads": sum(map(_size, unfetched)),  # local files are copied, so that what is split is what was verified
        "raw parts": sum(text[source.id] for source in unfetched) * PER_TEXT_BYTE["raw parts"],
        "documents": unfiltered * PER_TEXT_BYTE["documents"],
        "decisions and signatures": whole * PER_TEXT_BYTE["decisions and signatures"] if _any(missing, ("sign", "exact", "near")) else 0,
        "scratch": whole * PER_TEXT_BYTE["scratch"] + tokens if _any(missing, ("exact", "near", "tokenize")) else 0,
        "shards": whole * PER_TEXT_BYTE["shards"] if "shard" in missing else 0,
        "tokens": tokens * _copies(plan) if "tokenize" in missing else 0,
    }
    return {what: int(n) for what, n in wants.items() if n}


def _copies(plan: Plan) -> float:
    """How many times the ids are written: in each layout, and again for each pass that a mix allows."""
    shares = plan.loaded.mix or {}
    return (1 + len(plan.loaded.corpus.tokenizer.formats)) * max([1, *(share.epochs for share in shares.values())])


def text_by_source(plan: Plan, store: Store) -> dict[str, int]:
    """Source id -> bytes of its text: counted where it was fetched, else by the sizes of its files."""
    return {step.source: _text_bytes(step.params, store, step.key) for step in plan.steps if step.stage.name == "fetch"}


def download(plan: Plan, store: Store) -> int:
    """Bytes that come over the network, as far as sizes are known."""
    return sum(_size(source) for source in _to_fetch(plan, store) if not is_local(source.url))


def has_unknown(plan: Plan, store: Store) -> bool:
    """Whether a source that has to be fetched says no size."""
    return any(_size(source) == 0 for source in _to_fetch(plan, store))


def _to_fetch(plan: Plan, store: Store) -> list[Source]:
    return [step.params for step in plan.steps if step.stage.name == "fetch" and not store.has("fetch", step.key)]


def check(plan: Plan, store: Store) -> None:
    """Refuse a build that cannot fit. ``DiskError`` says how much it needs, for what, and where."""
    wants = needed(plan, store)
    free = shutil.disk_usage(existing(store)).free
    if sum(wants.values()) > free:
        parts = ", ".join(f"{what} {size(n)}" for what, n in wants.items())
        raise DiskError(
            f"{plan.name} needs about {size(sum(wants.values()))} in {store.root} ({parts}) and {size(free)} are free: free some space or point "
            "--cache-dir at another disk, then run again (run.check_space = false builds all the same)"
        )


def _any(missing: Iterable[str], stages: tuple[str, ...]) -> bool:
    return any(label.startswith(stages) for label in missing)


def _text_bytes(source: Source, store: Store, key: Key) -> int:
    if store.has("fetch", key):
        return sum(t.also.get("text_bytes", 0) for t in store.contents("fetch", key).counts.values())
    packed = any((url or "").endswith(_COMPRESSED) for url in (source.url, *(f.url for f in source.files)))
    return int(_size(source) * (UNPACKED if packed else 1))


def _size(source: Source) -> int:
    """The bytes of a source's files, 0 where nothing says."""
    if source.files:
        return sum(f.size or 0 for f in source.files)
    if source.size is not None:
        return source.size
    path = local_path(source.url, source.root) if is_local(source.url) else ""
    return os.path.getsize(path) if os.path.isfile(path) else 0


def existing(store: Store) -> str:
    """The nearest folder that exists: the cache may still have to be made."""
    path = store.root.absolute()
    while not path.exists():
        path = path.parent
    return str(path)
