"""MinHash over word shingles: the sets, their digests and band keys, as functions of arrays.

A document becomes a set of 64-bit shingles, each the hash of ``shingle`` consecutive words. Two numbers say how alike two documents are: the
Jaccard similarity of their sets, exactly, and whether a band of their signatures agrees, cheaply. Words are runs of ``\\w`` of the text in lower
case; ``docs/decisions/near-dedup.md`` defines every hash.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from corpusbuild import kernels
from corpusbuild.codepoints import ASSIGNED, CODE_POINTS
from corpusbuild.model import Record
from corpusbuild.texts import Texts

U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]

MASK = 2**64 - 1
FNV_OFFSET, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
GOLDEN = 0x9E3779B97F4A7C15
BLOCK = 1 << 20  # code points worked on at once
LANES = 2048  # shingles whose permuted values are held at once: with 128 permutations 1 MB, which a core's cache holds


class SignParams(Record):
    """What decides a signature."""

    num_perm: Annotated[int, Meta(ge=1, le=4096, description="Minima a signature holds; a multiple of bands.")] = 128
    bands: Annotated[int, Meta(ge=1, le=4096, description="Groups the minima are hashed in; documents that share one are compared.")] = 16
    shingle: Annotated[int, Meta(ge=1, le=100, description="Words in a shingle.")] = 5
    seed: Annotated[int, Meta(ge=0, le=2**53, description="Chooses the permutations.")] = 0


class Ragged(NamedTuple):
    """Rows of unequal length: row ``i`` is ``flat[offsets[i]:offsets[i + 1]]``."""

    flat: U64
    offsets: I64

    def row(self, i: int) -> U64:
        return self.flat[self.offsets[i] : self.offsets[i + 1]]


class Signs(NamedTuple):
    """One document a column: the 128-bit digest of its shingle set, the set's size, and its band keys (bands x documents)."""

    hi: U64
    lo: U64
    shingles: NDArray[np.int32]
    bands: U64


def check(num_perm: int, bands: int) -> None:
    """``ValueError`` unless the minima can be dealt out to the bands evenly.

    >>> check(128, 16)
    >>> check(128, 20)
    Traceback (most recent call last):
    ValueError: num_perm 128 is not a multiple of bands 20: make it 120 or 140
    """
    below, rest = divmod(num_perm, bands)
    if rest:
        choice = [str(n) for n in (below * bands, (below + 1) * bands) if n]
        raise ValueError(f"num_perm {num_perm} is not a multiple of bands {bands}: make it {' or '.join(choice)}")


def candidate_probability(similarity: float, bands: int, rows: int) -> float:
    """How likely two documents of that Jaccard similarity agree in at least one of ``bands`` bands of ``rows`` minima.

    >>> round(candidate_probability(0.8, bands=16, rows=8), 8)
    0.9470488
    """
    return float(1 - (1 - similarity**rows) ** bands)


def pcg32(seed: int, sequence: int = 54) -> Iterator[int]:
    """The 32-bit numbers of the generator PCG XSH RR 64/32.

    >>> rng = pcg32(42)
    >>> [f"{next(rng):08x}" for _ in range(3)]
    ['a15c02b7', '7b47f409', 'ba1d3330']
    """
    increment = (sequence << 1 | 1) & MASK

    def step(state: int) -> int:
        return (state * 6364136223846793005 + increment) & MASK

    state = step((step(0) + seed) & MASK)
    while True:
        word, turn = ((state >> 18 ^ state) >> 27) & 0xFFFFFFFF, state >> 59
        yield (word >> turn | word << (-turn & 31)) & 0xFFFFFFFF
        state = step(state)


@cache
def permutations(num_perm: int, seed: int) -> tuple[U32, U32]:
    """The factors (odd) and summands of ``num_perm`` permutations of the 32-bit numbers."""
    rng = pcg32(seed)
    drawn = np.array([(next(rng) | 1, next(rng)) for _ in range(num_perm)], np.uint32)
    return drawn[:, 0].copy(), drawn[:, 1].copy()


def mix(h: U64) -> U64:
    """The finalizer of MurmurHash3, a permutation of the 64-bit numbers."""
    h = h ^ (h >> np.uint64(33))
    h *= np.uint64(0xFF51AFD7ED558CCD)
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    h ^= h >> np.uint64(33)
    return h


def lower(text: str) -> str:
    """Lower case, each code point for itself: what becomes two (capital I with dot) stays, and a sigma does not ask where it stands.

    >>> lower("ΟΔΟΣ İ")
    'οδοσ İ'
    """
    return "İ".join(piece.lower() for piece in text.replace("Σ", "σ").split("İ"))


def words(texts: Sequence[str]) -> Ragged:
    """The hash of every word of every text: the mixed FNV-1a of its code points in lower case."""
    hashes = [np.empty(0, np.uint64)]
    counts = np.zeros(len(texts), np.int64)
    for rows, pieces in _blocks(texts):
        codes = np.frombuffer("\n".join(map(lower, pieces)).encode("utf-32-le", "surrogatepass"), "<u4")
        starts, ends = _runs(_is_word()[codes])
        hashes.append(mix(fnv1a(codes, starts, ends)))
        first = np.cumsum([0, *(len(piece) + 1 for piece in pieces)])
        counts += np.bincount(np.repeat(rows, np.diff(np.searchsorted(starts, first))), minlength=len(texts))
    return Ragged(np.concatenate(hashes), _offsets(counts))


def fnv1a(codes: U32, starts: I64, ends: I64) -> U64:
    """The FNV-1a hash of each ``codes[start:end]``, with one step a code point. All words at once, letter by letter."""
    lengths = ends - starts
    clipped = np.minimum(lengths, np.iinfo(np.uint16).max).astype(np.uint16)  # 16 bits, for numpy sorts those in linear time
    order = np.argsort(~clipped, kind="stable")
    longer = len(order) - np.cumsum(np.bincount(clipped))  # longer[i] words have more than i letters, and stand first in order
    steps = int(np.count_nonzero(longer >= 32))
    at, h = starts[order], np.full(len(order), FNV_OFFSET, np.uint64)
    for step, n in enumerate(longer[:steps].tolist()):
        h[:n] = (h[:n] ^ codes[at[:n] + step]) * np.uint64(FNV_PRIME)
    out = np.empty_like(h)
    out[order] = h
    for word in np.flatnonzero(lengths > steps).tolist():  # the few longest: an endless word is no work for arrays of one
        value = int(out[word])
        for code in codes[starts[word] + steps : ends[word]].tolist():
            value = (value ^ code) * FNV_PRIME & MASK
        out[word] = value
    return out


def shingles(hashes: Ragged, width: int) -> Ragged:
    """The shingles of each row of words, in order, repeats included. Fewer words than ``width`` are one shingle; none have none."""
    counts = np.diff(hashes.offsets)
    short = (counts > 0) & (counts < width)
    out_counts = np.where(short, 1, np.maximum(counts - width + 1, 0))
    of_short = np.repeat(short, out_counts)
    out = np.empty(len(of_short), np.uint64)
    windows = max(len(hashes.flat) - width + 1, 0)
    owner = np.repeat(np.arange(len(counts)), counts)
    whole = owner[:windows] == owner[len(owner) - windows :]
    g = np.zeros(windows, np.uint64)
    for i in range(width):
        g = g * np.uint64(GOLDEN) + hashes.flat[i : i + windows]
    out[~of_short] = g[whole]
    g, first, n = np.zeros(int(short.sum()), np.uint64), hashes.offsets[:-1][short], counts[short]
    for i in range(width - 1):
        more = n > i
        g[more] = g[more] * np.uint64(GOLDEN) + hashes.flat[first[more] + i]
    out[of_short] = g
    return Ragged(mix(out), _offsets(out_counts))


def sets(rows: Ragged) -> Ragged:
    """Each row sorted, without repeats."""
    flat, offsets = rows.flat.copy(), rows.offsets
    for start, end in pairwise(offsets.tolist()):
        flat[start:end].sort()
    new = np.ones(len(flat), np.bool_)
    np.not_equal(flat[1:], flat[:-1], out=new[1:])
    new[offsets[:-1][np.diff(offsets) > 0]] = True
    return Ragged(flat[new], np.concatenate([[0], np.cumsum(new)])[offsets])


def shingle_sets(texts: Sequence[str], width: int) -> Ragged:
    """The shingle set of each text, sorted."""
    return sets(shingles(words(texts), width))


def minima(rows: Ragged, factors: U32, summands: U32) -> U32:
    """The signature of each row (rows x permutations): under each permutation the smallest value. A row of nothing has the largest number."""
    x = (rows.flat >> np.uint64(32)).astype(np.uint32)
    out = np.full((len(rows.offsets) - 1, len(factors)), np.iinfo(np.uint32).max, np.uint32)
    values, shifted = np.empty((2, len(factors), LANES), np.uint32)
    for start in range(0, len(x), LANES):
        end = min(start + LANES, len(x))
        v, s = values[:, : end - start], shifted[:, : end - start]
        np.multiply(factors[:, None], x[start:end], out=v)
        v += summands[:, None]
        np.right_shift(v, np.uint32(15), out=s)
        v ^= s
        # the rows that begin within these lanes, and the one that reaches into them
        first = int(np.searchsorted(rows.offsets, start, side="right")) - 1
        last = int(np.searchsorted(rows.offsets, end, side="left"))
        here = first + np.flatnonzero(np.diff(rows.offsets[first : last + 1]))
        cuts = np.maximum(rows.offsets[here] - start, 0)
        out[here] = np.minimum(out[here], np.minimum.reduceat(v, cuts, axis=1).T)
    return out


def band_keys(signatures: U32, bands: int) -> U64:
    """The key of each band of each signature (bands x rows): documents whose keys agree in a band fall into one bucket."""
    rows = signatures.shape[1] // bands
    keys = np.empty((bands, len(signatures)), np.uint64)
    for band in range(bands):
        h = np.full(len(signatures), (band + 1) * GOLDEN & MASK, np.uint64)
        for column in range(band * rows, (band + 1) * rows):
            h = mix(h ^ signatures[:, column])
        keys[band] = h
    return keys


def digests(rows: Ragged) -> tuple[U64, U64]:
    """128 bits of each row of distinct numbers, as two columns: the sum of all mixed, and the sum of all mixed after ``GOLDEN`` was added. Equal sets have
    equal digests, in whatever order they stand."""
    if kernels.compiled():
        from corpusbuild.kernels import minhash as kernel

        out = np.empty((2, len(rows.offsets) - 1), np.uint64)
        kernel.digests(*rows, *out)
        return out[0], out[1]
    hi, lo = (np.concatenate([np.zeros(1, np.uint64), np.cumsum(mix(column))]) for column in (rows.flat, rows.flat + np.uint64(GOLDEN)))
    return hi[rows.offsets[1:]] - hi[rows.offsets[:-1]], lo[rows.offsets[1:]] - lo[rows.offsets[:-1]]


def halves(digests: Sequence[bytes]) -> tuple[U64, U64]:
    """Digests of 16 bytes as two columns of big-endian numbers, so that sorting by them sorts the bytes."""
    pairs = np.frombuffer(b"".join(digests), ">u8").astype(np.uint64).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def signs(texts: Sequence[str], params: SignParams) -> Signs:
    """Sign every text. Memory grows with the longest text, and with the number of texts only by what is returned."""
    check(params.num_perm, params.bands)
    factors, summands = permutations(params.num_perm, params.seed)
    done = []
    for start, end in batches([len(text) for text in texts], BLOCK):
        rows = shingle_sets(texts[start:end], params.shingle)
        keys = band_keys(minima(rows, factors, summands), params.bands)
        done.append(Signs(*digests(rows), np.diff(rows.offsets).astype(np.int32), keys))
    return join(done, params.bands)


def sign_texts(texts: Texts, params: SignParams) -> Signs:
    """Sign a column of texts. Memory grows with the longest, and with the number of texts only by what is returned."""
    check(params.num_perm, params.bands)
    if not kernels.compiled():
        return signs(texts.strings(), params)
    from corpusbuild.kernels import minhash as kernel

    factors, summands = permutations(params.num_perm, params.seed)
    done = []
    for block in texts.blocks():
        rows = set_texts(block, params.shingle)
        keys = np.empty((params.bands, len(rows.offsets) - 1), np.uint64)
        kernel.keys(*rows, factors, summands, keys)
        done.append(Signs(*digests(rows), np.diff(rows.offsets).astype(np.int32), keys))
    return join(done, params.bands)


def set_texts(texts: Texts, width: int) -> Ragged:
    """The shingle set of each text of a column, sorted."""
    if not kernels.compiled():
        return shingle_sets(texts.strings(), width)
    from corpusbuild.kernels import minhash as kernel

    n = len(texts.offsets) - 1
    flat, offsets = np.empty(int(texts.offsets[-1] - texts.offsets[0]) // 2 + 2 * n + 2, np.uint64), np.empty(n + 1, np.int64)
    if n == 1:  # maybe as long as memory allows: in place
        start, end = texts.offsets.tolist()
        rows = flat[: kernel.shingles(texts.data, start, end, letters(), width, flat)]
        rows.sort()
        rows = rows[: kernel.distinct(rows)]
        return Ragged(rows, np.array([0, len(rows)]))
    return Ragged(flat[: kernel.sets(*texts, letters(), width, flat, offsets)], offsets)


def join(signs: Sequence[Signs], bands: int) -> Signs:
    """The columns of all, one after another."""
    none = Signs(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.int32), np.empty((bands, 0), np.uint64))
    hi, lo, sizes, keys = zip(none, *signs, strict=True)
    return Signs(np.concatenate(hi), np.concatenate(lo), np.concatenate(sizes), np.concatenate(keys, axis=1))


def batches(sizes: Sequence[int], limit: int) -> Iterator[tuple[int, int]]:
    """Cut a sequence of items of these sizes into runs (start, end) of at most ``limit`` together; a larger item stands alone.

    >>> list(batches([3, 3, 9, 1, 1], 6))
    [(0, 2), (2, 3), (3, 5)]
    """
    start, held = 0, 0
    for i, size in enumerate(sizes):
        if held + size > limit and i > start:
            yield start, i
            start, held = i, 0
        held += size
    if start < len(sizes):
        yield start, len(sizes)


@cache
def _is_word() -> NDArray[np.bool_]:
    """For each code point whether ``\\w`` matches it. Lower case never changes that."""
    table = np.zeros(CODE_POINTS, np.bool_)
    for run in re.finditer(r"\w+", _every_assigned()):
        table[run.start() : run.end()] = True
    return table


@cache
def letters() -> U32:
    """For each code point of a word its lower case, and 0 for every other."""
    found = np.zeros(CODE_POINTS, np.uint32)
    lowered = np.frombuffer(lower(_every_assigned()).encode("utf-32-le", "surrogatepass"), "<u4")
    found[:ASSIGNED] = np.where(_is_word()[:ASSIGNED], lowered, 0)
    return found


def _every_assigned() -> str:
    """The code points that may be letters: behind them there are none, and looking at all takes four times as long."""
    return np.arange(ASSIGNED, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")


def _runs(mask: NDArray[np.bool_]) -> tuple[I64, I64]:
    """Where runs of true begin and end."""
    edges = np.flatnonzero(np.diff(mask, prepend=False, append=False))
    return edges[::2], edges[1::2]


def _blocks(texts: Sequence[str]) -> Iterator[tuple[list[int], list[str]]]:
    """The texts, with the row of each, in blocks of about ``BLOCK`` code points. A longer text comes in pieces that cut no word."""
    for start, end in batches([len(text) for text in texts], BLOCK):
        if len(texts[start]) <= BLOCK:
            yield list(range(start, end)), list(texts[start:end])
        else:
            yield from (([start], [piece]) for piece in _pieces(texts[start]))


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        gap = _NOT_WORD.search(text, start + BLOCK)
        end = gap.start() if gap else len(text)
        yield text[start:end]
        start = end


_NOT_WORD = re.compile(r"\W")


def _offsets(counts: I64) -> I64:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
