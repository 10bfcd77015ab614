"""Spool: fixed-width records in one file, grouped by partition, so that what belongs together is read together and nothing else is.

The file is the records, then for each run of records its partition, first record and length (three little-endian 64-bit numbers), then the number
of runs.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedWriter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from corpusbuild.errors import IntegrityError

NUMBER = np.dtype("<i8")


class Spool:
    """An open spool. Records added together keep their order within their partition, and so do additions."""

    def __init__(self, file: BufferedWriter):
        self._file = file
        self._written = 0
        self._runs: list[NDArray[np.int64]] = []

    def add(self, partitions: NDArray[Any], records: NDArray[Any]) -> None:
        """Append ``records``, of which each belongs to the partition of the same index."""
        if not len(partitions):
            return
        names = partitions.astype(np.uint16) if partitions.max() < 1 << 16 else partitions  # which numpy sorts in linear time
        order = np.argsort(names, kind="stable")
        names, records = partitions[order], records[order]
        starts = np.flatnonzero(np.concatenate([[True], names[1:] != names[:-1]]))
        self._file.write(records.data)
        lengths = np.diff(starts, append=len(names))
        self._runs.append(np.stack([names[starts].astype(np.int64), self._written + starts, lengths], axis=1))
        self._written += len(records)

    def add_to(self, partition: int, records: NDArray[Any]) -> None:
        """Append records that belong to one partition."""
        self._file.write(np.ascontiguousarray(records).data)
        self._runs.append(np.array([[partition, self._written, len(records)]]))
        self._written += len(records)

    def close(self) -> None:
        runs = np.concatenate([np.empty((0, 3), np.int64), *self._runs])
        self._file.write(runs.astype(NUMBER).tobytes() + np.array(len(runs), NUMBER).tobytes())


@contextmanager
def writing(path: Path) -> Iterator[Spool]:
    with path.open("wb") as file:
        spool = Spool(file)
        yield spool
        spool.close()


class Reader:
    """A spool that is read partition by partition; what lies where is read once."""

    def __init__(self, path: Path, dtype: DTypeLike):
        self._path, self._kind = path, np.dtype(dtype)
        with path.open("rb") as file:
            file.seek(-NUMBER.itemsize, 2)
            count = int(np.fromfile(file, NUMBER, 1)[0])
            file.seek(-NUMBER.itemsize * (3 * count + 1), 2)
            self._runs = np.fromfile(file, NUMBER, 3 * count).reshape(-1, 3)

    def count(self, partition: int) -> int:
        """How many records a partition has."""
        return int(self._runs[self._runs[:, 0] == partition, 2].sum())

    def runs(self, partition: int) -> Iterator[NDArray[Any]]:
        """The records of one partition, a run at a time, in the order they were added."""
        mine = self._runs[self._runs[:, 0] == partition]
        if not len(mine):
            return
        with self._path.open("rb") as file:
            for _, start, length in mine.tolist():
                file.seek(start * self._kind.itemsize)
                records = np.fromfile(file, self._kind, length)
                if len(records) != length:
                    raise IntegrityError(f"{self._path} ends early: delete its folder and build again")
                yield records


def runs(path: Path, partition: int, dtype: DTypeLike) -> Iterator[NDArray[Any]]:
    """The records of one partition of a spool of which no other is wanted."""
    return Reader(path, dtype).runs(partition)


def gathered(runs: Iterable[NDArray[Any]], least: int) -> Iterator[NDArray[Any]]:
    """Runs joined until they hold ``least`` records."""
    held: list[NDArray[Any]] = []
    size = 0
    for run in runs:
        held.append(run)
        size += len(run)
        if size >= least:
            yield np.concatenate(held)
            held, size = [], 0
    if held:
        yield np.concatenate(held)


def read(path: Path, partition: int, dtype: DTypeLike) -> NDArray[Any]:
    """All records of one partition."""
    return np.concatenate([np.empty(0, dtype), *runs(path, partition, dtype)])


def partition_bits(records: int, record_bytes: int, memory: int) -> int:
    """Into how many partitions, as a power of two, records must fall for each to be worked on within ``memory``.

    >>> partition_bits(1000, record_bytes=100, memory=30_000)
    2
    """
    bits = 0
    while records * record_bytes >> bits > memory and bits < 16:
        bits += 1
    return bits


def partition_of(keys: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    """The partition of each key: its ``bits`` highest bits.

    >>> partition_of(np.array([1 << 63, 1], np.uint64), 1).tolist()
    [1, 0]
    """
    return (keys >> np.uint64(1)) >> np.uint64(63 - bits)
