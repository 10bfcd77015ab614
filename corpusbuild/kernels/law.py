"""Who is like whom and who goes, as loops over arrays. ``corpusbuild.law`` and ``corpusbuild.repeats`` are the references."""

from typing import Any

import numpy as np

from corpusbuild.kernels.jit import kernel

NUMBERS, PLACES, REALS = (f"Array({kind}, 1, 'C', readonly=True)" for kind in ("uint64", "int64", "float64"))  # what a mapped file gives
ONCE, AGAIN = np.uint8(1), np.uint8(2)
LOOK = 32  # steps between two looks at whether the threshold is still in reach


@kernel(f"void({NUMBERS}, {PLACES}, {PLACES}, {NUMBERS}, {PLACES}, {PLACES}, float64, float64[::1])")
def similarities(a: Any, places_a: Any, of_a: Any, b: Any, places_b: Any, of_b: Any, threshold: Any, out: Any) -> None:
    for pair in range(len(of_a)):
        i, end_i = np.uint64(places_a[of_a[pair]]), np.uint64(places_a[of_a[pair] + 1])
        j, end_j = np.uint64(places_b[of_b[pair]]), np.uint64(places_b[of_b[pair] + 1])
        both = np.int64(end_i - i + end_j - j)
        same = np.int64(0)
        most = min(np.int64(end_i - i), np.int64(end_j - j))
        while most / (both - most) >= threshold and i < end_i and j < end_j:
            steps = 0
            while i < end_i and j < end_j and steps < LOOK:
                x, y = a[i], b[j]
                i += np.uint64(x <= y)
                j += np.uint64(y <= x)
                same += np.int64(x == y)
                steps += 1
            most = same + min(np.int64(end_i - i), np.int64(end_j - j))
        similarity = most / (both - most)
        out[pair] = similarity if similarity >= threshold else 0.0


@kernel(f"int64({NUMBERS}, {NUMBERS}, {REALS}, boolean[::1], uint64[::1], uint64[::1], float64[::1])")
def decide(later: Any, earlier: Any, similarity: Any, gone: Any, at: Any, survivors: Any, best: Any) -> Any:
    """Gives how many go; they are the first of ``at``, ``survivors`` and ``best``."""
    n = 0
    for pair in range(len(later)):
        if gone[earlier[pair]]:
            continue
        if n == 0 or at[n - 1] != later[pair]:
            gone[later[pair]] = True
            at[n], survivors[n], best[n] = later[pair], earlier[pair], similarity[pair]
            n += 1
        elif similarity[pair] > best[n - 1]:
            survivors[n - 1], best[n - 1] = earlier[pair], similarity[pair]
    return n


@kernel(f"void({NUMBERS}, {NUMBERS}, int64[::1])")
def firsts(hi: Any, lo: Any, out: Any) -> None:
    """For each digest the index of the first that equals it."""
    size = 16
    while size < 2 * len(hi):
        size *= 2
    table = np.full(size, -1, np.int64)
    for i in range(len(hi)):
        slot = lo[i] & np.uint64(size - 1)
        while table[slot] >= 0 and not (lo[table[slot]] == lo[i] and hi[table[slot]] == hi[i]):
            slot = (slot + np.uint64(1)) & np.uint64(size - 1)
        if table[slot] < 0:
            table[slot] = i
        out[i] = table[slot]


@kernel(f"void({NUMBERS}, uint8[::1])")
def count(keys: Any, crowd: Any) -> None:
    """Mark in ``crowd``, whose length is a power of two, the slot of each key: seen once, or again."""
    for key in keys:
        slot = key & np.uint64(len(crowd) - 1)
        crowd[slot] = crowd[slot] << ONCE | ONCE


@kernel(f"void({NUMBERS}, uint8[::1], boolean[::1])")
def crowded(keys: Any, crowd: Any, out: Any) -> None:
    """Which keys may occur more than once."""
    for i in range(len(keys)):
        out[i] = crowd[keys[i] & np.uint64(len(crowd) - 1)] & AGAIN != 0
