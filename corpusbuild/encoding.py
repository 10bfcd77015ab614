"""Encoding: the documents of one shard to ids, checked one by one, as the token stage keeps them between its rounds."""

from io import BufferedWriter
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from corpusbuild import binfile, order
from corpusbuild.encoded import DOCUMENT, SPLITS
from corpusbuild.errors import StageError
from corpusbuild.kernels import compiled
from corpusbuild.model import Counts, Record, Tally, add_counts
from corpusbuild.stage import Out, Task
from corpusbuild.tokenizer import Encoded, Spec, Tokenizer, open_quickest, open_tokenizer, text_bytes
from corpusbuild.tokenizer.fast import Differs
from corpusbuild.tokenizer.honest import decoded as decoded_documents
from corpusbuild.tokenizer.honest import holding, misspelled, sums, too_long

REFUSED = pa.schema([("id", pa.string()), ("source", pa.string())])
"""``refused.parquet``, with ``tokenizer.on_special = "refuse"``: the documents that were left out."""


class How(Record):
    """How documents become ids."""

    tokenizer: Spec
    doc_sep_id: int | None = None
    on_special: Literal["text", "refuse"] = "text"


class Encode(Task):
    path: str
    sources: tuple[str, ...]
    how: How
    plain: bool = False
    """Through the library that decides, not a faster one."""


def encode_shard(task: Encode, out: Out) -> Any:
    """Encode one shard, a row group at a time, to the files that ``encoded`` speaks of."""
    how = task.how
    tokenizer = open_tokenizer(how.tokenizer) if task.plain or not compiled() else open_quickest(how.tokenizer)
    counted: Counts = {}
    refused: list[pa.Table] = []
    decoded: list[bool] = []
    sinks = {split: _Split(task, split, out, binfile.dtype_for(tokenizer.vocab_size)) for split in SPLITS}
    shard = pq.ParquetFile(task.path)
    for group in range(shard.num_row_groups):
        rows = shard.read_row_group(group, columns=["id", "source_id", "split", "text"])
        if how.on_special == "refuse":
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
            one = _counted(split, tokenizer, mine.column("source_id"), texts, (ids, offsets), how.doc_sep_id is not None)
            counted = add_counts([counted, one])
            sinks[split].write(mine, ids, offsets)
    for sink in sinks.values():
        sink.close()
    if how.on_special == "refuse":
        pq.write_table(pa.concat_tables([REFUSED.empty_table(), *refused]), out.scratch(".refused.parquet"))
    return {"counts": msgspec.to_builtins(counted), "decoded": [len(decoded), sum(decoded)]}


class _Split:
    """The files of one split of the shard."""

    def __init__(self, task: Encode, split: str, out: Out, dtype: np.dtype[Any]):
        self._separator, self._sources, self._dtype = task.how.doc_sep_id, pa.array(task.sources, pa.string()), dtype
        self._files: list[BufferedWriter] = [out.scratch(f".{split}.{what}").open("wb") for what in ("ids", "documents", "names")]
        self._ids = self._names = 0

    def write(self, rows: pa.Table, ids: NDArray[Any], offsets: NDArray[np.int64]) -> None:
        ids, sizes = ids.astype(self._dtype), np.diff(offsets)
        if self._separator is not None:
            ids, sizes = np.insert(ids, offsets[:-1], self._separator), sizes + 1
        import pyarrow.compute as pc  # here, for it costs 30 ms that planning need not spend

        names, ends = text_bytes(rows.column("id").cast(pa.large_string()).combine_chunks())
        documents = np.zeros(len(rows), DOCUMENT)
        documents["first"], documents["ids"] = self._ids + np.cumsum(sizes) - sizes, sizes
        documents["name"], documents["name_bytes"] = self._names + ends[:-1], np.diff(ends)
        documents["source"] = pc.index_in(rows.column("source_id"), value_set=self._sources).to_numpy()
        documents["hash"] = order.hashes(names, ends)
        for file, values in zip(self._files, (ids, documents, names), strict=True):
            file.write(np.ascontiguousarray(values).data)
        self._ids, self._names = self._ids + len(ids), self._names + len(names)

    def close(self) -> None:
        for file in self._files:
            file.close()


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
