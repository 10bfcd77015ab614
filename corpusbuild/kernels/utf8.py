"""What the kernels have in common: the types of what a mapped file gives, and how bytes are read."""

from typing import Any

import numpy as np

from corpusbuild.kernels.jit import part

BYTES, NUMBERS, PLACES, MARKS, KINDS = (
    f"Array({kind}, 1, 'C', readonly=True)" for kind in ("uint8", "uint64", "int64", "boolean", "uint32")
)


@part(f"Tuple((uint32, uint64))({BYTES}, uint64)")
def decoded(data: Any, i: Any) -> Any:
    """The code point of two bytes or more at ``i``, and how many they are."""
    first = np.uint32(data[i])
    if first < np.uint32(0xE0):
        return (first & np.uint32(0x1F)) << np.uint32(6) | np.uint32(data[i + np.uint64(1)] & 0x3F), np.uint64(2)
    if first < np.uint32(0xF0):
        return (
            (first & np.uint32(0x0F)) << np.uint32(12)
            | np.uint32(data[i + np.uint64(1)] & 0x3F) << np.uint32(6)
            | np.uint32(data[i + np.uint64(2)] & 0x3F)
        ), np.uint64(3)
    return (
        (first & np.uint32(0x07)) << np.uint32(18)
        | np.uint32(data[i + np.uint64(1)] & 0x3F) << np.uint32(12)
        | np.uint32(data[i + np.uint64(2)] & 0x3F) << np.uint32(6)
        | np.uint32(data[i + np.uint64(3)] & 0x3F)
    ), np.uint64(4)


@part(f"uint64({BYTES}, uint64)")
def eight(data: Any, i: Any) -> Any:
    """Eight bytes as a number, the first lowest, which the compiler makes one load of."""
    return (
        np.uint64(data[i])
        | np.uint64(data[i + np.uint64(1)]) << np.uint64(8)
        | np.uint64(data[i + np.uint64(2)]) << np.uint64(16)
        | np.uint64(data[i + np.uint64(3)]) << np.uint64(24)
        | np.uint64(data[i + np.uint64(4)]) << np.uint64(32)
        | np.uint64(data[i + np.uint64(5)]) << np.uint64(40)
        | np.uint64(data[i + np.uint64(6)]) << np.uint64(48)
        | np.uint64(data[i + np.uint64(7)]) << np.uint64(56)
    )
