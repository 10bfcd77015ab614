"""Personal data of many texts, found with the help of a compiled pass, is what is found in each, on any text."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_pii import all_texts, pieces

from corpusbuild import kernels, pii
from corpusbuild.kernels import Kernels
from corpusbuild.pii import ALL_KINDS, KINDS, detect, detect_all
from corpusbuild.texts import Texts, texts_of

law = settings(deadline=None, max_examples=300)
WORDS = (
    "and then",
    " a b ",
    "x",
    "word",
    " is ",
    " Z",
    "Köln",
    "中文",
    "\U0001f600",
    "\u2028",
    "\r",
    "\x00",
    "a 1",
    "1 a",
    "v1.2",
    "std::",
    "12:34:56",
)
MORE = (
    *("6011 1111 1111 1117", "1 2 3", "2 3456 7890 1234 5678", "4 4111 1111 1111 1111 2", "378282246310005", "0000"),
    *("+1(212)555-0123", "212)555.0123", "(212)555 0123", "+4 4.2-0 7 9 4 6", "555-0123", "212", "555", "0123"),
    *(
        "a.b",
        "@b",
        ".co",
        "256.1.1.1",
        "1.1.1.1.1",
        "0:0:0:0:0:ffff:1.2.3.4",
        "::1",
        "a::b",
        "fe80::12345",
        "..fe80::1:2345.",
        "1::2:abcd:",
    ),
    *("sk-", "AKIA", "ghp_", "xoxb-", "AIza", "tl_", "aB3" * 8, "A1" * 18, "tl_abcd_", "AIza" + "aB3_-" * 7),
)
anything = st.lists(pieces.filter(lambda piece: piece.isascii() or piece != "\ud800") | st.sampled_from(WORDS + MORE), max_size=20).map(
    "".join
)
close = st.text(st.sampled_from("0123456789.-:+@() aAfFkKsSzZ_\nx中"), max_size=60)
kind_sets = st.lists(st.sampled_from(KINDS), unique=True).map(tuple) | st.just(KINDS)


def one(texts: list[str]) -> Texts:
    """The texts after one that is sliced off, so that the column does not begin where its buffers do."""
    column = pa.chunked_array([pa.array(["4111 1111 1111 1111 é", *texts], pa.large_string()).slice(1)])
    return next(texts_of(column), Texts(np.empty(0, np.uint8), np.zeros(1, np.int64)))


def found(texts: list[str], kinds: tuple[str, ...]) -> list[tuple[int, str, int, int]]:
    places = detect_all(one(texts), kinds)
    return [(row, kinds[kind], start, end) for row, kind, start, end in zip(*map(np.ndarray.tolist, places), strict=True)]


def by_definition(texts: list[str], kinds: tuple[str, ...]) -> list[tuple[int, str, int, int]]:
    return [(row, *span) for row, text in enumerate(texts) for span in detect(text, kinds)]


@law
@given(st.lists(anything | close | st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=6), kind_sets)
def test_a_compiled_pass_loses_nothing(texts, kinds):
    with kernels.using(Kernels("compiled")):
        assert found(texts, kinds) == by_definition(texts, kinds)


@law
@given(st.lists(anything, max_size=6), st.integers(1, 3))
def test_nor_when_it_is_taken_up_again(texts, at_once):
    with kernels.using(Kernels("compiled")), pytest.MonkeyPatch.context() as patch:
        patch.setattr(pii, "WINDOWS", at_once)
        assert found(texts, KINDS) == by_definition(texts, KINDS)


@settings(deadline=None, max_examples=40)
@given(st.lists(all_texts.filter(lambda text: "\ud800" not in text), max_size=3), st.sampled_from(["compiled", "reference"]))
def test_all_kinds_are_found_in_either_form(texts, form):
    with kernels.using(Kernels(form)):
        assert found(texts, ALL_KINDS) == by_definition(texts, ALL_KINDS)


def test_labelled_sentences_in_one_text(request):
    lines = [json.loads(line)["text"] for line in (request.path.parent / "data" / "pii_labelled.jsonl").open()]
    with kernels.using(Kernels("compiled")):
        for joint in ("\n", " ", " and then "):
            text = joint.join(lines)
            assert found([text], KINDS) == by_definition([text], KINDS)


def test_only_what_may_be_some_is_looked_at(monkeypatch):
    asked = []
    monkeypatch.setattr(pii, "detect", lambda text, kinds: asked.append(text) or [])
    with kernels.using(Kernels("compiled")):
        found(["word " * 10_000 + "mail bo@example.org or so. " + "in 1999 and 2000, 3.5: e-mail std::vector a@b, " * 9], KINDS)
    assert asked == ["bo@example.org"]
