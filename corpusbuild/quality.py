"""The rules that a document must pass to be kept, and what each measured."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from corpusbuild.language import Model
from corpusbuild.model import Record

RULES = (
    "length",
    "lang",
    "gopher_words",
    "gopher_mean_word_len",
    "gopher_symbol_ratio",
    "gopher_bullet_lines",
    "gopher_ellipsis_lines",
    "gopher_alpha_words",
    "gopher_stopwords",
    "repetition",
    "ppl",
)
"""The rules in the order in which they are judged: a document counts as dropped by the first that it fails."""

GOPHER_STOPWORDS = frozenset(["the", "be", "to", "of", "and", "that", "have", "with"])
BULLETS = ("•", "‣", "◦", "-", "*")
ELLIPSES = ("...", "…")
EDGES = "\"'.,;:!?()[]{}"  # what is stripped from a word before it is looked up among the stop words

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Bools = NDArray[np.bool_]

Count = Annotated[int, Meta(ge=0)]
Number = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]


def _ordered(low_name: str, low: float, high_name: str, high: float) -> None:
    if low > high:
        raise ValueError(f"{low_name} ({low:g}) is above {high_name} ({high:g}): no document could pass")


class Gopher(Record):
    """Thresholds on words and lines, all inclusive. Words are what white space separates."""

    min_words: Number = 50
    max_words: Number = 100_000
    min_mean_word_len: Number = 3  # code points
    max_mean_word_len: Number = 10
    max_symbol_ratio: Number = 0.1  # "#", or ellipses, to words
    max_bullet_lines: Share = 0.9
    max_ellipsis_lines: Share = 0.3
    min_alpha_words: Share = 0.8  # words with a letter
    min_stopwords: Number = 2

    def __post_init__(self) -> None:
        _ordered("min_words", self.min_words, "max_words", self.max_words)
        _ordered("min_mean_word_len", self.min_mean_word_len, "max_mean_word_len", self.max_mean_word_len)


class Repetition(Record):
    """At most ``max_frac`` of the characters of words may stand in word ``n``-grams that occur twice or more."""

    n: Annotated[int, Meta(ge=1)] = 3
    max_frac: Share = 0.3


Function = Annotated[str, Meta(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$(?!\n)")]
"""``package.module:function``."""


class Ppl(Record):
    """At most ``max_ppl`` by the perplexity that ``model``, a function from text to number, gives."""

    max_ppl: Annotated[float, Meta(gt=0)]
    model: Function


class FilterParams(Record):
    """What ``filters`` of a configuration says. Bounds are inclusive; lengths are in code points of the normalised text."""

    min_chars: Count = 50
    max_chars: Count = 100_000
    langs: Annotated[tuple[Annotated[str, Meta(pattern=r"^[a-z]{2}$(?!\n)")], ...], Meta(min_length=1)] = ("en",)
    lang_min_conf: Share = 0.65
    lang_model: Model = "vote"
    """``vote`` counts stop words of seven languages; ``lid`` is a trained identifier of 160 (``pip install 'corpusbuild[lid]'``)."""
    gopher: Gopher = Gopher()
    repetition: Repetition = Repetition()
    ppl: Ppl | None = None
    rules: tuple[Function, ...] = ()
    """Rules of your own, judged after all others, in this order; ``corpusbuild.plugins`` says what they are."""

    def __post_init__(self) -> None:
        _ordered("min_chars", self.min_chars, "max_chars", self.max_chars)
        for rule in self.rules:
            if self.rules.count(rule) > 1:
                raise ValueError(f"rules: {rule} is named twice")

    def functions(self) -> list[str]:
        """Every function that must be found elsewhere."""
        return [*([self.ppl.model] if self.ppl else []), *self.rules]


class Failure(NamedTuple):
    """A rule that a document broke: what was measured, and the bound that it broke, where the rule has one."""

    rule: str
    value: float
    threshold: float | None


def failures(text: str, lang: str, conf: float, params: FilterParams, perplexity: Callable[[str], float] | None = None) -> list[Failure]:
    """Every rule that the normalised ``text`` fails, in the order of ``RULES``; empty when it is to be kept.

    ``lang`` and ``conf`` are what an identifier of :mod:`corpusbuild.language` says of it. A text in a language that is not wanted fails ``lang``
    whatever its confidence. ``ValueError`` when ``params.ppl`` is set and there is no ``perplexity`` to measure with.

    >>> [f.rule for f in failures("Buy now. #deal #sale #wow ...", "en", 1.0, FilterParams(min_chars=1))]
    ['gopher_words', 'gopher_symbol_ratio', 'gopher_ellipsis_lines', 'gopher_stopwords']
    """
    words = text.split()
    found = _outside("length", len(text), params.min_chars, params.max_chars)
    if lang not in params.langs or not conf >= params.lang_min_conf:
        found.append(Failure("lang", float(conf), float(params.lang_min_conf)))
    found += gopher_failures(text, words, params.gopher)
    found += _outside("repetition", dup_ngram_char_frac(words, params.repetition.n), None, params.repetition.max_frac)
    if params.ppl is not None:
        if perplexity is None:
            raise ValueError(f"the ppl filter has no model: {params.ppl.model} was not loaded")
        found += _outside("ppl", perplexity(text), None, params.ppl.max_ppl)
    return found


class Measures(NamedTuple):
    """What was counted of many texts: a number a text in each, and in ``votes`` (languages by name x texts) those of the language vote."""

    points: I64
    words: I64
    word_points: I64
    symbols: I64
    lines: I64
    bullets: I64
    trailing: I64
    alpha: I64
    stopwords: I64
    repeated: I64
    votes: I64


def failures_of(
    measured: Measures, langs: Sequence[str], confs: F64, params: FilterParams, perplexities: F64 | None = None
) -> list[list[Failure]]:
    """What :func:`failures` says of each of many texts, none of them empty, by what was counted of them."""
    limits, words = params.gopher, measured.words
    wanted = np.array([lang in params.langs for lang in langs], bool)
    judged: list[tuple[str, F64 | I64, Bools, float | F64]] = [
        _outside_all("length", measured.points, params.min_chars, params.max_chars),
        ("lang", confs, ~(wanted & (confs >= params.lang_min_conf)), params.lang_min_conf),
        _outside_all("gopher_words", words, limits.min_words, limits.max_words),
        _outside_all("gopher_mean_word_len", measured.word_points / words, limits.min_mean_word_len, limits.max_mean_word_len),
        _outside_all("gopher_symbol_ratio", measured.symbols / words, None, limits.max_symbol_ratio),
        _outside_all("gopher_bullet_lines", measured.bullets / measured.lines, None, limits.max_bullet_lines),
        _outside_all("gopher_ellipsis_lines", measured.trailing / measured.lines, None, limits.max_ellipsis_lines),
        _outside_all("gopher_alpha_words", measured.alpha / words, limits.min_alpha_words, None),
        _outside_all("gopher_stopwords", measured.stopwords, limits.min_stopwords, None),
        _outside_all("repetition", measured.repeated / measured.word_points, None, params.repetition.max_frac),
    ]
    if params.ppl is not None:
        if perplexities is None:
            raise ValueError(f"the ppl filter has no model: {params.ppl.model} was not loaded")
        judged.append(_outside_all("ppl", perplexities, None, params.ppl.max_ppl))
    found: list[list[Failure]] = [[] for _ in langs]
    for rule, values, failing, threshold in judged:
        thresholds = np.broadcast_to(np.asarray(threshold, np.float64), len(langs))
        for text in np.flatnonzero(failing).tolist():
            found[text].append(Failure(rule, float(values[text]), float(thresholds[text])))
    return found


def gopher_failures(text: str, words: Sequence[str], limits: Gopher) -> list[Failure]:
    """The rules ``gopher_*`` that ``text`` fails; ``words`` is ``text.split()``.

    A text without words fails ``words``, ``mean_word_len``, ``alpha_words`` and ``stopwords``, whatever the limits. Of the two symbol ratios
    (``#``; ``...`` and ``…`` together) the larger is judged. Lines are the non-blank ones.
    """
    n = len(words)
    if n == 0:
        return [
            Failure("gopher_words", 0.0, float(limits.min_words)),
            Failure("gopher_mean_word_len", 0.0, float(limits.min_mean_word_len)),
            Failure("gopher_alpha_words", 0.0, float(limits.min_alpha_words)),
            Failure("gopher_stopwords", 0.0, float(limits.min_stopwords)),
        ]
    lines = [line for line in text.split("\n") if line.strip()]
    symbols = max(text.count("#"), sum(map(text.count, ELLIPSES)))
    bullets = sum(line.lstrip().startswith(BULLETS) for line in lines)
    trailing = sum(line.rstrip().endswith(ELLIPSES) for line in lines)
    alpha = sum(any(map(str.isalpha, word)) for word in words)
    stopwords = sum(word.lower().strip(EDGES) in GOPHER_STOPWORDS for word in words)
    return [
        *_outside("gopher_words", n, limits.min_words, limits.max_words),
        *_outside("gopher_mean_word_len", sum(map(len, words)) / n, limits.min_mean_word_len, limits.max_mean_word_len),
        *_outside("gopher_symbol_ratio", symbols / n, None, limits.max_symbol_ratio),
        *_outside("gopher_bullet_lines", bullets / len(lines), None, limits.max_bullet_lines),
        *_outside("gopher_ellipsis_lines", trailing / len(lines), None, limits.max_ellipsis_lines),
        *_outside("gopher_alpha_words", alpha / n, limits.min_alpha_words, None),
        *_outside("gopher_stopwords", stopwords, limits.min_stopwords, None),
    ]


def dup_ngram_char_frac(words: Sequence[str], n: int) -> float:
    """The share of the words' characters that stand in an ``n``-gram of words occurring twice or more; 0 for fewer than ``n`` words.

    ``ValueError`` for ``n`` below 1.

    >>> dup_ngram_char_frac("the cat sat the cat sat down".split(), 3) == 18 / 22
    True
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}")
    grams = list(zip(*(words[i:] for i in range(n)), strict=False))
    times = Counter(grams)
    if len(times) == len(grams):
        return 0.0
    covered = until = 0
    for i, gram in enumerate(grams):
        if times[gram] > 1:
            covered += sum(map(len, words[max(i, until) : i + n]))
            until = i + n
    return covered / sum(map(len, words))


def _outside(rule: str, value: float, low: float | None, high: float | None) -> list[Failure]:
    # written so that a value that is no number (a model's NaN) fails too
    if low is not None and not value >= low:
        return [Failure(rule, float(value), float(low))]
    if high is not None and not value <= high:
        return [Failure(rule, float(value), float(high))]
    return []


def _outside_all(rule: str, values: I64 | F64, low: float | None, high: float | None) -> tuple[str, I64 | F64, Bools, F64]:
    below: Bools = np.zeros(len(values), bool) if low is None else ~(values >= low)
    above: Bools = np.zeros(len(values), bool) if high is None else ~(values <= high)
    return rule, values, below | above, np.where(below, np.float64(low or 0), np.float64(high or 0))
