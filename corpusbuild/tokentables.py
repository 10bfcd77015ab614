"""The tables beside the token files: ``index.parquet``, which document stands where, and ``sequences.parquet``, what each sequence holds."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from corpusbuild.encoded import Names
from corpusbuild.encoding import REFUSED
from corpusbuild.order import CHUNK, RUN, Runs

INDEX = pa.schema(
    [
        ("file", pa.string()),
        ("start", pa.int64()),  # ids before the run in its file, the separator counted as the document's first id
        ("length", pa.int64()),  # ids of the run, separator included
        ("id", pa.string()),
        ("offset", pa.int64()),  # ids of the document before this run: not 0 only where documents are cut
    ]
)
"""``index.parquet``: where each document stands in the token files."""

SEQUENCES = pa.schema(
    [
        ("file", pa.string()),
        ("start", pa.int64()),  # ids before the sequence in its file
        ("length", pa.int32()),  # ids that are not padding
        ("resets", pa.list_(pa.int32())),  # where in the sequence a run of another document begins
    ]
)
"""``sequences.parquet``: what the fixed-length sequences hold."""


TABLES = {"index": INDEX, "sequences": SEQUENCES, "refused": REFUSED}


def write_index(path: Path, file: str, chunks: Iterable[Runs], names: Names) -> None:
    """The rows of one token file."""
    with pq.ParquetWriter(path, INDEX, compression="zstd") as writer:
        for runs in chunks:
            ids = names.of(runs).cast(pa.string())
            writer.write_table(pa.table([_constant(file, len(runs)), runs["at"], runs["ids"], ids, runs["offset"]], schema=INDEX))


def write_sequences(path: Path, file: str, chunks: Iterable[Runs], size: int) -> None:
    """The sequences of one token file."""
    with pq.ParquetWriter(path, SEQUENCES, compression="zstd") as writer:
        for runs in _whole_sequences(chunks, size):
            sequence = runs["at"] // size
            first = np.flatnonzero(np.diff(sequence, prepend=-1))
            starts = sequence[first] * size
            resets = pa.ListArray.from_arrays(np.append(first, len(runs)).astype(np.int32), (runs["at"] - sequence * size).astype(np.int32))
            last = np.append(first[1:], len(runs)) - 1
            lengths = (runs["at"] + runs["ids"])[last] - starts
            writer.write_table(pa.table([_constant(file, len(first)), starts, lengths.astype(np.int32), resets], schema=SEQUENCES))


def join(path: Path, parts: Sequence[Path], schema: pa.Schema) -> None:
    """One table of several, row group after row group."""
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for part in parts:
            with pq.ParquetFile(part) as file:
                for group in range(file.num_row_groups):
                    writer.write_table(file.read_row_group(group))


def run_ends(chunks: Callable[[], Iterator[Runs]]) -> Iterator[NDArray[np.int64]]:
    """Where each run ends."""
    return (runs["at"] + runs["ids"] for runs in chunks())


def borders(chunks: Callable[[], Iterator[Runs]], n: int) -> Iterator[NDArray[np.int64]]:
    """Where runs and paddings end, each place once."""
    last = 0
    for runs in chunks():
        runs = runs[runs["ids"] > 0]
        both = np.stack([runs["at"], runs["at"] + runs["ids"]], axis=1).ravel()
        places = np.unique(both[both > last])
        yield places
        last = int(places[-1]) if len(places) else last
    if last < n:
        yield np.array([n])


def sequence_ends(size: int, n: int) -> Iterator[NDArray[np.int64]]:
    """Where each of the sequences ends that ``n`` ids hold."""
    for start in range(0, n, size * CHUNK):
        yield np.arange(start + size, min(start + size * CHUNK, n) + 1, size)


def _constant(text: str, n: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), pa.array([text])).cast(pa.string())


def _whole_sequences(chunks: Iterable[Runs], size: int) -> Iterator[Runs]:
    """Runs that have ids, in chunks that cut no sequence."""
    held = np.empty(0, RUN)
    for runs in chunks:
        held = np.concatenate([held, runs[runs["ids"] > 0]])
        whole = int(np.searchsorted(held["at"] // size, held["at"][-1] // size)) if len(held) else 0
        if whole:
            yield held[:whole]
            held = held[whole:]
    if len(held):
        yield held
