"""Encoded shards, as the token stage keeps them between its rounds: the ids of a split, its documents, and their names.

Of shard 3 there are ``shard-00003.train.ids``, its ids; ``.documents``, rows of ``DOCUMENT``; ``.names``, the documents' ids; and the same of ``val``.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from corpusbuild import order
from corpusbuild.gather import Mapped
from corpusbuild.model import Record
from corpusbuild.order import CHUNK, RUN, Runs

SPLITS = ("train", "val")
BLOCK = 1 << 22  # ids that are copied at a time
OPEN = 64  # files that are mapped at a time

DOCUMENT = np.dtype(
    [
        ("first", "<i8"),  # ids of this shard's split before the document
        ("ids", "<i8"),
        ("name", "<i8"),  # bytes of names before its id
        ("name_bytes", "<i4"),
        ("source", "<i4"),
        ("hash", "<u8"),
    ]
)
"""A document of an encoded shard."""


class Shards(Record):
    """The encoded shards of a build, or pieces of shards, in their order."""

    home: str
    n: int
    ending: str = ""
    """Of each one's name: those that were encoded again have another."""

    def name(self, shard: int) -> str:
        return f"shard-{shard:05d}{self.ending}"

    def path(self, shard: int, split: str, what: Literal["ids", "documents", "names"]) -> Path:
        return Path(self.home) / f"{self.name(shard)}.{split}.{what}"

    def documents(self, split: str, shard: int) -> Iterator[NDArray[Any]]:
        """The documents of a split of a shard, a chunk at a time."""
        with self.path(shard, split, "documents").open("rb") as file:
            while len(rows := np.fromfile(file, DOCUMENT, CHUNK)):
                yield rows


def runs_of(path: Path, first: int, n: int, start: int) -> Iterator[Runs]:
    """The ``n`` runs of a token file from ``first`` on, a chunk at a time, each where it stands in the file, which begins at id ``start``."""
    with path.open("rb") as file:
        file.seek(first * RUN.itemsize)
        while n:
            runs = np.fromfile(file, RUN, min(n, CHUNK))
            runs["at"] -= start
            yield runs
            n -= len(runs)


def ids_of(chunks: Iterable[Runs], n: int, pad: int, dtype: np.dtype[Any], shards: Shards, split: str) -> Iterator[NDArray[Any]]:
    """The ``n`` ids of a token file, a block at a time; where no run stands, ``pad``."""
    encoded = lru_cache(OPEN)(lambda shard: Mapped(shards.path(shard, split, "ids"), dtype))
    empty = np.full(BLOCK, pad, dtype)
    block, held = 0, empty.copy()
    for runs in chunks:
        runs = order.cut(runs[runs["ids"] > 0], BLOCK)
        blocks = runs["at"] // BLOCK
        borders = np.flatnonzero(np.diff(blocks, prepend=-1, append=-1))
        for low, high in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
            while block < blocks[low]:
                yield held
                block, held = block + 1, empty.copy()
            for shard, here in _by_shard(runs[low:high]):
                mine = runs[low:high][here]
                encoded(shard).fill(held, mine["at"] - block * BLOCK, mine["first"], mine["ids"])
    while block * BLOCK < n:
        yield held[: n - block * BLOCK]
        block, held = block + 1, empty.copy()


class Names:
    """The ids of documents of encoded shards."""

    def __init__(self, shards: Shards, split: str):
        def opened(shard: int) -> tuple[Mapped, Mapped]:
            return Mapped(shards.path(shard, split, "documents"), DOCUMENT), Mapped(shards.path(shard, split, "names"), np.uint8)

        self._opened = lru_cache(OPEN)(opened)

    def of(self, runs: Runs) -> pa.Array:
        """The id of each run's document, as ``large_string``."""
        starts, sizes = np.empty(len(runs), np.int64), np.empty(len(runs), np.int64)
        for shard, here in _by_shard(runs):
            rows = self._opened(shard)[0].take(runs["document"][here])
            starts[here], sizes[here] = rows["name"], rows["name_bytes"]
        ends = np.concatenate([[0], np.cumsum(sizes)])
        names = np.empty(int(ends[-1]), np.uint8)
        for shard, here in _by_shard(runs):
            self._opened(shard)[1].fill(names, ends[here], starts[here], sizes[here])
        return pa.LargeStringArray.from_buffers(len(runs), pa.py_buffer(ends.tobytes()), pa.py_buffer(names.tobytes()))


def _by_shard(runs: Runs) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each shard with the places of its runs, in order."""
    sorted_ = np.argsort(runs["shard"], kind="stable")
    shards, first = np.unique(runs["shard"][sorted_], return_index=True)
    yield from zip(shards.tolist(), np.split(sorted_, first[1:]), strict=True)
