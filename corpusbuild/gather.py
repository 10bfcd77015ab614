"""Spans of a file of equally wide values, copied together from wherever they stand."""

import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

LONG = 4096
"""Values from which on a span is copied for itself."""


class Mapped:
    """A file of values of one type, mapped into memory. What was read does not stay in memory."""

    def __init__(self, path: Path, dtype: DTypeLike):
        self._map: mmap.mmap | None = None
        self.values: NDArray[Any] = np.empty(0, dtype)
        if path.stat().st_size:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            self.values = np.frombuffer(self._map, dtype)

    def take(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """The values at these places."""
        taken = self.values[rows]
        self._forget()
        return taken

    def fill(self, out: NDArray[Any], places: NDArray[np.int64], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """Copy ``lengths[i]`` values from ``starts[i]`` on to ``out`` from ``places[i]`` on, for every i."""
        some = lengths > 0
        if not some.any():
            return
        places, starts, lengths = places[some], starts[some], lengths[some]
        goes_on = (starts[1:] == starts[:-1] + lengths[:-1]) & (places[1:] == places[:-1] + lengths[:-1])
        first = np.flatnonzero(np.concatenate([[True], ~goes_on]))
        places, starts, lengths = places[first], starts[first], np.add.reduceat(lengths, first)
        long = lengths >= LONG
        for place, start, length in zip(places[long].tolist(), starts[long].tolist(), lengths[long].tolist(), strict=True):
            out[place : place + length] = self.values[start : start + length]
        out[spans(places[~long], lengths[~long])] = self.values[spans(starts[~long], lengths[~long])]
        self._forget()

    def _forget(self) -> None:
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)


def spans(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The indices of all spans, one span after another.

    >>> spans(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
