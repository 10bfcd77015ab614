"""The law of near duplicates: who is compared and who goes, against a plain reading of it."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild import law, unionfind
from corpusbuild.law import Buckets
from corpusbuild.minhash import Ragged


def u64(values: Any) -> Any:
    return np.array(values, np.uint64)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.lists(st.integers(0, 3), max_size=8), max_size=5), st.integers(1, 4), st.integers(1, 9))
def test_members_meet_the_first_of_their_bucket_however_it_fills(fills: list[list[int]], cap: int, pairs_at_once: int) -> None:
    members = defaultdict(list)
    expected, ranks = set(), {}
    for at, key in enumerate(key for fill in fills for key in fill):
        ranks[at] = len(members[key])
        expected |= {(at, earlier) for earlier in members[key][:cap]}
        members[key].append(at)

    buckets, at, got, got_ranks = Buckets(cap), 0, [], {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(law, "PAIRS", pairs_at_once)
        for fill in fills:
            new, found = buckets.add(u64(fill), u64(range(at, at + len(fill))))
            at += len(fill)
            got_ranks |= dict(zip(new.at.tolist(), new.rank.tolist(), strict=True))
            for later, earlier in found:
                assert len(later) <= max(pairs_at_once, cap)
                got += zip(later.tolist(), earlier.tolist(), strict=True)
    assert sorted(got) == sorted(expected)
    assert got_ranks == ranks


def test_a_bucket_without_end_is_remembered_by_its_first_members_and_its_last() -> None:
    buckets = Buckets(cap=3)
    for start in range(0, 1000, 10):
        buckets.add(u64([7] * 10), u64(range(start, start + 10)))
    assert buckets._known.at.tolist() == [0, 1, 2, 999]


SETS = st.lists(st.sets(st.integers(0, 12), min_size=1), min_size=1, max_size=8)


@settings(deadline=None, max_examples=200)
@given(SETS, SETS, st.sampled_from([0.1, 0.25, 0.5, 2 / 3, 0.8, 1.0]), st.data())
def test_similarity_is_jaccard_or_out_of_reach(a: list[set[int]], b: list[set[int]], threshold: float, data: st.DataObject) -> None:
    def ragged(sets: list[set[int]]) -> Ragged:
        return Ragged(u64([x for s in sets for x in sorted(s)]), np.cumsum([0, *map(len, sets)]))

    pairs = data.draw(st.lists(st.tuples(st.integers(0, len(a) - 1), st.integers(0, len(b) - 1)), max_size=12))
    of_a, of_b = np.array(pairs, np.int64).reshape(-1, 2).T
    got = law.similarities(ragged(a), of_a, ragged(b), of_b, threshold)
    for (i, j), value in zip(pairs, got.tolist(), strict=True):
        true = len(a[i] & b[j]) / len(a[i] | b[j])
        assert value == true or (value == 0 and true < threshold)


@settings(deadline=None, max_examples=300)
@given(st.dictionaries(st.tuples(st.integers(0, 9), st.integers(0, 9)), st.sampled_from([0.5, 0.75, 0.875, 1.0])), st.integers(0, 10))
def test_in_plan_order_a_document_goes_iff_an_earlier_partner_stayed(pairs: dict[tuple[int, int], float], cut: int) -> None:
    pairs = {(later, earlier): s for (later, earlier), s in pairs.items() if later > earlier}
    survivors: dict[int, tuple[int, float]] = {}
    for document in range(10):
        partners = [(-s, earlier) for (later, earlier), s in pairs.items() if later == document and earlier not in survivors]
        if partners:
            survivors[document] = (min(partners)[1], -min(partners)[0])

    gone, got = np.zeros(10, np.bool_), {}
    for run in ([p for p in sorted(pairs) if p[0] < cut], [p for p in sorted(pairs) if p[0] >= cut]):
        later, earlier = np.array(run, np.uint64).reshape(-1, 2).T
        at, survivor, similarity = law.decide(later, earlier, np.array([pairs[p] for p in run]), gone)
        assert at.tolist() == sorted(at.tolist())
        got |= {d: (s, v) for d, s, v in zip(at.tolist(), survivor.tolist(), similarity.tolist(), strict=True)}
    assert got == survivors
    assert np.flatnonzero(gone).tolist() == sorted(survivors)


def test_what_only_a_chain_connects_stays() -> None:
    later, earlier = u64([1, 2, 3]), u64([0, 1, 2])
    at, survivor, _ = law.decide(later, earlier, np.array([0.8, 0.9, 0.8]), np.zeros(4, np.bool_))
    assert [at.tolist(), survivor.tolist()] == [[1, 3], [0, 2]]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15))), st.integers(1, 5))
def test_the_root_of_a_component_is_its_smallest_member(edges: list[tuple[int, int]], at_once: int) -> None:
    label = list(range(16))
    for u, v in edges:
        low, high = sorted((label[u], label[v]))
        label = [low if x == high else x for x in label]
    parents = unionfind.singles(16)
    for start in range(0, len(edges), at_once):
        u, v = np.array(edges[start : start + at_once], np.uint64).T
        unionfind.union(parents, u, v)
    assert unionfind.roots(parents, np.arange(16)).tolist() == label
