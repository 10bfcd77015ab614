"""What sign writes of a part: ``*.signs.arrow``, uncompressed, so that a column is mapped into memory and not read.

Signs have one row a document: ``id``, how many ``paragraphs`` it has, the two halves of the digest of its shingle set (``digest_hi``, ``digest_lo``),
how many ``shingles`` the set has, and the first 40 bits of its key in each band (``band_0000``, ``band_0001``, ...). One band of all documents lies
together. Where keys are equal by chance more pairs are compared, no more: among a billion documents one for every 2,000 of them, a band.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from corpusbuild.minhash import I64, U64, Signs
from corpusbuild.parts import read_arrow, write_arrow

KEPT_BYTES = 5
UNKEPT = np.uint64(64 - 8 * KEPT_BYTES)


def write_signs(path: Path, more: Mapping[str, Any], signs: Signs) -> None:
    """Write signs with more columns, which say whose they are."""
    bands = {_band(i): _packed(keys) for i, keys in enumerate(signs.bands)}
    columns = {**more, "digest_hi": signs.hi, "digest_lo": signs.lo, "shingles": signs.shingles}
    write_arrow(path, pa.table(columns | bands), compression=None)


def read_signs(path: Path, bands: int) -> Signs:
    """Signs, with of each key what is kept."""
    return Signs(*read_sets(path), np.stack([read_band(path, i) for i in range(bands)]))


def read_sets(path: Path) -> tuple[U64, U64, NDArray[np.int32]]:
    """The digest of each document's shingle set, in two halves, and how many the set has."""
    table = read_arrow(path)
    hi, lo, sizes = (table.column(name).to_numpy().copy() for name in ("digest_hi", "digest_lo", "shingles"))
    return hi, lo, sizes


def paragraph_counts(path: Path) -> I64:
    """How many paragraphs each document has."""
    counts: I64 = read_arrow(path).column("paragraphs").to_numpy().astype(np.int64)
    return counts


def read_band(path: Path, band: int) -> U64:
    """The first 40 bits of each document's key, as a number."""
    return _unpacked(read_arrow(path).column(_band(band)))


def agreeing(path: Path, keys: U64) -> NDArray[np.int64]:
    """In how many bands each document of a file of signs has these keys, one a band."""
    table = read_arrow(path)
    return np.asarray(np.count_nonzero([_unpacked(table.column(_band(i))) == key for i, key in enumerate(keys >> UNKEPT)], axis=0))


def _packed(keys: U64) -> pa.Array:
    parts = np.ascontiguousarray(keys.astype(">u8").view(np.uint8).reshape(-1, 8)[:, :KEPT_BYTES])
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(KEPT_BYTES), len(keys), [None, pa.py_buffer(parts)])


def _unpacked(column: pa.ChunkedArray) -> U64:
    keys, at = np.zeros((len(column), 8), np.uint8), 0
    for array in column.chunks:
        kept = np.frombuffer(array.buffers()[1], np.uint8).reshape(-1, KEPT_BYTES)[array.offset : array.offset + len(array)]
        keys[at : at + len(array), -KEPT_BYTES:] = kept
        at += len(array)
    return keys.view(">u8")[:, 0].astype(np.uint64)


def _band(i: int) -> str:
    return f"band_{i:04d}"
