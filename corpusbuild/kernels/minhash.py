"""Shingle sets and band keys in one pass over UTF-8. ``corpusbuild.minhash`` is the reference, and defines every hash."""

from typing import Any

import numpy as np

from corpusbuild.kernels.jit import inlined, kernel
from corpusbuild.kernels.utf8 import BYTES, NUMBERS, PLACES, decoded

FNV_OFFSET, FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
HIGHEST = np.uint32(0xFFFFFFFF)
TILE = 1024  # shingles whose minima are taken at once: a core's nearest cache holds them
MOST_BITS = 20


@inlined
def _mix(h: Any) -> Any:
    h = (h ^ (h >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    h = (h ^ (h >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return h ^ (h >> np.uint64(33))


@kernel(f"int64({BYTES}, int64, int64, uint32[::1], uint64[::1])")
def _words(data: Any, start: Any, end: Any, letters: Any, out: Any) -> Any:
    """The FNV-1a of each word of ``data[start:end]``, not yet mixed. Gives how many there are."""
    i, stop = np.uint64(start), np.uint64(end)
    n, h, inside = np.uint64(0), FNV_OFFSET, np.uint64(0)
    while i < stop:
        code = np.uint32(data[i])
        if code < np.uint32(0x80):
            i += np.uint64(1)
        else:
            code, size = decoded(data, i)
            i += size
        letter = letters[np.uint64(code)]
        # no branch for the end of a word, which nothing could foretell
        out[n] = h
        is_letter = np.uint64(letter != 0)
        n += inside & ~is_letter
        h = (h ^ np.uint64(letter)) * FNV_PRIME if letter else FNV_OFFSET
        inside = is_letter
    out[n] = h
    return np.int64(n + inside)


@kernel("int64(uint64[::1], int64, int64)")
def _shingles(words: Any, n: Any, width: Any) -> Any:
    """Make words into shingles, in their place. Gives how many there are."""
    for i in range(n):
        words[i] = _mix(words[i])
    g, top = np.uint64(0), np.uint64(1)
    for i in range(min(n, width)):
        g = g * GOLDEN + words[i]
        top *= GOLDEN
    shingles = max(n - width + 1, min(n, 1))
    for i in range(shingles - 1):
        first, words[i] = words[i], g
        g = g * GOLDEN + words[i + width] - first * top
    if n:
        words[shingles - 1] = g
    for i in range(shingles):
        words[i] = _mix(words[i])
    return shingles


@kernel("int64(uint64[::1], int64, uint64[::1], int64[::1])")
def _set(rows: Any, n: Any, out: Any, places: Any) -> Any:
    """Sort shingles into ``out``, without repeats. They are hashes, so their highest bits say about where each goes."""
    bits = 0
    while (1 << bits) < n and bits < MOST_BITS:
        bits += 1
    shift = np.uint64(63 - bits)
    places[: (1 << bits) + 1] = 0
    for i in range(n):
        places[np.uint64((rows[i] >> np.uint64(1)) >> shift) + np.uint64(1)] += 1
    for place in range(1, (1 << bits) + 1):
        places[place] += places[place - 1]
    for i in range(n):
        bucket = np.uint64((rows[i] >> np.uint64(1)) >> shift)
        out[np.uint64(places[bucket])] = rows[i]
        places[bucket] += 1
    kept = 0
    for i in range(n):
        value = out[i]
        j = kept
        while j > 0 and out[j - 1] > value:
            j -= 1
        if j == 0 or out[j - 1] != value:
            for k in range(kept, j, -1):
                out[k] = out[k - 1]
            out[j] = value
            kept += 1
    return kept


@kernel(f"void({NUMBERS}, uint32[::1], uint32[::1], uint32[::1], uint32[::1])")
def _minima(shingles: Any, factors: Any, summands: Any, tile: Any, out: Any) -> None:
    out[:] = HIGHEST
    for start in range(0, len(shingles), TILE):
        n = min(TILE, len(shingles) - start)
        for i in range(n):
            tile[i] = np.uint32(shingles[start + i] >> np.uint64(32))
        for p in range(len(factors)):
            factor, summand, least = factors[p], summands[p], out[p]
            for i in range(n):
                v = np.uint32(factor * tile[i] + summand)
                least = min(least, np.uint32(v ^ (v >> np.uint32(15))))
            out[p] = least


@kernel(f"int64({BYTES}, int64, int64, uint32[::1], int64, uint64[::1])")
def shingles(data: Any, start: Any, end: Any, letters: Any, width: Any, out: Any) -> Any:
    """The shingles of one text, in order, repeats included. Gives how many there are."""
    return _shingles(out, _words(data, start, end, letters, out), width)


@kernel("int64(uint64[::1])")
def distinct(numbers: Any) -> Any:
    """Move the distinct ones of sorted numbers to the front. Gives how many there are."""
    n = 0
    for number in numbers:
        if n == 0 or numbers[n - 1] != number:
            numbers[n] = number
            n += 1
    return n


@kernel(f"int64({BYTES}, {PLACES}, uint32[::1], int64, uint64[::1], int64[::1])")
def sets(data: Any, offsets: Any, letters: Any, width: Any, flat: Any, set_offsets: Any) -> Any:
    """Write the shingle set of each text into ``flat``, sorted, and where each begins. Gives how many numbers that are."""
    longest = 0
    for i in range(len(offsets) - 1):
        longest = max(longest, offsets[i + 1] - offsets[i])
    words, places = np.empty(longest // 2 + 2, np.uint64), np.empty(min(2 * longest + 2, (1 << MOST_BITS) + 1), np.int64)
    at = 0
    for i in range(len(offsets) - 1):
        set_offsets[i] = at
        n = shingles(data, offsets[i], offsets[i + 1], letters, width, words)
        at += _set(words, n, flat[at:], places)
    set_offsets[len(offsets) - 1] = at
    return at


@kernel(f"void({NUMBERS}, {PLACES}, uint32[::1], uint32[::1], uint64[:,:])")
def keys(flat: Any, offsets: Any, factors: Any, summands: Any, out: Any) -> None:
    """The key of each set in each band (bands x sets)."""
    tile, minima = np.empty(TILE, np.uint32), np.empty(len(factors), np.uint32)
    rows = len(factors) // len(out)
    for i in range(len(offsets) - 1):
        _minima(flat[offsets[i] : offsets[i + 1]], factors, summands, tile, minima)
        for band in range(len(out)):
            h = np.uint64(band + 1) * GOLDEN
            for row in range(band * rows, (band + 1) * rows):
                h = _mix(h ^ np.uint64(minima[row]))
            out[band, i] = h


@kernel(f"void({NUMBERS}, {PLACES}, uint64[::1], uint64[::1])")
def digests(flat: Any, offsets: Any, hi: Any, lo: Any) -> None:
    for row in range(len(offsets) - 1):
        first, second = np.uint64(0), np.uint64(0)
        for number in flat[offsets[row] : offsets[row + 1]]:
            first += _mix(number)
            second += _mix(number + GOLDEN)
        hi[row], lo[row] = first, second
