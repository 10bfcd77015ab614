"""All pairs of sets whose Jaccard similarity reaches a threshold, exactly: what a deduplicator is measured against.

Nothing here is a sketch or a hash: a word is a number by a dictionary, a shingle is a number by sorting all of them, and pairs are found by prefixes
(Bayardo et al. 2007, Xiao et al. 2008): with the members of every set ordered from rare to common, two sets that are alike enough share one of
their first few. Each pair found so is then counted out.
"""

import re
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]


class Sets(NamedTuple):
    """Set ``i`` is ``members[offsets[i]:offsets[i + 1]]``, ordered from rare to common, where a member is its rank in that order."""

    members: I64
    offsets: I64

    def sizes(self) -> I64:
        return np.diff(self.offsets)


class Pairs(NamedTuple):
    """``earlier[i] < later[i]``, sorted by (later, earlier)."""

    earlier: I64
    later: I64
    similarity: F64

    def take(self, which: NDArray[np.bool_]) -> "Pairs":
        return Pairs(self.earlier[which], self.later[which], self.similarity[which])


@cache
def _lower() -> dict[int, str]:
    """Lower case by code point, where that is one code point: what ``docs/decisions/near-dedup.md`` says."""
    return {c: low for c in range(sys.maxunicode + 1) if len(low := chr(c).lower()) == 1 and low != chr(c)}


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower() if text.isascii() else text.translate(_lower()))


def shingle_sets(texts: Sequence[str], width: int) -> Sets:
    """The set of each text's runs of ``width`` words; a shorter text is one run, and one without words has the empty set."""
    numbers: dict[str, int] = {}
    counts = np.zeros(len(texts), np.int64)
    flat: list[NDArray[np.int32]] = []
    short: dict[tuple[int, ...], list[int]] = {}
    for i, text in enumerate(texts):
        found = [numbers.setdefault(word, len(numbers)) for word in words(text)]
        if 0 < len(found) < width:
            short.setdefault(tuple(found), []).append(i)
        elif found:
            counts[i] = len(found)
            flat.append(np.array(found, np.int32))
    ids = np.concatenate([*flat, np.empty(0, np.int32)]).astype(np.int64)
    ends = np.repeat(np.cumsum(counts), counts)
    owner = np.repeat(np.arange(len(texts)), counts)
    shingle, top = ids, len(numbers)
    for step in range(1, width):  # a run of step + 1 words is a run of step words and a word; runs over an end are left out below
        if top * len(numbers) >= 2**63:
            shingle, top = _renumber(shingle)
        shingle, top = shingle[: len(ids) - step] * len(numbers) + ids[step:], top * len(numbers)
    shingle, _ = _renumber(shingle)
    whole = np.flatnonzero(np.arange(len(shingle)) + width <= ends[: len(shingle)])
    shingle, owner = shingle[whole], owner[whole]
    first = int(shingle.max(initial=-1)) + 1  # no short text is like a long one
    shingle = np.concatenate([shingle, *(np.full(len(who), first + i) for i, who in enumerate(short.values()))])
    owner = np.concatenate([owner, *(np.array(who) for who in short.values())]).astype(np.int64)
    return by_rarity(owner, shingle, len(texts))


def _renumber(values: I64) -> tuple[I64, int]:
    """The same numbers as ranks among the distinct, and how many those are."""
    order = np.argsort(values)
    ordered = values[order]
    ranks = np.concatenate([np.zeros(min(1, len(values)), np.int64), np.cumsum(ordered[1:] != ordered[:-1])])
    out = np.empty_like(ranks)
    out[order] = ranks
    return out, int(ranks.max(initial=-1)) + 1


def by_rarity(owner: I64, member: I64, n: int) -> Sets:
    """Sets of (owner, member), which may repeat."""
    top = int(member.max(initial=0)) + 1
    each = np.sort(owner * top + member)
    each = each[np.concatenate([np.ones(min(1, len(each)), np.bool_), each[1:] != each[:-1]])]
    owner, member = each // top, each % top
    rank = np.empty(top, np.int64)
    rank[np.argsort(np.bincount(member, minlength=top), kind="stable")] = np.arange(top)
    order = np.sort(owner * top + rank[member])
    return Sets(order % top, np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=n))]).astype(np.int64))


def join(sets: Sets, threshold: float) -> Pairs:
    """Every pair of non-empty sets with a Jaccard similarity of at least ``threshold``."""
    order = np.argsort(sets.sizes(), kind="stable")
    order = order[sets.sizes()[order] > 0]
    a, b, similarity = _join(sets.members, sets.offsets, order, threshold)
    earlier, later = np.minimum(a, b), np.maximum(a, b)
    at = np.lexsort((earlier, later))
    return Pairs(earlier[at], later[at], similarity[at])


def join_by_trying_all(sets: Sets, threshold: float) -> Pairs:
    """The same by its definition."""
    rows = [set(sets.members[a:b].tolist()) for a, b in zip(sets.offsets[:-1], sets.offsets[1:], strict=True)]
    found = [
        (earlier, later, len(rows[earlier] & rows[later]) / len(rows[earlier] | rows[later]))
        for later in range(len(rows))
        for earlier in range(later)
        if rows[earlier] & rows[later]
    ]
    kept = [pair for pair in found if pair[2] >= threshold]
    a, b, similarity = zip(*kept, strict=True) if kept else ((), (), ())
    return Pairs(np.array(a, np.int64), np.array(b, np.int64), np.array(similarity, np.float64))


def similarities(sets: Sets, a: I64, b: I64) -> F64:
    """The Jaccard similarity of each pair of sets, none of them empty."""
    out: F64 = _similarities(sets.members, sets.offsets, a, b)
    return out


@njit(cache=True)
def _similarities(members: I64, offsets: I64, a: I64, b: I64) -> Any:
    out = np.empty(len(a))
    for i in range(len(a)):
        x, y = members[offsets[a[i]] : offsets[a[i] + 1]], members[offsets[b[i]] : offsets[b[i] + 1]]
        same = _common(x, y)
        out[i] = same / (len(x) + len(y) - same)
    return out


@njit(cache=True)
def _common(x: I64, y: I64) -> int:
    i = j = same = 0
    while i < len(x) and j < len(y):
        if x[i] == y[j]:
            same += 1
            i += 1
            j += 1
        elif x[i] < y[j]:
            i += 1
        else:
            j += 1
    return same


@njit(cache=True)
def _join(members: I64, offsets: I64, order: I64, threshold: float) -> Any:
    """Sets come from small to large; of each, its rarest members are looked up among those of the smaller ones, then listed themselves."""
    slack = 1e-9  # a bound that rounding makes one too small costs a comparison, one too large a pair
    tops = np.zeros(members.max() + 2, np.int64)
    for d in order:
        n = offsets[d + 1] - offsets[d]
        for k in range(n - int(np.ceil(2 * threshold / (1 + threshold) * n - slack)) + 1):
            tops[members[offsets[d] + k] + 1] += 1
    starts = np.cumsum(tops)
    filled = starts.copy()
    listed = np.empty(starts[-1], np.int64)
    tried = np.full(len(offsets) - 1, -1, np.int64)
    a, b, similarity = np.empty(1 << 20, np.int64), np.empty(1 << 20, np.int64), np.empty(1 << 20)
    found = 0
    for d in order:
        x = members[offsets[d] : offsets[d + 1]]
        n = len(x)
        for k in range(n - int(np.ceil(threshold * n - slack)) + 1):
            token = x[k]
            while starts[token] < filled[token] and (
                offsets[listed[starts[token]] + 1] - offsets[listed[starts[token]]] < threshold * n - slack
            ):
                starts[token] += 1  # too small for this set, and so for all that follow
            for place in range(starts[token], filled[token]):
                e = listed[place]
                if tried[e] == d:
                    continue
                tried[e] = d
                y = members[offsets[e] : offsets[e + 1]]
                same = _common(x, y)
                value = same / (n + len(y) - same)
                if value >= threshold:
                    if found == len(a):
                        a, b, similarity = np.append(a, np.empty_like(a)), np.append(b, np.empty_like(b)), np.append(similarity, similarity)
                    a[found], b[found], similarity[found] = d, e, value
                    found += 1
        for k in range(n - int(np.ceil(2 * threshold / (1 + threshold) * n - slack)) + 1):
            listed[filled[x[k]]] = d
            filled[x[k]] += 1
    return a[:found], b[:found], similarity[:found]
