"""MinHash: the arrays agree with the definition on any text, and the definition with published and worked numbers."""

import re
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minhash_by_definition import band_keys, digest, fnv1a, mix, shingle_set, signature

from corpusbuild import minhash
from corpusbuild.minhash import Ragged, SignParams

# Letters where lower case is not simple, marks, digits, scripts without spaces, an astral letter, separators of every kind.
TRICKY = st.text(st.sampled_from("aAbB1_ßẞİıΣσςǅéÉ\u0301中文ไทย\U00010400\U0001f600-. \t\n\u2028\x00'"), max_size=60)
TEXTS = st.lists(TRICKY | st.text(max_size=40), max_size=6)
PARAMS = st.builds(
    lambda n, rows, shingle, seed: SignParams(num_perm=n * rows, bands=n, shingle=shingle, seed=seed),
    st.integers(1, 4), st.integers(1, 4), st.integers(1, 6), st.integers(0, 2**53),
)  # fmt: skip


def assert_as_defined(texts: list[str], params: SignParams) -> None:
    rows, signs = minhash.shingle_sets(texts, params.shingle), minhash.signs(texts, params)
    assert signs.bands.shape == (params.bands, len(texts))
    for i, text in enumerate(texts):
        expected = shingle_set(text, params.shingle)
        assert rows.row(i).tolist() == expected
        assert int(signs.shingles[i]) == len(expected)
        assert int(signs.hi[i]).to_bytes(8, "big") + int(signs.lo[i]).to_bytes(8, "big") == digest(expected)
        assert signs.bands[:, i].tolist() == band_keys(signature(expected, params), params.bands)


@settings(deadline=None, max_examples=150)
@given(TEXTS, PARAMS)
def test_signs_are_what_their_definition_says(texts: list[str], params: SignParams) -> None:
    assert_as_defined(texts, params)


@settings(deadline=None, max_examples=60)
@given(TEXTS, PARAMS, st.integers(1, 9), st.integers(1, 9))
def test_blocks_and_lanes_change_nothing(texts: list[str], params: SignParams, block: int, lanes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minhash, "BLOCK", block)
        patch.setattr(minhash, "LANES", lanes)
        assert_as_defined(texts, params)


@settings(deadline=None, max_examples=100)
@given(TRICKY | st.text())
def test_lower_case_is_taken_code_point_by_code_point(text: str) -> None:
    assert minhash.lower(text) == "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def test_no_other_letter_becomes_two_and_lower_case_keeps_words_words() -> None:
    letters = list(map(chr, range(0x110000)))
    assert [c for c in letters if len(c.lower()) > 1] == ["İ"]
    assert [c for c in letters if bool(re.match(r"\w", c)) != bool(re.match(r"\w", c.lower()[0]))] == []


@pytest.mark.parametrize("lengths", [[70], [200] * 40 + [3] * 5, [1] * 31 + [500], [70_000] * 33])
def test_words_of_any_length(lengths: list[int]) -> None:
    words = ["".join(chr(97 + (i * j) % 26) for j in range(n)) for i, n in enumerate(lengths, 3)]
    expected = [mix(fnv1a(word)) for word in words]
    assert minhash.words([" ".join(words)]).flat.tolist() == expected


def test_a_long_text_is_signed_in_bounded_blocks() -> None:
    text = "the cat sat on the mat " * 60_000
    assert len(text) > minhash.BLOCK
    (signs, short) = minhash.signs([text], SignParams()), minhash.signs([text[: 23 * 10]], SignParams())
    assert signs.bands.tolist() == short.bands.tolist()
    assert signs.shingles.tolist() == [6]


def test_short_texts_are_one_shingle_and_wordless_ones_none() -> None:
    rows = minhash.shingle_sets(["", " . !", "one", "one two", "One, TWO.", "one two three four five", "one two three four five six"], 5)
    assert np.diff(rows.offsets).tolist() == [0, 0, 1, 1, 1, 1, 2]
    assert rows.row(3).tolist() == rows.row(4).tolist() != rows.row(2).tolist()


def test_pcg32_has_its_published_numbers() -> None:
    assert [f"{n:08x}" for n in islice(minhash.pcg32(42), 6)] == ["a15c02b7", "7b47f409", "ba1d3330", "83d2f293", "bfa4784b", "cbed606e"]


def test_permutations_are_drawn_in_turn_and_have_odd_factors() -> None:
    factors, summands = minhash.permutations(2, 42)
    assert [f"{n:08x}" for n in (*factors, *summands)] == ["a15c02b7", "ba1d3331", "7b47f409", "83d2f293"]


def test_fnv1a_has_its_worked_number() -> None:
    codes = np.array(list(map(ord, "the cat sat")), np.uint32)
    assert minhash.fnv1a(codes, np.array([0]), np.array([11])).tolist() == [0xA02552C16CDEA15C]


def test_candidate_probability_has_its_worked_numbers() -> None:
    assert minhash.candidate_probability(0.8, 16, 8) == pytest.approx(0.94704880, abs=5e-9)
    assert minhash.candidate_probability(0.5, 16, 8) == pytest.approx(0.06070190, abs=5e-9)


def test_agreement_of_signatures_estimates_jaccard() -> None:
    rng = np.random.default_rng(5)
    shared, a, b = (rng.integers(0, 2**63, n, np.uint64) for n in (600, 200, 200))
    left, right = np.unique(np.concatenate([shared, a])), np.unique(np.concatenate([shared, b]))
    rows = Ragged(np.concatenate([left, right]), np.array([0, len(left), len(left) + len(right)]))
    signatures = minhash.minima(rows, *minhash.permutations(4096, 0))
    assert np.mean(signatures[0] == signatures[1]) == pytest.approx(0.6, abs=0.03)  # 600 of 1,000; four standard errors


@pytest.mark.parametrize(("num_perm", "bands", "remedy"), [(128, 20, "120 or 140"), (3, 16, "16")])
def test_bands_must_divide_permutations(num_perm: int, bands: int, remedy: str) -> None:
    with pytest.raises(ValueError, match=f"num_perm {num_perm} is not a multiple of bands {bands}: make it {remedy}$"):
        minhash.check(num_perm, bands)
    with pytest.raises(ValueError, match="not a multiple"):
        minhash.signs(["a"], SignParams(num_perm=num_perm, bands=bands))


def test_signing_nothing_gives_empty_columns() -> None:
    signs = minhash.signs([], SignParams())
    assert [len(signs.hi), len(signs.lo), len(signs.shingles), signs.bands.shape] == [0, 0, 0, (16, 0)]


def test_every_letter_there_is_is_in_the_tables():
    every = list(map(chr, range(0x110000)))
    words = [bool(re.match(r"\w", c)) for c in every]
    assert minhash._is_word().tolist() == words
    assert minhash.letters().tolist() == [ord(minhash.lower(c)) if word else 0 for c, word in zip(every, words, strict=True)]
