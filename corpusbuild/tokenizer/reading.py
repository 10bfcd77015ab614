"""Shards as ids: the documents of a piece of a shard, some megabytes at a time, encoded and checked."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from corpusbuild.binfile import check_ids
from corpusbuild.errors import StageError
from corpusbuild.model import Counts, Record, Tally, add_counts
from corpusbuild.tokenizer import Encoded, Ids, Tokenizer, text_bytes
from corpusbuild.tokenizer.fast import COMPARED_BYTES, Differs, Fast
from corpusbuild.tokenizer.honest import decoded, holding, misspelled, sums, too_long

READ_BYTES = 8_000_000
"""About so much text is held as text and as ids at a time; a longer document alone."""

PIECE_BYTES = 32_000_000
"""A piece of a shard, which one task encodes, has about so much text, where its row groups allow it."""

SPLITS = ("train", "val")
COLUMNS = ["id", "source_id", "split", "text"]


class Piece(Record):
    """Consecutive row groups of a shard, from ``first`` to before ``end``."""

    path: str
    first: int
    end: int


def pieces_of(path: Path) -> list[Piece]:
    """A shard in pieces of whole row groups, at least one."""
    with pq.ParquetFile(path) as shard:
        sizes = [shard.metadata.row_group(i).total_byte_size for i in range(shard.num_row_groups)]
    return [Piece(path=str(path), first=first, end=end) for first, end in ranges(sizes, PIECE_BYTES)]


def ranges(sizes: list[int], least: int) -> list[tuple[int, int]]:
    """Consecutive ranges, each ending where its sizes reach ``least``. At least one.

    >>> ranges([3, 3, 3, 4, 9, 1], 5), ranges([], 5)
    ([(0, 2), (2, 4), (4, 5), (5, 6)], [(0, 0)])
    """
    out = []
    first = held = 0
    for i, size in enumerate(sizes):
        held += size
        if held >= least or i + 1 == len(sizes):
            out.append((first, i + 1))
            first, held = i + 1, 0
    return out or [(0, 0)]


class Table(NamedTuple):
    """Consecutive documents of one split."""

    split: str
    rows: pa.Table
    """``id`` and ``source_id``."""
    text_bytes: NDArray[np.int64]
    ids: Ids
    """One document after another, without separators; document ``i`` has ``ids[offsets[i]:offsets[i + 1]]``."""
    offsets: NDArray[np.int64]


class Reading:
    """Iterate once, then read the rest. Raises ``OtherIds`` where a faster library differs from the one that decides, and ``StageError`` where ids are
    not their document's."""

    def __init__(self, tokenizer: Tokenizer, piece: Piece, refuse: bool = False):
        self._tokenizer, self._piece, self._refuse = tokenizer, piece, refuse
        self.refused: list[pa.Table] = []
        """Of the documents that are left out for a control token in their text: ``id`` and ``source_id``."""
        self.counts: Counts = {}
        """By source: the documents that were refused, and how many ids stand for what the vocabulary lacks."""
        self.decoded, self.restored = 0, 0
        """Documents of which the ids were decoded, and of how many to their text."""

    def __iter__(self) -> Iterator[Table]:
        seen: set[str] = set()
        for rows in _batches(self._piece):
            if self._refuse:
                rows = self._without_special(rows)
            for split in SPLITS:
                here = rows.column("split").to_numpy() == split
                mine = rows if here.all() else rows.filter(pa.array(here))
                if len(mine):
                    yield self._encode(split, mine, COMPARED_BYTES if split not in seen else 0)
                    seen.add(split)

    def _without_special(self, rows: pa.Table) -> pa.Table:
        held = holding(_texts(rows), self._tokenizer.special_tokens).to_numpy(zero_copy_only=False)
        gone = rows.filter(pa.array(held)).select(["id", "source_id"])
        self.refused.append(gone)
        for pair in gone.column("source_id").value_counts().to_pylist():
            self._count(pair["values"], Tally(docs_in=pair["counts"], dropped={"special_token": pair["counts"]}))
        return rows.filter(pa.array(~held))

    def _encode(self, split: str, rows: pa.Table, compared: int) -> Table:
        texts, names = _texts(rows), rows.column("id")
        ids, offsets = self._tokenizer.encode(texts)
        try:
            if isinstance(self._tokenizer, Fast):
                self._tokenizer.compare(texts, (ids, offsets), compared)
        except Differs as difference:
            raise OtherIds(names[difference.index].as_py()) from None
        check_ids(ids, self._tokenizer.vocab_size)
        self._check(names, texts, (ids, offsets))
        if self._tokenizer.unknown is not None:
            found = sums((ids == self._tokenizer.unknown).astype(np.uint32), offsets)
            each = (
                pa.table({"source": rows.column("source_id"), "n": found}).group_by("source", use_threads=False).aggregate([("n", "sum")])
            )
            for row in each.to_pylist():
                self._count(row["source"], Tally(also={"unknown_tokens": row["n_sum"]}))
        return Table(split, rows.select(["id", "source_id"]), np.diff(text_bytes(texts)[1]), ids, offsets)

    def _check(self, names: pa.ChunkedArray, texts: pa.Array, encoded: Encoded) -> None:
        sizes = np.diff(encoded[1])
        if (at := too_long(sizes)) is not None:
            why = f"{int(sizes[at]):,} ids are more than the 2,147,483,647 that a token file holds: lower filters.max_chars"
            raise StageError("tokenize", names[at].as_py(), why)
        if (at := misspelled(self._tokenizer, texts, encoded)) is not None:
            raise StageError("tokenize", names[at].as_py(), "its ids do not spell its text; please report this, with the tokenizer")
        for i, equal in decoded(self._tokenizer, texts, encoded):
            if not equal and not self._tokenizer.losses:
                why = "its ids do not decode to its text, and the tokenizer has nothing that could lose any; please report this"
                raise StageError("tokenize", names[i].as_py(), why)
            self.decoded, self.restored = self.decoded + 1, self.restored + equal

    def _count(self, source: str, tally: Tally) -> None:
        self.counts = add_counts([self.counts, {source: tally}])


class OtherIds(Exception):
    """``args`` holds the id of a document for which the faster library gave other ids than the one that decides."""


def _batches(piece: Piece) -> Iterator[pa.Table]:
    with pq.ParquetFile(piece.path) as shard:
        for group in range(piece.first, piece.end):
            about = shard.metadata.row_group(group)
            rows = max(1, about.num_rows * READ_BYTES // max(1, about.total_byte_size))
            if rows >= about.num_rows:  # whole, so that the reader's own copies of a long document are gone when it is encoded
                read = shard.read_row_group(group, columns=COLUMNS)
                pa.default_memory_pool().release_unused()
                yield read
            else:
                yield from map(pa.table, shard.iter_batches(batch_size=rows, row_groups=[group], columns=COLUMNS))


def _texts(rows: pa.Table) -> pa.Array:
    """The texts as ``large_string``: of ``string``, only the places are copied."""
    texts = rows.column("text").combine_chunks()
    if not len(texts) or texts.type != pa.string():
        return texts.cast(pa.large_string())
    _, places, data = texts.buffers()
    offsets = np.frombuffer(places, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    return pa.LargeStringArray.from_buffers(len(texts), pa.py_buffer(offsets), data)
