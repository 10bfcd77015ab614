"""BLAKE3 of many short pieces of an array, 128 bits of each: to call the library for a piece of 60 bytes costs many times what hashing it does.

Sixteen pieces are hashed side by side, one in each lane of a vector; those of like length keep company. ``state`` holds, a row of lanes each, the 16
words that a block is worked into and the 16 words of the block. What is longer than a chunk is left to the library, which is faster there.
"""

from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from corpusbuild.kernels.jit import inlined, kernel
from corpusbuild.kernels.utf8 import BYTES

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]

LANES = 16
CHUNK, BLOCK, BLOCKS = 1024, 64, 16
NONE, START, LAST = np.uint32(0), np.uint32(1), np.uint32(2 | 8)  # of a chunk that is all there is
IV = np.array([0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19], np.uint32)


@inlined
def _turn(x: Any, n: int) -> Any:
    return (x >> np.uint32(n)) | (x << np.uint32(32 - n))


@inlined
def _g(state: Any, i: int, j: int, k: int, m: int, x: int, y: int) -> None:
    for lane in range(16):
        a, b, c, d = state[16 * i + lane], state[16 * j + lane], state[16 * k + lane], state[16 * m + lane]
        a = np.uint32(a + b + state[256 + 16 * x + lane])
        d = _turn(np.uint32(d ^ a), 16)
        c = np.uint32(c + d)
        b = _turn(np.uint32(b ^ c), 12)
        a = np.uint32(a + b + state[256 + 16 * y + lane])
        d = _turn(np.uint32(d ^ a), 8)
        c = np.uint32(c + d)
        b = _turn(np.uint32(b ^ c), 7)
        state[16 * i + lane], state[16 * j + lane], state[16 * k + lane], state[16 * m + lane] = a, b, c, d


@inlined
def _shuffle(state: Any, at: int) -> None:
    """Put the words of a block into the order of the next round."""
    a, b, c, d, e, f, g, h = (
        state[at], state[at + 16], state[at + 32], state[at + 48], state[at + 64], state[at + 80], state[at + 96], state[at + 112],
    )  # fmt: skip
    i, j, k, m, n, o, p, q = (
        state[at + 128], state[at + 144], state[at + 160], state[at + 176], state[at + 192], state[at + 208], state[at + 224], state[at + 240],
    )  # fmt: skip
    state[at], state[at + 16], state[at + 32], state[at + 48] = c, g, d, k
    state[at + 64], state[at + 80], state[at + 96], state[at + 112] = h, a, e, o
    state[at + 128], state[at + 144], state[at + 160], state[at + 176] = b, m, n, f
    state[at + 192], state[at + 208], state[at + 224], state[at + 240] = j, p, q, i


@kernel("void(uint32[::1])")
def _rounds(state: Any) -> None:
    for turn in range(7):
        _g(state, 0, 4, 8, 12, 0, 1)
        _g(state, 1, 5, 9, 13, 2, 3)
        _g(state, 2, 6, 10, 14, 4, 5)
        _g(state, 3, 7, 11, 15, 6, 7)
        _g(state, 0, 5, 10, 15, 8, 9)
        _g(state, 1, 6, 11, 12, 10, 11)
        _g(state, 2, 7, 8, 13, 12, 13)
        _g(state, 3, 4, 9, 14, 14, 15)
        if turn < 6:
            for lane in range(16):
                _shuffle(state, 256 + lane)


@inlined
def _blocks(length: Any) -> Any:
    return max(1, (length + 63) >> 6)


@kernel(f"void(uint32[::1], int64, {BYTES}, int64, int64, uint32)")
def _put(state: Any, lane: int, data: Any, at: Any, length: Any, flags: Any) -> None:
    """Set up one lane: the block, and what goes with it. The chaining value stands there already."""
    if at + 64 <= len(data):
        for word in range(16):
            i = np.uint64(at) + np.uint64(4 * word)
            whole = (
                np.uint32(data[i])
                | np.uint32(data[i + np.uint64(1)]) << np.uint32(8)
                | np.uint32(data[i + np.uint64(2)]) << np.uint32(16)
                | np.uint32(data[i + np.uint64(3)]) << np.uint32(24)
            )
            held = np.uint64(8 * min(max(length - 4 * word, 0), 4))
            state[np.uint64(256 + 16 * word + lane)] = whole & np.uint32((np.uint64(1) << held) - np.uint64(1))
    else:
        for word in range(16):
            state[256 + 16 * word + lane] = np.uint32(0)
        for k in range(length):
            state[256 + 16 * (k >> 2) + lane] |= np.uint32(data[at + k]) << np.uint32(8 * (k & 3))
    state[192 + lane] = state[208 + lane] = NONE
    state[224 + lane] = np.uint32(length)
    state[240 + lane] = flags


@kernel(f"void({BYTES}, int64[::1], int64[::1], int64[::1], uint32[:,::1])")
def _hash(data: Any, starts: Any, ends: Any, which: Any, out: Any) -> None:
    """The digest of each piece of ``which``, none longer than a chunk."""
    state = np.empty(512, np.uint32)
    n = len(which)
    next_of_size = np.zeros(BLOCKS + 2, np.int64)
    for i in which:
        next_of_size[_blocks(ends[i] - starts[i]) + 1] += 1
    for size in range(1, BLOCKS + 2):
        next_of_size[size] += next_of_size[size - 1]
    order = np.empty(n, np.int64)
    for i in which:
        size = _blocks(ends[i] - starts[i])
        order[next_of_size[size]] = i
        next_of_size[size] += 1
    for first in range(0, n, LANES):
        here = min(LANES, n - first)
        longest = order[first + here - 1]
        for word in range(8):
            for lane in range(16):
                state[16 * word + lane] = IV[word]
        for block in range(_blocks(ends[longest] - starts[longest])):
            for word in range(4):
                for lane in range(16):
                    state[128 + 16 * word + lane] = IV[word]
            for lane in range(here):
                i = order[first + lane]
                left = ends[i] - starts[i] - BLOCK * block
                if left > 0 or block == 0:
                    flags = START if block == 0 else NONE
                    if left <= BLOCK:
                        flags |= LAST
                    _put(state, lane, data, starts[i] + BLOCK * block, min(left, BLOCK), flags)
            _rounds(state)
            for word in range(8):
                for lane in range(16):
                    state[16 * word + lane] ^= state[128 + 16 * word + lane]
            for lane in range(here):
                i = order[first + lane]
                if block == _blocks(ends[i] - starts[i]) - 1:
                    for word in range(4):
                        out[i, word] = state[16 * word + lane]


def digests(data: U8, starts: I64, ends: I64) -> tuple[U64, U64]:
    """The first 128 bits of the BLAKE3 of each ``data[start:end]``, as two big-endian halves."""
    out = np.empty((len(starts), 4), np.uint32)
    _hash(data, starts, ends, np.flatnonzero(ends - starts <= CHUNK), out)
    long = np.flatnonzero(ends - starts > CHUNK)
    made = [blake3(data.data[start:end]).digest(16) for start, end in zip(starts[long].tolist(), ends[long].tolist(), strict=True)]
    out[long] = np.frombuffer(b"".join(made), "<u4").reshape(-1, 4)
    halves = out.astype("<u4", copy=False).view(">u8")
    return halves[:, 0].astype(np.uint64), halves[:, 1].astype(np.uint64)
