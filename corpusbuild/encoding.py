"""Encoding: the documents of a piece of a shard to ids, checked one by one, as the token stage keeps them between its rounds."""

from io import BufferedWriter
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from corpusbuild import binfile, order
from corpusbuild.encoded import DOCUMENT, SPLITS
from corpusbuild.errors import ConfigError
from corpusbuild.kernels import compiled
from corpusbuild.model import Counts, Record, Tally, add_counts
from corpusbuild.stage import Out, Task
from corpusbuild.tokenizer import Spec, open_quickest, open_tokenizer, text_bytes
from corpusbuild.tokenizer.reading import OtherIds, Piece, Reading, Table

REFUSED = pa.schema([("id", pa.string()), ("source", pa.string())])
"""``refused.parquet``, with ``tokenizer.on_special = "refuse"``: the documents that were left out."""


class How(Record):
    """How documents become ids."""

    tokenizer: Spec
    doc_sep_id: int | None = None
    on_special: Literal["text", "refuse"] = "text"


class Encode(Task):
    piece: Piece
    sources: tuple[str, ...]
    how: How
    plain: bool = False
    """Through the library that decides, not a faster one."""


def encode_shard(task: Encode, out: Out) -> Any:
    """Encode a piece of a shard to the files that ``encoded`` speaks of."""
    how = task.how
    tokenizer = open_tokenizer(how.tokenizer) if task.plain or not compiled() else open_quickest(how.tokenizer)
    check_special("doc_sep_id", how.doc_sep_id, tokenizer.vocab_size)
    reading = Reading(tokenizer, task.piece, refuse=how.on_special == "refuse")
    counted: Counts = {}
    sinks = {split: _Split(task, split, out, binfile.dtype_for(tokenizer.vocab_size)) for split in SPLITS}
    try:
        for table in reading:
            counted = add_counts([counted, sinks[table.split].write(table)])
    except OtherIds as difference:
        return {"differs": difference.args[0]}
    finally:
        for sink in sinks.values():
            sink.close()
    if how.on_special == "refuse":
        refused = [gone.rename_columns(REFUSED.names) for gone in reading.refused]
        pq.write_table(pa.concat_tables([REFUSED.empty_table(), *refused]), out.scratch(".refused.parquet"))
    return {
        "counts": msgspec.to_builtins(add_counts([counted, reading.counts])),
        "decoded": [reading.decoded, reading.restored],
        "losses": list(tokenizer.losses),
        "vocab_size": tokenizer.vocab_size,
    }


def check_special(name: str, id: int | None, vocab_size: int) -> None:
    if id is not None and id >= vocab_size:
        raise ConfigError(f"tokenizer.{name}: {id} is not below the vocabulary's size, {vocab_size}")


class _Split:
    """The files of one split of the piece."""

    def __init__(self, task: Encode, split: str, out: Out, dtype: np.dtype[Any]):
        self._separator, self._sources, self._dtype = task.how.doc_sep_id, pa.array(task.sources, pa.string()), dtype
        self._files: list[BufferedWriter] = [out.scratch(f".{split}.{what}").open("wb") for what in ("ids", "documents", "names")]
        self._ids = self._names = 0

    def write(self, table: Table) -> Counts:
        import pyarrow.compute as pc  # here, for it costs 30 ms that planning need not spend

        ids, sizes, rows = table.ids.astype(self._dtype, copy=False), np.diff(table.offsets), table.rows
        if self._separator is not None:
            ids, sizes = np.insert(ids, table.offsets[:-1], self._separator), sizes + 1
        names, ends = text_bytes(rows.column("id").cast(pa.large_string()).combine_chunks())
        documents = np.zeros(len(rows), DOCUMENT)
        documents["first"], documents["ids"] = self._ids + np.cumsum(sizes) - sizes, sizes
        documents["name"], documents["name_bytes"] = self._names + ends[:-1], np.diff(ends)
        documents["source"] = pc.index_in(rows.column("source_id"), value_set=self._sources).to_numpy()
        documents["hash"] = order.hashes(names, ends)
        for file, values in zip(self._files, (ids, documents, names), strict=True):
            file.write(np.ascontiguousarray(values).data)
        self._ids, self._names = self._ids + len(ids), self._names + len(names)
        return _counted(table, sizes, self._separator is not None)

    def close(self) -> None:
        for file in self._files:
            file.close()


def _counted(table: Table, sizes: NDArray[np.int64], separated: bool) -> Counts:
    """What documents of one split count for, by source."""
    split, columns = table.split, {"source": table.rows.column("source_id"), "tokens": sizes, "bytes": table.text_bytes}
    rows = (
        pa.table(columns)
        .group_by("source", use_threads=False)
        .aggregate([("tokens", "count"), ("tokens", "sum"), ("bytes", "sum")])
        .to_pylist()
    )
    return {
        r["source"]: Tally(
            docs_in=r["tokens_count"],
            kept=r["tokens_count"],
            also={f"{split}_tokens": r["tokens_sum"], f"{split}_bytes": r["bytes_sum"]}
            | ({f"{split}_separators": r["tokens_count"]} if separated else {}),
        )
        for r in rows
    }
