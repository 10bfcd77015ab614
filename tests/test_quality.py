import math
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild.quality import RULES, Failure, FilterParams, Gopher, Ppl, Repetition, dup_ngram_char_frac, failures, gopher_failures

law = settings(deadline=None, max_examples=200)

GOOD = " ".join(["the quick brown fox jumps over lazy dogs with style"] * 5 + [f"word{chr(97 + i)} and" for i in range(20)])
PLAIN = Gopher(
    min_words=1, max_words=4, min_mean_word_len=2, max_mean_word_len=4, max_symbol_ratio=0.5, max_bullet_lines=0.5, max_ellipsis_lines=0.5,
    min_alpha_words=0.5, min_stopwords=1,
)  # fmt: skip


def rules(text, limits):
    return [f.rule.removeprefix("gopher_") for f in gopher_failures(text, text.split(), limits)]


def test_the_worked_example():
    text = "Buy now. #deal #sale #wow ..."
    assert rules(text, Gopher()) == ["words", "symbol_ratio", "ellipsis_lines", "stopwords"]
    assert gopher_failures(text, text.split(), Gopher())[1] == Failure("gopher_symbol_ratio", 3 / 6, 0.1)


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_a_text_without_words_fails_what_needs_words_whatever_the_limits(text):
    assert rules(text, Gopher(min_words=0, min_alpha_words=0, min_stopwords=0)) == ["words", "mean_word_len", "alpha_words", "stopwords"]


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("the", []),
        ("the of and be", []),  # four words: the bound is inclusive
        ("the of and be to", ["words"]),
        ("be", []),  # two characters a word
        ("b the a a", ["mean_word_len"]),  # 6/4
        ("thee thee the", []),
        ("the seven", []),  # 8/2, inclusive
        ("the eleven", ["mean_word_len"]),  # 9/2
        ("the # ab", []),
        ("the## ##", ["symbol_ratio", "stopwords"]),
        ("the… a…", ["symbol_ratio", "ellipsis_lines", "stopwords"]),
        ("the ...…", ["symbol_ratio", "ellipsis_lines"]),  # both kinds of ellipsis add up: 2/2
        ("- the\nof it", []),  # one line of two
        ("- have\n\n \n* with", ["bullet_lines"]),
        (" • the\nab", []),
        (" • the\n\t‣a", ["bullet_lines"]),
        ("◦ the", ["bullet_lines"]),
        ("the ab...\nab", []),
        ("the ab... \nab…", ["symbol_ratio", "ellipsis_lines"]),
        ("the 12", []),
        ("the 12 34", ["alpha_words"]),
        ("x1y the", []),
        ("(The!) ab", []),
        ("them ab", ["stopwords"]),
        ("-the- ab", ["bullet_lines", "stopwords"]),  # a dash is not stripped
    ],
)
def test_gopher_rules_at_their_bounds(text, failed):
    assert rules(text, PLAIN) == failed


def test_a_failure_names_the_bound_it_broke():
    limits = Gopher(min_words=2, max_words=3)
    assert gopher_failures("the", ["the"], limits)[0] == Failure("gopher_words", 1.0, 2.0)
    assert gopher_failures("the " * 4, ["the"] * 4, limits)[0] == Failure("gopher_words", 4.0, 3.0)


def test_a_good_document_fails_nothing():
    assert failures(GOOD, "en", 1.0, FilterParams(repetition=Repetition(max_frac=1.0))) == []


@pytest.mark.parametrize(("length", "failed"), [(49, True), (50, False), (100, False), (101, True)])
def test_length_bounds_are_inclusive_and_in_code_points(length, failed):
    found = failures("é" * length, "en", 1.0, FilterParams(min_chars=50, max_chars=100))
    assert ("length" in [f.rule for f in found]) is failed


@pytest.mark.parametrize(("lang", "conf", "failed"), [("en", 0.65, False), ("en", 0.64, True), ("de", 1.0, True), ("und", 0.0, True)])
def test_lang(lang, conf, failed):
    found = [f for f in failures(GOOD, lang, conf, FilterParams()) if f.rule == "lang"]
    assert found == ([Failure("lang", conf, 0.65)] if failed else [])


def test_every_failed_rule_is_listed_in_order():
    everything = FilterParams(ppl=Ppl(max_ppl=10, model="a:b"), min_chars=1000)
    text = "- #1 #2 #3...\n" * 20
    found = [f.rule for f in failures(text, "de", 1.0, everything, perplexity=lambda _: 11.0)]
    assert found == [r for r in RULES if r != "gopher_words"]
    assert [f.rule for f in failures("", "und", 0.0, everything, perplexity=lambda _: 1.0)] == [
        "length", "lang", "gopher_words", "gopher_mean_word_len", "gopher_alpha_words", "gopher_stopwords",
    ]  # fmt: skip


def test_perplexity():
    params = FilterParams(ppl=Ppl(max_ppl=10, model="a.b:c"), repetition=Repetition(max_frac=1.0))
    assert failures(GOOD, "en", 1.0, params, lambda _: 10.0) == []
    assert failures(GOOD, "en", 1.0, params, lambda _: 10.5) == [Failure("ppl", 10.5, 10.0)]
    assert [f.rule for f in failures(GOOD, "en", 1.0, params, lambda _: math.nan)] == ["ppl"]
    with pytest.raises(ValueError, match=r"a\.b:c was not loaded"):
        failures(GOOD, "en", 1.0, params)


@pytest.mark.parametrize(
    ("text", "n", "share"),
    [
        ("the cat sat the cat sat down", 3, 18 / 22),
        ("a b", 3, 0.0),
        ("", 1, 0.0),
        ("a a a a", 3, 1.0),  # the two trigrams overlap: no character counts twice
        ("a bb a cc", 1, 2 / 6),
        ("a b c d", 2, 0.0),
    ],
)
def test_dup_ngram_examples(text, n, share):
    assert dup_ngram_char_frac(text.split(), n) == pytest.approx(share)


def test_dup_ngram_refuses_n_below_one():
    with pytest.raises(ValueError, match="at least 1"):
        dup_ngram_char_frac(["a"], 0)


@law
@given(st.lists(st.sampled_from(["a", "bb", "ccc"]), max_size=15), st.integers(1, 4))
def test_dup_ngram_agrees_with_its_definition(words, n):
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    inside = {j for i, gram in enumerate(grams) if Counter(grams)[gram] > 1 for j in range(i, i + n)}
    expected = sum(len(words[j]) for j in inside) / sum(map(len, words)) if inside else 0.0
    assert dup_ngram_char_frac(words, n) == expected


@law
@given(st.text(st.sampled_from("the #.…-*1\n "), max_size=60))
def test_rules_come_in_order_once_each(text):
    found = [f.rule for f in failures(text, "en", 0.5, FilterParams())]
    assert found == [r for r in RULES if r in found]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"min_word": 1}, "min_word"),
        ({"gopher": {"max_symbols": 1}}, "max_symbols"),
        ({"gopher": {"min_words": -1}}, "min_words"),
        ({"gopher": {"min_words": 5, "max_words": 4}}, r"min_words \(5\) is above max_words \(4\)"),
        ({"gopher": {"min_mean_word_len": 5, "max_mean_word_len": 4.5}}, "min_mean_word_len"),
        ({"min_chars": 5, "max_chars": 4}, "min_chars"),
        ({"repetition": {"n": 0}}, "n"),
        ({"langs": ["eng"]}, "langs"),
        ({"langs": []}, "langs"),
        ({"lang_min_conf": 1.5}, "lang_min_conf"),
        ({"ppl": {"max_ppl": 0, "model": "a:b"}}, "max_ppl"),
        ({"ppl": {"max_ppl": 1, "model": "models/ppl.bin"}}, "model"),
    ],
)
def test_bad_thresholds_are_refused_when_read(raw, message):
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(raw, FilterParams)


def test_thresholds_read_integers_and_fractions_alike():
    params = msgspec.convert({"langs": ["en", "de"], "gopher": {"min_words": 3, "max_symbol_ratio": 1}}, FilterParams)
    assert (params.langs, params.gopher.min_words, params.gopher.max_symbol_ratio) == (("en", "de"), 3, 1)
