"""What remains of a column of texts is what remains of each, in either form."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild import kernels
from corpusbuild.text import effective, paragraphs
from corpusbuild.texts import Cuts, NothingLeftError, Spans, Texts, effective_texts, texts_of

LETTERS = "aB1é\u0301中\U0001f600-.\x00\x1c\x85\xa0\u2003\u2028\u3000\ufeff \t\n\n\n\n"
TEXT = st.text(st.sampled_from(LETTERS), max_size=60) | st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
WORDS = ["<É>", "", "<A LONGER WORD THAN WHAT IT STANDS FOR>"]
FORMS = ["compiled", "reference"]


def column(texts: list[str]) -> Texts:
    """After a text that is sliced off, so that the column does not begin where its buffers do."""
    array = pa.array(["x\n\nné", *texts], pa.large_string()).slice(1)
    return next(texts_of(pa.chunked_array([array])), Texts(np.empty(0, np.uint8), np.zeros(1, np.int64)))


def outcome(form: Any, block: int, texts: list[str], rows: list[int], cuts: list[Any], spans: list[Any]) -> Any:
    numbers = Cuts(*np.array(cuts, np.int64).reshape(-1, 4).T.copy()), Spans(*np.array(spans, np.int64).reshape(-1, 4).T.copy())
    with kernels.using(kernels.Kernels(form)), pytest.MonkeyPatch.context() as patch:
        patch.setattr("corpusbuild.texts.BLOCK", block)
        try:
            return effective_texts(column(texts), np.array(rows, np.int64), *numbers, WORDS).strings()
        except (ValueError, NothingLeftError) as e:
            return str(e)


def by_definition(texts: list[str], rows: list[int], cuts: list[Any], spans: list[Any]) -> Any:
    left = []
    for row in rows:
        cut, found = {c[1] for c in cuts if c[0] == row}, [(start, end, WORDS[word]) for r, start, end, word in spans if r == row]
        try:
            left.append(effective(texts[row], cut, found))
        except ValueError as e:
            return str(e)
        if left[-1] is None:
            return f"every paragraph of row {row} is cut"
    return left


def pieces(data: st.DataObject, row: int, start: int, end: int) -> list[Any]:
    """Some spans of a paragraph, in order."""
    ends = sorted(data.draw(st.sets(st.integers(start, end), max_size=4)))
    return [(row, a, b, data.draw(st.integers(0, len(WORDS) - 1))) for a, b in zip(ends[::2], ends[1::2], strict=False)]


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None, max_examples=150)
@given(st.lists(TEXT, max_size=6), st.data(), st.sampled_from([1, 40, 1 << 20]))
def test_texts_lose_cuts_and_have_spans_replaced(form: str, texts: list[str], data: st.DataObject, block: int) -> None:
    where = [(row, i, start, end) for row, text in enumerate(texts) for i, (start, end) in enumerate(paragraphs(text))]
    cuts = sorted(data.draw(st.sets(st.sampled_from(where)))) if where else []
    spans = [span for row, _, start, end in where for span in pieces(data, row, start, end)]
    rows = sorted(data.draw(st.sets(st.sampled_from(range(len(texts)))))) if texts else []
    whole = {
        row for row in rows if paragraphs(texts[row]) and {c[1] for c in cuts if c[0] == row} >= set(range(len(paragraphs(texts[row]))))
    }
    rows = [row for row in rows if row not in whole or not data.draw(st.booleans())]
    assert outcome(form, block, texts, rows, cuts, spans) == by_definition(texts, rows, cuts, spans)


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None, max_examples=150)
@given(st.lists(TEXT, min_size=1, max_size=4), st.data())
def test_wrong_decisions_are_refused_alike(form: str, texts: list[str], data: st.DataObject) -> None:
    row, place = st.integers(0, len(texts) - 1), st.integers(-2, 30)
    cuts = data.draw(st.lists(st.tuples(row, st.integers(-1, 3), place, place), max_size=3).map(sorted))
    spans = sorted(data.draw(st.lists(st.tuples(row, place, place, st.just(0)), max_size=3)), key=lambda span: span[0])
    rows = list(range(len(texts)))
    assert outcome(form, 1 << 20, texts, rows, cuts, spans) == by_definition(texts, rows, cuts, spans)


@pytest.mark.parametrize("form", FORMS)
def test_a_text_of_many_blocks_among_short_ones(form: str) -> None:
    long = "\n\n".join(f"é {i}" for i in range(20_000))
    cuts = [(0, 0, 0, 1), *((1, i, 0, 0) for i in range(0, 20_000, 2))]
    got = outcome(form, 1000, ["a\n\nb", long, "c"], [0, 1, 2], cuts, [(2, 0, 1, 0)])
    assert got == ["b", "\n\n".join(f"é {i}" for i in range(1, 20_000, 2)), "<É>"]


def test_what_no_decision_changes_is_not_copied() -> None:
    texts, nothing = column(["a", "b", "c"]), np.empty(0, np.int64)
    left = effective_texts(texts, np.array([1, 2]), Cuts(*[nothing] * 4), Spans(*[nothing] * 4), WORDS)
    assert (left.strings(), left.data is texts.data) == (["b", "c"], True)
