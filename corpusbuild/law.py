"""The law of near duplicates, as functions of arrays.

In plan order a document goes if and only if its similarity with an earlier, kept document that it was compared with is at least the threshold.
Who is compared: within a bucket (documents whose keys agree) each member with those before it, but with no more than the first ``cap``.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corpusbuild import kernels
from corpusbuild.minhash import I64, U64, Ragged

F64 = NDArray[np.float64]

PAIRS = 1 << 20  # pairs given at once
CROWD_BITS = 24  # of the slots in which keys are counted, however many there are


class Members(NamedTuple):
    """Members of buckets by key, then plan order. ``rank`` counts the members before each in its bucket."""

    keys: U64
    at: U64
    rank: I64

    def take(self, which: Any) -> "Members":
        return Members(self.keys[which], self.at[which], self.rank[which])


class Crowd:
    """The keys of one band, counted before buckets are filled, to tell those that surely stand alone: most do, and meet nobody."""

    def __init__(self, expected: int):
        self._slots = np.zeros(1 << min((4 * expected).bit_length(), CROWD_BITS), np.uint8) if kernels.compiled() else None

    def count(self, keys: U64) -> None:
        if self._slots is not None:
            from corpusbuild.kernels import law as kernel

            kernel.count(np.ascontiguousarray(keys), self._slots)

    def holds(self, keys: U64) -> NDArray[np.bool_]:
        """Which of these may occur more than once. It is right about all that do."""
        out = np.ones(len(keys), np.bool_)
        if self._slots is not None:
            from corpusbuild.kernels import law as kernel

            kernel.crowded(np.ascontiguousarray(keys), self._slots, out)
        return out


class Buckets:
    """The buckets of one band as they fill, in plan order. Remembers of each only its first ``cap`` members and its last."""

    def __init__(self, cap: int):
        self._cap = cap
        self._known = Members(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.int64))

    def add(self, keys: U64, at: U64) -> tuple[Members, Iterator[tuple[U64, U64]]]:
        """Fill in the next documents, which come after all before: those new members, and the pairs (later, earlier) to compare them in."""
        known, cap = self._known, self._cap
        keys, at = np.concatenate([known.keys, keys]), np.concatenate([known.at, at])
        order = np.argsort(keys, kind="stable")
        keys, at = keys[order], at[order]
        starts = np.flatnonzero(np.concatenate([np.ones(min(1, len(keys)), np.bool_), keys[1:] != keys[:-1]]))
        lengths = np.diff(np.append(starts, len(keys)))
        position = np.arange(len(keys)) - np.repeat(starts, lengths)
        new = order >= len(known.keys)
        ahead = np.zeros(len(keys), np.int64)  # members that were known once and are forgotten, told by the last that is remembered
        ahead[~new] = known.rank[order[~new]] - position[~new]
        rank = position + np.repeat(np.maximum.reduceat(ahead, starts) if len(starts) else ahead, lengths)
        rank[~new] = known.rank[order[~new]]
        members = Members(keys, at, rank)
        last = np.zeros(len(keys), np.bool_)
        last[starts + lengths - 1] = True
        self._known = members.take((rank < cap) | last)
        return members.take(new), _pairs(at, np.repeat(starts, lengths)[new], np.minimum(rank, cap)[new], at[new])


def _pairs(at: U64, start: I64, partners: I64, later: U64) -> Iterator[tuple[U64, U64]]:
    """Pair each of ``later`` with the first ``partners`` members of its bucket, which begins at ``start``."""
    ends = np.cumsum(partners)
    begin = done = 0
    while begin < len(later):
        end = max(int(np.searchsorted(ends, done + PAIRS, side="right")), begin + 1)
        n = partners[begin:end]
        within = np.arange(int(n.sum())) - np.repeat(np.cumsum(n) - n, n)
        yield np.repeat(later[begin:end], n), at[np.repeat(start[begin:end], n) + within]
        begin, done = end, int(ends[end - 1])


def similarities(a: Ragged, of_a: I64, b: Ragged, of_b: I64, threshold: float) -> F64:
    """The Jaccard similarity of each pair of sets ``a.row(of_a[i])``, ``b.row(of_b[i])``, none empty; 0 where it is below ``threshold``."""
    out = np.zeros(len(of_a))
    if kernels.compiled():
        from corpusbuild.kernels import law as kernel

        kernel.similarities(*a, of_a, *b, of_b, threshold, out)
        return out
    size_a, size_b = np.diff(a.offsets)[of_a], np.diff(b.offsets)[of_b]
    for i in np.flatnonzero(np.minimum(size_a, size_b) / np.maximum(size_a, size_b) >= threshold).tolist():
        x, y = a.row(of_a[i]), b.row(of_b[i])
        same = np.count_nonzero(x[np.minimum(np.searchsorted(x, y), len(x) - 1)] == y)
        out[i] = same / (len(x) + len(y) - same)
    out[out < threshold] = 0
    return out


def decide(later: U64, earlier: U64, similarity: F64, gone: NDArray[np.bool_]) -> tuple[U64, U64, F64]:
    """Apply the law to pairs whose similarity reaches the threshold, sorted by (later, earlier), and mark in ``gone`` which documents go.

    Gives who goes, in plan order, in whose favour (the most similar kept document, the earliest of equals), and that similarity. Pairs may come in
    several calls, as long as no ``later`` is parted and all are in plan order.

    >>> chain = np.array([1, 2], np.uint64), np.array([0, 1], np.uint64), np.array([0.9, 0.8])
    >>> [column.tolist() for column in decide(*chain, gone=np.zeros(3, np.bool_))]
    [[1], [0], [0.9]]
    """
    if kernels.compiled():
        from corpusbuild.kernels import law as kernel

        (documents, partners), values = np.empty((2, len(later)), np.uint64), np.empty(len(later))
        later, earlier, similarity = np.ascontiguousarray(later), np.ascontiguousarray(earlier), np.ascontiguousarray(similarity)
        n = kernel.decide(later, earlier, similarity, gone, documents, partners, values)
        return documents[:n], partners[:n], values[:n]
    at: list[int] = []
    survivors: list[int] = []
    best: list[float] = []
    for document, partner, value in zip(later.tolist(), earlier.tolist(), similarity.tolist(), strict=True):
        if gone[partner]:
            continue
        if not at or at[-1] != document:
            gone[document] = True
            at.append(document)
            survivors.append(partner)
            best.append(value)
        elif value > best[-1]:
            survivors[-1], best[-1] = partner, value
    return np.array(at, np.uint64), np.array(survivors, np.uint64), np.array(best, np.float64)
