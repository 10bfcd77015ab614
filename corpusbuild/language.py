"""Which language a text is in: by a vote of common words, or by a trained identifier."""

import re
from collections import Counter
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Model = Literal["vote", "lid"]

LID_PACKAGE = "pycld2"
"""The package that carries the trained identifier (``docs/decisions/language.md`` says why this one)."""

_WORD = re.compile(r"[^\W\d_]+")  # runs of letters

STOPWORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "de": "der die das und ist nicht ein eine zu den mit sich des auf für im dem von auch es er sie wir ich war",
        "en": "the of and to a in is it that was he she for on with as his her they at be this have from but",
        "es": "el la los las de y que en un una es por con para del se no lo al su como pero muy yo está",
        "fr": "le la les de des et est un une du en que qui dans pour pas sur au ce il elle nous vous je avec",
        "it": "il la di che e un una per non sono del della con si gli le ma come anche io questo nel è ha lo",
        "nl": "de het een en van is dat op te in met niet zijn voor er maar ook als bij nog ik je wat hij ze",
        "pt": "o a os as de e que do da em um uma para com não no na por mais se ao dos das ele ela",
    }.items()
}
"""The 25 words that vote for each language. A word may vote for several."""

_VOTES: dict[str, list[str]] = {
    word: [language for language in sorted(STOPWORDS) if word in STOPWORDS[language]]
    for word in sorted(frozenset().union(*STOPWORDS.values()))
}


def detect(text: str) -> tuple[str, float]:
    """The language with the most votes and its share of all votes; ``("und", 0.0)`` below two votes. Ties go to the first by name.

    Every run of letters of the lower-cased text gives one vote to each language that has it among its stop words.

    >>> detect("The cat and the dog sat in a box.")
    ('en', 0.7142857142857143)
    """
    hits = dict.fromkeys(sorted(STOPWORDS), 0)
    for word, times in Counter(_WORD.findall(text.lower())).items():
        for language in _VOTES.get(word, ()):
            hits[language] += times
    total = sum(hits.values())
    if total < 2:
        return "und", 0.0
    best = max(hits, key=hits.__getitem__)  # the first of equals, and they stand by name
    return best, hits[best] / total


def elected(votes: NDArray[np.int64]) -> tuple[list[str], NDArray[np.float64]]:
    """What :func:`detect` says of each of many texts, by the votes (languages by name x texts) that were counted."""
    total = votes.sum(axis=0)
    best = votes.argmax(axis=0)  # the first of equals
    known = total >= 2
    share = np.zeros(len(total))
    np.divide(votes.max(axis=0), total, out=share, where=known)
    names = [*sorted(STOPWORDS), "und"]
    return [names[i] for i in np.where(known, best, len(STOPWORDS)).tolist()], share


def identifier(model: Model) -> Callable[[str], tuple[str, float]]:
    """The function from a normalised text to its language (two letters, or ``und``) and the confidence, 0 to 1. ``ImportError`` without the package."""
    if model == "vote":
        return detect
    import pycld2  # here, for only who asks for it needs it

    def identify(text: str) -> tuple[str, float]:
        _, _, (best, *_) = pycld2.detect(_NO_TEXT.sub(" ", text), isPlainText=True)
        return two_letters(best[1], best[2] / 100)

    return identify


def lid_version() -> str:
    """What decides the trained identifier's answers, for the key. ``ImportError`` without the package.

    >>> lid_version().partition(" ")[0]
    'pycld2'
    """
    import importlib.metadata  # here, for planning seldom needs it and it takes its time

    return f"{LID_PACKAGE} {importlib.metadata.version(LID_PACKAGE)}"


def two_letters(code: str, conf: float) -> tuple[str, float]:
    """An identifier's code as two letters of ISO 639-1, and ``("und", 0.0)`` for what has none.

    >>> two_letters("zh-Hant", 0.9), two_letters("iw", 0.9), two_letters("ceb", 0.9), two_letters("un", 0.9)
    (('zh', 0.9), ('he', 0.9), ('und', 0.0), ('und', 0.0))
    """
    letters = code.split("-")[0]
    letters = _TODAY.get(letters, letters)
    return (letters, conf) if len(letters) == 2 and letters not in ("un", "xx") and conf > 0 else ("und", 0.0)


_TODAY = {"iw": "he", "in": "id", "ji": "yi", "jw": "jv", "mo": "ro", "sh": "sr", "nb": "no", "nn": "no"}
"""Codes that were withdrawn, and the written standards of Norwegian, of which the identifier tells only one."""

_NO_TEXT = re.compile(
    "[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef"
    + "".join(f"{chr(p << 16 | 0xFFFE)}{chr(p << 16 | 0xFFFF)}" for p in range(17))
    + "]"
)
"""Code points that are never characters, which the identifier refuses."""
