"""A compiled pass over many texts sees each protected n-gram that the reference sees, on any text."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild import contamination, kernels
from corpusbuild.contamination import build_index
from corpusbuild.kernels import Kernels
from corpusbuild.texts import Texts, texts_of

# letters whose lower case depends on where they stand, is two, or is none; marks, scripts without spaces, astral letters, separators
LETTERS = "aAbB1_ßẞİıiI\u0307Σσςǅé\u0301中ไ\U00010400\U00010428\U0001f600-.'\x00\x85\xa0\u2028 \t\n"
TEXT = st.text(st.sampled_from(LETTERS), max_size=40) | st.text(st.characters(exclude_categories=["Cs"]), max_size=25)
WORDS = st.lists(st.sampled_from(["a", "A", "ΟΔΟΣ", "οδος", "İz", "i", "z", "one", "中文", "é", "x-y", ""]), max_size=25).map(" ".join)


def one(texts: list[str]) -> Texts:
    return next(texts_of(pa.chunked_array([pa.array(["a one", *texts], pa.large_string()).slice(1)])))


@settings(deadline=None, max_examples=300)
@given(st.lists(TEXT | WORDS, max_size=4), st.lists(TEXT | WORDS, min_size=1, max_size=5), st.integers(1, 4), st.data())
def test_a_compiled_pass_loses_nothing(protected, texts, n, data):
    texts += [before + text.swapcase() + after for text in protected for before, after in [data.draw(st.tuples(TEXT, TEXT))]]
    plain = build_index(protected, n)
    with kernels.using(Kernels("compiled")):
        hits = build_index(protected, n).hits_of(one(texts))
    assert hits.tolist() == plain.hits_of(one(texts)).tolist() == [plain.hits(text) for text in texts]


def test_only_texts_that_share_something_are_read_as_strings(monkeypatch):
    with kernels.using(Kernels("compiled")):
        index = build_index(["one two three four"], 3)
        monkeypatch.setattr(contamination.Index, "hits", lambda self, text: len(text))
        assert index.hits_of(one(["one two four three", "two THREE, four", "", "one two", "three"])).tolist() == [0, 15, 0, 0, 0]


@settings(deadline=None, max_examples=50)
@given(WORDS, WORDS, st.integers(1, 4), st.integers(1, 9))
def test_a_long_text_is_read_in_blocks(protected, text, n, block):
    index = build_index([protected], n)
    whole = index.hits(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contamination, "BLOCK", block)
        assert index.hits(text) == whole
