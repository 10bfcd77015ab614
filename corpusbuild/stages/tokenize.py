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
from corpusbuild.tokenizer import Encoded, Spec, Tokenizer, open_quickest, open_tokenizer, text_bytes
from corpusbuild.tokenizer.fast import Differs
from corpusbuild.tokenizer.honest import decoded as decoded_documents
from corpusbuild.tokenizer.honest import holding, misspelled, sums, too_long

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
    """Encode one shard, a row group at a time, to ids and document lengths by split."""
    params = task.params
    tokenizer = open_tokenizer(params.tokenizer) if task.plain or not compiled() else open_quickest(params.tokenizer)
    dtype = binfile.dtype_for(tokenizer.vocab_size)
    lengths: dict[str, list[NDArray[np.int64]]] = {split: [] for split in SPLITS}
    names: dict[str, list[pa.Table]] = {split: [] for split in SPLITS}
    counted: Counts = {}
    refused: list[pa.Table] = []
    decoded: list[bool] = []
    sinks = {split: out.scratch(f".{split}.ids").open("wb") for split in SPLITS}
    with sinks["train"], sinks["val"]:
        shard = pq.ParquetFile(task.path)
        for group in range(shard.num_row_groups):
            rows = shard.read_row_group(group, columns=["id", "source_id", "split", "text"])
            if params.on_special == "refuse":
                rows, more = refuse(rows, tokenizer.special_tokens)
                refused.append(more)
                counted = add_counts([counted, _counted_refused(more)])
            for split in SPLITS:
                mine = rows.filter(pa.array(rows.column("split").to_numpy() == split))
                texts = mine.column("text").cast(pa.large_string()).combine_chunks()
                try:
                    ids, offsets = tokenizer.encode(texts)
                except Differs as difference:
                    return {"differs": mine.column("id")[difference.index].as_py()}
                binfile.check_ids(ids, tokenizer.vocab_size)
                decoded += _check(tokenizer, mine, texts, (ids, offsets))
                one = _counted(split, tokenizer, mine.column("source_id"), texts, (ids, offsets), params.doc_sep_id is not None)
                counted = add_counts([counted, one])
                ids, sizes = ids.astype(dtype), np.diff(offsets)
                if params.doc_sep_id is not None:
                    ids, sizes = np.insert(ids, offsets[:-1], params.doc_sep_id), sizes + 1
                sinks[split].write(ids.tobytes())
                lengths[split].append(sizes)
                names[split].append(mine.select(["id"]))
    for split in SPLITS:
        with out.scratch(f".{split}.lengths.npy").open("wb") as f:
            np.save(f, np.concatenate([np.empty(0, np.int64), *lengths[split]]))
        held = pa.concat_tables([pa.table({"id": pa.array([], pa.string())}), *names[split]])
        pq.write_table(held, out.scratch(f".{split}.names.parquet"))
    if params.on_special == "refuse":
        pq.write_table(pa.concat_tables([REFUSED.empty_table(), *refused]), out.scratch(".refused.parquet"))
    return {"counts": msgspec.to_builtins(counted), "decoded": [len(decoded), sum(decoded)]}


def refuse(rows: pa.Table, special_tokens: tuple[str, ...]) -> tuple[pa.Table, pa.Table]:
    """The documents in which no control token is written, and id and source of those in which one is."""
    texts = rows.column("text").cast(pa.large_string()).combine_chunks()
    held = holding(texts, special_tokens).to_numpy(zero_copy_only=False)
    gone = rows.filter(pa.array(held)).select(["id", "source_id"]).rename_columns(REFUSED.names)
    return rows.filter(pa.array(~held)), gone


def _check(tokenizer: Tokenizer, rows: pa.Table, texts: pa.Array, encoded: Encoded) -> list[bool]:
    """Of a few documents whether their ids decode to their text. ``StageError`` where ids are no document's, or lose what they must not."""
    name = rows.column("id")
    if (at := too_long(np.diff(encoded[1]))) is not None:
        n = int(np.diff(encoded[1])[at])
        raise StageError(
            "tokenize", name[at].as_py(), f"{n:,} ids are more than the 2,147,483,647 that a token file holds: lower filters.max_chars"
        )
    if (at := misspelled(tokenizer, texts, encoded)) is not None:
        raise StageError("tokenize", name[at].as_py(), "its ids do not spell its text; please report this, with the tokenizer")
    found = decoded_documents(tokenizer, texts, encoded)
    if (at := next((i for i, equal in found if not equal), None)) is not None and not tokenizer.losses:
        raise StageError(
            "tokenize",
            name[at].as_py(),
            "its ids do not decode to its text, and the tokenizer has nothing that could lose any; please report this",
        )
    return [equal for _, equal in found]


def _counted(split: str, tokenizer: Tokenizer, sources: pa.ChunkedArray, texts: pa.Array, encoded: Encoded, separated: bool) -> Counts:
    """What documents of one split count for, by source."""
    ids, offsets = encoded
    tokens = np.diff(offsets)
    columns = {"source": sources, "tokens": tokens + separated, "bytes": np.diff(text_bytes(texts)[1])}
    if tokenizer.unknown is not None:
        columns["unknown"] = sums((ids == tokenizer.unknown).astype(np.uint32), offsets)
    each = pa.table(columns).group_by("source")
    rows = each.aggregate([("tokens", "count"), *((name, "sum") for name in columns if name != "source")]).to_pylist()
    return {
        r["source"]: Tally(
            docs_in=r["tokens_count"],
            kept=r["tokens_count"],
            also={f"{split}_tokens": r["tokens_sum"], f"{split}_bytes": r["bytes_sum"]}
            | ({"unknown_tokens": r["unknown_sum"]} if "unknown_sum" in r else {})
            | ({f"{split}_separators": r["tokens_count"]} if separated else {}),
        )
        for r in rows
    }


def _counted_refused(refused: pa.Table) -> Counts:
    pairs = refused.column("source").value_counts().to_pylist()
    return {p["values"]: Tally(docs_in=p["counts"], dropped={"special_token": p["counts"]}) for p in pairs}


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
