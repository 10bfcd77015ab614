"""From bytes of JSON Lines or text to lines of a raw part, without a string on the way: parse, check and escape in one pass.

A kernel writes the documents it is sure about, and names the others by where they are, for the plain reader to judge; so what is rejected, and why, is
known in one place. Its lines say what that reader's lines say; where JSON allows several spellings of a string, both use the shortest.

All of them take ``data`` from ``start`` to ``end``, where ``data[end]`` is a line feed that may be overwritten, the number of the first line, and the parts
of a line: ``prefix``, the line number, ``middle``, the text, ``suffix``. They give (rows, bytes written, bytes read, lines read) and fill ``rows``: line,
1 where the plain reader is to judge, begin and end in ``data``, begin and end in ``out``, bytes of text; and ``digests``, 128 bits a text.
"""

from typing import Any

import numpy as np

from corpusbuild.kernels.jit import kernel
from corpusbuild.kernels.utf8 import eight

QUOTE, BACKSLASH, NEWLINE, RETURN, COMMA, COLON = 34, 92, 10, 13, 44, 58
PARTS = "uint8[::1], uint8[::1], uint8[::1], uint8[::1], int64[:, ::1], uint64[:, ::1]"
SHAPE = "UniTuple(int64, 4)"
ROW = 7
LONGEST_NUMBER = 15
DEEPEST = 60


def _classes() -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    """What a byte of a string is: 0 itself, 1 to be escaped, 2 the beginning of a character of several bytes, 3 none."""
    classes = np.zeros(256, np.uint8)
    classes[:32] = 1
    classes[[QUOTE, BACKSLASH]] = 1
    classes[0x80:] = 3
    classes[0xC2:0xF5] = 2
    return classes


CLASS = _classes()
SHORT = np.zeros(256, np.uint8)
SHORT[[8, 9, 10, 12, 13, QUOTE, BACKSLASH]] = list(b'btnfr"\\')
LONG = np.zeros(256, np.uint8)
LONG[list(b'btnfr"\\/')] = [8, 9, 10, 12, 13, QUOTE, BACKSLASH, 47]
HEX = np.full(256, 255, np.uint8)
HEX[list(b"0123456789abcdef")] = np.arange(16)
HEX[list(b"ABCDEF")] = np.arange(10, 16)
WORDS = np.frombuffer(b"true false null ", np.uint8).copy()
DIGIT = np.frombuffer(b"0123456789abcdef", np.uint8).copy()


@kernel("int64(uint8[::1], int64)")
def _character(data: Any, i: Any) -> Any:
    """How many bytes the character of several bytes at ``i`` has, 0 where it is none. A line feed ends every one that is cut."""
    c = data[i]
    if data[i + 1] & 0xC0 != 0x80:
        return 0
    if c < 0xE0:
        return 2
    d = data[i + 1]
    if data[i + 2] & 0xC0 != 0x80:
        return 0
    if c < 0xF0:
        return 0 if (c == 0xE0 and d < 0xA0) or (c == 0xED and d > 0x9F) else 3
    if data[i + 3] & 0xC0 != 0x80 or (c == 0xF0 and d < 0x90) or (c == 0xF4 and d > 0x8F):
        return 0
    return 4


@kernel("int64(uint8[::1], uint8[::1], int64)")
def _write(source: Any, out: Any, o: Any) -> Any:
    for i in range(len(source)):
        out[o + i] = source[i]
    return o + len(source)


@kernel("int64(int64, uint8[::1], int64)")
def _write_number(n: Any, out: Any, o: Any) -> Any:
    digits, rest = 1, n
    while rest >= 10:
        rest //= 10
        digits += 1
    for k in range(digits):
        out[o + digits - 1 - k] = 48 + n % 10
        n //= 10
    return o + digits


@kernel("int64(int64, uint8[::1], int64)")
def _escape(c: Any, out: Any, o: Any) -> Any:
    """Write one byte that a string of JSON cannot hold as it is."""
    out[o] = BACKSLASH
    if SHORT[c]:
        out[o + 1] = SHORT[c]
        return o + 2
    out[o + 1] = 117
    out[o + 2] = 48
    out[o + 3] = 48
    out[o + 4] = DIGIT[c >> 4]
    out[o + 5] = DIGIT[c & 15]
    return o + 6


ONES, HIGH = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
SPACES, QUOTES, BACKSLASHES = ONES * np.uint64(32), ONES * np.uint64(QUOTE), ONES * np.uint64(BACKSLASH)


@kernel("boolean(uint64)")
def _is_plain(w: Any) -> Any:
    """Whether a string of JSON can hold all eight bytes as they are, and they are ASCII."""
    quote, backslash = w ^ QUOTES, w ^ BACKSLASHES
    return (w | ((w - SPACES) & ~w) | ((quote - ONES) & ~quote) | ((backslash - ONES) & ~backslash)) & HIGH == np.uint64(0)


@kernel("boolean(uint64, uint64)")
def _has(w: Any, bytes_: Any) -> Any:
    """Whether one of eight bytes is the one that ``bytes_`` has eight times."""
    x = w ^ bytes_
    return (x - ONES) & ~x & HIGH != np.uint64(0)


@kernel("int64(uint8[::1], int64)")
def _skip_plain(data: Any, i: Any) -> Any:
    """Behind the bytes that a string can hold as they are."""
    u = np.uint64(i)
    while _is_plain(eight(data, u)):
        u += np.uint64(8)
    while CLASS[data[u]] == 0:
        u += np.uint64(1)
    return np.int64(u)


@kernel("int64(uint8[::1], int64, uint8[::1], int64)")
def _copy_plain(data: Any, i: Any, out: Any, o: Any) -> Any:
    """As ``_skip_plain``, and write them. What is written behind them, at most seven bytes, will be written over."""
    u, v = np.uint64(i), np.uint64(o)
    while True:
        w = eight(data, u)
        if not _is_plain(w):
            break
        out[v] = w
        out[v + np.uint64(1)] = w >> np.uint64(8)
        out[v + np.uint64(2)] = w >> np.uint64(16)
        out[v + np.uint64(3)] = w >> np.uint64(24)
        out[v + np.uint64(4)] = w >> np.uint64(32)
        out[v + np.uint64(5)] = w >> np.uint64(40)
        out[v + np.uint64(6)] = w >> np.uint64(48)
        out[v + np.uint64(7)] = w >> np.uint64(56)
        u += np.uint64(8)
        v += np.uint64(8)
    while CLASS[data[u]] == 0:
        out[v] = data[u]
        u += np.uint64(1)
        v += np.uint64(1)
    return np.int64(u)


@kernel("int64(uint8[::1], int64, int64)")
def _lines_within(data: Any, begin: Any, end: Any) -> Any:
    n = 0
    for i in range(np.uint64(begin), np.uint64(end)):
        n += data[i] == NEWLINE
    return n


@kernel("void(uint8[::1], int64, int64, uint64[::1])")
def digest(data: Any, begin: Any, end: Any, into: Any) -> Any:
    """128 bits of ``data`` from ``begin`` to ``end``: two chains over words of eight bytes."""
    a, b = np.uint64(0x9E3779B97F4A7C15), np.uint64(end - begin)
    i = begin
    while i < end:
        w = np.uint64(0)
        if i + 8 <= end:
            w = eight(data, np.uint64(i))
        else:
            for k in range(end - i):
                w |= np.uint64(data[i + k]) << np.uint64(8 * k)
        a = (a ^ w) * np.uint64(0xFF51AFD7ED558CCD)
        a ^= a >> np.uint64(32)
        b = (b + w) * np.uint64(0xC4CEB9FE1A85EC53)
        b ^= b >> np.uint64(29)
        i += 8
    a = (a ^ (b >> np.uint64(31))) * np.uint64(0xC4CEB9FE1A85EC53)
    into[0] = a ^ (a >> np.uint64(33))
    into[1] = b * np.uint64(0xFF51AFD7ED558CCD) ^ a


@kernel("int64(uint8[::1], int64)")
def _skip_string(data: Any, i: Any) -> Any:
    """Behind the quote that closes the string of which ``i`` is the first byte, or -1."""
    while True:
        i = _skip_plain(data, i)
        c = data[i]
        if c == QUOTE:
            return i + 1
        if c == BACKSLASH:
            e = data[i + 1]
            if LONG[e]:
                i += 2
            else:
                return -1  # by number: the plain reader knows which are characters
        elif CLASS[c] == 2:
            n = _character(data, i)
            if n == 0:
                return -1
            i += n
        else:
            return -1


@kernel("UniTuple(int64, 3)(uint8[::1], int64, uint8[::1], int64)")
def _copy_string(data: Any, i: Any, out: Any, o: Any) -> Any:
    """Write the string whose first byte is ``i``, without quotes; (behind its quote or -1, end in ``out``, bytes by which escapes make it longer)."""
    more = 0
    while True:
        begin = i
        i = _copy_plain(data, i, out, o)
        o += i - begin
        c = data[i]
        if c == QUOTE:
            return i + 1, o, more
        if c == BACKSLASH:
            e = data[i + 1]
            if LONG[e]:
                i += 2
                if e == 47:
                    out[o] = 47
                    o += 1
                else:
                    out[o] = BACKSLASH
                    out[o + 1] = e
                    o += 2
                    more += 1
                continue
            if e != 117:
                return -1, o, more
            code = 0
            for k in range(2, 6):
                h = HEX[data[i + k]]
                if h == 255:
                    return -1, o, more
                code = code * 16 + h
            i += 6
            if code < 128:
                if CLASS[code]:
                    before = o
                    o = _escape(code, out, o)
                    more += o - before - 1
                else:
                    out[o] = code
                    o += 1
            elif code < 0x800:
                out[o] = 0xC0 | code >> 6
                out[o + 1] = 0x80 | code & 63
                o += 2
            elif code < 0xD800 or code > 0xDFFF:
                out[o] = 0xE0 | code >> 12
                out[o + 1] = 0x80 | code >> 6 & 63
                out[o + 2] = 0x80 | code & 63
                o += 3
            else:
                if code > 0xDBFF or data[i] != BACKSLASH or data[i + 1] != 117:
                    return -1, o, more
                low = 0
                for k in range(2, 6):
                    h = HEX[data[i + k]]
                    if h == 255:
                        return -1, o, more
                    low = low * 16 + h
                if low < 0xDC00 or low > 0xDFFF:
                    return -1, o, more
                i += 6
                code = 0x10000 + ((code - 0xD800) << 10) + low - 0xDC00
                out[o] = 0xF0 | code >> 18
                out[o + 1] = 0x80 | code >> 12 & 63
                out[o + 2] = 0x80 | code >> 6 & 63
                out[o + 3] = 0x80 | code & 63
                o += 4
        elif CLASS[c] == 2:
            n = _character(data, i)
            if n == 0:
                return -1, o, more
            for _ in range(n):
                out[o] = data[i]
                i += 1
                o += 1
        else:
            return -1, o, more


@kernel("int64(uint8[::1], int64)")
def _space(data: Any, i: Any) -> Any:
    while data[i] == 32 or data[i] == 9 or data[i] == RETURN:
        i += 1
    return i


@kernel("int64(uint8[::1], int64)")
def _behind_key(data: Any, i: Any) -> Any:
    """Where the value of the key begins that should begin at ``i``, or -1."""
    if data[i] != QUOTE:
        return -1
    i = _skip_string(data, i + 1)
    if i >= 0:
        i = _space(data, i)
        i = _space(data, i + 1) if data[i] == COLON else -1
    return i


@kernel("int64(uint8[::1], int64)")
def _skip_word(data: Any, i: Any) -> Any:
    """Behind the ``true``, ``false`` or ``null`` at ``i``, or -1."""
    word = 0 if data[i] == 116 else 5 if data[i] == 102 else 11
    while WORDS[word] != 32:
        if data[i] != WORDS[word]:
            return -1
        i += 1
        word += 1
    return i


@kernel("int64(uint8[::1], int64)")
def _skip_number(data: Any, i: Any) -> Any:
    """Behind a number of few digits and no exponent, or -1."""
    begin = i
    if data[i] == 45:
        i += 1
    first = i
    while 48 <= data[i] <= 57:
        i += 1
    if i == first or (data[first] == 48 and i > first + 1):
        return -1
    if data[i] == 46:
        point = i
        i += 1
        while 48 <= data[i] <= 57:
            i += 1
        if i == point + 1:
            return -1
    if data[i] == 101 or data[i] == 69 or i - begin > LONGEST_NUMBER:
        return -1
    return i


@kernel("int64(uint8[::1], int64)")
def _skip_value(data: Any, i: Any) -> Any:
    """Behind the value at ``i``, or -1."""
    depth, objects = 0, np.uint64(0)
    while True:
        c = data[i]
        opened = False
        if c == QUOTE:
            i = _skip_string(data, i + 1)
        elif c == 123 or c == 91:
            depth += 1
            if depth > DEEPEST:
                return -1
            objects = objects << np.uint64(1) | np.uint64(c == 123)
            i = _space(data, i + 1)
            if data[i] == c + 2:
                i += 1
                depth -= 1
                objects >>= np.uint64(1)
            else:
                opened = True
                if c == 123:
                    i = _behind_key(data, i)
        elif c == 116 or c == 102 or c == 110:
            i = _skip_word(data, i)
        else:
            i = _skip_number(data, i)
        if i < 0:
            return -1
        if opened:
            continue
        while True:
            if depth == 0:
                return i
            i = _space(data, i)
            inside = objects & np.uint64(1)
            if data[i] == COMMA:
                i = _space(data, i + 1)
                if inside:
                    i = _behind_key(data, i)
                    if i < 0:
                        return -1
                break
            if data[i] != (125 if inside else 93):
                return -1
            i += 1
            depth -= 1
            objects >>= np.uint64(1)


@kernel(f"{SHAPE}(uint8[::1], int64, int64, int64, uint8[::1], int64[::1], int64[:, ::1], {PARTS})")
def json_lines(
    data: Any,
    start: Any,
    end: Any,
    line: Any,
    names: Any,
    ends: Any,
    spots: Any,
    prefix: Any,
    middle: Any,
    suffix: Any,
    out: Any,
    rows: Any,
    digests: Any,
) -> Any:
    """Whole lines. ``names`` holds the keys, the text's first, one behind the other up to their ``ends``; ``spots`` takes where the values of the other keys are
    in ``data``, from and to, or -1."""
    at, count, o, first = start, 0, 0, line
    least = len(prefix) + len(middle) + len(suffix) + 24
    while at < end and count < len(rows):
        if o + least + end - at > len(out):
            break
        i = _space(data, at)
        stop = i
        if data[i] != NEWLINE:
            begin = o
            o = _write(prefix, out, o)
            o = _write_number(line, out, o)
            o = _write(middle, out, o)
            token, more, found = o, 0, False
            for k in range(len(ends) - 1):
                spots[count, 2 * k] = -1
            good = data[i] == 123
            i = _space(data, i + 1)
            while good:
                key = i + 1
                i = _behind_key(data, i)
                good = i >= 0
                if not good:
                    break
                close = key
                while data[close] != QUOTE:
                    good = good and data[close] != BACKSLASH
                    close += 1
                which, lower = -1, 0
                for k in range(len(ends)):
                    if ends[k] - lower == close - key:
                        same = True
                        for j in range(close - key):
                            if names[lower + j] != data[key + j]:
                                same = False
                                break
                        if same:
                            which = k
                    lower = ends[k]
                if not good:
                    break
                value = i
                if which == 0:
                    good = data[i] == QUOTE
                    if good:
                        i, o, more = _copy_string(data, i + 1, out, token)
                        found = True
                else:
                    i = _skip_value(data, i)
                    if which > 0:
                        spots[count, 2 * which - 2] = value
                        spots[count, 2 * which - 1] = i
                good = good and i >= 0
                if not good:
                    break
                i = _space(data, i)
                if data[i] == COMMA:
                    i = _space(data, i + 1)
                else:
                    good = data[i] == 125
                    i = _space(data, i + 1)
                    break
            good = good and found and data[i] == NEWLINE
            if good:
                stop = i
            else:
                while data[stop] != NEWLINE:
                    stop += 1
            rows[count, 0] = line
            rows[count, 1] = 0 if good else 1
            rows[count, 2] = at
            rows[count, 3] = stop
            if good:
                rows[count, 6] = o - token - more
                digest(out, token, o, digests[count])
                o = _write(suffix, out, o)
            else:
                o = begin
            rows[count, 4] = begin
            rows[count, 5] = o
            count += 1
        line += 1
        at = stop + 1
    return count, o, min(at, end) - start, line - first


@kernel("UniTuple(int64, 3)(uint8[::1], int64, int64, uint8[::1], int64)")
def _copy_text(data: Any, i: Any, end: Any, out: Any, o: Any) -> Any:
    """Write text as a string of JSON, without quotes; (``end`` or -1, end in ``out``, bytes by which escapes make it longer).

    It ends at ``end`` or, where that is below 0, at a line feed.
    """
    more = 0
    while True:
        begin = i
        i = _copy_plain(data, i, out, o)
        if end >= 0 and i >= end:
            return end, o + end - begin, more
        o += i - begin
        c = data[i]
        if CLASS[c] == 1:
            if end < 0 and c == NEWLINE:
                return i, o, more
            before = o
            o = _escape(c, out, o)
            more += o - before - 1
            i += 1
        else:
            n = _character(data, i) if CLASS[c] == 2 else 0
            if n == 0 or (end >= 0 and i + n > end):
                return -1, o, more
            for _ in range(n):
                out[o] = data[i]
                i += 1
                o += 1


@kernel("int64(uint8[::1], int64)")
def _white(data: Any, i: Any) -> Any:
    """How many bytes the white space at ``i`` has, 0 where it is none."""
    c = data[i]
    if 9 <= c <= 13 or 28 <= c <= 32:
        return 1
    if c == 0xC2 and (data[i + 1] == 0x85 or data[i + 1] == 0xA0):
        return 2
    if c == 0xE1 and data[i + 1] == 0x9A and data[i + 2] == 0x80:
        return 3
    if c == 0xE2:
        d, e = data[i + 1], data[i + 2]
        if (d == 0x80 and (0x80 <= e <= 0x8A or e == 0xA8 or e == 0xA9 or e == 0xAF)) or (d == 0x81 and e == 0x9F):
            return 3
    if c == 0xE3 and data[i + 1] == 0x80 and data[i + 2] == 0x80:
        return 3
    return 0


@kernel(f"{SHAPE}(uint8[::1], int64, int64, int64, boolean, {PARTS})")
def text_blocks(
    data: Any, start: Any, end: Any, line: Any, final: Any, prefix: Any, middle: Any, suffix: Any, out: Any, rows: Any, digests: Any
) -> Any:
    """Blocks of lines that are not blank; one that nothing ends is left, unless this is the ``final`` piece."""
    at, count, o, first = start, 0, 0, line
    least = len(prefix) + len(middle) + len(suffix) + 24
    while at < end and count < len(rows):
        # blank lines before the block
        begin, skipped = at, 0
        i = at
        while i < end:
            if data[i] == NEWLINE:
                skipped += 1
                begin = i + 1
                i += 1
            else:
                n = _white(data, i)
                if n == 0:
                    break
                i += n
        if i >= end:
            if final:
                at, line = end, line + skipped
            else:
                at, line = begin, line + skipped
            break
        at, line = begin, line + skipped
        if o + least + 6 * (end - at) > len(out):
            break
        from_ = o
        o = _write(prefix, out, o)
        o = _write_number(line, out, o)
        o = _write(middle, out, o)
        token, more, stop, lines, whole, i = o, 0, begin, 0, False, 0
        while stop < end:
            first_byte = stop
            while data[stop] != NEWLINE:
                n = _white(data, stop)
                if n == 0:
                    break
                stop += n
            if data[stop] == NEWLINE:
                whole = stop < end
                stop = first_byte
                break
            stop = first_byte
            if i >= 0:
                if lines:
                    o = _escape(NEWLINE, out, o)
                    more += 1
                i, o, extra = _copy_text(data, stop, -1, out, o)
                more += extra
                if i >= 0:
                    stop = i
                    if data[i - 1] == RETURN and i > first_byte:
                        o -= 2
                        more -= 1
            while data[stop] != NEWLINE:
                stop += 1
            lines += 1
            stop += 1
        if not whole and not final:
            o = from_
            break
        rows[count, 0] = line
        rows[count, 1] = 0 if i >= 0 else 1
        rows[count, 2] = begin
        rows[count, 3] = min(stop, end)
        if i >= 0:
            rows[count, 6] = o - token - more
            digest(out, token, o, digests[count])
            o = _write(suffix, out, o)
        else:
            o = from_
        rows[count, 4] = from_
        rows[count, 5] = o
        count += 1
        at, line = min(stop, end), line + lines
    return count, o, at - start, line - first


@kernel(f"{SHAPE}(uint8[::1], int64, int64, int64, boolean, uint8[::1], {PARTS})")
def separated(
    data: Any,
    start: Any,
    end: Any,
    line: Any,
    final: Any,
    separator: Any,
    prefix: Any,
    middle: Any,
    suffix: Any,
    out: Any,
    rows: Any,
    digests: Any,
) -> Any:
    """Pieces between separators; the last is left, unless this is the ``final`` piece."""
    at, count, o, first = start, 0, 0, line
    least, length = len(prefix) + len(middle) + len(suffix) + 24, len(separator)
    lead = ONES * np.uint64(separator[0])
    while at < end and count < len(rows):
        stop, found = at, False
        while stop + length <= end:
            while stop + 8 <= end and not _has(eight(data, np.uint64(stop)), lead):
                stop += 8
            while stop + length <= end and data[stop] != separator[0]:
                stop += 1
            if stop + length <= end:
                found = True
                for k in range(1, length):
                    if data[stop + k] != separator[k]:
                        found = False
                        break
                if found:
                    break
            stop += 1
        if not found:
            if not final:
                break
            stop = end
        if o + least + 6 * (stop - at) > len(out):
            break
        begin, lines = at, 0
        while begin < stop:
            n = _white(data, begin)
            if n == 0 or begin + n > stop:
                break
            lines += data[begin] == NEWLINE
            begin += n
        if begin < stop:
            left, right = at, stop
            while left < right and (data[left] == NEWLINE or data[left] == RETURN):
                left += 1
            while right > left and (data[right - 1] == NEWLINE or data[right - 1] == RETURN):
                right -= 1
            from_ = o
            o = _write(prefix, out, o)
            o = _write_number(line + lines, out, o)
            o = _write(middle, out, o)
            token = o
            i, o, more = _copy_text(data, left, right, out, o)
            rows[count, 0] = line
            rows[count, 1] = 0 if i >= 0 else 1
            rows[count, 2] = at
            rows[count, 3] = stop
            if i >= 0:
                rows[count, 6] = o - token - more
                digest(out, token, o, digests[count])
                o = _write(suffix, out, o)
            else:
                o = from_
            rows[count, 4] = from_
            rows[count, 5] = o
            count += 1
        after = stop + length if found else end
        line += _lines_within(data, at, after)
        at = after
    return count, o, at - start, line - first
