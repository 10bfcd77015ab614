"""Tokenize: shards that passed the gate to token files for training, with an index back to the documents."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from corpusbuild import binfile
from corpusbuild.errors import ConfigError
from corpusbuild.hashing import file_sha256, sums_line
from corpusbuild.model import Counts, Record, Tally, add_counts
from corpusbuild.stage import Job, Out, Stage, Task
from corpusbuild.stages.shard import MANIFEST, MANIFEST_SHA256
from corpusbuild.tokenizer import open_tokenizer, text_bytes

SPLITS = ("train", "val")
MAX_FILE_TOKENS = 100_000_000

INDEX = pa.schema(
    [
        ("file", pa.string()),
        ("start", pa.int64()),  # ids before the document in its file, the separator counted as the document's first id
        ("length", pa.int64()),  # ids of the document, separator included
        ("id", pa.string()),
    ]
)
"""``index.parquet``: where each document stands in the token files."""


class Params(Record):
    dataset: str
    version: str
    id: str
    sha256: str
    """Of the tokenizer's file; of no bytes for the byte tokenizer."""
    path: str | None = None
    doc_sep_id: int | None = None
    max_file_tokens: int = MAX_FILE_TOKENS


class Encode(Task):
    path: str
    params: Params


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


def build(job: Job) -> Counts:
    params: Params = job.params
    corpus = job.inputs["corpus"][0]
    vocab_size = open_tokenizer(params.path, params.sha256).vocab_size
    if params.doc_sep_id is not None and params.doc_sep_id >= vocab_size:
        raise ConfigError(f"tokenizer.doc_sep_id: {params.doc_sep_id} is not below the vocabulary's size, {vocab_size}")
    shards = [Encode(name=p.name.removesuffix(".parquet"), path=str(p), params=params) for p in corpus.files(".parquet")]
    encoded = job.map(encode_shard, shards)
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
    manifest = {
        "tokenizer_id": params.id,
        "tokenizer_sha256": params.sha256,
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
        "key": job.key,
    }
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
    job.put(MANIFEST, data)
    job.put(MANIFEST_SHA256, sums_line(data, MANIFEST))
    counts = {source: Tally() for source in corpus.contents.counts}
    for value in encoded:
        counts = add_counts([counts, {name: Tally(**t) for name, t in value.items()}])
    return counts


def encode_shard(task: Encode, out: Out) -> Any:
    """Encode one shard, a row group at a time, to ids and document lengths by split."""
    params = task.params
    tokenizer = open_tokenizer(params.path, params.sha256)
    dtype = binfile.dtype_for(tokenizer.vocab_size)
    lengths: dict[str, list[NDArray[np.int64]]] = {split: [] for split in SPLITS}
    names: dict[str, list[pa.Table]] = {split: [] for split in SPLITS}
    counted: Counts = {}
    sinks = {split: out.scratch(f".{split}.ids").open("wb") for split in SPLITS}
    with sinks["train"], sinks["val"]:
        shard = pq.ParquetFile(task.path)
        for group in range(shard.num_row_groups):
            rows = shard.read_row_group(group, columns=["id", "source_id", "split", "text"])
            for split in SPLITS:
                mine = rows.filter(pa.array(rows.column("split").to_numpy() == split))
                texts = mine.column("text").cast(pa.large_string()).combine_chunks()
                ids, offsets = tokenizer.encode(texts)
                binfile.check_ids(ids, tokenizer.vocab_size)
                ids, sizes = ids.astype(dtype), np.diff(offsets)
                if params.doc_sep_id is not None:
                    ids, sizes = np.insert(ids, offsets[:-1], params.doc_sep_id), sizes + 1
                sinks[split].write(ids.tobytes())
                lengths[split].append(sizes)
                names[split].append(mine.select(["id"]))
                counted = add_counts([counted, _counted(split, mine.column("source_id"), sizes, np.diff(text_bytes(texts)[1]))])
    for split in SPLITS:
        with out.scratch(f".{split}.lengths.npy").open("wb") as f:
            np.save(f, np.concatenate([np.empty(0, np.int64), *lengths[split]]))
        held = pa.concat_tables([pa.table({"id": pa.array([], pa.string())}), *names[split]])
        pq.write_table(held, out.scratch(f".{split}.names.parquet"))
    return {name: {"docs_in": t.docs_in, "kept": t.kept, "also": t.also} for name, t in counted.items()}


def _counted(split: str, sources: pa.ChunkedArray, tokens: NDArray[np.int64], sizes: NDArray[np.int64]) -> Counts:
    """What documents of one split count for, by source."""
    each = pa.table({"source": sources, "tokens": tokens, "bytes": sizes}).group_by("source")
    rows = each.aggregate([("tokens", "count"), ("tokens", "sum"), ("bytes", "sum")]).to_pylist()
    return {
        r["source"]: Tally(
            docs_in=r["tokens_count"],
            kept=r["tokens_count"],
            also={f"{split}_tokens": r["tokens_sum"], f"{split}_bytes": r["bytes_sum"]},
        )
        for r in rows
    }


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


STAGE = Stage("tokenize", version=2, build=build, names_output=lambda params: msgspec.to_builtins(params) | {"path": None})
