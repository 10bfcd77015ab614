"""The order in which documents become ids: runs of a document's ids as rows of arrays, sorted, cut, packed and laid into files.

Everything works on chunks of rows, so that a corpus of any size streams through.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusbuild.minhash import GOLDEN, fnv1a, mix

CHUNK = 1 << 16
"""Rows that are handled at a time, and documents that best-fit packing chooses from."""

RUN = np.dtype(
    [
        ("shard", "<i4"),
        ("document", "<i4"),  # row among the shard's documents of this split
        ("first", "<i8"),  # ids before the run in what the shard was encoded to
        ("ids", "<i8"),
        ("offset", "<i8"),  # ids of the document before the run
        ("at", "<i8"),  # where the run stands in its split
        ("key", "<u8"),  # what a shuffle sorts by
    ]
)
"""A run of ids of one document."""

Runs = NDArray[Any]
"""Of ``RUN``."""


def hashes(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A hash of each document id: the mixed FNV-1a of its UTF-8."""
    return mix(fnv1a(data, offsets[:-1], offsets[1:]))  # type: ignore[arg-type]  # bytes are codes too


def keyed(values: NDArray[np.uint64], *numbers: int) -> NDArray[np.uint64]:
    """Hashes of hashes, another set for each list of numbers.

    >>> keyed(np.array([1, 2], np.uint64), 7).tolist() == keyed(np.array([1, 2], np.uint64), 8).tolist()
    False
    """
    for number in numbers:
        values = mix(values * np.uint64(GOLDEN) + np.uint64(number))
    return values


def placed(chunks: Iterable[Runs]) -> Iterator[Runs]:
    """Runs one after another, without gaps."""
    at = 0
    for runs in chunks:
        runs = runs.copy()
        ends = at + np.cumsum(runs["ids"])
        runs["at"] = ends - runs["ids"]
        at = int(ends[-1]) if len(ends) else at
        yield runs


def cut(runs: Runs, size: int) -> Runs:
    """Cut runs wherever they cross a multiple of ``size`` of the place that they stand at."""
    begin = runs["at"] // size
    pieces = np.maximum(runs["at"] + runs["ids"] - 1, runs["at"]) // size - begin + 1
    if not len(runs) or pieces.max() == 1:
        return runs
    out = np.repeat(runs, pieces)
    window = np.repeat(begin, pieces) + np.arange(len(out)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    low = np.maximum(out["at"], window * size)
    high = np.minimum(out["at"] + out["ids"], (window + 1) * size)
    for name in ("first", "offset"):
        out[name] += low - out["at"]
    out["at"], out["ids"] = low, high - low
    return out


def windows(chunks: Iterable[Runs], size: int) -> Iterator[Runs]:
    """Cut placed runs at the borders of windows of ``size`` ids and give all of a window one key, that of the run it begins with and the place in it."""
    last, key = -1, np.uint64(0)
    for runs in chunks:
        runs = cut(runs, size)
        window = runs["at"] // size
        first = np.flatnonzero(np.diff(window, prepend=last))
        keys = np.concatenate([[key], keyed(runs["key"][first] + runs["offset"][first].astype(np.uint64), 0)])
        runs["key"] = keys[np.cumsum(np.diff(window, prepend=last) != 0)]
        if len(runs):
            last, key = int(window[-1]), keys[-1]
        yield runs


def rechunked(chunks: Iterable[Runs], size: int = CHUNK) -> Iterator[Runs]:
    """The same runs, ``size`` at a time, the last maybe fewer."""
    held: list[Runs] = []
    n = 0
    for runs in chunks:
        held.append(runs)
        n += len(runs)
        while n >= size:
            joined = np.concatenate(held)
            yield joined[:size]
            held, n = [joined[size:]], n - size
    if n:
        yield np.concatenate(held)


def best_fit(lengths: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """The number of the bin of ``size`` for each length: the longest first, each into the fullest bin that has room for it, of equals the first.

    >>> best_fit(np.array([3, 5, 2, 5]), 8).tolist()
    [0, 0, 1, 1]
    """
    bins = np.zeros(len(lengths), np.int64)
    room: list[tuple[int, int]] = []
    made = 0
    for i in np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)].tolist():  # what has no ids needs no room
        length = int(lengths[i])
        at = bisect_left(room, (length, 0))
        if at < len(room):
            left, bin = room.pop(at)
        else:
            left, bin, made = size, made, made + 1
        bins[i] = bin
        if left > length:
            insort(room, (left - length, bin))
    return bins


def packed(chunks: Iterable[Runs], size: int) -> Iterator[Runs]:
    """Lay documents into sequences of ``size`` ids by best fit, a chunk for itself; a longer one is first cut into full sequences and a rest."""
    filled = 0
    for runs in chunks:
        whole = runs.copy()
        whole["at"] = whole["offset"]
        pieces = cut(whole, size)
        bins = best_fit(pieces["ids"], size)
        names, opened = np.unique(bins, return_index=True)
        rank = np.empty(len(names), np.int64)
        rank[np.argsort(opened)] = np.arange(len(names))
        order = np.argsort(rank[bins], kind="stable")
        pieces, sequence = pieces[order], rank[bins][order]
        begins = np.cumsum(pieces["ids"]) - pieces["ids"]
        pieces["at"] = (filled + sequence) * size + begins - begins[np.searchsorted(sequence, sequence)]
        filled += len(names) if pieces["ids"].any() else 0
        yield pieces


FILE = np.dtype([("first", "<i8"), ("runs", "<i8"), ("start", "<i8"), ("end", "<i8"), ("documents", "<i8")])
"""A token file: its first run and how many, where it starts and ends in its split, and the documents that begin in it."""


class Files:
    """Lays placed runs into files, whole: at most ``limit`` ids each, a longer one alone. At least one file.

    >>> files = Files(10)
    >>> runs = np.zeros(5, RUN)
    >>> runs["ids"] = [4, 6, 2, 15, 2]
    >>> files.add(next(placed([runs])))
    >>> [(f["runs"].item(), f["end"].item()) for f in files.close()]
    [(2, 10), (1, 12), (1, 27), (1, 29)]
    """

    def __init__(self, limit: int):
        self._limit = limit
        self._closed: list[tuple[int, int, int, int, int]] = []
        self._first = self._rows = self._start = self._end = self._documents = 0
        self._full = False

    def add(self, runs: Runs) -> None:
        ends = runs["at"] + runs["ids"]
        at = 0
        while at < len(runs):
            fit = int(np.searchsorted(ends, self._start + self._limit, side="right")) - at
            if self._full or (fit <= 0 and self._end > self._start):
                self._next()
                continue
            fit = max(fit, 1)
            self._documents += int(np.count_nonzero(runs["offset"][at : at + fit] == 0))
            self._rows, self._end, at = self._rows + fit, int(ends[at + fit - 1]), at + fit
            self._full = self._end - self._start >= self._limit

    def close(self) -> NDArray[Any]:
        """The files, in order, as ``FILE``."""
        self._next()
        return np.array(self._closed, FILE)

    def _next(self) -> None:
        self._closed.append((self._first, self._rows, self._start, self._end, self._documents))
        self._first, self._start = self._first + self._rows, self._end
        self._rows = self._documents = 0
        self._full = False


class SequenceFiles:
    """Lays packed runs into files of as many whole sequences as ``limit`` has room for, padding included. At least one file."""

    def __init__(self, limit: int, size: int):
        self._ids, self._size = max(limit // size, 1) * size, size
        self._runs: list[int] = [0]
        self._documents: list[int] = [0]
        self._end = 0

    def add(self, runs: Runs) -> None:
        file = np.maximum(runs["at"] - (runs["ids"] == 0), 0) // self._ids  # what has no ids begins no file
        if not len(runs):
            return
        more = int(file[-1]) + 1 - len(self._runs)
        self._runs += [0] * more
        self._documents += [0] * more
        names, where, counts = np.unique(file, return_inverse=True, return_counts=True)
        begin = np.bincount(where, weights=runs["offset"] == 0)
        for i, n, documents in zip(names.tolist(), counts.tolist(), begin.tolist(), strict=True):
            self._runs[i] += n
            self._documents[i] += int(documents)
        self._end = int((runs["at"] + runs["ids"]).max(initial=self._end))

    def close(self) -> NDArray[Any]:
        end = -(-self._end // self._size) * self._size
        starts = np.arange(len(self._runs), dtype=np.int64) * self._ids
        first = np.cumsum([0, *self._runs])[:-1]
        rows = zip(first, self._runs, starts, np.minimum(starts + self._ids, end), self._documents, strict=True)
        return np.array(list(rows), FILE)
