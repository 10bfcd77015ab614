"""What became of a document, looked up in the tables of the steps that decided: nothing here decides, and no text is read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpusbuild import binfile
from corpusbuild.arrow import read_table
from corpusbuild.errors import ConfigError, IntegrityError
from corpusbuild.parts import part_of, read_arrow
from corpusbuild.placement import part_name_of
from corpusbuild.publish import BuildRecord, read_record
from corpusbuild.stages.shard import MANIFEST
from corpusbuild.store import Store

TABLES = ("decontaminate", "scrub", "exact_dedup", "near_dedup")
"""The stages that remove documents after filter, in the order in which they decide."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Document:
    """A document as its source has it. ``row`` is its row in the documents of ``part``; None when it never became one, and then ``removed`` says why.

    ``id`` is None for what could not be read as a document at all.
    """

    source: int
    part: str
    id: str | None
    file: int
    place: str
    row: int | None
    removed: Row | None = None


@dataclass(frozen=True)
class Tokens:
    """Where ids of a document stand in a token file: ``length`` ids from id ``start``, a separator counted as the document's first.

    ``offset`` ids of the document come before them: none, unless the document was cut.
    """

    path: Path
    start: int
    length: int
    offset: int = 0


@dataclass(frozen=True)
class Where:
    """A document in the shards. ``values`` are its columns but for the text; ``row`` counts within the shard, ``corpus_row`` within the corpus."""

    path: Path
    row: int
    rows: int
    corpus_row: int
    values: Row
    tokens: tuple[Tokens, ...]
    """Several where it was cut, or drawn more than once; none where the mix does not draw it, or the build has no tokens."""
    favoured: tuple[Row, ...]
    """The removal rows of documents that went in its favour."""


@dataclass(frozen=True)
class Fate:
    """What became of a document: ``where`` it is in the shards, or the row that ``removed`` it and the fate of the document it went in favour of.

    ``cuts`` are its paragraphs that were left out, ``spans`` what was replaced in the others.
    """

    document: Document
    removed: Row | None = None
    survivor: "Fate | None" = None
    where: Where | None = None
    cuts: tuple[Row, ...] = ()
    spans: tuple[Row, ...] = ()

    @property
    def end(self) -> "Fate":
        """The last of the chain of survivors: a document that is in the shards, or one that went for no other's sake."""
        return self.survivor.end if self.survivor else self


class Built:
    """A build as it was last recorded, and its entries."""

    def __init__(self, record: BuildRecord, store: Store):
        self.record, self.store = record, store

    @cached_property
    def sources(self) -> list[Row]:
        """The sources in plan order, as shard took them: ``id``, ``urls``, ``license_spdx``, ``named``."""
        step = self.record.step("shard")
        return list(step.params["sources"]) if step else []

    def index(self, source: str) -> int | None:
        return next((i for i, s in enumerate(self.sources) if s["id"] == source), None)

    def entry(self, label: str) -> Path | None:
        """The folder of a step's entry; None when the build has no such step. ``IntegrityError`` when it is not in the store."""
        step = self.record.step(label)
        if step is None:
            return None
        if not self.store.has(step.stage, step.key):
            path = self.store.path(step.stage, step.key)
            raise IntegrityError(f"{path}, the {label} of build:{self.record.name}, is gone: run doit build:{self.record.name}")
        return self.store.path(step.stage, step.key)

    def of_source(self, stage: str, source: int) -> Path | None:
        return self.entry(f"{stage}:{self.sources[source]['id']}")

    def parts(self, source: int) -> list[str]:
        filtered = self.of_source("filter", source)
        return sorted(part_of(path) for path in filtered.glob("*.docs.arrow")) if filtered else []

    def table(self, stage: str, source: int, part: str, suffix: str = ".removed.parquet") -> Path | None:
        """The table of a stage that speaks of one part; None when the build has no such stage."""
        if stage in ("exact_dedup", "near_dedup"):
            entry = self.entry(stage)
            return entry / f"{part_name_of(source, part)}{suffix}" if entry else None
        entry = self.of_source(stage, source)
        return entry / f"{part}{suffix}" if entry else None

    @property
    def packed(self) -> bool:
        """Whether its token files hold padding."""
        step = self.record.step("tokenize")
        return step is not None and step.params.get("packing") is not None

    @property
    def mixed(self) -> bool:
        """Whether documents may be in the shards and not among the tokens."""
        step = self.record.step("tokenize")
        return step is not None and step.params.get("mix") is not None

    def shown(self, entry: Path, name: str) -> Path:
        """A file of the corpus or the tokens under its readable name, while that stands for the entry."""
        record = self.record
        links = [self.store.root / "corpus" / record.dataset / record.version]
        links += [self.store.root / "tokens" / record.tokenizer / record.dataset] if record.tokenizer else []
        return next((link / name for link in links if link.is_symlink() and link.resolve() == entry.resolve()), entry / name)


def recorded(store: Store, name: str | None = None) -> list[Built]:
    """The builds that were finished in a cache, by name; only ``name``, when it is given. ``ConfigError`` when there is none."""
    names = [name] if name else sorted(path.stem for path in (store.root / "builds").glob("*.json"))
    found = [Built(record, store) for n in names if (record := read_record(store, n)) is not None]
    if not found:
        raise ConfigError(
            f"build:{name} was not built in {store.root}: run doit build:{name}"
            if name
            else f"nothing was built in {store.root} yet: run doit build:NAME, or name its --cache-dir"
        )
    return found


def by_id(built: Built, id: str) -> Document | None:
    """The document of this id, ``<source>:<number or name>``."""
    source = built.index(id.partition(":")[0])
    return _find(built, source, {"id": id}) if source is not None else None


def by_place(built: Built, place: str) -> list[Document]:
    """The documents at ``<url>#<line>``: of each source that has a file of this URL (or one that ends so), the one that begins there."""
    found = []
    for source, declared in enumerate(built.sources):
        for file, url in enumerate(declared["urls"]):
            at = _fragment(place, url)
            document = _find(built, source, {"file": file, "place": at}) if at is not None else None
            found += [document] if document else []
    return found


def before(built: Built, place: str) -> list[Document]:
    """The last documents that begin before ``<url>#<line>``, where none begins at that line."""
    found = []
    for source, declared in enumerate(built.sources):
        for file, url in enumerate(declared["urls"]):
            at = _fragment(place, url)
            if at is not None and at.isdecimal():
                best = max(_starts(built, source, file, int(at)), default=None)
                document = _find(built, source, {"file": file, "place": str(best)}) if best is not None else None
                found += [document] if document else []
    return found


def by_token(built: Built, file: str, offset: int) -> tuple[Document, Tokens] | None:
    """The document that the id ``offset`` of a token file belongs to; None when the build has no such file.

    ``ConfigError`` for an offset that the file does not have.
    """
    entry = built.entry("tokenize")
    if entry is None or not (entry / file).exists():
        return None
    header, _ = binfile.read(entry / file)
    if not 0 <= offset < header.n_tokens:
        raise ConfigError(
            f"{file} of build:{built.record.name} has {header.n_tokens:,} ids, so offsets 0 to {header.n_tokens - 1}, not {offset}"
        )
    for group, index in _groups(entry / "index.parquet"):
        names = index.metadata.row_group(group).column(0).statistics
        if names is not None and not names.min <= file <= names.max:
            continue
        table = _runs_of(index, group)
        starts = table.column("start").to_numpy()
        here = np.flatnonzero(pc.equal(table.column("file"), file).to_numpy() & (starts <= offset))
        if len(here) and offset < starts[here[-1]] + table.column("length")[int(here[-1])].as_py():
            row = int(here[-1])
            id = index.read_row_group(group, ["id"]).column("id")[row].as_py()
            document = by_id(built, id)
            if document is None:
                raise IntegrityError(f"{entry / 'index.parquet'} names {id}, which no source has: delete {entry} and build again")
            length, before = (table.column(name)[row].as_py() for name in ("length", "offset"))
            return document, Tokens(built.shown(entry, file), int(starts[row]), length, before)
    if built.packed:
        raise ConfigError(f"{file}@{offset} of build:{built.record.name} is padding, behind the last document of its sequence")
    raise IntegrityError(f"{entry / 'index.parquet'} has no document for id {offset} of {file}: delete {entry} and build again")


def fate(built: Built, document: Document) -> Fate:
    """What became of a document. Follows survivors through to one that is in the shards."""
    if document.removed is not None or document.row is None:
        return Fate(document, document.removed)
    for stage in TABLES:
        removed = _row(built.table(stage, document.source, document.part), document.row)
        if removed is not None:
            survivor = by_id(built, removed["survivor"]) if removed["survivor"] else None
            return Fate(document, removed, fate(built, survivor) if survivor else None)
    cuts = _rows(built.table("exact_dedup", document.source, document.part, ".cuts.parquet"), document.row)
    spans = _rows(built.table("scrub", document.source, document.part, ".spans.parquet"), document.row)
    left = [span for span in spans if not any(cut["start"] <= span["start"] < cut["end"] for cut in cuts)]
    return Fate(document, where=_where(built, document), cuts=tuple(cuts), spans=tuple(left))


def _where(built: Built, document: Document) -> Where:
    entry = built.entry("ledger")
    assert entry is not None
    assert document.row is not None
    at = _kept_before(built, document.source, document.part, document.row)
    first = 0
    for shard in msgspec.json.decode((entry / MANIFEST).read_bytes())["shards"]:
        if at < first + shard["rows"]:
            break
        first += shard["rows"]
    path = entry / shard["name"]
    values = _shard_row(path, at - first)
    if values["id"] != document.id:
        raise IntegrityError(f"{path} has {values['id']} where {document.id} belongs: run doit verify {built.record.name} --deep")
    return Where(
        path=built.shown(entry, shard["name"]),
        row=at - first,
        rows=shard["rows"],
        corpus_row=at,
        values=values,
        tokens=tuple(_tokens(built, values["id"])),
        favoured=tuple(_favoured(built, values["id"])),
    )


def _kept_before(built: Built, source: int, part: str, row: int) -> int:
    """How many documents of the corpus come before this one in plan order."""
    shard = built.record.step("shard")
    kept = sum(shard.counts[s["id"]].kept for s in built.sources[:source]) if shard else 0
    for other in built.parts(source):
        tables = [table for stage in TABLES if (table := built.table(stage, source, other)) is not None]
        if other == part:
            gone = [read_table(table, ["row"]).column("row").to_numpy() for table in tables]
            return kept + row - sum(int(np.count_nonzero(rows < row)) for rows in gone)
        kept += len(_documents(built, source, other, ["file"])) - sum(pq.read_metadata(table).num_rows for table in tables)
    raise IntegrityError(f"{part} is no part of {built.sources[source]['id']}: run doit verify {built.record.name}")


def _shard_row(path: Path, row: int) -> Row:
    """The columns of one row of a shard, without its text."""
    first = 0
    for group, file in _groups(path):
        n = file.metadata.row_group(group).num_rows
        if row < first + n:
            columns = [name for name in file.schema_arrow.names if name != "text"]
            values: Row = file.read_row_group(group, columns).slice(row - first, 1).to_pylist()[0]
            return values
        first += n
    raise IntegrityError(f"{path} has {first} rows, fewer than its manifest says: run doit verify")


def _tokens(built: Built, id: str) -> Iterator[Tokens]:
    entry = built.entry("tokenize")
    if entry is None:
        return
    for group, index in _groups(entry / "index.parquet"):
        here = np.flatnonzero(pc.equal(index.read_row_group(group, ["id"]).column("id"), id).to_numpy())
        for found in _runs_of(index, group).take(here).to_pylist() if len(here) else ():
            yield Tokens(built.shown(entry, found["file"]), found["start"], found["length"], found["offset"])


def _favoured(built: Built, id: str) -> Iterator[Row]:
    for stage in ("exact_dedup", "near_dedup"):
        entry = built.entry(stage)
        for path in sorted(entry.glob("*.removed.parquet")) if entry else ():
            where = np.flatnonzero(pc.equal(read_table(path, ["survivor"]).column("survivor"), id).fill_null(False).to_numpy())
            if len(where):
                yield from read_table(path).take(pa.array(where)).to_pylist()


def _find(built: Built, source: int, wanted: Mapping[str, Any]) -> Document | None:
    """The document of a source whose columns have the wanted values, kept or removed by filter or by the reading of its file."""
    name, columns = built.sources[source]["id"], [*wanted]
    for part in built.parts(source):
        row = _index(_documents(built, source, part, columns), wanted)
        if row is not None:
            values = _documents(built, source, part, ["id", "file", "place"]).slice(row, 1).to_pylist()[0]
            return Document(source=source, part=part, row=row, **values)
        for stage in ("filter", "fetch"):
            path = built.table(stage, source, part)
            if path is None or not path.exists():
                continue
            row = _index(read_table(path, columns), wanted)
            if row is not None:
                removed = read_table(path).slice(row, 1).to_pylist()[0] | {"source": name}
                return Document(source, part, removed["id"], removed["file"], removed["place"], None, removed)
    return None


def _documents(built: Built, source: int, part: str, columns: Sequence[str]) -> pa.Table:
    filtered = built.of_source("filter", source)
    assert filtered is not None
    return read_arrow(filtered / f"{part}.docs.arrow", columns)


def _index(table: pa.Table, wanted: Mapping[str, Any]) -> int | None:
    """The first row that has all of the wanted values."""
    (name, value), *more = wanted.items()
    if not more:
        row = pc.index(table.column(name), pa.scalar(value, table.column(name).type)).as_py()
    else:
        here = np.ones(len(table), np.bool_)
        for name, value in wanted.items():
            here &= pc.equal(table.column(name), value).fill_null(False).to_numpy()
        row = int(np.argmax(here)) if here.any() else -1
    return row if row >= 0 else None


def _starts(built: Built, source: int, file: int, line: int) -> Iterator[int]:
    """The last line up to ``line`` at which a document of a file begins, by part."""
    for part in built.parts(source):
        tables = [_documents(built, source, part, ["file", "place"])]
        removed = built.table("filter", source, part)
        tables += [read_table(removed, ["file", "place"])] if removed else []
        for table in tables:
            places = table.filter(pc.equal(table.column("file"), file)).column("place")
            if len(places) and pc.all(pc.utf8_is_decimal(places)).as_py():
                lines = pc.cast(places, pa.int64()).to_numpy()
                yield from [int(lines[lines <= line].max())] if (lines <= line).any() else []


def _row(table: Path | None, row: int) -> Row | None:
    found = _rows(table, row)
    return found[0] if found else None


def _rows(table: Path | None, row: int) -> list[Row]:
    """What a table says of a document, by its row."""
    if table is None:
        return []
    where = np.flatnonzero(pc.equal(read_table(table, ["row"]).column("row"), row).fill_null(False).to_numpy())
    found: list[Row] = read_table(table).take(pa.array(where)).to_pylist() if len(where) else []
    return found


def _runs_of(index: pq.ParquetFile, group: int) -> pa.Table:
    """Where the runs of a row group stand. An index from before documents could be cut has no offsets: each was whole."""
    names = ["file", "start", "length", "offset"]
    table = index.read_row_group(group, [name for name in names if name in index.schema_arrow.names])
    return table if "offset" in table.column_names else table.append_column("offset", pa.array(np.zeros(len(table), np.int64)))


def _groups(path: Path) -> Iterator[tuple[int, pq.ParquetFile]]:
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            yield group, file


def _fragment(place: str, url: str) -> str | None:
    """What follows ``#`` when the part of ``place`` before it is ``url``, or the end of it from a slash on.

    >>> _fragment("a/b.txt#7", "https://example.org/a/b.txt"), _fragment("xb.txt#7", "b.txt")
    ('7', None)
    """
    given, sharp, at = place.rpartition("#")
    if place.startswith(f"{url}#"):
        return place[len(url) + 1 :]
    return at if sharp and given and (f"/{url}".endswith(f"/{given}") or f"/{given}".endswith(f"/{url}")) else None
