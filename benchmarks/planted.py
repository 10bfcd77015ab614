"""Near duplicates planted into real text: copies changed in known ways, so that there are enough pairs of every similarity.

Each copy is of a document of its own, but for those of templates. The similarities aimed at are those of sets of 5 words; what they come to is
measured, not assumed (``similarity_join.py``).
"""

import random
import re
from collections.abc import Sequence
from typing import NamedTuple

SEED = 20261201
BASE = 42_000
BUCKETS = ((0.5, 0.6), (0.6, 0.7), (0.7, 0.8), (0.8, 0.85), (0.85, 0.91))
WORDS = 15_000  # copies with single words changed, in equal numbers for each bucket
HEAVY = 2_000  # copies with 10 to 60 % of their words changed
PASSAGES = 3_000  # copies with one run of words, 1 to 60 % of all, replaced
FRAMED = 2_000  # copies under a header, over a footer, or both
EXACT = 2_000
TEMPLATES = (*[50] * 40, 2_000)  # variants of each
SHINGLE = 5


class Doc(NamedTuple):
    """``of`` is the document it is a copy of, or the template it is a variant of; ``rate`` the share of words that were changed."""

    id: str
    text: str
    kind: str = "real"
    of: str = ""
    rate: float = 0.0


def plant(base: Sequence[str]) -> list[Doc]:
    """Some of ``base``, and the copies, shuffled: of two alike either may come first."""
    rng = random.Random(SEED)
    real = [Doc(f"real-{i:06d}", text) for i, text in enumerate(rng.sample(base, BASE))]
    long = [doc for doc in real if len(doc.text.split()) >= 60]  # of a few words a copy cannot be 2 % different
    originals = iter(rng.sample(long, len(long)))
    other = Words([doc.text for doc in rng.sample(real, 3_000)], rng)
    docs = list(real)

    def add(kind: str, of: str, text: str, rate: float = 0.0) -> None:
        docs.append(Doc(f"{kind}-{len(docs):06d}", text, kind, of, round(rate, 4)))

    for i in range(WORDS):
        goal = rng.uniform(*BUCKETS[i % len(BUCKETS)])
        rate = 1 - (2 * goal / (1 + goal)) ** (1 / SHINGLE)
        doc = next(originals)
        add("words", doc.id, change_words(doc.text, rate, other, rng), rate)
    for _ in range(HEAVY):
        rate = rng.uniform(0.1, 0.6)
        doc = next(originals)
        add("words", doc.id, change_words(doc.text, rate, other, rng), rate)
    for _ in range(PASSAGES):
        rate = rng.choice((rng.uniform(0.01, 0.2), rng.uniform(0.01, 0.6)))
        doc = next(originals)
        add("passage", doc.id, change_passage(doc.text, rate, other, rng), rate)
    for _ in range(FRAMED):
        doc = next(originals)
        add("frame", doc.id, frame(doc.text, other, rng))
    for _ in range(EXACT):
        doc = next(originals)
        add("exact", doc.id, doc.text)
    for i, variants in enumerate(TEMPLATES):
        text = next(doc.text for doc in originals if 60 <= len(doc.text.split()) <= 400)
        for variant in fill(text, variants, other, rng):
            add("template", f"template-{i:02d}", variant)
    rng.shuffle(docs)
    return docs


class Words:
    """Words to put in, as frequent as they are in the text."""

    def __init__(self, texts: Sequence[str], rng: random.Random):
        self._words = [word for text in texts for word in text.split()]
        self._rng = rng

    def one(self) -> str:
        return self._rng.choice(self._words)

    def run(self, n: int) -> list[str]:
        start = self._rng.randrange(len(self._words) - n)
        return self._words[start : start + n]


def change_words(text: str, rate: float, other: Words, rng: random.Random) -> str:
    """Replace (70 %), drop (15 %) or put in (15 %) a word at ``rate`` of the words."""
    parts = re.split(r"(\s+)", text)  # words at even places
    for i in rng.sample(range(0, len(parts), 2), max(1, round(rate * (len(parts) + 1) / 2))):
        how = rng.random()
        parts[i] = other.one() if how < 0.7 else "" if how < 0.85 else f"{parts[i]} {other.one()}"
    return "".join(parts).strip()


def change_passage(text: str, rate: float, other: Words, rng: random.Random) -> str:
    """Replace one run of words, ``rate`` of all, by as many of other text."""
    parts = re.split(r"(\s+)", text)
    words = (len(parts) + 1) // 2
    n = max(1, round(rate * words))
    start = rng.randrange(words - n + 1)
    parts[2 * start : 2 * (start + n) - 1] = [" ".join(other.run(n))]
    return "".join(parts).strip()


def frame(text: str, other: Words, rng: random.Random) -> str:
    """Put the text under a header, over a footer, or between both."""
    date = f"{rng.randint(2009, 2026)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
    header = f"Home > {other.one()} > {' '.join(other.run(rng.randint(1, 8)))}\nLast updated: {date}\n\n"
    footer = f"\n\nShare this page. {' | '.join(other.run(rng.randint(2, 20)))} | Terms of use | Contact {other.one()} (c) {date[:4]}"
    which = rng.randrange(3)
    return (header if which != 1 else "") + text + (footer if which != 0 else "")


def fill(text: str, variants: int, other: Words, rng: random.Random) -> list[str]:
    """Variants of one text that differ in the same few words."""
    parts = re.split(r"(\s+)", text)
    slots = rng.sample(range(0, len(parts), 2), rng.randint(1, 3))
    out = []
    for number in range(variants):
        for slot in slots:
            parts[slot] = f"{other.one()}{number}"
        out.append("".join(parts))
    return out
