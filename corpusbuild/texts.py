"""Texts as a column: the UTF-8 of all in one array, and where each begins. No text becomes a Python string unless somebody asks."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from corpusbuild import kernels
from corpusbuild.text import effective

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]

BLOCK = 1 << 20  # bytes of text worked on at once


class Texts(NamedTuple):
    """Text ``i`` is ``data[offsets[i]:offsets[i + 1]]``."""

    data: U8
    offsets: I64

    def strings(self) -> list[str]:
        return [
            bytes(self.data[start:end]).decode() for start, end in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True)
        ]

    def blocks(self) -> Iterator["Texts"]:
        """The same texts, some at a time: at most ``BLOCK`` bytes of them, or one that is longer."""
        start, n = 0, len(self.offsets) - 1
        while start < n:
            end = max(start + 1, int(np.searchsorted(self.offsets, self.offsets[start] + BLOCK, side="right")) - 1)
            yield Texts(self.data, self.offsets[start : end + 1])
            start = end


class Cuts(NamedTuple):
    """Paragraphs that are cut, by text and then place: the row of the text, the index of the paragraph, and where it begins and ends in code points."""

    rows: I64
    paragraphs: I64
    starts: I64
    ends: I64


def texts_of(column: pa.ChunkedArray) -> Iterator[Texts]:
    """The texts of a ``large_string`` column without nulls, without a copy."""
    for array in column.chunks:
        if len(array):
            yield _texts(array)


def remaining(column: pa.ChunkedArray, rows: I64, cuts: Cuts) -> Iterator[Texts]:
    """What remains of the texts of ``rows`` when paragraphs are cut, in blocks; the same words, at least: white space may differ."""
    first, last = np.searchsorted(cuts.rows, rows, side="left"), np.searchsorted(cuts.rows, rows, side="right")
    base = 0
    for array in column.chunks:
        begin, end = np.searchsorted(rows, [base, base + len(array)]).tolist()
        if begin < end:
            yield from _remaining(_texts(array), rows[begin:end] - base, first[begin:end], last[begin:end], cuts)
        base += len(array)


def _remaining(texts: Texts, rows: I64, first: I64, last: I64, cuts: Cuts) -> Iterator[Texts]:
    sizes = np.concatenate([[0], np.cumsum(texts.offsets[rows + 1] - texts.offsets[rows])])
    begin = 0
    while begin < len(rows):
        end = max(begin + 1, int(np.searchsorted(sizes, sizes[begin] + BLOCK, side="right")) - 1)
        here = slice(begin, end)
        if not (last[here] > first[here]).any() and rows[end - 1] - rows[begin] == end - 1 - begin:  # as they stand
            yield Texts(texts.data, texts.offsets[rows[begin] : rows[end - 1] + 2])
        elif kernels.compiled():
            from corpusbuild.kernels import paragraphs as kernel

            places = np.concatenate([[0], np.cumsum(last[here] - first[here])])
            which = np.arange(places[-1]) + np.repeat(first[here] - places[:-1], last[here] - first[here])
            out = Texts(np.empty(sizes[end] - sizes[begin], np.uint8), np.empty(end - begin + 1, np.int64))
            kernel.without(texts.data, texts.offsets, rows[here], places, cuts.starts[which], cuts.ends[which], *out)
            yield out
        else:
            left = []
            for row, a, b in zip(rows[here].tolist(), first[here].tolist(), last[here].tolist(), strict=True):
                (text,) = Texts(texts.data, texts.offsets[row : row + 2]).strings()
                left.append((effective(text, set(cuts.paragraphs[a:b].tolist())) or "").encode())
            yield Texts(np.frombuffer(b"".join(left), np.uint8), np.concatenate([[0], np.cumsum(list(map(len, left)))]).astype(np.int64))
        begin = end


def _texts(array: Any) -> Texts:
    _, places, data = array.buffers()
    offsets = np.frombuffer(places, np.int64)[array.offset : array.offset + len(array) + 1]
    return Texts(np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8), offsets)
