"""Texts as a column: the UTF-8 of all in one array, and where each begins. No text becomes a Python string unless somebody asks."""

from collections.abc import Iterator, Sequence
from functools import cache
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


class Spans(NamedTuple):
    """Pieces that are replaced, by text and then place: the row of the text, where the piece begins and ends in code points, and by what, as an index."""

    rows: I64
    starts: I64
    ends: I64
    words: I64


class NothingLeftError(Exception):
    """Every paragraph of the text of ``row`` is cut."""

    def __init__(self, row: int) -> None:
        super().__init__(f"every paragraph of row {row} is cut")
        self.row = row


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


def effective_texts(texts: Texts, rows: I64, cuts: Cuts, spans: Spans, words: Sequence[str]) -> Texts:
    """What remains of the texts of ``rows``, which ascend, as ``text.effective`` says. ``ValueError`` as it has them; ``NothingLeftError`` where it has
    None."""
    cut, span = (np.array([np.searchsorted(of, rows, "left"), np.searchsorted(of, rows, "right")]) for of in (cuts.rows, spans.rows))
    changed = (cut[0] < cut[1]) | (span[0] < span[1])
    if not changed.any() and len(rows) and rows[-1] - rows[0] == len(rows) - 1:  # as they stand
        return Texts(texts.data, texts.offsets[rows[0] : rows[-1] + 2])
    if kernels.compiled():
        return _effective_compiled(texts, rows, cut, cuts, span, spans, words)
    left = []
    for i, row in enumerate(rows.tolist()):
        if changed[i]:
            left.append(_effective(texts, row, cut[:, i], cuts, span[:, i], spans, words).encode())
        else:
            left.append(bytes(texts.data[texts.offsets[row] : texts.offsets[row + 1]]))
    return Texts(np.frombuffer(b"".join(left), np.uint8), np.cumsum([0, *map(len, left)], dtype=np.int64))


def _effective(texts: Texts, row: int, cut: I64, cuts: Cuts, span: I64, spans: Spans, words: Sequence[str]) -> str:
    (text,) = Texts(texts.data, texts.offsets[row : row + 2]).strings()
    found = zip(*(column[slice(*span)].tolist() for column in spans[1:]), strict=True)
    left = effective(text, set(cuts.paragraphs[slice(*cut)].tolist()), [(start, end, words[word]) for start, end, word in found])
    if left is None:
        raise NothingLeftError(row)
    return left


def _effective_compiled(texts: Texts, rows: I64, cut: I64, cuts: Cuts, span: I64, spans: Spans, words: Sequence[str]) -> Texts:
    from corpusbuild.kernels import paragraphs as kernel

    begins, ends = texts.offsets[rows], texts.offsets[rows + 1]
    encoded = [word.encode() for word in words]
    sizes = np.array([*map(len, encoded)], np.int64)
    word_data, word_offsets = np.frombuffer(b"".join(encoded), np.uint8), np.concatenate([[0], np.cumsum(sizes)])
    # no more remains than there was and all words, and what is not written to takes no memory
    out = Texts(np.empty(int((ends - begins).sum() + sizes[spans.words].sum()), np.uint8), np.zeros(len(rows) + 1, np.int64))
    begin = 0
    while begin < len(rows):
        end = max(begin + 1, int(np.searchsorted(ends, begins[begin] + BLOCK, side="right")))
        here, which = slice(begin, end), begin + np.flatnonzero(cut[0, begin:end] < cut[1, begin:end])
        most = int(np.count_nonzero(texts.data[begins[begin] : ends[end - 1]] == 10)) + len(which) if len(which) else 0
        where, found, counts = np.empty((4, most), np.int64), np.zeros(len(which), np.int64), np.zeros(end - begin, np.int64)
        kernel.paragraphs(texts.data, begins[which], ends[which], white_space(), where, found)
        counts[which - begin] = found
        n = kernel.effective(
            texts.data, begins[here], ends[here], where, counts,
            np.ascontiguousarray(cut[:, here]), cuts.paragraphs, np.zeros(most, np.bool_),
            np.ascontiguousarray(span[:, here]), *spans[1:], word_data, word_offsets, out.data, out.offsets[begin : end + 1],
        )  # fmt: skip
        if n < end - begin:
            at = begin + n
            _effective(texts, int(rows[at]), cut[:, at], cuts, span[:, at], spans, words)
            raise AssertionError(f"row {rows[at]}: only the compiled form finds its decisions wrong")
        begin = end
    return Texts(out.data[: out.offsets[-1]], out.offsets)


@cache
def white_space() -> NDArray[np.bool_]:
    """For each code point, up to the last that is, whether it is white space."""
    return np.array([chr(c).isspace() for c in range(0x3001)], np.bool_)


def _texts(array: Any) -> Texts:
    _, places, data = array.buffers()
    offsets = np.frombuffer(places, np.int64)[array.offset : array.offset + len(array) + 1]
    return Texts(np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8), offsets)
