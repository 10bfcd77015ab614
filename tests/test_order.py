"""Orders of documents: runs cut, packed and laid into files, against their definitions one document at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild.order import RUN, Files, SequenceFiles, best_fit, cut, hashes, keyed, packed, placed, rechunked, windows

LENGTHS = st.lists(st.integers(0, 30), max_size=40)
laws = settings(deadline=None, max_examples=60)


def runs_of(lengths):
    runs = np.zeros(len(lengths), RUN)
    runs["ids"], runs["document"] = lengths, np.arange(len(lengths))
    runs["first"] = np.cumsum(lengths) - lengths if lengths else 0
    runs["key"] = keyed(np.arange(len(lengths), dtype=np.uint64), 1)
    return runs


def chunked(runs, size):
    return [runs[i : i + size] for i in range(0, len(runs), size)]


def covered(runs):
    """Every id of every document, as (document, place in it), in the order of the runs."""
    return [(int(r["document"]), int(r["offset"]) + i) for r in runs for i in range(int(r["ids"]))]


def all_of(lengths):
    return [(d, i) for d, n in enumerate(lengths) for i in range(n)]


@laws
@given(LENGTHS, st.integers(1, 9), st.integers(1, 12))
def test_cutting_loses_no_id_and_crosses_no_border(lengths, size, chunk):
    runs = np.concatenate([np.empty(0, RUN), *(cut(c, size) for c in placed(chunked(runs_of(lengths), chunk)))])
    assert covered(runs) == all_of(lengths)
    assert runs["at"].tolist() == [0, *np.cumsum(runs["ids"]).tolist()][: len(runs)]
    assert all(r["at"] // size == (r["at"] + max(r["ids"] - 1, 0)) // size for r in runs)
    whole = runs_of(lengths)
    assert all(r["first"] == whole["first"][r["document"]] + r["offset"] for r in runs)


@laws
@given(LENGTHS, st.integers(1, 9), st.integers(1, 12), st.integers(1, 12))
def test_a_windows_key_depends_on_what_it_begins_with_and_on_no_chunk(lengths, size, chunk, other):
    one, two = (list(windows(placed(chunked(runs_of(lengths), c)), size)) for c in (chunk, other))
    one, two = (np.concatenate([np.empty(0, RUN), *chunks]) for chunks in (one, two))
    assert one.tolist() == two.tolist()
    by_window = {}
    for r in one:
        by_window.setdefault(int(r["at"]) // size, set()).add(int(r["key"]))
    assert all(len(keys) == 1 for keys in by_window.values())
    assert len(set.union(set(), *by_window.values())) == len(by_window)


@laws
@given(LENGTHS, st.integers(1, 5), st.integers(1, 12))
def test_rechunking_keeps_every_run(lengths, chunk, size):
    chunks = list(rechunked(chunked(runs_of(lengths), chunk), size))
    assert [len(c) for c in chunks] == [size] * (len(lengths) // size) + [len(lengths) % size] * (len(lengths) % size > 0)
    assert np.concatenate([np.empty(0, RUN), *chunks]).tolist() == runs_of(lengths).tolist()


def fit_by_definition(lengths, size):
    room, bins = [], {}
    for i in sorted((i for i, n in enumerate(lengths) if n), key=lambda i: -lengths[i]):
        fits = [(left, b) for b, left in enumerate(room) if left >= lengths[i]]
        b = min(fits)[1] if fits else len(room)
        room += [] if fits else [size]
        room[b] -= lengths[i]
        bins[i] = b
    return [bins.get(i, 0) for i in range(len(lengths))]


@laws
@given(st.integers(1, 20).flatmap(lambda size: st.tuples(st.just(size), st.lists(st.integers(0, size), max_size=60))))
def test_best_fit_is_what_its_definition_says(case):
    size, lengths = case
    assert best_fit(np.array(lengths, np.int64), size).tolist() == fit_by_definition(lengths, size)


@laws
@given(LENGTHS, st.integers(1, 40), st.integers(1, 50))
def test_packing_cuts_no_document_that_fits_and_fills_no_sequence_over_its_end(lengths, size, chunk):
    runs = np.concatenate([np.empty(0, RUN), *packed(rechunked([runs_of(lengths)], chunk), size)])
    assert sorted(covered(runs)) == all_of(lengths)
    assert all(r["ids"] == lengths[r["document"]] for r in runs if lengths[r["document"]] <= size)
    filled = runs[runs["ids"] > 0]
    assert (filled["at"] // size == (filled["at"] + filled["ids"] - 1) // size).all()
    assert (filled["at"][1:] >= (filled["at"] + filled["ids"])[:-1]).all(), "no two overlap, and they stand in order"
    assert sorted(set((filled["at"] // size).tolist())) == list(range(len(set((filled["at"] // size).tolist())))), "no sequence is empty"
    assert len(set((filled["at"] // size).tolist())) <= 2 * sum(lengths) / size + len(lengths) / chunk + 1, "no two could be one"


def files_by_definition(lengths, limit):
    files, used, full = [[]], 0, False
    for i, n in enumerate(lengths):
        if full or (used and used + n > limit):
            files.append([])
            used, full = 0, False
        files[-1].append(i)
        used += n
        full = used >= limit
    return files


@laws
@given(LENGTHS, st.integers(1, 40), st.integers(1, 12))
def test_files_hold_whole_documents_up_to_the_limit(lengths, limit, chunk):
    files = Files(limit)
    for runs in placed(chunked(runs_of(lengths), chunk)):
        files.add(runs)
    found, expected = files.close(), files_by_definition(lengths, limit)
    assert found["runs"].tolist() == [len(f) for f in expected]
    assert (found["end"] - found["start"]).tolist() == [sum(lengths[i] for i in f) for f in expected]
    assert found["documents"].tolist() == found["runs"].tolist()
    assert found["first"].tolist() == [sum(map(len, expected[:k])) for k in range(len(expected))]


@laws
@given(LENGTHS, st.integers(1, 9), st.integers(9, 40), st.booleans())
def test_files_of_sequences_hold_whole_sequences(lengths, size, limit, fit):
    chunks = list(packed([runs_of(lengths)], size) if fit else (cut(c, size) for c in placed([runs_of(lengths)])))
    files = SequenceFiles(limit, size)
    for runs in chunks:
        files.add(runs)
    runs, found = np.concatenate([np.empty(0, RUN), *chunks]), files.close()
    assert ((found["end"] - found["start"]) % size == 0).all()
    assert ((found["end"] - found["start"]) <= limit).all()
    assert found["start"].tolist() == [0, *found["end"].tolist()][: len(found)]
    assert found["runs"].sum() == len(runs)
    assert found["documents"].sum() == len(lengths)
    for file in found:
        mine = runs[file["first"] : file["first"] + file["runs"]]
        assert (mine["at"] >= file["start"]).all()
        assert (mine["at"] + mine["ids"] <= file["end"]).all()


def test_the_hash_of_an_id_is_of_its_bytes_alone():
    names = ["s:1", "s:2", "é", "", "x" * 5000]
    data = np.frombuffer("".join(names).encode(), np.uint8)
    ends = np.cumsum([0, *(len(n.encode()) for n in names)])
    together = hashes(data, ends).tolist()
    alone = [int(hashes(np.frombuffer(n.encode(), np.uint8), np.array([0, len(n.encode())]))[0]) for n in names]
    assert together == alone
    assert len(set(together)) == len(names)


@pytest.mark.parametrize("bit", [0, 31, 63])
def test_keys_are_spread_evenly(bit):
    keys = keyed(np.arange(4096, dtype=np.uint64), 1, 0)
    assert 1800 < np.count_nonzero(keys >> np.uint64(bit) & np.uint64(1)) < 2300
