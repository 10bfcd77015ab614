"""Many texts at once: their normal forms, and what the rules and the language vote count of them."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from corpusbuild import kernels
from corpusbuild.codepoints import kinds, order
from corpusbuild.language import STOPWORDS
from corpusbuild.quality import EDGES, GOPHER_STOPWORDS, Measures
from corpusbuild.text import normalize
from corpusbuild.texts import U8, Texts

U64 = NDArray[np.uint64]

SLOTS = 2048
LONGEST_WORD = 8
"""Bytes, at most, of a word that counts for something: it is compared as one number."""
SLACK = 8
"""Bytes that the loops may read behind the last text."""


class Marks(NamedTuple):
    """A table of words without collisions: ``keys`` are their bytes, the first lowest, ``marks`` which fields each counts for, a byte a field."""

    keys: U64
    marks: U64
    factor: np.uint64
    whole: np.uint64


def normal_forms(strings: list[msgspec.Raw]) -> tuple[Texts, int]:
    """The normal forms of JSON strings, and the bytes of UTF-8 that they had before. The data may reach beyond the last."""
    if not kernels.compiled():
        before = [_read(string) for string in strings]
        return _texts([normalize(text).encode() for text in before]), sum(len(text.encode()) for text in before)
    from corpusbuild.kernels import normal

    lengths = np.array([memoryview(string).nbytes for string in strings], np.int64)
    data = np.frombuffer(strings[0] if len(strings) == 1 else b"".join(strings), np.uint8)
    ends = np.cumsum(lengths)
    texts = Texts(np.empty(len(data) + SLACK, np.uint8), np.zeros(len(strings) + 1, np.int64))
    sizes, turns = np.empty(len(strings), np.int64), np.empty(len(strings), bool)
    normal.normalized(data, ends - lengths + 1, ends - 1, normal.PLAIN, kinds(EDGES), order(), *texts, sizes, turns)
    if turns.any():
        pieces = zip(texts.offsets[:-1].tolist(), texts.offsets[1:].tolist(), turns.tolist(), strict=True)
        texts = _texts([normalize(_read(strings[i])).encode() if turn else texts.data[a:b] for i, (a, b, turn) in enumerate(pieces)])
    return texts, int(sizes.sum())


def measures(texts: Texts, n: int) -> Measures:
    """What is counted of each text; ``n`` is that of the n-grams. There is but a compiled form: the references judge as they count."""
    from corpusbuild.kernels import quality as kernel

    data, offsets = texts
    if len(data) < offsets[-1] + SLACK:
        data = np.concatenate([data, np.zeros(SLACK, np.uint8)])
    out = np.zeros((len(offsets) - 1, kernel.VOTES + kernel.FIELDS), np.int64)
    kernel.counted(data, offsets, kernel.CLASSES, kinds(EDGES), *marks(), n, out)
    columns = out.T
    return Measures(
        points=columns[kernel.POINTS],
        words=columns[kernel.WORDS],
        word_points=columns[kernel.WORD_POINTS],
        symbols=np.maximum(columns[kernel.HASHES], columns[kernel.DOTS]),
        lines=columns[kernel.LINES],
        bullets=columns[kernel.BULLETS],
        trailing=columns[kernel.TRAILING],
        alpha=columns[kernel.ALPHAS],
        stopwords=columns[kernel.VOTES + len(STOPWORDS)],
        repeated=columns[kernel.REPEATED],
        votes=columns[kernel.VOTES : kernel.VOTES + len(STOPWORDS)],
    )


@cache
def marks() -> Marks:
    """Fields are the languages by name, then the stop words of the quality rule, which alone are whole words."""
    found: dict[int, int] = {}
    for field, words in enumerate([*(STOPWORDS[language] for language in sorted(STOPWORDS)), GOPHER_STOPWORDS]):
        for word in words:
            key = int.from_bytes(word.encode(), "little")
            found[key] = found.get(key, 0) | 1 << 8 * field
    keys = np.array(sorted(found), np.uint64)
    rng = np.random.Generator(np.random.PCG64(0))
    while True:
        factor = np.uint64(int(rng.integers(1 << 63)) << 1 | 1)
        slots = (keys * factor) >> np.uint64(64 - SLOTS.bit_length() + 1)
        if len(np.unique(slots)) == len(slots):
            break
    table = Marks(np.zeros(SLOTS, np.uint64), np.zeros(SLOTS, np.uint64), factor, np.uint64(255 << 8 * len(STOPWORDS)))
    table.keys[slots], table.marks[slots] = keys, [found[int(key)] for key in keys]
    return table


def _read(string: msgspec.Raw) -> str:
    return msgspec.json.decode(string, type=str)


def _texts(pieces: Sequence[bytes | U8]) -> Texts:
    offsets = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])]).astype(np.int64)
    return Texts(np.frombuffer(b"".join(bytes(piece) for piece in pieces), np.uint8), offsets)
