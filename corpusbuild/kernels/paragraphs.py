"""Paragraphs of texts in one pass over UTF-8, and texts without some of them or with spans replaced. ``corpusbuild.text`` is the reference."""

from typing import Any

import numpy as np

from corpusbuild.kernels.jit import inlined, kernel, part
from corpusbuild.kernels.utf8 import BYTES, PLACES

SPACE, TAB, LINE_END = np.uint8(32), np.uint8(9), np.uint8(10)


@kernel(f"boolean({BYTES}, int64, boolean[::1])")
def _is_space(data: Any, at: Any, spaces: Any) -> Any:
    """Whether the code point that begins at ``at`` is white space. None beyond those of ``spaces`` is; none of them takes four bytes."""
    i = np.uint64(at)
    first = np.uint32(data[i])
    if first < 0x80:
        code = first
    elif first < 0xE0:
        code = (first & np.uint32(0x1F)) << np.uint32(6) | np.uint32(data[i + np.uint64(1)] & 0x3F)
    elif first < 0xF0:
        code = (
            (first & np.uint32(0x0F)) << np.uint32(12)
            | np.uint32(data[i + np.uint64(1)] & 0x3F) << np.uint32(6)
            | np.uint32(data[i + np.uint64(2)] & 0x3F)
        )
    else:
        return False
    return code < len(spaces) and spaces[np.uint64(code)]


@kernel(f"int64({BYTES}, int64, int64, int64, int64, boolean[::1], int64[:,::1], int64)")
def _strip(data: Any, start: Any, end: Any, first: Any, last: Any, spaces: Any, out: Any, n: Any) -> Any:
    """Put bytes ``start`` to ``end``, which are code points ``first`` to ``last``, less white space at the ends, into column ``n``, if any remain."""
    while start < end and _is_space(data, start, spaces):
        start, first = start + 1, first + 1
        while start < end and data[start] & 0xC0 == 0x80:
            start += 1
    while start < end:
        before = end - 1
        while data[before] & 0xC0 == 0x80:
            before -= 1
        if not _is_space(data, before, spaces):
            break
        end, last = before, last - 1
    if start >= end:
        return n
    out[0, n], out[1, n], out[2, n], out[3, n] = start, end, first, last
    return n + 1


@kernel(f"int64({BYTES}, {PLACES}, {PLACES}, boolean[::1], int64[:,::1], int64[::1])")
def paragraphs(data: Any, begins: Any, ends: Any, spaces: Any, out: Any, counts: Any) -> Any:
    """The paragraphs of each text, which stands from its begin to its end: in ``out`` where each begins and ends in ``data``, and in its text in code
    points; in ``counts`` how many each text has. Gives how many those are; ``out`` has a column for each text and each line end."""
    n = 0
    for text in range(len(begins)):
        end, stop = ends[text], np.uint64(ends[text])
        begin = at = begins[text]
        first = points = here = 0
        while True:
            here, i = points, np.uint64(at)
            while i < stop and (data[i] == SPACE or data[i] == TAB):
                i += np.uint64(1)
            blank = i == stop or data[i] == LINE_END
            points += np.int64(i) - at
            while i < stop and data[i] != LINE_END:
                points += data[i] & 0xC0 != 0x80
                i += np.uint64(1)
            last = i == stop
            if blank or last:
                n_before = n
                if blank:
                    n = _strip(data, begin, at, first, here, spaces, out, n)
                else:
                    n = _strip(data, begin, end, first, points, spaces, out, n)
                counts[text] += n - n_before
                begin, first = np.int64(i) + 1, points + 1
            if last:
                break
            at = np.int64(i) + 1
            points += 1
    return n


@kernel(f"void({BYTES}, {PLACES}, {PLACES}, {PLACES}, {PLACES}, {PLACES}, uint8[::1], int64[::1])")
def without(data: Any, offsets: Any, rows: Any, first_cut: Any, starts: Any, ends: Any, out: Any, out_offsets: Any) -> None:
    """Copy the texts of ``rows``, with spaces in place of what is cut: of text ``i`` of them the spans, in code points and in order, from
    ``first_cut[i]`` to ``first_cut[i + 1]``."""
    to = np.uint64(0)
    for i in range(len(rows)):
        out_offsets[i] = to
        begin, end = np.uint64(offsets[rows[i]]), np.uint64(offsets[rows[i] + 1])
        for k in range(end - begin):
            out[to + np.uint64(k)] = data[begin + np.uint64(k)]
        at, point = begin, np.int64(-1)
        for cut in range(first_cut[i], first_cut[i + 1]):
            while point < starts[cut]:  # to the first byte of the span
                point += np.int64(data[at] & 0xC0 != 0x80)
                at += np.uint64(1)
            out[to + at - begin - np.uint64(1)] = SPACE
            while at < end:
                point += np.int64(data[at] & 0xC0 != 0x80)
                if point == ends[cut]:
                    point -= 1
                    break
                out[to + at - begin] = SPACE
                at += np.uint64(1)
        to += end - begin
    out_offsets[len(rows)] = to


@inlined
def _copy(data: Any, begin: Any, end: Any, out: Any, to: Any) -> Any:
    """Copy bytes ``begin`` to ``end``, and say where the next one goes."""
    for k in range(np.uint64(end - begin)):
        out[np.uint64(to) + k] = data[np.uint64(begin) + k]
    return to + end - begin


@inlined
def _after(data: Any, at: Any, end: Any, points: Any) -> Any:
    """Where the code point stands that is so many after the one at ``at``; -1 beyond ``end``."""
    while points > 0 and at < end:
        at, points = at + 1, points - 1
        while at < end and data[np.uint64(at)] & 0xC0 == 0x80:
            at += 1
    return -1 if points else at


@part(
    f"int64({BYTES}, int64, int64, int64, int64, int64, {PLACES}, {PLACES}, {PLACES}, {BYTES}, {PLACES}, uint8[::1], int64)",
)
def _replace(
    data: Any,
    begin: Any,
    end: Any,
    point: Any,
    span: Any,
    last: Any,
    starts: Any,
    ends: Any,
    kinds: Any,
    words: Any,
    places: Any,
    out: Any,
    to: Any,
) -> Any:
    """As ``text.replace``, of bytes ``begin`` to ``end`` that begin with code point ``point``: where the next byte goes, or -1 for a wrong span."""
    while span < last:
        if not point <= starts[span] < ends[span]:
            return -1
        first = _after(data, begin, end, starts[span] - point)
        if first < 0:
            return -1
        to = _copy(data, begin, first, out, to)
        begin, point = _after(data, first, end, ends[span] - starts[span]), ends[span]
        if begin < 0:
            return -1
        to = _copy(words, places[kinds[span]], places[kinds[span] + 1], out, to)
        span += 1
    return _copy(data, begin, end, out, to)


@kernel(
    f"int64({BYTES}, {PLACES}, {PLACES}, int64[:,::1], int64[::1], int64[:,::1], {PLACES}, boolean[::1], int64[:,::1], {PLACES}, {PLACES}, "
    f"{PLACES}, {BYTES}, {PLACES}, uint8[::1], int64[::1])"
)
def effective(
    data: Any, begins: Any, ends: Any, where: Any, counts: Any, cut: Any, cuts: Any, gone: Any, span: Any, starts: Any, stops: Any,
    kinds: Any, words: Any, places: Any, out: Any, out_offsets: Any,
) -> Any:  # fmt: skip
    """As ``text.effective``, one text after another from ``out_offsets[0]`` on: how many went well before one that does not.

    ``where`` and ``counts`` are the ``paragraphs`` of texts with cuts. Text ``i`` has the cuts from ``cut[0, i]`` to ``cut[1, i]``, and likewise spans;
    ``gone`` is false for each paragraph."""
    base = 0
    for i in range(len(begins)):
        to = out_offsets[i]
        s, last = span[0, i], span[1, i]
        if cut[0, i] == cut[1, i]:
            to = _replace(data, begins[i], ends[i], 0, s, last, starts, stops, kinds, words, places, out, to)
            if to < 0:
                return i
            out_offsets[i + 1] = to
            continue
        for c in range(cut[0, i], cut[1, i]):
            if not 0 <= cuts[c] < counts[i]:
                return i
            gone[base + cuts[c]] = True
        any_left = False
        for p in range(base, base + counts[i]):
            first = s
            while s < last and starts[s] < where[3, p]:
                if not where[2, p] <= starts[s] < stops[s] <= where[3, p]:
                    return i
                s += 1
            if gone[p]:
                continue
            if any_left:
                out[to] = out[to + 1] = LINE_END
                to += 2
            any_left = True
            to = _replace(data, where[0, p], where[1, p], where[2, p], first, s, starts, stops, kinds, words, places, out, to)
            if to < 0:
                return i
        if s < last or not any_left:
            return i
        base += counts[i]
        out_offsets[i + 1] = to
    return len(begins)
