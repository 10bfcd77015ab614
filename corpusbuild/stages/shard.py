"""Shard: documents and every decision about them to the shards of the corpus and their manifest."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from blake3 import blake3
from msgspec import Meta
from numpy.typing import NDArray

from corpusbuild import pii, spool
from corpusbuild.arrow import read_table
from corpusbuild.errors import StageError
from corpusbuild.hashing import file_sha256
from corpusbuild.minhash import halves
from corpusbuild.model import Counts, Record, Tally, add_counts, total
from corpusbuild.parts import part_of, read_arrow
from corpusbuild.placement import part_name_of
from corpusbuild.rowdigest import row_digests, rows_digest
from corpusbuild.stage import Input, Job, Out, Stage, Task
from corpusbuild.texts import I64, Cuts, NothingLeftError, Spans, effective_texts, texts_of

MANIFEST = "_MANIFEST.json"
MANIFEST_SHA256 = f"{MANIFEST}.sha256"
DIGESTS = ".digests"  # of the rows of one shard, in scratch

SHARD = pa.schema(
    [
        ("id", pa.string()),
        ("text", pa.string()),
        ("source_id", pa.string()),
        ("url", pa.string()),  # <source file's url>#<place>
        ("license_spdx", pa.string()),
        ("lang", pa.string()),
        ("n_chars", pa.int32()),  # code points of text
        ("sha256", pa.binary()),  # of the UTF-8 text; 32 bytes (readers choke on fixed-size binary)
        ("minhash_cluster", pa.int64()),  # smallest row of the corpus in the document's cluster of near duplicates, often its own
        ("pii_redactions", pa.int32()),  # placeholders set
        ("split", pa.string()),  # train or val
    ]
)


class Sharding(Record):
    shard_rows: Annotated[int, Meta(ge=1, description="Documents a shard file holds at most.")]
    val_permille: Annotated[
        int, Meta(ge=0, le=1000, description="Share of documents for validation, by the hash of their text, in thousandths.")
    ] = 5
    row_group_bytes: Annotated[
        int, Meta(ge=1, le=64 << 20, description="UTF-8 text bytes a row group holds at most; a longer document stands alone.")
    ] = 64 << 20
    compression: Annotated[
        Literal["zstd", "snappy", "gzip", "none"], Meta(description="Of the Parquet files. It changes the files and no row.")
    ] = "zstd"


class ShardSource(Record):
    id: str
    urls: tuple[str, ...]
    """One a file of the source, as configured."""
    license_spdx: str
    keep: tuple[str, ...] = ()
    named: bool = False
    """Whether document ids come from the source, so that they might repeat."""
    allow_empty: bool = False
    """Whether it is fine that no document of it is left."""


class Params(Record):
    dataset: str
    version: str
    sharding: Sharding
    sources: tuple[ShardSource, ...]
    dedup: dict[str, float]
    """What the manifest says of the deduplication: threshold, permutations, bands, n-gram."""
    pii: tuple[str, ...] = pii.KINDS
    """The kinds of personal data that the manifest counts."""


class Slice(Record):
    """Kept rows ``skip`` to ``skip + take`` of one part, with the tables that speak of it."""

    source: int
    documents: str
    removed: tuple[str, ...]
    cuts: str | None
    spans: str | None
    skip: int
    take: int


class Spread(Record):
    """Names of documents, or of their clusters, in scratch files: by partition of their digests, and what was found of each partition."""

    scratch: str
    bits: int

    def file(self, kind: str, index: int) -> Path:
        return Path(self.scratch, f"{kind}-{index:05d}")


class Shard(Task):
    index: int
    first: int
    """Row of the corpus that the shard begins with."""
    slices: tuple[Slice, ...]
    clusters: Spread | None
    params: Params


class Part(Record):
    """One part of a source as the shards see it."""

    source: int
    documents: str
    removed: tuple[str, ...]
    cuts: str | None
    spans: str | None
    clusters: str | None
    rows: int


class Names(Task):
    """To spread the names of clusters that kept documents of a part are in, or the ids of all its documents, counted from ``first``."""

    part: Part
    first: int
    bits: int


class Partition(Task):
    """To compare the names of one partition, which ``parts`` parts have."""

    index: int
    parts: int
    shard_rows: int
    spread: Spread


NAME = np.dtype([("hi", "<u8"), ("lo", "<u8"), ("row", "<i8")])  # the digest of a name, and the row that has it
FOLLOWER = np.dtype([("row", "<i8"), ("first", "<i8")])
WORKING_BYTES = 4 * NAME.itemsize  # that a name takes while they are sorted


def build(job: Job) -> Counts:
    params: Params = job.params
    parts = list(_parts(job))
    _refuse_repeated_ids(job, parts)
    _refuse_emptied(job, params)
    kept = [len(_kept(part.removed, part.rows)) for part in parts]
    size, n_docs = params.sharding.shard_rows, sum(kept)
    n_shards = max(1, -(-n_docs // size))
    clusters = _clusters(job, parts, kept)
    tasks = [
        Shard(
            name=f"shard-{i:05d}-of-{n_shards:05d}",
            index=i,
            first=i * size,
            slices=tuple(_slices(parts, kept, i * size, min((i + 1) * size, n_docs))),
            clusters=clusters,
            params=params,
        )
        for i in range(n_shards)
    ]
    values = job.map(write_shard, tasks)
    job.put(MANIFEST, _manifest(job, params, tasks, values, n_docs))
    counts = {s.id: Tally() for s in params.sources}
    for value in values:
        counts = add_counts([counts, {name: Tally(**tally) for name, tally in value["sources"].items()}])
    return counts


def write_shard(task: Shard, out: Out) -> Any:
    """Write one shard, a row group at a time, and say what is in it."""
    params = task.params
    schema = _schema(params)
    path = out.path(".parquet")
    tallies: dict[str, Tally] = {}
    first_of = _first_of_cluster(task)
    row = task.first
    with pq.ParquetWriter(path, schema, compression=params.sharding.compression) as writer, out.scratch(DIGESTS).open("wb") as digests:

        def end_group(pieces: list[pa.Table]) -> None:
            table = pa.concat_tables([schema.empty_table(), *pieces]).combine_chunks()
            writer.write_table(table, row_group_size=max(1, len(table)))
            digests.write(row_digests(table))

        group: list[pa.Table] = []
        group_bytes = 0
        for part in task.slices:
            documents = _documents(part, params)
            source = params.sources[part.source].id
            tallies[source] = tallies.get(source, Tally()).plus(_tally(documents, params))
            table = documents.table.append_column("minhash_cluster", pa.array(first_of[row - task.first :][: part.take])).select(
                schema.names
            )
            row += part.take
            at, ends = 0, np.cumsum(documents.sizes)
            while at < part.take:
                before = int(ends[at - 1]) if at else 0
                until = int(np.searchsorted(ends, before + params.sharding.row_group_bytes - group_bytes, side="right"))
                until = max(until, at if group else at + 1)
                group.append(table.slice(at, until - at).cast(schema))
                group_bytes += int(ends[until - 1]) - before if until else 0
                at = until
                if at < part.take:
                    end_group(group)
                    group, group_bytes = [], 0
        end_group(group)
    return {
        "sha256": file_sha256(path),
        "rows": sum(t.kept for t in tallies.values()),
        "text_bytes": sum(t.also["text_bytes"] for t in tallies.values()),
        "pii": {kind: sum(t.also[kind] for t in tallies.values()) for kind in params.pii},
        "sources": {name: {"docs_in": t.docs_in, "kept": t.kept, "also": t.also} for name, t in tallies.items()},
    }


class Documents(NamedTuple):
    """Some documents of one source as the shards hold them: the columns but for the cluster, the bytes of each text, and how many pieces of
    personal data of each kind are replaced."""

    table: pa.Table
    sizes: NDArray[np.int64]
    redactions: dict[str, int]


def _tally(documents: Documents, params: Params) -> Tally:
    import pyarrow.compute as pc  # which every command would pay for

    n, splits = len(documents.sizes), documents.table.column("split")
    val = int(pc.sum(pc.equal(splits, "val")).as_py())
    counts = sorted({"train": n - val, "val": val}.items(), key=lambda item: item[0] != splits[0].as_py())
    (first, _), *others = counts  # in the order in which they would have been counted
    also = {"text_bytes": int(documents.sizes.sum()), first: counts[0][1], **{kind: documents.redactions[kind] for kind in params.pii}}
    return Tally(docs_in=n, kept=n, also=also | {split: count for split, count in others if count})


def _documents(part: Slice, params: Params) -> Documents:
    import pyarrow.compute as pc  # which every command would pay for

    source = params.sources[part.source]
    table = read_arrow(Path(part.documents))
    rows = _kept(part.removed, len(table))[part.skip : part.skip + part.take]
    cuts, spans = _cuts(part.cuts), _spans(part.spans)
    (all_texts,) = texts_of(pa.chunked_array([table.column("text").combine_chunks()]))
    table = table.drop_columns(["text"])
    try:
        data, offsets = effective_texts(all_texts, rows, cuts, spans, [pii.PLACEHOLDERS[kind] for kind in pii.ALL_KINDS])
    except NothingLeftError as e:
        id = table.column("id")[e.row].as_py()
        raise StageError("shard", id, "every paragraph is cut but no decision removes the document") from None
    table = table.take(pa.array(rows))
    redacted, redactions = _redactions(rows, cuts, spans, params)
    view = data.data
    sha256 = b"".join([hashlib.sha256(view[start:end]).digest() for start, end in pairwise(offsets.tolist())])
    n = len(rows)
    texts = pa.Array.from_buffers(pa.large_string(), n, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    in_val = np.frombuffer(sha256, ">u8")[::4] % 1000 < params.sharding.val_permille  # as text.split_of
    files = pa.array(source.urls, pa.string()).take(table.column("file").combine_chunks())
    columns = {
        "id": table.column("id"),
        "text": texts,
        "source_id": pa.repeat(source.id, n),
        "url": pc.binary_join_element_wise(files, table.column("place").combine_chunks(), "#"),
        "license_spdx": pa.repeat(source.license_spdx, n),
        "lang": table.column("lang"),
        "n_chars": pc.utf8_length(texts),
        "sha256": pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(np.arange(n + 1, dtype=np.int32) * 32), pa.py_buffer(sha256)]),
        "pii_redactions": redacted,
        "split": pa.DictionaryArray.from_arrays(in_val.astype(np.int32), ["train", "val"]).cast(pa.string()),
    }
    return Documents(pa.table(columns | _kept_columns(table, source, params)), np.diff(offsets), redactions)


def _kept_columns(table: pa.Table, source: ShardSource, params: Params) -> dict[str, pa.Array]:
    """The further columns: what the source keeps of its own, as text, and null for what other sources keep."""
    names = _further(params)
    if not source.keep:
        return {name: pa.nulls(len(table), pa.string()) for name in names}
    known = [msgspec.json.decode(meta) if meta else {} for meta in table.column("meta").to_pylist()]
    values = {name: [None if meta.get(name) is None else str(meta[name]) for meta in known] for name in source.keep}
    return {name: pa.array(values.get(name, [None] * len(table)), pa.string()) for name in names}


def _cuts(path: str | None) -> Cuts:
    return Cuts(*_marks(path, ["row", "paragraph", "start", "end"]))


def _spans(path: str | None) -> Spans:
    return Spans(*_marks(path, ["row", "start", "end", "kind"]))


def _marks(path: str | None, names: list[str]) -> list[I64]:
    """Columns of a table that says something about places of texts, by row of the part; a kind as its index."""
    if path is None:
        return list(np.empty((len(names), 0), np.int64))
    table = read_table(path, columns=names)
    order = np.argsort(table.column("row").to_numpy(), kind="stable")
    return [_numbers(path, table.column(name)).astype(np.int64)[order] for name in names]


def _numbers(path: str, column: pa.ChunkedArray) -> NDArray[Any]:
    import pyarrow.compute as pc  # which every command would pay for

    if pa.types.is_integer(column.type):
        return np.asarray(column.to_numpy())
    kinds = pc.index_in(column, pa.array(pii.ALL_KINDS))
    if kinds.null_count:
        raise StageError("shard", Path(path).name, "it has a kind of personal data that is not known; run the stage scrub again")
    return np.asarray(kinds.to_numpy())


def _redactions(rows: I64, cuts: Cuts, spans: Spans, params: Params) -> tuple[NDArray[np.int32], dict[str, int]]:
    """How many pieces of personal data are replaced in each text, and how many of each kind. What is cut is not replaced."""
    cut = _places(cuts.rows, cuts.starts)
    order = np.argsort(cut, kind="stable")
    at = np.searchsorted(cut[order], _places(spans.rows, spans.starts), side="right") - 1
    gone = at >= 0
    last = order[at[gone]]
    gone[gone] = (cuts.rows[last] == spans.rows[gone]) & (spans.starts[gone] < cuts.ends[last])
    counted = ~gone & np.isin(spans.rows, rows)
    kinds = np.bincount(spans.words[counted], minlength=len(pii.ALL_KINDS)).tolist()
    redacted = np.bincount(np.searchsorted(rows, spans.rows[counted]), minlength=len(rows)).astype(np.int32)
    return redacted, {kind: kinds[pii.ALL_KINDS.index(kind)] for kind in params.pii}


def _places(rows: I64, points: I64) -> I64:
    """Numbers that are in the order of rows and code points; no text has 2**40 of these."""
    return rows << 40 | points


def _kept(removed: Sequence[str], rows: int) -> NDArray[np.int64]:
    """The rows of a part that no table removes."""
    stays = np.ones(rows, np.bool_)
    for path in removed:
        stays[read_table(path, columns=["row"]).column("row").drop_null().to_numpy()] = False
    return np.flatnonzero(stays)


def _schema(params: Params) -> pa.Schema:
    return pa.schema([*SHARD, *((name, pa.string()) for name in _further(params))])


def _further(params: Params) -> list[str]:
    return sorted({name for source in params.sources for name in source.keep})


def _parts(job: Job) -> Iterator[Part]:
    """Every part in plan order, with what later stages said of it."""
    merged = [entry for role in ("exact", "near") for entry in job.inputs.get(role, ())]
    scrubbed = {entry.source: entry for entry in job.inputs.get("scrub", ())}
    for index, entry in enumerate(job.inputs["documents"]):
        own = [e for role in ("decontaminate", "scrub") for e in job.inputs.get(role, ()) if e.source == entry.source]
        for path in entry.files(".docs.arrow"):
            part, place = part_of(path), part_name_of(index, part_of(path))
            removed = [e.path / f"{part}.removed.parquet" for e in own] + [e.path / f"{place}.removed.parquet" for e in merged]
            yield Part(
                source=index,
                documents=str(path),
                removed=tuple(map(str, removed)),
                cuts=_file(job.inputs.get("exact", ()), f"{place}.cuts.parquet"),
                clusters=_file(job.inputs.get("near", ()), f"{place}.clusters.parquet"),
                spans=_file([scrubbed[entry.source]] if entry.source in scrubbed else (), f"{part}.spans.parquet"),
                rows=_rows(path),
            )


def _file(entries: "tuple[Input, ...] | list[Input]", name: str) -> str | None:
    return str(entries[0].path / name) if entries else None


def _rows(path: Path) -> int:
    return len(read_arrow(path, ["file"]))


def _slices(parts: list[Part], kept: list[int], first: int, last: int) -> Iterator[Slice]:
    at = 0
    for part, n in zip(parts, kept, strict=True):
        begin, end = max(first, at), min(last, at + n)
        if begin < end:
            yield Slice(
                source=part.source,
                documents=part.documents,
                removed=part.removed,
                cuts=part.cuts,
                spans=part.spans,
                skip=begin - at,
                take=end - begin,
            )
        at += n


def _clusters(job: Job, parts: list[Part], kept: list[int]) -> Spread | None:
    """Find the kept documents that share a cluster with an earlier kept one."""
    if not job.inputs.get("near"):
        return None
    spread = _spread(job, spread_clusters, "cluster", parts, kept)
    job.map(find_followers, _partitions(job, spread, "followers", len(parts)))
    return spread


def _refuse_repeated_ids(job: Job, parts: list[Part]) -> None:
    """Ids that the source itself gives may repeat; the others cannot."""
    named = [part for part in parts if job.params.sources[part.source].named]
    if not named:
        return
    spread = _spread(job, spread_ids, "id", named, [part.rows for part in named])
    repeated = [row for row in job.map(find_repeated, _partitions(job, spread, "repeated", len(named))) if row is not None]
    if repeated:
        row = min(repeated)
        for part in named:
            if row < part.rows:
                id = read_arrow(Path(part.documents), ["id"]).column("id")[row].as_py()
                raise StageError("shard", id, "two documents have this id: name another id_field, or leave it out to number them")
            row -= part.rows


def _spread(job: Job, fn: Callable[[Names, Out], None], kind: str, parts: list[Part], rows: list[int]) -> Spread:
    spread = Spread(scratch=str(job.scratch), bits=spool.partition_bits(sum(rows), WORKING_BYTES, job.memory))
    firsts = np.cumsum([0, *rows]).tolist()
    job.map(fn, [Names(name=f"{kind}-{i:05d}", part=part, first=firsts[i], bits=spread.bits) for i, part in enumerate(parts)])
    return spread


def _partitions(job: Job, spread: Spread, kind: str, parts: int) -> list[Partition]:
    size = job.params.sharding.shard_rows
    return [Partition(name=f"{kind}-{i:05d}", index=i, parts=parts, shard_rows=size, spread=spread) for i in range(1 << spread.bits)]


def spread_clusters(task: Names, out: Out) -> None:
    kept = _kept(task.part.removed, task.part.rows)
    names, rows = pa.chunked_array([], pa.string()), np.empty(0, np.int64)
    if task.part.clusters is not None and len(kept):
        table = read_table(task.part.clusters, columns=["row", "cluster"])
        of_part = table.column("row").to_numpy()
        at = np.minimum(np.searchsorted(kept, of_part), len(kept) - 1)
        stays = kept[at] == of_part
        names, rows = table.column("cluster").filter(pa.array(stays)), task.first + at[stays]
    _write_names(out, names, rows, task.bits)


def spread_ids(task: Names, out: Out) -> None:
    names = read_arrow(Path(task.part.documents), ["id"]).column("id")
    _write_names(out, names, np.arange(task.first, task.first + len(names)), task.bits)


def _write_names(out: Out, names: pa.ChunkedArray, rows: NDArray[np.int64], bits: int) -> None:
    records = np.empty(len(names), NAME)
    records["hi"], records["lo"] = halves([blake3(name.encode()).digest(16) for name in names.to_pylist()])
    records["row"] = rows
    with spool.writing(out.scratch("")) as names_out:
        names_out.add(spool.partition_of(records["hi"], bits), records)


def _names(task: Partition, kind: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The names of a partition, those that are equal together and by row, and which are the first of equals."""
    runs = [spool.read(task.spread.file(kind, i), task.index, NAME) for i in range(task.parts)]
    names = np.concatenate([np.empty(0, NAME), *runs])
    names = names[np.lexsort((names["row"], names["lo"], names["hi"]))]
    first = np.ones(len(names), np.bool_)
    first[1:] = (names["hi"][1:] != names["hi"][:-1]) | (names["lo"][1:] != names["lo"][:-1])
    return names, first


def find_followers(task: Partition, out: Out) -> None:
    """Tell each shard which of its rows follow an earlier one of their cluster, and which is the first."""
    names, first = _names(task, "cluster")
    followers = np.empty(int(np.count_nonzero(~first)), FOLLOWER)
    followers["row"] = names["row"][~first]
    followers["first"] = names["row"][first][np.cumsum(first)[~first] - 1]
    with spool.writing(out.scratch("")) as spooled:
        spooled.add(followers["row"] // task.shard_rows, followers)


def find_repeated(task: Partition, out: Out) -> int | None:
    """The first row of which a later one has the id."""
    names, first = _names(task, "id")
    again = np.flatnonzero(~first)
    return int(names["row"][again - 1].min()) if len(again) else None


def _first_of_cluster(task: Shard) -> NDArray[np.int64]:
    """For each row of a shard the first row of its cluster in the corpus, often itself."""
    rows = np.arange(task.first, task.first + sum(part.take for part in task.slices), dtype=np.int64)
    if task.clusters:
        for i in range(1 << task.clusters.bits):
            found = spool.read(task.clusters.file("followers", i), task.index, FOLLOWER)
            rows[found["row"] - task.first] = found["first"]
    return rows


def _refuse_emptied(job: Job, params: Params) -> None:
    """A source of which nothing is left is more often a mistake in a threshold than a wish."""
    for index, source in enumerate(params.sources):
        seen = job.inputs["documents"][index].contents.counts[source.id].docs_in
        deciding = [e for role in ("documents", "decontaminate", "scrub", "exact", "near") for e in job.inputs.get(role, ())]
        reasons = {
            f"{entry.contents.stage}.{rule}": n
            for entry in deciding
            if source.id in entry.contents.counts
            for rule, n in entry.contents.counts[source.id].dropped.items()
            if n
        }
        if seen and not source.allow_empty and sum(reasons.values()) == seen:
            why = ", ".join(f"{reason} {n}" for reason, n in reasons.items())
            raise StageError(
                "shard",
                source.id,
                f"no document is left of {seen} ({why}); change what drops them, or set allow_empty = true for the source",
            )


def _manifest(job: Job, params: Params, tasks: list[Shard], values: list[Any], n_docs: int) -> bytes:
    columns = _schema(params).names
    files = [job.scratch / f"{t.name}{DIGESTS}" for t in tasks]

    def tally(role: str) -> Tally:
        return total([t for entry in job.inputs.get(role, ()) for t in entry.contents.counts.values()])

    def digest_of(files: list[Path]) -> str:
        return rows_digest(columns, (file.read_bytes() for file in files))

    manifest = {
        "dataset": params.dataset,
        "version": params.version,
        "n_docs": n_docs,
        "n_shards": len(tasks),
        "rows_blake3": digest_of(files),
        "shards": [
            {
                "name": f"{t.name}.parquet",
                "sha256": v["sha256"],
                "rows": v["rows"],
                "text_bytes": v["text_bytes"],
                "rows_blake3": digest_of([file]),
            }
            for t, v, file in zip(tasks, values, files, strict=True)
        ],
        "splits": {split: sum(t["also"].get(split, 0) for v in values for t in v["sources"].values()) for split in ("train", "val")},
        "filters": dict(sorted(tally("documents").dropped.items())),
        "dedup": {
            "exact_dropped": sum(tally("exact").dropped.values()),
            "near_dropped": sum(tally("near").dropped.values()),
            "decontaminated": sum(tally("decontaminate").dropped.values()),
        }
        | params.dedup,
        "pii": {pii.MANIFEST_KEYS[kind]: sum(v["pii"][kind] for v in values) for kind in params.pii},
        "ledger_ref": "ledger.jsonl",
        "key": job.key,
    }
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


STAGE = Stage("shard", version=2, build=build)
