"""Many texts at once: their normal forms, and what the rules and the language vote count of them, by compiled loops."""

from functools import cache
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from corpusbuild.codepoints import kinds, order
from corpusbuild.language import STOPWORDS
from corpusbuild.quality import EDGES, GOPHER_STOPWORDS, Measures
from corpusbuild.text import normalize

U8, U64, I64 = NDArray[np.uint8], NDArray[np.uint64], NDArray[np.int64]

SLOTS = 2048
LONGEST_WORD = 8
"""Bytes, at most, of a word that counts for something: it is compared as one number."""


class Texts(NamedTuple):
    """Text ``i`` is ``data[offsets[i]:offsets[i + 1]]``, in UTF-8; eight bytes more can be read behind the last."""

    data: U8
    offsets: I64

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def string(self, i: int) -> str:
        return bytes(self.data[self.offsets[i] : self.offsets[i + 1]]).decode()


class Marks(NamedTuple):
    """A table of words without collisions: ``keys`` are their bytes, the first lowest, ``marks`` which fields each counts for, a byte a field."""

    keys: U64
    marks: U64
    factor: np.uint64
    whole: np.uint64


def normal_forms(strings: list[msgspec.Raw]) -> tuple[Texts, int]:
    """The normal forms of JSON strings, and the bytes of UTF-8 that they had before."""
    from corpusbuild.kernels import normal, quality

    lengths = np.fromiter(map(len, map(memoryview, strings)), np.int64, len(strings))
    data = np.frombuffer(strings[0] if len(strings) == 1 else b"".join(strings), np.uint8)
    ends = np.cumsum(lengths)
    out = np.empty(len(data) + quality.SLACK, np.uint8)
    offsets, sizes, turns = np.zeros(len(strings) + 1, np.int64), np.empty(len(strings), np.int64), np.empty(len(strings), bool)
    normal.normalized(data, ends - lengths + 1, ends - 1, normal.PLAIN, kinds(EDGES), order(), out, offsets, sizes, turns)
    texts = Texts(out, offsets)
    if turns.any():
        texts = _with_turned(texts, {i: normalize(msgspec.json.decode(strings[i], type=str)).encode() for i in np.flatnonzero(turns).tolist()})
    return texts, int(sizes.sum())


def measures(texts: Texts, n: int) -> Measures:
    """What is counted of each text; ``n`` is that of the n-grams."""
    from corpusbuild.kernels import quality as kernel

    out = np.zeros((len(texts), kernel.VOTES + kernel.FIELDS), np.int64)
    table = marks()
    kernel.counted(
        texts.data, texts.offsets, kernel.CLASSES, kinds(EDGES), table.keys, table.marks, table.factor, table.whole, n, out
    )
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


def _with_turned(texts: Texts, turned: dict[int, bytes]) -> Texts:
    """``texts``, and in the place of those that were left empty what the reference made of them."""
    from corpusbuild.kernels.quality import SLACK

    pieces = [turned[i] if i in turned else texts.data[a:b] for i, (a, b) in enumerate(zip(texts.offsets[:-1], texts.offsets[1:], strict=True))]
    offsets = np.concatenate([[0], np.cumsum(list(map(len, pieces)))])
    return Texts(np.frombuffer(b"".join([*pieces, bytes(SLACK)]), np.uint8), offsets)
