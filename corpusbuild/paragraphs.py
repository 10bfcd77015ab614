"""Paragraphs of a column of texts: how many each has, where they stand, and their digests. What a paragraph is, ``text.paragraphs`` defines.

Nothing of this is kept between stages: found again, at some 3 ms a MB, it costs less than what it weighs on a disk, which is as much as the text.
"""

from typing import NamedTuple

import numpy as np
from blake3 import blake3

from corpusbuild import kernels
from corpusbuild.minhash import I64, U64, halves
from corpusbuild.text import paragraphs
from corpusbuild.texts import Texts, white_space


class Paragraphs(NamedTuple):
    """One paragraph a column, in order: the index of its text, where in it it begins and ends in code points, and the first 128 bits of the BLAKE3 of
    its UTF-8 as two big-endian halves."""

    rows: I64
    starts: I64
    ends: I64
    hi: U64
    lo: U64


def counts(texts: Texts) -> I64:
    """How many paragraphs each text has."""
    if kernels.compiled():
        return _places(texts)[0]
    return np.array([len(paragraphs(text)) for text in texts.strings()], np.int64)


def found(texts: Texts) -> Paragraphs:
    """The paragraphs of all texts."""
    return (_by_kernel if kernels.compiled() else _by_definition)(texts)


def _by_definition(texts: Texts) -> Paragraphs:
    rows: list[int] = []
    spans: list[tuple[int, int]] = []
    digests: list[bytes] = []
    for row, text in enumerate(texts.strings()):
        here = paragraphs(text)
        rows += [row] * len(here)
        spans += here
        digests += [blake3(text[start:end].encode()).digest(16) for start, end in here]
    where = np.array(spans, np.int64).reshape(-1, 2)
    return Paragraphs(np.array(rows, np.int64), where[:, 0].copy(), where[:, 1].copy(), *halves(digests))


def _by_kernel(texts: Texts) -> Paragraphs:
    from corpusbuild.kernels import blake3

    counts, (first_byte, last_byte, starts, ends) = _places(texts)
    return Paragraphs(np.repeat(np.arange(len(counts)), counts), starts, ends, *blake3.digests(texts.data, first_byte, last_byte))


def _places(texts: Texts) -> tuple[I64, I64]:
    """How many paragraphs each text has, and for each where it begins and ends in the bytes, and where in its text in code points (4 x paragraphs)."""
    from corpusbuild.kernels import paragraphs

    begin, end = int(texts.offsets[0]), int(texts.offsets[-1])
    n = len(texts.offsets) - 1
    places, counts = np.empty((4, n + int(np.count_nonzero(texts.data[begin:end] == 10))), np.int64), np.zeros(n, np.int64)
    bounds = texts.offsets[:-1], texts.offsets[1:]
    return counts, places[:, : paragraphs.paragraphs(texts.data, *bounds, white_space(), places, counts)]
