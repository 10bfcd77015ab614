"""Where in texts personal data of the five kinds may stand, in one pass over UTF-8. ``corpusbuild.pii`` is the reference, and alone decides what is some.

A window is the surroundings of such a place, from border to border: a line end, or a space between two letters of ASCII. No detector finds anything that
reaches over one, or looks past it, so that what is found in a window is what is found there in the whole text.
"""

from typing import Any

import numpy as np

from corpusbuild.kernels.jit import inlined, kernel
from corpusbuild.kernels.utf8 import BYTES, PLACES

DIGIT, LETTER, LINK, HEX, LOCAL = np.uint8(1), np.uint8(2), np.uint8(4), np.uint8(8), np.uint8(16)
PHONE, CARD, IP = np.uint8(1), np.uint8(2), np.uint8(4)
MARKS = {"email": b"@", "phone": b"+0123456789", "card": b"0123456789", "ip": b":0123456789", "key": b"-_Kz"}
"""The bytes at which a look for a kind is worth it."""
LINE_END, SPACE, DASH, DOT, COLON, CLOSING, PLUS, AT = (np.uint8(ord(c)) for c in "\n -.:)+@")
ZERO, TWO, SIX, LOW_LINE = (np.uint8(ord(c)) for c in "026_")
S, K, X, O, G, H, T, L, BIG_A, BIG_I, BIG_K = (np.uint8(ord(c)) for c in "skxoghtlAIK")
SHORTEST_CARD, LONGEST_CARD = 13, 19


def _classes() -> Any:
    of = np.zeros(256, np.uint8)
    for byte in range(128):
        letter = chr(byte)
        of[byte] = (
            DIGIT * letter.isdigit()
            | LETTER * letter.isalpha()
            | LINK * (letter.isalnum() or letter in "_-")
            | HEX * (letter in "0123456789abcdefABCDEF")
            | LOCAL * (letter.isalnum() or letter in "._%+-")
        )
    return of


CLASSES = _classes()


@inlined
def _is(data: Any, i: Any, stop: Any, kind: Any) -> Any:
    return i < stop and CLASSES[data[i]] & kind != 0


@inlined
def _is_word(byte: Any) -> Any:
    """Whether it is a word character of ASCII. What other characters are one the reference knows."""
    return CLASSES[byte] & (LETTER | DIGIT) != 0 or byte == LOW_LINE


@inlined
def _joins(byte: Any) -> Any:
    return byte in (SPACE, DASH, DOT)


@kernel(f"boolean({BYTES}, int64, int64, int64)")
def _links(data: Any, i: Any, stop: Any, least: Any) -> Any:
    """Whether ``least`` characters that a key has follow."""
    if i + least > stop:
        return False
    linked = 0
    while linked < least and CLASSES[data[i + linked]] & LINK:
        linked += 1
    return linked == least


@kernel(f"boolean({BYTES}, int64, int64)")
def _luhn(data: Any, first: Any, end: Any) -> Any:
    """The check of a card whose digits, which other characters may join, begin at ``first`` and end before ``end``."""
    if data[first] < TWO or data[first] > SIX:
        return False
    i, total, even = end - 1, 0, False
    while i >= first:
        if CLASSES[data[i]] & DIGIT:
            n: Any = np.int64(data[i] - ZERO)
            if even:
                n = 2 * n - 9 if n > 4 else 2 * n
            total += n
            even = not even
        i -= 1
    return total % 10 == 0


@kernel(f"boolean({BYTES}, int64, int64, int64)")
def _email(data: Any, at: Any, start: Any, stop: Any) -> Any:
    if at == start or CLASSES[data[at - 1]] & LOCAL == 0:
        return False
    i = at + 1
    while True:
        label = i
        while i < stop and data[i] != LOW_LINE and CLASSES[data[i]] & LINK:
            i += 1
        if i == label or i >= stop or data[i] != DOT:
            return False
        i += 1
        if _is(data, i, stop, LETTER) and _is(data, i + 1, stop, LETTER):
            return True


@kernel(f"boolean({BYTES}, int64, int64)")
def _plus_number(data: Any, at: Any, stop: Any) -> Any:
    i, digits = at + 1, 0
    while _is(data, i, stop, DIGIT):
        digits += 1
        i += 1
        if i < stop and _joins(data[i]):
            i += 1
        if digits == 8:
            return True
    return False


@kernel(f"boolean({BYTES}, int64, int64, int64, int64)")
def _american(data: Any, first: Any, end: Any, start: Any, stop: Any) -> Any:
    """Whether the three digits from ``first`` may be the middle of a number: three digits before them, four after."""
    if data[first] < TWO or first < start + 4 or end + 5 > stop or not _joins(data[end]):
        return False
    before = data[first - 1]
    if before != CLOSING and not (_joins(before) and (data[first - 2] == CLOSING or CLASSES[data[first - 2]] & DIGIT)):
        return False
    for k in range(1, 5):
        if CLASSES[data[end + k]] & DIGIT == 0:
            return False
    return not _is(data, end + 5, stop, DIGIT)


@kernel(f"boolean({BYTES}, int64, int64, int64)")
def _four_numbers(data: Any, first: Any, start: Any, stop: Any) -> Any:
    if first > start and (data[first - 1] == DOT or _is_word(data[first - 1])):
        return False
    i = first
    for part in range(4):
        value, digits = np.int64(0), 0
        while digits < 4 and _is(data, i, stop, DIGIT):
            value = 10 * value + np.int64(data[i] - ZERO)
            digits += 1
            i += 1
        if digits == 0 or digits > 3 or value > 255:
            return False
        if part < 3:
            if i >= stop or data[i] != DOT:
                return False
            i += 1
    return not (i + 1 < stop and data[i] == DOT and _is_word(data[i + 1]))


@kernel(f"boolean({BYTES}, int64, int64, int64, int64)")
def _ip6(data: Any, at: Any, start: Any, end: Any, stop: Any) -> Any:
    """Whether the run of hexadecimal digits, colons and dots, whose first colon is at ``at`` and which ends at ``end``, may be an address."""
    first = at
    while first > start and first > at - 5 and CLASSES[data[first - 1]] & HEX:
        first -= 1
    if at - first > 4 or (first > start and _is_word(data[first - 1])) or (end < stop and _is_word(data[end])):
        return False
    colons, groups, digits, here, double, in_group = 0, 0, 0, 0, False, False
    for i in range(first, end):
        if data[i] == COLON:
            colons += 1
            double = double or (i > first and data[i - 1] == COLON)
            here, in_group = 0, False
        else:
            groups += not in_group
            in_group = True
            if data[i] == DOT:
                here = 0
            else:
                digits += 1
                here += 1
                if here > 4:
                    return False
    return (double or colons >= 6) and groups >= 2 and digits >= 4


@kernel(f"boolean({BYTES}, int64, int64, int64)")
def _key(data: Any, at: Any, start: Any, stop: Any) -> Any:
    """Whether the mark of a key and enough of what must follow stand around ``at``."""
    byte, back, least = data[at], 0, 0
    i = at - start
    if byte == DASH:
        if i >= 2 and data[at - 2] == S and data[at - 1] == K:
            back, least = 2, 20
        elif i >= 4 and data[at - 4] == X and data[at - 3] == O and data[at - 2] == X:
            back, least = 4, 10
    elif byte == LOW_LINE:
        if i >= 3 and data[at - 3] == G and data[at - 2] == H:
            back, least = 3, 36
        elif i >= 2 and data[at - 2] == T and data[at - 1] == L:
            back, least = 2, 29
    elif byte == BIG_K:
        if i >= 1 and data[at - 1] == BIG_A and at + 2 < stop and data[at + 1] == BIG_I and data[at + 2] == BIG_A:
            back, least = 1, 18
    elif i >= 2 and data[at - 2] == BIG_A and data[at - 1] == BIG_I:
        back, least = 2, 36
    if least == 0 or not _links(data, at + 1, stop, least):
        return False
    before = at - back - 1
    return before < start or not (_is_word(data[before]) or data[before] == DASH)


@kernel(f"int64({BYTES}, {PLACES}, uint8[::1], uint8, int64[::1], int64[:,::1])")
def windows(data: Any, offsets: Any, marks: Any, numbers: Any, state: Any, out: Any) -> Any:
    """The windows of texts, in order: for each its text, the bytes where it begins and ends, and the code points of its text before it.

    ``marks`` is not 0 for a byte that is worth a look, and ``numbers`` says what a number may be. Gives how many there are; where that is all
    that ``out`` holds, there may be more, which the next call with the same ``state`` gives: text and byte (-1 for its first), and
    how many code points of the text stand before which byte. It is (0, -1, 0, 0) at first.
    """
    n, full = 0, len(out)
    text, at, counted, points = state[0], state[1], state[2], state[3]
    while text < len(offsets) - 1 and n < full:
        start, stop = offsets[text], offsets[text + 1]
        if at < start:
            at = counted = start
            points = 0
        floor = at
        # of the digits just passed: where the run of groups begins, how many groups and digits it has, its last groups' beginnings and sizes
        run, groups, total, ended = at, 0, 0, np.int64(-2)
        first_3, first_2, first_1, size_3, size_2, size_1 = at, at, at, 0, 0, 0
        colons_end = at
        i, end = np.uint64(at), np.uint64(stop)
        while n < full:
            while i < end and marks[data[i]] == 0:
                i += np.uint64(1)
            if i >= end:
                break
            here: Any = np.int64(i)
            byte = data[i]
            found: Any = False
            if CLASSES[byte] & DIGIT:
                while i < end and CLASSES[data[i]] & DIGIT:
                    i += np.uint64(1)
                last = np.int64(i)
                size = last - here
                if here == ended + 1 and (data[ended] == SPACE or data[ended] == DASH):
                    groups, total = groups + 1, total + size
                else:
                    run, groups, total = here, 1, size
                    size_3, size_2, size_1 = 0, 0, 0
                ended = last
                if numbers & CARD:
                    if SHORTEST_CARD <= size <= LONGEST_CARD:
                        found = _luhn(data, here, last)
                    if size == 4 and size_1 == 4 and size_2 == 4 and size_3 == 4:
                        found = found or _luhn(data, first_3, last)
                    elif size == 5 and size_1 == 6 and size_2 == 4:
                        found = found or _luhn(data, first_2, last)
                    if groups > 1 and SHORTEST_CARD <= total <= LONGEST_CARD:
                        more = (last < stop and (data[last] == SPACE or data[last] == DASH)) and _is(data, last + 1, stop, DIGIT)
                        found = found or (not more and _luhn(data, run, last))
                if size == 3 and numbers & PHONE:
                    found = found or _american(data, here, last, start, stop)
                if size <= 3 and numbers & IP and last < stop and data[last] == DOT:
                    found = found or _four_numbers(data, here, start, stop)
                first_3, first_2, first_1 = first_2, first_1, here
                size_3, size_2, size_1 = size_2, size_1, size
            else:
                i += np.uint64(1)
                if byte == AT:
                    found = _email(data, here, start, stop)
                elif byte == PLUS:
                    found = _is(data, here + 1, stop, DIGIT) and _plus_number(data, here, stop)
                elif byte == COLON:
                    if here >= colons_end:
                        colons_end = here + 1
                        while colons_end < stop and (
                            CLASSES[data[colons_end]] & HEX or data[colons_end] == COLON or data[colons_end] == DOT
                        ):
                            colons_end += 1
                        found = colons_end - here >= 2 and _ip6(data, here, start, colons_end, stop)
                else:
                    found = _key(data, here, start, stop)
            if found:
                begin = here
                while begin > floor and data[begin - 1] != LINE_END:
                    if begin - 2 >= floor and data[begin - 1] == SPACE and CLASSES[data[begin]] & CLASSES[data[begin - 2]] & LETTER:
                        break
                    begin -= 1
                until = np.int64(i)
                while until < stop and data[until] != LINE_END:
                    if data[until] == SPACE and CLASSES[data[until - 1]] & LETTER and _is(data, until + 1, stop, LETTER):
                        break
                    until += 1
                for k in range(counted, begin):
                    points += data[k] & 0xC0 != 0x80
                counted = begin
                out[n, 0], out[n, 1], out[n, 2], out[n, 3] = text, begin, until, points
                n += 1
                floor = until
                colons_end = until
                i = np.uint64(until)
        at = np.int64(i)
        if at >= stop:
            text += 1
            at = np.int64(-1)
    state[0], state[1], state[2], state[3] = text, at, counted, points
    return n
