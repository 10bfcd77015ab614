"""Shard: documents and every decision about them to the shards of the corpus and their manifest."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from blake3 import blake3
from msgspec import Meta

from corpusbuild import pii
from corpusbuild.errors import StageError
from corpusbuild.hashing import file_sha256
from corpusbuild.model import Counts, Record, Tally, add_counts, total
from corpusbuild.parts import part_of, read_arrow, read_rows, removed_rows
from corpusbuild.placement import part_name_of
from corpusbuild.rowdigest import row_digests, rows_digest
from corpusbuild.stage import Input, Job, Out, Stage, Task
from corpusbuild.text import effective, split_of

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


class Shard(Task):
    first: int
    """Row of the corpus that the shard begins with."""
    slices: tuple[Slice, ...]
    clusters: dict[int, int]
    """Row of the corpus -> smallest row of its cluster, where it is not its own."""
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


def build(job: Job) -> Counts:
    params: Params = job.params
    parts = list(_parts(job))
    _refuse_repeated_ids(params, parts)
    _refuse_emptied(job, params)
    gone = {part.documents: removed_rows(map(Path, part.removed)) for part in parts}
    kept = [part.rows - len(gone[part.documents]) for part in parts]
    size, n_docs = params.sharding.shard_rows, sum(kept)
    n_shards = max(1, -(-n_docs // size))
    clusters = _clusters(parts, gone)
    tasks = []
    for i in range(n_shards):
        first, last = i * size, min((i + 1) * size, n_docs)
        tasks.append(
            Shard(
                name=f"shard-{i:05d}-of-{n_shards:05d}",
                first=first,
                slices=tuple(_slices(parts, kept, first, last)),
                clusters={row: clusters[row] for row in clusters if first <= row < last},
                params=params,
            )
        )
    values = job.map(write_shard, tasks)
    job.put(MANIFEST, _manifest(job, params, tasks, values, n_docs))
    counts = {s.id: Tally() for s in params.sources}
    for value in values:
        counts = add_counts([counts, {name: Tally(**tally) for name, tally in value["sources"].items()}])
    return counts


def write_shard(task: Shard, out: Out) -> Any:
    """Write one shard and say what is in it."""
    params = task.params
    schema = _schema(params)
    path = out.path(".parquet")
    tallies: dict[str, Tally] = {}
    text_bytes, redactions = 0, dict.fromkeys(params.pii, 0)
    with pq.ParquetWriter(path, schema, compression=params.sharding.compression) as writer, out.scratch(DIGESTS).open("wb") as digests:

        def end_group(rows: list[dict[str, Any]]) -> None:
            table = pa.Table.from_pylist(rows, schema=schema)
            writer.write_table(table, row_group_size=max(1, len(rows)))
            digests.write(row_digests(table))

        group: list[dict[str, Any]] = []
        group_bytes = 0
        for row, (index, document, kinds) in enumerate(_documents(task.slices, params), start=task.first):
            n = len(document["text"].encode())
            if group and group_bytes + n > params.sharding.row_group_bytes:
                end_group(group)
                group, group_bytes = [], 0
            document["minhash_cluster"] = task.clusters.get(row, row)
            group.append(document)
            group_bytes += n
            text_bytes += n
            for kind in kinds:
                redactions[kind] += 1
            source = params.sources[index].id
            one = Tally(docs_in=1, kept=1, also={"text_bytes": n, document["split"]: 1, **{k: kinds.count(k) for k in params.pii}})
            tallies[source] = tallies.get(source, Tally()).plus(one)
        end_group(group)
    return {
        "sha256": file_sha256(path),
        "rows": sum(t.kept for t in tallies.values()),
        "text_bytes": text_bytes,
        "pii": redactions,
        "sources": {name: {"docs_in": t.docs_in, "kept": t.kept, "also": t.also} for name, t in tallies.items()},
    }


def _documents(slices: tuple[Slice, ...], params: Params) -> Iterator[tuple[int, dict[str, Any], list[str]]]:
    """The documents of a shard in order: source index, row without its cluster, and the kinds of personal data replaced in it."""
    for part in slices:
        source = params.sources[part.source]
        gone = removed_rows(map(Path, part.removed))
        cuts, spans = _by_row(part.cuts), _by_row(part.spans)
        table = read_arrow(Path(part.documents))
        rows = [row for row in range(len(table)) if row not in gone][part.skip : part.skip + part.take]
        for document in table.take(pa.array(rows, pa.int64())).to_pylist():
            row = rows.pop(0)
            marks = [(s["start"], s["end"], pii.PLACEHOLDERS[s["kind"]]) for s in spans.get(row, [])]
            text = effective(document["text"], {c["paragraph"] for c in cuts.get(row, [])}, marks)
            if text is None:
                raise StageError("shard", document["id"], "every paragraph is cut but no decision removes the document")
            cut = [(c["start"], c["end"]) for c in cuts.get(row, [])]
            kinds = [s["kind"] for s in spans.get(row, []) if not any(start <= s["start"] < end for start, end in cut)]
            kept = msgspec.json.decode(document["meta"]) if document["meta"] else {}
            yield (
                part.source,
                {
                    "id": document["id"],
                    "text": text,
                    "source_id": source.id,
                    "url": f"{source.urls[document['file']]}#{document['place']}",
                    "license_spdx": source.license_spdx,
                    "lang": document["lang"],
                    "n_chars": len(text),
                    "sha256": hashlib.sha256(text.encode()).digest(),
                    "pii_redactions": len(kinds),
                    "split": split_of(text, params.sharding.val_permille),
                }
                | {name: None if kept.get(name) is None else str(kept[name]) for name in source.keep},
                kinds,
            )


def _by_row(path: str | None) -> dict[int, list[dict[str, Any]]]:
    rows: dict[int, list[dict[str, Any]]] = {}
    for item in read_rows(Path(path)) if path else []:
        rows.setdefault(item["row"], []).append(item)
    return rows


def _schema(params: Params) -> pa.Schema:
    kept = sorted({name for source in params.sources for name in source.keep})
    return pa.schema([*SHARD, *((name, pa.string()) for name in kept)])


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


def _clusters(parts: list[Part], gone: dict[str, set[int]]) -> dict[int, int]:
    """Row of the corpus -> smallest row of its cluster, for kept documents that share a cluster with an earlier kept one."""
    first: dict[str, int] = {}
    out: dict[int, int] = {}
    at = 0
    for part in parts:
        members = {r["row"]: r["cluster"] for r in read_rows(Path(part.clusters), ["row", "cluster"])} if part.clusters else {}
        removed = np.array(sorted(gone[part.documents]), dtype=np.int64)
        for row, cluster in sorted(members.items()):
            if row not in gone[part.documents]:
                here = at + row - int(np.searchsorted(removed, row))
                if first.setdefault(cluster, here) != here:
                    out[here] = first[cluster]
        at += part.rows - len(removed)
    return out


def _refuse_repeated_ids(params: Params, parts: list[Part]) -> None:
    """Ids that the source itself gives may repeat; the others cannot."""
    named = [part for part in parts if params.sources[part.source].named]
    hashes = [
        np.array(
            [int.from_bytes(blake3(i.encode()).digest(8), "big") for i in read_arrow(Path(p.documents), ["id"]).column("id").to_pylist()],
            np.uint64,
        )
        for p in named
    ]
    if not hashes:
        return
    values, counts = np.unique(np.concatenate(hashes), return_counts=True)
    repeated = set(values[counts > 1].tolist())
    if repeated:
        for part, mine in zip(named, hashes, strict=True):
            for row, value in enumerate(mine.tolist()):
                if value in repeated:
                    id = read_arrow(Path(part.documents), ["id"]).column("id")[row].as_py()
                    raise StageError("shard", id, "two documents have this id: name another id_field, or leave it out to number them")


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
