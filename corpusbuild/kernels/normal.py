"""JSON strings to texts in normal form, in one pass. ``corpusbuild.text.normalize`` is the reference."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusbuild.codepoints import SPACE, TURNS
from corpusbuild.kernels.jit import kernel, part
from corpusbuild.kernels.utf8 import BYTES, KINDS, PLACES, decoded

PLAIN: NDArray[np.bool_] = np.array([32 <= byte < 127 and byte != ord("\\") for byte in range(256)])
"""Bytes of a JSON string that stand for themselves, in its text and in the normal form."""
LONGEST = 4  # bytes of a code point, at most


@part("uint64(uint32, Array(uint8, 1, 'C'), uint64)")
def put(code: Any, out: Any, at: Any) -> Any:
    """Write a code point at ``at``, and give where the next one goes."""
    if code < np.uint32(0x80):
        out[at] = code
        return at + np.uint64(1)
    if code < np.uint32(0x800):
        out[at] = 0xC0 | code >> np.uint32(6)
        out[at + np.uint64(1)] = 0x80 | code & np.uint32(0x3F)
        return at + np.uint64(2)
    if code < np.uint32(0x10000):
        out[at] = 0xE0 | code >> np.uint32(12)
        out[at + np.uint64(1)] = 0x80 | code >> np.uint32(6) & np.uint32(0x3F)
        out[at + np.uint64(2)] = 0x80 | code & np.uint32(0x3F)
        return at + np.uint64(3)
    out[at] = 0xF0 | code >> np.uint32(18)
    out[at + np.uint64(1)] = 0x80 | code >> np.uint32(12) & np.uint32(0x3F)
    out[at + np.uint64(2)] = 0x80 | code >> np.uint32(6) & np.uint32(0x3F)
    out[at + np.uint64(3)] = 0x80 | code & np.uint32(0x3F)
    return at + np.uint64(4)


@part(f"uint32({BYTES}, uint64)")
def _four_digits(data: Any, i: Any) -> Any:
    code = np.uint32(0)
    for k in range(4):
        digit = np.uint32(data[i + np.uint64(k)])
        code = code << np.uint32(4) | (digit & np.uint32(15)) + np.uint32(9) * (digit >> np.uint32(6))
    return code


@part(f"UniTuple(uint64, 2)({BYTES}, uint64)")
def _escaped(data: Any, i: Any) -> Any:
    """The code point of the escape whose letter is at ``i``, and where it ends."""
    letter = data[i]
    if letter == ord("n"):
        return np.uint64(10), i + np.uint64(1)
    if letter == ord("t"):
        return np.uint64(9), i + np.uint64(1)
    if letter == ord("r"):
        return np.uint64(13), i + np.uint64(1)
    if letter == ord("b"):
        return np.uint64(8), i + np.uint64(1)
    if letter == ord("f"):
        return np.uint64(12), i + np.uint64(1)
    if letter != ord("u"):
        return np.uint64(letter), i + np.uint64(1)
    code = _four_digits(data, i + np.uint64(1))
    if code >> np.uint32(10) != np.uint32(0x36):
        return np.uint64(code), i + np.uint64(5)
    low = _four_digits(data, i + np.uint64(7))
    return np.uint64(np.uint32(0x10000) + ((code & np.uint32(0x3FF)) << np.uint32(10)) + (low & np.uint32(0x3FF))), i + np.uint64(11)


@part(f"UniTuple(uint64, 2)(Array(uint8, 1, 'C'), uint64, uint64, {KINDS})")
def _stripped(text: Any, start: Any, end: Any, kinds: Any) -> Any:
    """Where ``text[start:end]`` begins and ends without the white space at its ends."""
    while start < end:
        code, size = np.uint32(text[start]), np.uint64(1)
        if code >= np.uint32(0x80):
            code, size = decoded(text, start)
        if not kinds[np.uint64(code)] & SPACE:
            break
        start += size
    while start < end:
        last = end - np.uint64(1)
        while text[last] & 0xC0 == 0x80:
            last -= np.uint64(1)
        code = np.uint32(text[last])
        if code >= np.uint32(0x80):
            code, _ = decoded(text, last)
        if not kinds[np.uint64(code)] & SPACE:
            break
        end = last
    return start, end


@kernel(
    f"void({BYTES}, {PLACES}, {PLACES}, Array(boolean, 1, 'C'), {KINDS}, Array(uint8, 1, 'C', readonly=True), "
    "Array(uint8, 1, 'C'), int64[::1], int64[::1], boolean[::1])"
)
def normalized(
    data: Any, begins: Any, ends: Any, plain: Any, kinds: Any, order: Any, out: Any, offsets: Any, sizes: Any, turns: Any
) -> None:
    """The normal forms of the JSON strings ``data[begin:end]`` (without their quotes), one after another from ``offsets[0]`` of ``out`` on.

    ``offsets`` becomes where each begins and ends, ``sizes`` the bytes of the text that the string means. A text that composition may change is
    left empty, and told in ``turns``; whoever has it asks the reference. ``out`` must have room for the strings.
    """
    at = np.uint64(offsets[0])
    for text in range(len(begins)):
        i, end = np.uint64(begins[text]), np.uint64(ends[text])
        start = at
        size, mark_end, mark, return_end = np.uint64(0), at, np.uint8(0), np.uint64(0)
        turned = False
        while i < end:
            byte = data[i]
            if plain[np.uint64(byte)]:
                out[at] = byte
                at += np.uint64(1)
                i += np.uint64(1)
                size += np.uint64(1)
                continue
            begin = i
            if byte >= 0x80:
                code, length = decoded(data, i)
                i += length
            elif byte == ord("\\"):
                escaped, i = _escaped(data, i + np.uint64(1))
                code = np.uint32(escaped)
            else:
                code = np.uint32(byte)
                i += np.uint64(1)
            size += (
                np.uint64(1)
                + np.uint64(code >= np.uint32(0x80))
                + np.uint64(code >= np.uint32(0x800))
                + np.uint64(code >= np.uint32(0x10000))
            )
            if code == np.uint32(10) or code == np.uint32(13):
                if code == np.uint32(10) and begin == return_end:
                    continue
                if code == np.uint32(13):
                    return_end = i
                while at > start and (out[at - np.uint64(1)] == 32 or out[at - np.uint64(1)] == 9):
                    at -= np.uint64(1)
                if at < start + np.uint64(2) or out[at - np.uint64(1)] != 10 or out[at - np.uint64(2)] != 10:
                    out[at] = 10
                    at += np.uint64(1)
            elif (code < np.uint32(32) and code != np.uint32(9)) or (np.uint32(127) <= code < np.uint32(160)) or code == np.uint32(0xFEFF):
                continue
            elif code < np.uint32(0x300):
                at = put(code, out, at)
            else:
                turn = order[np.uint64(code)]
                if turn:
                    if turn == TURNS or (at == mark_end and turn < mark):
                        turned = True
                    mark = turn
                at = put(code, out, at)
                if turn:
                    mark_end = at
        sizes[text] = np.int64(size)
        turns[text] = turned
        if turned:
            at = start
        else:
            first, last = _stripped(out, start, at, kinds)
            if first > start:
                for k in range(np.int64(last - first)):
                    out[start + np.uint64(k)] = out[first + np.uint64(k)]
            at = start + (last - first)
        offsets[text + 1] = np.int64(at)
