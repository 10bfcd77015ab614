"""Two versions of a corpus: what of the configuration differs, which documents came, went or changed, by source and reason, and the tokens.

A version is named by a build (what was last built under its name), by the folder of a corpus, by a lock or by a configuration; the first says most, as it
has the tables of the steps that removed documents. Documents are the same when their ids are, and changed when their texts differ.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import tomlkit

from corpusbuild.arrow import read_table
from corpusbuild.errors import ConfigError
from corpusbuild.explain import TABLES, Built
from corpusbuild.lock import Lock, read_lock
from corpusbuild.publish import changes, read_record
from corpusbuild.stages.shard import MANIFEST
from corpusbuild.store import Store


@dataclass(frozen=True)
class Version:
    """One side: what it is called, and as much of it as is known."""

    name: str
    config: dict[str, Any] | None = None
    steps: dict[str, str] | None = None
    """Label -> key."""
    shards: tuple[Path, ...] | None = None
    tokens: dict[str, int] | None = None
    """Source -> ids."""
    built: Built | None = None


@dataclass
class Change:
    """The documents of one source: how many were, are, came, went and have another text; and the ids in each."""

    before: int = 0
    after: int = 0
    added: int = 0
    removed: int = 0
    changed: int = 0
    tokens_before: int | None = None
    tokens_after: int | None = None


@dataclass
class Difference:
    """``fields`` and ``steps`` are (name, in A, in B). ``gone`` and ``come`` are reason -> source -> documents: why B has not what A has, why A had not
    what B has. ``comparable`` says whether documents could be compared."""

    fields: list[tuple[str, Any, Any]] = field(default_factory=list)
    steps: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    sources: dict[str, Change] = field(default_factory=dict)
    gone: dict[str, dict[str, int]] = field(default_factory=dict)
    come: dict[str, dict[str, int]] = field(default_factory=dict)
    comparable: bool = True


def version(what: str, store: Store) -> Version:
    """The version that ``what`` names. ``ConfigError`` when it names none."""
    path, name = Path(what), what.removeprefix("build:")
    if path.is_dir():
        if not (path / MANIFEST).exists():
            raise ConfigError(f"{path} holds no {MANIFEST}, so it is no corpus: name the folder of its shards")
        return Version(what, shards=_shards(path))
    if path.suffix == ".lock" and path.exists():
        lock = read_lock(path)
        assert isinstance(lock, Lock)
        return Version(what, steps=dict(lock.steps))
    if path.suffix == ".toml" and path.exists():
        try:
            decoded = tomlkit.parse(path.read_text(encoding="utf-8")).unwrap()
        except (ValueError, tomlkit.exceptions.TOMLKitError) as error:
            raise ConfigError(f"{path}: {error}") from None
        return Version(what, config={name: value for name, value in decoded.items() if name != "run"})
    record = read_record(store, name)
    if record is None:
        raise ConfigError(
            f"{what} is no folder, lock or configuration, and no build of that name is in {store.root}: doit list shows builds"
        )
    built, tokenize = Built(record, store), record.step("tokenize")
    corpus = built.entry("ledger")
    tokens = (
        {source: sum(v for k, v in t.also.items() if k.endswith("_tokens")) for source, t in tokenize.counts.items()} if tokenize else None
    )
    return Version(
        f"{record.dataset} {record.version} ({record.id})",
        config=record.config,
        steps={step.label: step.key for step in record.steps},
        shards=_shards(corpus) if corpus else None,
        tokens=tokens,
        built=built,
    )


def compare(a: Version, b: Version) -> Difference:
    """What B is otherwise than A. Ids and digests of both are held in memory, about 100 bytes a document."""
    found = Difference(comparable=a.shards is not None and b.shards is not None)
    if a.config is not None and b.config is not None:
        found.fields = [(name, old, new) for name, old, new in changes(*_aligned(a.config, b.config), "") if old != new]
    if a.steps is not None and b.steps is not None:
        labels = [*a.steps, *(label for label in b.steps if label not in a.steps)]
        found.steps = [(s, a.steps.get(s), b.steps.get(s)) for s in labels if a.steps.get(s) != b.steps.get(s)]
    if a.shards is not None and b.shards is not None:
        _documents(a, b, found)
    return found


def _documents(a: Version, b: Version, found: Difference) -> None:
    old, new = _rows(a), _rows(b)
    for source, n in [*_counted(old["source_id"]), *((s, 0) for s, _ in _counted(new["source_id"]))]:
        found.sources.setdefault(source, Change()).before += n
    for source, n in _counted(new["source_id"]):
        found.sources[source].after = n
    gone = old.join(new.select(["id"]), "id", join_type="left anti")
    come = new.join(old.select(["id"]), "id", join_type="left anti")
    both = old.join(new, "id", right_suffix="_b", join_type="inner")
    changed = both.filter(pc.not_equal(both["sha256"], both["sha256_b"]))
    for table, name in ((gone, "removed"), (come, "added"), (changed, "changed")):
        for source, n in _counted(table["source_id"]):
            setattr(found.sources[source], name, n)
    found.gone = _why(gone, b.built)
    found.come = _why(come, a.built)
    for side, name in ((a, "tokens_before"), (b, "tokens_after")):
        for source, n in (side.tokens or {}).items():
            if source in found.sources:
                setattr(found.sources[source], name, n)


def _why(documents: pa.Table, built: Built | None) -> dict[str, dict[str, int]]:
    """Reason -> source -> how many of ``documents`` the other version has not for that reason."""
    if built is None or not len(documents):
        return {}
    reasons: dict[str, dict[str, int]] = {}
    left = documents.select(["id", "source_id"])
    for table in _removals(built):
        met = left.join(table, "id", join_type="inner")
        for (source, stage, rule), n in _groups(met, ["source_id", "stage", "rule"]):
            by = reasons.setdefault(f"{stage}.{rule}", {})
            by[source] = by.get(source, 0) + n
        left = left.join(table.select(["id"]), "id", join_type="left anti")
    for source, n in _counted(left["source_id"]):
        reasons.setdefault("not in its source", {})[source] = n
    return reasons


def _removals(built: Built) -> Iterator[pa.Table]:
    """The tables of every step that removed documents, in the order in which they decide."""
    for stage in ("filter", *TABLES):
        for i in range(len(built.sources)):
            for part in built.parts(i):
                path = built.table(stage, i, part)
                if path is not None and path.exists():
                    table = read_table(path, columns=["id", "stage", "rule"])
                    yield table.filter(pc.is_valid(table["id"]))


def _rows(side: Version) -> pa.Table:
    assert side.shards is not None
    empty = pa.schema([("id", pa.string()), ("source_id", pa.string()), ("sha256", pa.binary())])
    tables = [read_table(path, columns=empty.names).cast(empty) for path in side.shards]
    return pa.concat_tables([empty.empty_table(), *tables])


def _counted(column: pa.ChunkedArray) -> list[tuple[str, int]]:
    return [(row["values"], row["counts"]) for row in pc.value_counts(column).to_pylist()]


def _groups(table: pa.Table, names: list[str]) -> list[tuple[tuple[str, ...], int]]:
    grouped = table.group_by(names).aggregate([([], "count_all")])
    return [(tuple(row[name] for name in names), row["count_all"]) for row in grouped.to_pylist()]


def _shards(folder: Path) -> tuple[Path, ...]:
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes())
    return tuple(folder / shard["name"] for shard in manifest["shards"])


def _aligned(a: dict[str, Any], b: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two configurations whose sources are told apart by their ids, not by their places, and whose tables are in both, so that it is fields that differ."""
    one, other = ({"sources": {s.get("id", str(i)): s for i, s in enumerate(c.get("sources", []))}} for c in (a, b))
    return _filled(a | one, b), _filled(b | other, a)


def _filled(config: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {name: {} for name, value in other.items() if isinstance(value, dict)} | config
