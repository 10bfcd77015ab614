"""Paragraphs of texts in one pass over UTF-8, and texts without some of them. ``corpusbuild.text`` is the reference."""

from typing import Any

import numpy as np

from corpusbuild.kernels.jit import kernel

BYTES, PLACES = (f"Array({kind}, 1, 'C', readonly=True)" for kind in ("uint8", "int64"))  # what a mapped file gives
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


@kernel(f"int64({BYTES}, {PLACES}, boolean[::1], int64[:,::1], int64[::1])")
def paragraphs(data: Any, offsets: Any, spaces: Any, out: Any, counts: Any) -> Any:
    """The paragraphs of each text: in ``out`` where each begins and ends in ``data``, and in its text in code points; in ``counts`` how many each
    text has. Gives how many those are; ``out`` has a column for each text and each line end."""
    n = 0
    for text in range(len(offsets) - 1):
        end, stop = offsets[text + 1], np.uint64(offsets[text + 1])
        begin = at = offsets[text]
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
