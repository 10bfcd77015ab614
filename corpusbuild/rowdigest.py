"""The digest of rows: what a table says, whatever library wrote it, however it is compressed and cut into row groups and files.

A row is the bytes of its cells in the order of the columns: ``00`` for null; ``01`` and 8 bytes, little-endian and signed, for an integer; ``02``,
the length as 8 bytes, little-endian, and the bytes themselves for text (UTF-8) and for bytes. The digest of a row is the BLAKE3 of that, 32 bytes.
The digest of rows is the BLAKE3 of the names of the columns, each followed by a line feed, of one more line feed, and of the rows' digests one
after another. So shards and whole corpora are digested alike, and that of a corpus does not depend on how many rows a shard holds.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from blake3 import blake3
from numpy.typing import NDArray

from corpusbuild import kernels

NULL, INTEGER, BYTES = b"\x00", b"\x01", b"\x02"


def row_digests(table: pa.Table) -> bytes:
    """The digests of the rows one after another, 32 bytes each. ``TypeError`` for a column that holds neither integers, text nor bytes."""
    if kernels.compiled():
        return b"".join(_compiled(table))
    return b"".join(blake3(b"".join(cells)).digest() for cells in zip(*map(_cells, table.columns), strict=True))


def rows_digest(columns: Sequence[str], digests: Iterable[bytes]) -> str:
    """The digest of rows, in hex, from the names of their columns and the rows' own digests in order, in pieces of any size.

    >>> table = pa.table({"id": ["a", None], "n": [-1, 2]})
    >>> rows_digest(table.column_names, [row_digests(table)])[:16]
    '0280c4320bbb6350'
    """
    whole = blake3("".join(f"{name}\n" for name in columns).encode() + b"\n")
    for piece in digests:
        whole.update(piece)
    return whole.hexdigest()


def _cells(column: pa.ChunkedArray) -> list[bytes]:
    if pa.types.is_integer(column.type):
        return [NULL if v is None else INTEGER + v.to_bytes(8, "little", signed=True) for v in column.to_pylist()]
    return [NULL if v is None else BYTES + len(v).to_bytes(8, "little") + v for v in _pieces(column).to_pylist()]


def _pieces(column: pa.ChunkedArray) -> pa.ChunkedArray:
    text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if text or pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return column.cast(pa.large_binary())
    raise TypeError(f"a column of {column.type} has no digest")


# --- compiled ---

BLOCK = 1 << 20  # bytes of rows laid out at once

Values = tuple[NDArray[Any], NDArray[np.int64] | None, NDArray[np.bool_]]
"""The numbers of a column, or its bytes and where each piece begins, and which rows have one."""


def _compiled(table: pa.Table) -> Iterator[bytes]:
    from corpusbuild.kernels import rows as kernel

    if not len(table):
        return
    columns = [_values(column) for column in table.columns]
    sizes = np.zeros(len(table), np.int64)
    for _, offsets, valid in columns:
        sizes += 1 + valid * (8 + (0 if offsets is None else np.diff(offsets)))
    ends = np.concatenate([[0], np.cumsum(sizes)])
    first = 0
    while first < len(table):
        last = max(first + 1, int(np.searchsorted(ends, ends[first] + BLOCK, side="right")) - 1)
        out, at = np.empty(ends[last] - ends[first], np.uint8), ends[first:last] - ends[first]
        for data, offsets, valid in columns:
            if offsets is None:
                kernel.integers(data[first:last], valid[first:last], at, out)
            else:
                kernel.pieces(data, offsets[first : last + 1], valid[first:last], at, out)
        for start, end in pairwise((ends[first : last + 1] - ends[first]).tolist()):
            yield blake3(out.data[start:end]).digest()
        first = last


def _values(column: pa.ChunkedArray) -> Values:
    valid = column.is_valid().to_numpy()
    if pa.types.is_integer(column.type):
        if column.null_count:
            column = column.fill_null(0)
        return column.to_numpy().astype(np.int64), None, valid
    array = pa.concat_arrays(_pieces(column).chunks)
    _, places, data = array.buffers()
    offsets = np.frombuffer(places, np.int64)[array.offset : array.offset + len(array) + 1]
    return np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8), offsets, valid
