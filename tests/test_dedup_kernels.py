"""Deduplication's kernels give what their references give, on any text and any numbers."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild import kernels, law, minhash, paragraphs, repeats
from corpusbuild import text as definition
from corpusbuild.kernels import Kernels
from corpusbuild.kernels import blake3 as blake3_kernel
from corpusbuild.minhash import Ragged, SignParams
from corpusbuild.texts import Cuts, Texts, remaining, texts_of

# Letters whose lower case is not simple, marks, scripts without spaces, astral letters, every kind of white space and line end, controls.
LETTERS = "aAbB1_ßẞİıΣσςǅéÉ\u0301中文ไทย\U00010400\U0001f600-.'\x00\x1c\x85\xa0\u1680\u2003\u2028\u2029\u3000\ufeff\U0010ffff \t\n\n\n"
TEXT = st.text(st.sampled_from(LETTERS), max_size=80) | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
TEXTS = st.lists(TEXT, max_size=7)
PARAMS = st.builds(
    lambda n, rows, shingle, seed: SignParams(num_perm=n * rows, bands=n, shingle=shingle, seed=seed),
    st.integers(1, 4), st.integers(1, 4), st.integers(1, 6), st.integers(0, 2**53),
)  # fmt: skip


def column(texts: list[str]) -> pa.ChunkedArray:
    """The texts after one that is sliced off, so that the column does not begin where its buffers do."""
    return pa.chunked_array([pa.array(["x\n\nné", *texts], pa.large_string()).slice(1)])


def one(texts: list[str]) -> Texts:
    return next(texts_of(column(texts)), Texts(np.empty(0, np.uint8), np.zeros(1, np.int64)))


@contextmanager
def compiled() -> Iterator[None]:
    with kernels.using(Kernels("compiled")):
        yield


def assert_same(a: Any, b: Any) -> None:
    assert [column.tolist() for column in a] == [column.tolist() for column in b]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=300) | st.integers(0, 1100).map(lambda n: bytes(i % 251 for i in range(n))), max_size=40))
def test_digests_of_pieces_are_blake3(pieces: list[bytes]) -> None:
    ends = np.cumsum([0, *map(len, pieces)])
    hi, lo = blake3_kernel.digests(np.frombuffer(b"".join(pieces), np.uint8), ends[:-1], ends[1:])
    got = [int(h).to_bytes(8, "big") + int(k).to_bytes(8, "big") for h, k in zip(hi, lo, strict=True)]
    assert got == [blake3(piece).digest(16) for piece in pieces]


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 127, 128, 1023, 1024, 1025, 2048, 5000])
def test_digests_at_the_borders_of_blocks_and_chunks(length: int) -> None:
    data = np.arange(length + 7).astype(np.uint8)
    hi, lo = blake3_kernel.digests(data, np.array([3]), np.array([3 + length]))
    assert int(hi[0]).to_bytes(8, "big") + int(lo[0]).to_bytes(8, "big") == blake3(data[3 : 3 + length].tobytes()).digest(16)


@settings(deadline=None, max_examples=150)
@given(TEXTS, PARAMS, st.sampled_from([1, 30, 1 << 20]))
def test_signs(texts: list[str], params: SignParams, block: int) -> None:
    with compiled(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("corpusbuild.texts.BLOCK", block)
        got = minhash.sign_texts(one(texts), params)
        sets = minhash.set_texts(one(texts), params.shingle)
    assert_same(got, minhash.signs(texts, params))
    assert_same(sets, minhash.shingle_sets(texts, params.shingle))


@pytest.mark.parametrize(
    "text", ["the cat sat on the mat " * 9000, "a" * 70_000, " ".join(map(str, range(40_000))), "b a " * 5000, "é" * 3000 + " 中" * 3000]
)
def test_signs_of_long_texts(text: str) -> None:
    with compiled():
        got = minhash.sign_texts(one([text, "", text]), SignParams())
    assert_same(got, minhash.signs([text, "", text], SignParams()))


@settings(deadline=None, max_examples=200)
@given(TEXTS)
def test_paragraphs(texts: list[str]) -> None:
    with compiled():
        got, counts = paragraphs.found(one(texts)), paragraphs.counts(one(texts))
    plain = paragraphs.found(one(texts))
    assert [column.tolist() for column in got] == [column.tolist() for column in plain]
    digests = [hi.to_bytes(8, "big") + lo.to_bytes(8, "big") for hi, lo in zip(plain.hi.tolist(), plain.lo.tolist(), strict=True)]
    assert [*zip(plain.rows.tolist(), plain.starts.tolist(), plain.ends.tolist(), digests, strict=True)] == [
        (row, start, end, blake3(t[start:end].encode()).digest(16))
        for row, t in enumerate(texts)
        for start, end in definition.paragraphs(t)
    ]
    assert counts.tolist() == paragraphs.counts(one(texts)).tolist() == np.bincount(got.rows, minlength=len(texts)).tolist()


def test_no_code_point_beyond_those_looked_up_is_white_space() -> None:
    assert not any(chr(c).isspace() for c in range(0x3001, 0x110000))


@settings(deadline=None, max_examples=100)
@given(TEXTS, st.data(), st.sampled_from([1, 40, 1 << 20]), st.integers(1, 3))
def test_what_remains_has_the_same_words(texts: list[str], data: st.DataObject, block: int, width: int) -> None:
    spans = [(row, i, start, end) for row, text in enumerate(texts) for i, (start, end) in enumerate(definition.paragraphs(text))]
    cut = sorted(data.draw(st.lists(st.sampled_from(spans), unique=True))) if spans else []
    rows = np.array(sorted(data.draw(st.sets(st.sampled_from(range(len(texts)))))) if texts else [], np.int64)
    cuts = Cuts(*np.array(cut, np.int64).reshape(-1, 4).T)
    by_form = []
    for form in ("compiled", "reference"):
        with kernels.using(Kernels(form)), pytest.MonkeyPatch.context() as patch:  # type: ignore[arg-type]
            patch.setattr("corpusbuild.texts.BLOCK", block)
            left = [text for texts in remaining(column(texts), rows, cuts) for text in texts.strings()]
        by_form.append(minhash.shingle_sets(left, width))
        assert len(left) == len(rows)
    assert_same(*by_form)


SETS = st.lists(st.sets(st.integers(0, 150), min_size=1, max_size=90), min_size=1, max_size=6)


@settings(deadline=None, max_examples=150)
@given(SETS, SETS, st.sampled_from([0.0, 0.25, 0.5, 2 / 3, 0.8, 1.0]), st.data())
def test_similarities(a: list[set[int]], b: list[set[int]], threshold: float, data: st.DataObject) -> None:
    def ragged(sets: list[set[int]]) -> Ragged:
        return Ragged(np.array([x for s in sets for x in sorted(s)], np.uint64), np.cumsum([0, *map(len, sets)]))

    pairs = data.draw(st.lists(st.tuples(st.integers(0, len(a) - 1), st.integers(0, len(b) - 1)), max_size=12))
    of_a, of_b = np.array(pairs, np.int64).reshape(-1, 2).T.copy()
    with compiled():
        got = law.similarities(ragged(a + b), of_a, ragged(b), of_b, threshold)
    assert got.tolist() == law.similarities(ragged(a + b), of_a, ragged(b), of_b, threshold).tolist()


@settings(deadline=None, max_examples=150)
@given(st.dictionaries(st.tuples(st.integers(0, 9), st.integers(0, 9)), st.sampled_from([0.5, 0.75, 0.875, 1.0])))
def test_decide(pairs: dict[tuple[int, int], float]) -> None:
    pairs = {pair: pairs[pair] for pair in sorted(pairs) if pair[0] > pair[1]}
    later, earlier = np.array(list(pairs), np.uint64).reshape(-1, 2).T
    by_form = []
    for form in ("compiled", "reference"):
        gone = np.zeros(10, np.bool_)
        with kernels.using(Kernels(form)):  # type: ignore[arg-type]
            by_form.append((*law.decide(later, earlier, np.array(list(pairs.values())), gone), gone))
    assert_same(*by_form)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(st.sampled_from([0, 1, 2**64 - 1]), st.sampled_from([0, 16, 32, 33, 2**64 - 1])), max_size=40))
def test_repeats(pairs: list[tuple[int, int]]) -> None:
    hi, lo = np.array(pairs, np.uint64).reshape(-1, 2).T
    records = repeats.digests(hi, lo, np.arange(100, 100 + len(pairs), dtype=np.uint64))
    with compiled():
        got = repeats.split(records)
    assert_same(got, repeats.split(records))


@settings(deadline=None, max_examples=100)
@given(st.lists(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 30), max_size=30), max_size=4))
def test_a_crowd_holds_every_key_that_repeats_and_few_others(runs: list[list[int]]) -> None:
    every = [key for run in runs for key in run]
    with compiled():
        crowd = law.Crowd(len(every))
        for run in runs:
            crowd.count(np.array(run, np.uint64))
        held = crowd.holds(np.array(every, np.uint64)).tolist()
    assert all(h for h, key in zip(held, every, strict=True) if every.count(key) > 1)


def test_most_keys_that_stand_alone_are_told() -> None:
    keys = np.random.default_rng(3).integers(0, 2**64, 10_000, np.uint64)
    with compiled():
        crowd = law.Crowd(len(keys))
        crowd.count(keys)
        assert crowd.holds(keys).mean() < 0.3


def test_a_bucket_without_end_needs_no_more_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(law, "CROWD_BITS", 5)
    with compiled():
        crowd = law.Crowd(1 << 40)
        crowd.count(np.arange(7, dtype=np.uint64))
        crowd.count(np.array([3, 35], np.uint64))
        assert crowd.holds(np.array([3, 35, 4], np.uint64)).tolist() == [True, True, False]  # 35 has the slot of 3
