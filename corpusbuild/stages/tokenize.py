"""Tokenize: shards that passed the gate to token files for training, with an index back to the documents."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from corpusbuild import binfile
from corpusbuild.errors import ConfigError, StageError
from corpusbuild.hashing import file_sha256, sums_line
from corpusbuild.kernels import compiled
from corpusbuild.model import Counts, Record, Tally, add_counts
from corpusbuild.stage import Job, Out, Stage, Task
from corpusbuild.stages.shard import MANIFEST, MANIFEST_SHA256
from corpusbuild.tokenizer import Spec, open_quickest, open_tokenizer
from corpusbuild.tokenizer.reading import OtherIds, Reading, Table

SPLITS = ("train", "val")
MAX_FILE_TOKENS = 100_000_000
TOKENIZER = "tokenizer.json"
"""A tokenizer that was trained, in its step's entry and beside its tokens."""

INDEX = pa.schema(
    [
        ("file", pa.string()),
        ("start", pa.int64()),  # ids before the document in its file, the separator counted as the document's first id
        ("length", pa.int64()),  # ids of the document, separator included
        ("id", pa.string()),
    ]
)
"""``index.parquet``: where each document stands in the token files."""


REFUSED = pa.schema([("id", pa.string()), ("source", pa.string())])
"""``refused.parquet``, with ``tokenizer.on_special = "refuse"``: the documents that were left out."""


class Params(Record):
    dataset: str
    version: str
    id: str
    tokenizer: Spec
    """With no path where the step takes a trained one."""
    doc_sep_id: int | None = None
    max_file_tokens: int = MAX_FILE_TOKENS
    on_special: Literal["text", "refuse"] = "text"
    """What becomes of a document in which a control token is written: it is text like other text, or the document is left out."""
    max_unknown: float = 1.0
    """The largest share of a source's ids that may stand for what the vocabulary lacks."""


class Encode(Task):
    path: str
    params: Params
    plain: bool = False
    """Through the library that decides, not a faster one."""


class Piece(Record):
    """Consecutive documents of one encoded shard: which, and where their ids stand in its scratch file."""

    shard: str
    first_document: int
    documents: int
    first_id: int
    ids: int


class Assemble(Task):
    """One token file."""

    split: str
    pieces: tuple[Piece, ...]
    scratch: str
    vocab_size: int


class Index(Task):
    files: tuple[tuple[str, str, tuple[Piece, ...]], ...]
    """(file, split, pieces) in the order of the index."""
    scratch: str


class Refusals(Task):
    shards: tuple[str, ...]
    scratch: str


def build(job: Job) -> Counts:
    params: Params = located(job)
    corpus = job.inputs["corpus"][0]
    tokenizer = open_tokenizer(params.tokenizer)
    vocab_size = tokenizer.vocab_size
    if params.doc_sep_id is not None and params.doc_sep_id >= vocab_size:
        raise ConfigError(f"tokenizer.doc_sep_id: {params.doc_sep_id} is not below the vocabulary's size, {vocab_size}")
    shards = [Encode(name=p.name.removesuffix(".parquet"), path=str(p), params=params) for p in corpus.files(".parquet")]
    encoded = job.map(encode_shard, shards)
    if wrong := next((e["differs"] for e in encoded if "differs" in e), None):
        job.say(f"tokenize: the faster library gives other ids than the tokenizer's own for {wrong}: all is encoded by the latter, slower")
        shards = [msgspec.structs.replace(shard, name=f"{shard.name}.plain", plain=True) for shard in shards]
        encoded = job.map(encode_shard, shards)
    counts = {source: Tally() for source in corpus.contents.counts}
    for value in encoded:
        counts = add_counts([counts, {name: Tally(**t) for name, t in value["counts"].items()}])
    check_unknown(counts, params.max_unknown)
    sampled, equal = (sum(value["decoded"][i] for value in encoded) for i in range(2))
    restored = {"documents": sampled, "equal": equal, "losses": list(tokenizer.losses) if equal < sampled else []}
    files = []
    for split in SPLITS:
        lengths = ((shard.name, np.load(job.scratch / f"{shard.name}.{split}.lengths.npy", mmap_mode="r")) for shard in shards)
        for i, pieces in enumerate(layout(lengths, params.max_file_tokens)):
            files.append(
                Assemble(name=f"{split}-{i:05d}", split=split, pieces=tuple(pieces), scratch=str(job.scratch), vocab_size=vocab_size)
            )
    written = job.map(assemble, files)
    index = Index(name="index", files=tuple((f"{f.name}.bin", f.split, f.pieces) for f in files), scratch=str(job.scratch))
    (index_sha256,) = job.map(write_index, [index])
    if params.on_special == "refuse":
        job.map(write_refused, [Refusals(name="refused", shards=tuple(s.name for s in shards), scratch=str(job.scratch))])
    manifest = {
        "tokenizer_id": params.id,
        "tokenizer_sha256": params.tokenizer.sha256,
        "vocab_size": vocab_size,
        "doc_sep_id": params.doc_sep_id,
        "dataset": params.dataset,
        "version": params.version,
        "corpus_manifest_sha256": file_sha256(corpus.path / MANIFEST),
        "files": [
            {"name": f"{f.name}.bin", "split": f.split, "n_tokens": w["n_tokens"], "n_docs": w["n_docs"], "sha256": w["sha256"]}
            for f, w in zip(files, written, strict=True)
        ],
        "index": {"name": "index.parquet", "sha256": index_sha256},
        "bytes_per_token": bytes_per_token(counts),
        "decoded": restored,
        "key": job.key,
    }
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
    job.put(MANIFEST, data)
    job.put(MANIFEST_SHA256, sums_line(data, MANIFEST))
    return counts


def located(job: Job) -> Params:
    """The parameters, with the tokenizer that another step trained in the place of its file."""
    params: Params = job.params
    trained = job.inputs.get("tokenizer", ())
    if not trained:
        return params
    path = trained[0].path / TOKENIZER
    job.put(TOKENIZER, path.read_bytes())
    return msgspec.structs.replace(params, tokenizer=Spec(kind="huggingface", path=str(path), sha256=file_sha256(path)))


def encode_shard(task: Encode, out: Out) -> Any:
    """Encode one shard to ids and document lengths by split."""
    params = task.params
    tokenizer = open_tokenizer(params.tokenizer) if task.plain or not compiled() else open_quickest(params.tokenizer)
    reading = Reading(tokenizer, task.path, refuse=params.on_special == "refuse")
    dtype = binfile.dtype_for(tokenizer.vocab_size)
    lengths: dict[str, list[NDArray[np.int64]]] = {split: [] for split in SPLITS}
    names: dict[str, list[pa.Table]] = {split: [] for split in SPLITS}
    counted: Counts = {}
    sinks = {split: out.scratch(f".{split}.ids").open("wb") for split in SPLITS}
    try:
        with sinks["train"], sinks["val"]:
            for table in reading:
                ids, sizes = table.ids.astype(dtype), np.diff(table.offsets)
                if params.doc_sep_id is not None:
                    ids, sizes = np.insert(ids, table.offsets[:-1], params.doc_sep_id), sizes + 1
                sinks[table.split].write(ids.tobytes())
                lengths[table.split].append(sizes)
                names[table.split].append(table.rows.select(["id"]))
                counted = add_counts([counted, _counted(table, sizes, params.doc_sep_id is not None)])
    except OtherIds as difference:
        return {"differs": difference.args[0]}
    for split in SPLITS:
        with out.scratch(f".{split}.lengths.npy").open("wb") as f:
            np.save(f, np.concatenate([np.empty(0, np.int64), *lengths[split]]))
        held = pa.concat_tables([pa.table({"id": pa.array([], pa.string())}), *names[split]])
        pq.write_table(held, out.scratch(f".{split}.names.parquet"))
    if params.on_special == "refuse":
        refused = [gone.rename_columns(REFUSED.names) for gone in reading.refused]
        pq.write_table(pa.concat_tables([REFUSED.empty_table(), *refused]), out.scratch(".refused.parquet"))
    return {"counts": msgspec.to_builtins(add_counts([counted, reading.counts])), "decoded": [reading.decoded, reading.restored]}


def _counted(table: Table, sizes: NDArray[np.int64], separated: bool) -> Counts:
    """What documents of one split count for, by source."""
    split, columns = table.split, {"source": table.rows.column("source_id"), "tokens": sizes, "bytes": table.text_bytes}
    rows = pa.table(columns).group_by("source").aggregate([("tokens", "count"), ("tokens", "sum"), ("bytes", "sum")]).to_pylist()
    return {
        r["source"]: Tally(
            docs_in=r["tokens_count"],
            kept=r["tokens_count"],
            also={f"{split}_tokens": r["tokens_sum"], f"{split}_bytes": r["bytes_sum"]}
            | ({f"{split}_separators": r["tokens_count"]} if separated else {}),
        )
        for r in rows
    }


def bytes_per_token(counts: Counts) -> dict[str, dict[str, float | None]]:
    """Of each source and split, how many bytes of text an id stands for, separators left out; nothing where there are no ids.

    >>> bytes_per_token({"a": Tally(also={"train_bytes": 9, "train_tokens": 4, "train_separators": 1})})
    {'a': {'train': 3.0, 'val': None}}
    """
    return {source: {split: _ratio(tally.also, split) for split in SPLITS} for source, tally in counts.items()}


def _ratio(also: dict[str, int], split: str) -> float | None:
    tokens = also.get(f"{split}_tokens", 0) - also.get(f"{split}_separators", 0)
    return round(also[f"{split}_bytes"] / tokens, 6) if tokens else None


def check_unknown(counts: Counts, limit: float) -> None:
    """``StageError`` for a source of which too many ids stand for what the vocabulary lacks."""
    for source, tally in counts.items():
        tokens = sum(tally.also.get(f"{split}_tokens", 0) - tally.also.get(f"{split}_separators", 0) for split in SPLITS)
        unknown = tally.also.get("unknown_tokens", 0)
        if unknown > limit * tokens:
            raise StageError(
                "tokenize",
                source,
                f"{unknown:,} of {tokens:,} ids ({unknown / tokens:.2%}) stand for what the vocabulary lacks, and tokenizer.max_unknown lets "
                f"{limit:.2%}: take a tokenizer that knows this text, or raise it",
            )


def layout(shards: Iterable[tuple[str, Any]], max_file_tokens: int) -> Iterator[list[Piece]]:
    """Cut a split into files of whole documents: at most ``max_file_tokens`` ids each, a longer document alone. At least one file.

    >>> [[(p.first_document, p.documents) for p in f] for f in layout([("s", np.array([4, 6, 2, 15, 2]))], 10)]
    [[(0, 2)], [(2, 1)], [(3, 1)], [(4, 1)]]
    """
    pieces: list[Piece] = []
    used, full = 0, False
    for shard, lengths in shards:
        ends = np.cumsum(lengths, dtype=np.int64)
        at = 0
        while at < len(ends):
            start = int(ends[at - 1]) if at else 0
            fit = int(np.searchsorted(ends, start + max_file_tokens - used, side="right")) - at
            if full or (fit <= 0 and used):
                yield pieces
                pieces, used, full = [], 0, False
                continue
            fit = max(fit, 1)
            ids = int(ends[at + fit - 1]) - start
            pieces.append(Piece(shard=shard, first_document=at, documents=fit, first_id=start, ids=ids))
            used, at = used + ids, at + fit
            full = used >= max_file_tokens
    yield pieces


def assemble(task: Assemble, out: Out) -> Any:
    """Copy the ids of a file's documents behind its header."""
    n_tokens, width = sum(p.ids for p in task.pieces), np.dtype(binfile.dtype_for(task.vocab_size)).itemsize
    path = out.path(".bin")
    with path.open("wb") as sink:
        sink.write(binfile.pack_header(n_tokens, task.vocab_size))
        for piece in task.pieces:
            with (Path(task.scratch) / f"{piece.shard}.{task.split}.ids").open("rb") as source:
                source.seek(piece.first_id * width)
                copy(source, sink, piece.ids * width)
    return {"n_tokens": n_tokens, "n_docs": sum(p.documents for p in task.pieces), "sha256": file_sha256(path)}


def copy(source: BinaryIO, sink: BinaryIO, n: int) -> None:
    """Copy exactly ``n`` bytes; ``EOFError`` when there are fewer."""
    while n:
        block = source.read(min(n, 1 << 20))
        if not block:
            raise EOFError(f"{n} bytes are missing")
        sink.write(block)
        n -= len(block)


def write_index(task: Index, out: Out) -> Any:
    path = out.path(".parquet")
    with pq.ParquetWriter(path, INDEX, compression="zstd") as writer:
        for file, split, pieces in task.files:
            start = 0
            for piece in pieces:
                here = slice(piece.first_document, piece.first_document + piece.documents)
                lengths = np.load(Path(task.scratch) / f"{piece.shard}.{split}.lengths.npy", mmap_mode="r")[here]
                names = (
                    pq.read_table(Path(task.scratch) / f"{piece.shard}.{split}.names.parquet")
                    .column("id")
                    .slice(here.start, piece.documents)
                )
                starts = start + np.cumsum(lengths) - lengths
                writer.write_table(
                    pa.table(
                        {
                            "file": pa.array([file] * len(lengths), pa.string()),
                            "start": starts,
                            "length": np.array(lengths),
                            "id": names.combine_chunks(),
                        },
                        schema=INDEX,
                    )
                )
                start += piece.ids
    return file_sha256(path)


def write_refused(task: Refusals, out: Out) -> None:
    with pq.ParquetWriter(out.path(".parquet"), REFUSED, compression="zstd") as writer:
        for shard in task.shards:
            writer.write_table(pq.read_table(Path(task.scratch) / f"{shard}.refused.parquet"))


def names_output(params: Params) -> Any:
    """All but the place of the tokenizer's file."""
    return msgspec.to_builtins(msgspec.structs.replace(params, tokenizer=msgspec.structs.replace(params.tokenizer, path=None)))


STAGE = Stage("tokenize", version=3, build=build, names_output=names_output)
