"""Rows of a table as the bytes that their digests are of. ``corpusbuild.rowdigest`` is the reference, and says what they are."""

from typing import Any

import numpy as np

from corpusbuild.kernels.jit import inlined, kernel
from corpusbuild.kernels.utf8 import BYTES, MARKS, PLACES

NULL, INTEGER, PIECE = np.uint8(0), np.uint8(1), np.uint8(2)


@inlined
def _put(number: Any, out: Any, to: Any) -> None:
    for k in range(8):
        out[np.uint64(to + k)] = np.uint8((number >> np.uint64(8 * k)) & np.uint64(255))


@kernel(f"void({PLACES}, {MARKS}, int64[::1], uint8[::1])")
def integers(values: Any, valid: Any, at: Any, out: Any) -> None:
    """Write the cell of each row of a column where ``at`` says, and move that on."""
    for row in range(len(values)):
        to = at[row]
        out[to] = INTEGER if valid[row] else NULL
        at[row] += 1
        if valid[row]:
            _put(np.uint64(values[row]), out, to + 1)
            at[row] += 8


@kernel(f"void({BYTES}, {PLACES}, {MARKS}, int64[::1], uint8[::1])")
def pieces(data: Any, offsets: Any, valid: Any, at: Any, out: Any) -> None:
    """As ``integers``, of a column of text or bytes."""
    for row in range(len(valid)):
        to = at[row]
        out[to] = PIECE if valid[row] else NULL
        at[row] += 1
        if valid[row]:
            first, size = offsets[row], offsets[row + 1] - offsets[row]
            _put(np.uint64(size), out, to + 1)
            source, target = np.uint64(first), np.uint64(to + 9)
            for k in range(np.uint64(size)):
                out[target + k] = data[source + k]
            at[row] += 8 + size
