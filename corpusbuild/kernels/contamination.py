"""Which texts may hold a protected n-gram, in one pass over UTF-8. ``corpusbuild.contamination`` is the reference, and alone says which do."""

from typing import Any

import numpy as np

from corpusbuild.kernels.jit import kernel
from corpusbuild.kernels.utf8 import BYTES, PLACES, decoded

FNV_OFFSET, FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
DOTTED = np.uint32(0x130)  # whose lower case is an i, and a mark, which is no part of a word


@kernel(f"void({BYTES}, {PLACES}, uint32[::1], int64, boolean, uint64[::1], boolean[::1])")
def grams(data: Any, offsets: Any, letters: Any, n: Any, learn: Any, table: Any, out: Any) -> None:
    """For each text whether ``table`` has the hash of one of its n-grams; or, to ``learn``, put those in.

    Equal n-grams have equal hashes. ``table`` has a power of two of slots, 0 where there is nothing, and must never be full.
    """
    mask = np.uint64(len(table) - 1)
    last = np.zeros(n, np.uint64)  # the hashes of the n words before
    top = np.uint64(1)
    for _ in range(n):
        top *= GOLDEN
    for text in range(len(offsets) - 1):
        i, stop = np.uint64(offsets[text]), np.uint64(offsets[text + 1])
        last[:] = 0
        words, at = 0, np.uint64(0)
        gram, h, inside, hit = np.uint64(0), FNV_OFFSET, False, False
        while i < stop or inside:
            letter, code = np.uint32(0), np.uint32(0)
            if i < stop:
                code = np.uint32(data[i])
                if code < np.uint32(0x80):
                    i += np.uint64(1)
                else:
                    code, size = decoded(data, i)
                    i += size
                letter = letters[np.uint64(code)]
            if letter:
                h = (h ^ np.uint64(letter)) * FNV_PRIME
                inside = True
                if code != DOTTED:
                    continue
            if not inside:
                continue
            h ^= h >> np.uint64(32)
            gram = gram * GOLDEN + h - last[at] * top
            last[at] = h
            at += np.uint64(1)
            if at == np.uint64(n):
                at = np.uint64(0)
            words += 1
            h, inside = FNV_OFFSET, False
            if words < n:
                continue
            key = (gram ^ (gram >> np.uint64(31))) * GOLDEN
            key ^= key >> np.uint64(29)
            slot = key & mask
            while table[slot] != 0 and table[slot] != key:
                slot = (slot + np.uint64(1)) & mask
            if learn:
                table[slot] = key
            elif table[slot] == key:
                hit = True
                break
        out[text] = hit
