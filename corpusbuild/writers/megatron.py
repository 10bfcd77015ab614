"""Megatron's indexed datasets: ``.bin`` is the ids, ``.idx`` says where each sequence stands. Every sequence is a document of its own.

=======  ==================================================================
bytes    ``.idx``, little-endian
=======  ==================================================================
9        ``MMIDIDX`` and two zeros
8        1, the version
1        type of the ids: 8 for uint16, 4 for int32
8        number of sequences, n
8        n + 1
4 n      ids of each sequence, int32
8 n      where in ``.bin`` each begins, in bytes, int64
8 (n+1)  the first sequence of each document, and n, int64
=======  ==================================================================
"""

import struct

import numpy as np

from corpusbuild.order import CHUNK
from corpusbuild.writers import Out, Page, Plain, Shape, Sink, count, lengths

_TYPES = {2: 8, 4: 4}  # it knows no uint32; ids are below 2**31, so int32 has the same bytes


def sink(shape: Shape, out: Out) -> Sink:
    n, width = count(shape.samples), shape.dtype.itemsize
    with out(".idx").open("wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, _TYPES[width], n, n + 1))
        for each in lengths(shape.samples):
            file.write(each.astype("<i4").tobytes())
        last = 0
        for ends in shape.samples():
            file.write((np.concatenate([[last], ends[:-1]]) * width).astype("<i8").tobytes() if len(ends) else b"")
            last = int(ends[-1]) if len(ends) else last
        for start in range(0, n + 1, CHUNK):
            file.write(np.arange(start, min(start + CHUNK, n + 1), dtype="<i8").tobytes())
    return Plain(out(".bin"))


def index(files: list[Page]) -> bytes | None:
    return None
