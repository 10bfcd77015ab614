"""What sign writes of a part: ``*.signs.arrow`` and ``*.paragraphs.arrow``, uncompressed, so that a column is mapped into memory and not read.

Signs have one row a document: ``id``, the two halves of the digest of its shingle set (``digest_hi``, ``digest_lo``), how many ``shingles`` the set
has, and its key in each band (``band_0000``, ``band_0001``, ...). One band of all documents lies together.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from blake3 import blake3
from numpy.typing import NDArray

from corpusbuild import kernels
from corpusbuild.minhash import I64, U64, Signs, halves
from corpusbuild.parts import read_arrow, write_arrow
from corpusbuild.text import paragraphs
from corpusbuild.texts import Texts

Columns = tuple[I64, I64, I64, U64, U64]

PARAGRAPHS = pa.schema(
    [
        ("row", pa.int32()),
        ("start", pa.int64()),  # code points of the filtered text
        ("end", pa.int64()),
        ("hi", pa.uint64()),  # 128 bits of the BLAKE3 of the paragraph's UTF-8, as two big-endian halves
        ("lo", pa.uint64()),
    ]
)
"""``*.paragraphs.arrow``: one row for each paragraph of each document, in order."""


def write_signs(path: Path, name: str, labels: Any, signs: Signs) -> None:
    """Write signs with one more column, ``name``, that says whose they are."""
    bands = {_band(i): keys for i, keys in enumerate(signs.bands)}
    columns = {name: labels, "digest_hi": signs.hi, "digest_lo": signs.lo, "shingles": signs.shingles}
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


def read_band(path: Path, band: int) -> U64:
    keys: U64 = read_arrow(path).column(_band(band)).to_numpy()
    return keys


def agreeing(path: Path, keys: U64) -> NDArray[np.int64]:
    """In how many bands each document of a file of signs has these keys, one a band."""
    table = read_arrow(path)
    return np.asarray(np.count_nonzero([table.column(_band(i)).to_numpy() == key for i, key in enumerate(keys)], axis=0))


def paragraph_rows(first_row: int, texts: Texts) -> pa.RecordBatch:
    """The rows of ``*.paragraphs.arrow`` for consecutive documents."""
    rows, starts, ends, hi, lo = (_by_kernel if kernels.compiled() else _by_definition)(texts)
    return pa.RecordBatch.from_arrays([pa.array(rows + first_row, pa.int32()), *map(pa.array, (starts, ends, hi, lo))], schema=PARAGRAPHS)


def _by_definition(texts: Texts) -> Columns:
    rows: list[int] = []
    spans: list[tuple[int, int]] = []
    digests: list[bytes] = []
    for row, text in enumerate(texts.strings()):
        found = paragraphs(text)
        rows += [row] * len(found)
        spans += found
        digests += [blake3(text[start:end].encode()).digest(16) for start, end in found]
    where = np.array(spans, np.int64).reshape(-1, 2)
    return np.array(rows, np.int64), where[:, 0].copy(), where[:, 1].copy(), *halves(digests)


def _by_kernel(texts: Texts) -> Columns:
    from corpusbuild.kernels import blake3, paragraphs

    begin, end = int(texts.offsets[0]), int(texts.offsets[-1])
    n = len(texts.offsets) - 1
    most = n + int(np.count_nonzero(texts.data[begin:end] == 10))
    places, counts = np.empty((4, most), np.int64), np.zeros(n, np.int64)
    first_byte, last_byte, starts, ends = places[:, : paragraphs.paragraphs(*texts, _spaces(), places, counts)]
    return np.repeat(np.arange(n), counts), starts, ends, *blake3.digests(texts.data, first_byte, last_byte)


@cache
def _spaces() -> NDArray[np.bool_]:
    """For each code point, up to the last that is, whether it is white space."""
    return np.array([chr(c).isspace() for c in range(0x3001)], np.bool_)


def _band(i: int) -> str:
    return f"band_{i:04d}"
