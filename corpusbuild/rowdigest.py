"""The digest of rows: what a table says, whatever library wrote it, however it is compressed and cut into row groups and files.

A row is the bytes of its cells in the order of the columns: ``00`` for null; ``01`` and 8 bytes, little-endian and signed, for an integer; ``02``,
the length as 8 bytes, little-endian, and the bytes themselves for text (UTF-8) and for bytes. The digest of a row is the BLAKE3 of that, 32 bytes.
The digest of rows is the BLAKE3 of the names of the columns, each followed by a line feed, of one more line feed, and of the rows' digests one
after another. So shards and whole corpora are digested alike, and that of a corpus does not depend on how many rows a shard holds.
"""

from collections.abc import Iterable, Sequence

import pyarrow as pa
from blake3 import blake3

NULL, INTEGER, BYTES = b"\x00", b"\x01", b"\x02"


def row_digests(table: pa.Table) -> bytes:
    """The digests of the rows one after another, 32 bytes each. ``TypeError`` for a column that holds neither integers, text nor bytes."""
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
    text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if text or pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return [NULL if v is None else BYTES + len(v).to_bytes(8, "little") + v for v in column.cast(pa.large_binary()).to_pylist()]
    raise TypeError(f"a column of {column.type} has no digest")
