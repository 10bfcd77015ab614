"""What sign writes of a part: ``*.signs.arrow``, uncompressed, so that a column is mapped into memory and not read.

Signs have one row a document: ``id``, how many ``paragraphs`` it has, the two halves of the digest of its shingle set (``digest_hi``, ``digest_lo``),
how many ``shingles`` the set has, and its key in each band (``band_0000``, ``band_0001``, ...). One band of all documents lies together.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from corpusbuild.minhash import I64, U64, Signs
from corpusbuild.parts import read_arrow, write_arrow


def write_signs(path: Path, more: Mapping[str, Any], signs: Signs) -> None:
    """Write signs with more columns, which say whose they are."""
    bands = {_band(i): keys for i, keys in enumerate(signs.bands)}
    columns = {**more, "digest_hi": signs.hi, "digest_lo": signs.lo, "shingles": signs.shingles}
    write_arrow(path, pa.table(columns | bands), compression=None)


def read_signs(path: Path, bands: int) -> Signs:
    table = read_arrow(path)
    hi, lo, sizes, *keys = (table.column(name).to_numpy() for name in ("digest_hi", "digest_lo", "shingles", *map(_band, range(bands))))
    return Signs(hi, lo, sizes, np.stack(keys))


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
    keys: U64 = read_arrow(path).column(_band(band)).to_numpy()
    return keys


def agreeing(path: Path, keys: U64) -> NDArray[np.int64]:
    """In how many bands each document of a file of signs has these keys, one a band."""
    table = read_arrow(path)
    return np.asarray(np.count_nonzero([table.column(_band(i)).to_numpy() == key for i, key in enumerate(keys)], axis=0))


def _band(i: int) -> str:
    return f"band_{i:04d}"
