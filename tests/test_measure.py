"""The compiled loops over many texts say what the references say of each, whatever the text."""

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpusbuild import language, quality
from corpusbuild.kernels import Kernels, using
from corpusbuild.kernels import quality as kernel
from corpusbuild.language import STOPWORDS, detect
from corpusbuild.measure import LONGEST_WORD, marks, measures
from corpusbuild.measure import normal_forms as either
from corpusbuild.quality import BULLETS, EDGES, ELLIPSES, GOPHER_STOPWORDS, FilterParams, Gopher, Ppl, Repetition
from corpusbuild.text import normalize
from corpusbuild.texts import Texts

law = settings(deadline=None, max_examples=150)

NASTY = 'ab\u0301e \t\n\r\x00\x1c\x7f\x85\u00a0\u2028\ufeff\u200dÅ\u212b\u2000\u0327\u0345\u0958\uac00\u1161\u11a8\U0001d15e\u3000\\"/\x08\x0c\U0001f469'
MARKS = "a\u0316\u0334\u05b4\u0e38 \x00\r\n\t"  # none composes, so that their order is all that tells whether a text is in NFC
WORDS = [
    *"the The THE, be to. (of) and that \"have\" with' a la La L'un für FÜR però está ESTÁ İn aİ İl aİa iİ K\u212aK ΟΔΟΣ σ ſ ß ½ ² १ 12 a1b _ __of__ of_ the-of".split(),
    *"# ## #a ... .... ....... … a… a... ...a -... -x - * • ‣ ◦ •a x• 中文 这是一个 ไทย の é e\u0301 elevenletters sixteen.letters.and.more \U0001d400 \u200b".split(),
]  # fmt: skip
SPACES = [" ", " ", " ", "\n", "\n\n", "\t", "\u00a0", "\u2028", "\u3000", "\r", "\x0b", "\x1f", "\x85", "  \n ", ""]
spoken = st.lists(st.tuples(st.sampled_from(WORDS) | st.text(max_size=12), st.sampled_from(SPACES)), max_size=40).map(
    lambda pairs: "".join(word + space for word, space in pairs)
)
texts_of_all_kinds = st.lists(
    spoken | st.text(max_size=60) | st.text(st.sampled_from(NASTY), max_size=40) | st.text(st.sampled_from(MARKS)), max_size=6
)


def column(strings: list[str]) -> Texts:
    pieces = [string.encode() for string in strings]
    return Texts(np.frombuffer(b"".join(pieces), np.uint8), np.concatenate([[0], np.cumsum(list(map(len, pieces)))]).astype(np.int64))


def normal_forms(strings: list[msgspec.Raw]) -> tuple[Texts, int]:
    with using(Kernels("compiled")):
        return either(strings)


def raw(strings: list[str], encode=msgspec.json.encode) -> list[msgspec.Raw]:
    return msgspec.json.decode(b"[" + b",".join(map(encode, strings)) + b"]", type=list[msgspec.Raw])


def limits(n: int, edge: float) -> FilterParams:
    return FilterParams(
        min_chars=int(edge * 20),
        max_chars=30,
        langs=("en", "de"),
        lang_min_conf=edge,
        gopher=Gopher(
            min_words=edge * 6, max_words=7, min_mean_word_len=edge * 4, max_mean_word_len=5, max_symbol_ratio=edge / 2,
            max_bullet_lines=edge, max_ellipsis_lines=edge, min_alpha_words=edge, min_stopwords=edge * 3,
        ),
        repetition=Repetition(n=n, max_frac=edge / 2),
        ppl=Ppl(max_ppl=20, model="a:b"),
    )  # fmt: skip


@law
@given(texts_of_all_kinds)
def test_normal_forms_are_those_of_the_reference(strings):
    texts, size = normal_forms(raw(strings))
    assert texts.strings() == list(map(normalize, strings)) == either(raw(strings))[0].strings()
    assert size == sum(len(string.encode()) for string in strings)


@law
@given(st.text(st.sampled_from(NASTY) | st.characters(codec="utf-8"), max_size=20))
def test_escapes_of_every_spelling_are_read(string):
    def escaped(text):
        units = np.frombuffer(text.encode("utf-16-le"), np.uint16)
        return ('"' + "".join(f"\\u{unit:04{'xX'[k % 2]}}" for k, unit in enumerate(units.tolist())) + '"').encode()

    texts, size = normal_forms(raw(["a", string, "b"], escaped))
    assert texts.strings() == ["a", normalize(string), "b"]
    assert size == len(string.encode()) + 2


def test_every_code_point_is_normalized_as_by_the_reference():
    points = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000 and (code < 0x30000 or code % 997 == 0)]
    strings = ["x" + "y".join(points[i : i + 64]) for i in range(0, len(points), 64)]
    texts, _ = normal_forms(raw(strings))
    assert texts.strings() == list(map(normalize, strings))


def counts_by_reference(text: str, n: int) -> dict[str, int]:
    words = text.split()
    lines = [line for line in text.split("\n") if line.strip()]
    chars = sum(map(len, words))
    return {
        "points": len(text),
        "words": len(words),
        "word_points": chars,
        "symbols": max(text.count("#"), sum(map(text.count, ELLIPSES))),
        "lines": len(lines),
        "bullets": sum(line.lstrip().startswith(BULLETS) for line in lines),
        "trailing": sum(line.rstrip().endswith(ELLIPSES) for line in lines),
        "alpha": sum(any(map(str.isalpha, word)) for word in words),
        "stopwords": sum(word.lower().strip(EDGES) in GOPHER_STOPWORDS for word in words),
        "repeated": round(quality.dup_ngram_char_frac(words, n) * chars),
    }


@law
@given(texts_of_all_kinds, st.integers(1, 5))
@example(["a b a b a", "aİ İn"], 2)
def test_counts_are_those_of_the_reference(strings, n):
    measured = measures(column(strings), n)._asdict()
    votes = measured.pop("votes")
    assert [{name: int(values[i]) for name, values in measured.items()} for i in range(len(strings))] == [
        counts_by_reference(string, n) for string in strings
    ]
    langs, confs = language.elected(votes)
    assert list(zip(langs, confs.tolist(), strict=True)) == list(map(detect, strings))


@law
@given(texts_of_all_kinds, st.integers(1, 4), st.sampled_from([0.0, 0.25, 1 / 3, 0.5, 2 / 3, 0.75, 1.0]))
def test_failures_are_those_of_the_reference_to_the_last_digit(strings, n, edge):
    strings = [text for text in map(normalize, strings) if text]
    params = limits(n, edge)
    measured = measures(column(strings), n)
    langs, confs = language.elected(measured.votes)
    found = quality.failures_of(measured, langs, confs, params, np.array([float(len(text)) for text in strings]))
    assert found == [
        quality.failures(text, *detect(text), params, lambda text: float(len(text))) for text in strings
    ]  # fmt: skip


def test_failures_without_a_model_are_refused():
    with pytest.raises(ValueError, match="a:b was not loaded"):
        quality.failures_of(measures(column(["a"]), 3), ["en"], np.ones(1), limits(3, 0.5))


@law
@given(
    st.lists(st.sampled_from(["a", "bb", "ccc", "中", "dddddddddd"]), min_size=4, max_size=40),
    st.integers(1, 4),
    st.sampled_from([1, 8, 16, 1 << 10]),
)
def test_a_large_text_is_counted_by_parts(words, n, bins):
    text = column([" ".join(words)])
    found = kernel._repeated_in_large(text.data, 0, text.offsets[1], kernel_kinds(), len(words), n, bins)
    assert found == round(quality.dup_ngram_char_frac(words, n) * sum(map(len, words)))


def kernel_kinds():
    from corpusbuild.codepoints import kinds

    return kinds(EDGES)


def test_a_text_of_more_words_than_are_remembered():
    words = [f"w{i % 50_000}x" for i in range(kernel.AT_ONCE + 3000)]
    measured = measures(column(["the end", " ".join(words), "a b a b"]), 2)
    assert measured.words.tolist() == [2, len(words), 4]
    assert measured.repeated.tolist() == [0, round(quality.dup_ngram_char_frac(words, 2) * sum(map(len, words))), 4]


def test_words_whose_hashes_agree_are_compared(monkeypatch):
    """Every hash of n-grams is the same where every word's is."""
    words = column(["aa ab ac ad ae", "aa ab aa ab"])
    starts = np.array([0, 3, 6, 9], np.uint64)
    same = np.full(4, 7, np.uint64)
    lengths, points = np.full(4, 2, np.uint64), np.full(4, 2, np.uint64)
    room = (np.empty(4, np.uint64), np.empty(4, bool), np.full(64, -1, np.int64))
    assert kernel._repeated(words.data, starts, lengths, points, same, 4, 2, *room, 0) == 0
    assert kernel._repeated(words.data, starts + np.uint64(words.offsets[1]), lengths, points, same, 4, 2, *room, 9) == 8


def test_a_text_is_judged_alike_beside_any_other():
    alone = measures(column(["the cat sat the cat sat"]), 3)
    beside = measures(column(["", "the cat sat", "the cat sat the cat sat", "x"]), 3)
    assert [values[..., 2].tolist() for values in beside] == [values[..., 0].tolist() for values in alone]


def test_no_texts_at_all():
    assert normal_forms([])[0].strings() == []
    assert measures(column([]), 3).words.tolist() == []


def test_words_that_count_can_be_compared_as_numbers():
    for word in frozenset().union(*STOPWORDS.values(), GOPHER_STOPWORDS):
        assert word == word.lower()
        assert word.isalpha()
        assert len(word.encode()) <= LONGEST_WORD
        assert max(word) < "\u0800"
    assert len(STOPWORDS) + 1 <= kernel.FIELDS
    assert np.count_nonzero(marks().keys) == len(frozenset().union(*STOPWORDS.values(), GOPHER_STOPWORDS))


def test_nothing_but_ascii_becomes_a_whole_word_that_counts_or_an_edge_of_one():
    letters = set("".join(GOPHER_STOPWORDS)) | set(EDGES)
    assert [code for code in range(128, 0x110000) if letters & set(chr(code).lower()) and code != 0x130] == []
    assert "\u0130".lower() == "i\u0307"  # in which the dot stays, so that no such word is among them


def test_the_signs_that_the_loop_knows_are_those_of_the_reference():
    assert BULLETS == ("•", "‣", "◦", "-", "*")
    assert ELLIPSES == ("...", "…")
