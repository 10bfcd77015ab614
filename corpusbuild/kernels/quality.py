"""What the quality rules and the language vote count of a text, in one pass over its UTF-8. ``corpusbuild.quality`` and ``language`` are the references.

Words are compared in full wherever their hashes agree, so the counts are exact.
"""

from typing import Any

import numpy as np

from corpusbuild.codepoints import ALPHA, EDGE, LETTER, LOWER, SPACE
from corpusbuild.kernels.jit import kernel, part
from corpusbuild.kernels.utf8 import BYTES, KINDS, PLACES, decoded, eight

AT_ONCE = 1 << 16
"""Words of a text that are remembered while it is read; one of more words is read again for its n-grams."""
BINS = 1 << 23
"""Entries, at most, of the table of n-grams of such a text, of which three quarters are filled at once; an entry takes 20 bytes."""

WORDS, WORD_POINTS, POINTS, HASHES, DOTS, LINES, BULLETS, TRAILING, ALPHAS, REPEATED, VOTES = range(11)
"""The columns of ``counted``; from ``VOTES`` on one for each field of the marks, of which there are ``FIELDS``."""
FIELDS = 8

_LETTERS, _OTHER, _STOP = np.uint8(1), np.uint8(2), np.uint8(4)
CLASSES = np.array(
    [_STOP if chr(byte).isspace() or byte >= 0x80 else _LETTERS if chr(byte).isalpha() else _OTHER for byte in range(256)],
    np.uint8,
)

_PRIME, _GOLDEN = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0x9E3779B97F4A7C15)
_HIGH, _LOW = np.uint64(0x8080808080808080), np.uint64(0x7F7F7F7F7F7F7F7F)
_FROM_A, _AFTER_Z = np.uint64(0x3F3F3F3F3F3F3F3F), np.uint64(0x2525252525252525)


@part("uint64(uint64, uint64)")
def _first_bytes(eight: Any, n: Any) -> Any:
    """The first ``n`` bytes of eight, 1 to 8."""
    return eight & (~np.uint64(0) >> (np.uint64(64) - np.uint64(8) * n))


@part("uint64(uint64)")
def _lowered(eight: Any) -> Any:
    """Eight bytes with the ASCII letters among them in lower case."""
    low = eight & _LOW
    capital = ((low + _FROM_A) ^ (low + _AFTER_Z)) & ~eight & _HIGH
    return eight | capital >> np.uint64(2)


@part("uint64(uint64, uint64[::1], uint64[::1], uint64)")
def _marks(spelled: Any, keys: Any, marks: Any, factor: Any) -> Any:
    """What the word of these bytes counts for, one field of a byte each."""
    slot = (spelled * factor) >> np.uint64(53)
    return marks[slot] if keys[slot] == spelled else np.uint64(0)


@part(f"uint64({BYTES}, uint64, uint64)")
def _hash(text: Any, i: Any, length: Any) -> Any:
    h = length * _GOLDEN
    while length > np.uint64(8):
        h = (h ^ eight(text, i)) * _PRIME
        h ^= h >> np.uint64(32)
        i += np.uint64(8)
        length -= np.uint64(8)
    h = (h ^ _first_bytes(eight(text, i), length)) * _PRIME
    return h ^ (h >> np.uint64(32))


@part("void(uint64, uint64, int64[::1])")
def _add(marks: Any, fields: Any, counts: Any) -> None:
    for field in range(FIELDS):
        counts[VOTES + field] += np.int64((marks & fields) >> np.uint64(8 * field) & np.uint64(255))


@part(f"UniTuple(uint64, 2)({BYTES}, uint64, uint64, {KINDS}, uint64[::1], uint64[::1], uint64, uint64, int64[::1])")
def _word(text: Any, start: Any, end: Any, kinds: Any, keys: Any, marks: Any, factor: Any, whole: Any, counts: Any) -> Any:
    """Count what a word from ``start`` on holds. Gives where it ends, and its code points."""
    i, points, seen = start, np.uint64(0), np.uint32(0)
    spelled, size = np.uint64(0), np.uint64(0)  # the letters since the last that was none: their bytes in lower case, and how many
    dots = 0
    body, body_end = end, start
    while True:
        kind, code, length = SPACE, np.uint32(0), np.uint64(1)
        if i < end:
            code = np.uint32(text[i])
            if code >= np.uint32(0x80):
                code, length = decoded(text, i)
            kind = kinds[np.uint64(code)]
        if size and not kind & LETTER:
            if size <= np.uint64(8):
                _add(_marks(spelled, keys, marks, factor), ~whole, counts)
            spelled, size = np.uint64(0), np.uint64(0)
        if kind & SPACE:
            break
        points += np.uint64(1)
        seen |= kind
        if kind & LETTER:
            low = kind & LOWER
            if low < np.uint32(0x80):
                new, bytes_more = np.uint64(low), np.uint64(1)
            elif low < np.uint32(0x800):
                new = np.uint64(0xC0 | low >> np.uint32(6) | (0x80 | low & np.uint32(0x3F)) << np.uint32(8))
                bytes_more = np.uint64(2)
            else:
                new, bytes_more = np.uint64(0), np.uint64(9)  # no word that counts has any of these
            if size + bytes_more <= np.uint64(8):
                spelled |= new << (np.uint64(8) * size)
                size += bytes_more
            else:
                size = np.uint64(9)
            if code == np.uint32(0x130):  # in lower case a letter, and a dot, which is none
                if size <= np.uint64(8):
                    _add(_marks(spelled, keys, marks, factor), ~whole, counts)
                spelled, size = np.uint64(0), np.uint64(0)
        if code == np.uint32(0x2E):
            dots += 1
            if dots == 3:
                counts[DOTS] += 1
                dots = 0
        else:
            dots = 0
            counts[HASHES] += code == np.uint32(0x23)
            counts[DOTS] += code == np.uint32(0x2026)
        if not kind & EDGE:
            if body > i:
                body = i
            body_end = i + length
        i += length
    counts[ALPHAS] += seen & ALPHA != 0
    if body < body_end and body_end - body <= np.uint64(8):
        _add(_marks(_lowered(_first_bytes(eight(text, body), body_end - body)), keys, marks, factor), whole, counts)
    return i, points


@part(f"boolean({BYTES}, uint64, uint64)")
def _is_bullet(text: Any, i: Any, length: Any) -> Any:
    first = text[i]
    if first == 0x2D or first == 0x2A:
        return True
    if first != 0xE2 or length < np.uint64(3):
        return False
    second, third = text[i + np.uint64(1)], text[i + np.uint64(2)]
    return (second == 0x80 and (third == 0xA2 or third == 0xA3)) or (second == 0x97 and third == 0xA6)


@part(f"boolean({BYTES}, uint64, uint64)")
def _is_ellipsis(text: Any, i: Any, length: Any) -> Any:
    """Whether the last three bytes of a word say so; both that count have as many."""
    if length < np.uint64(3):
        return False
    at = i + length - np.uint64(3)
    first, second, third = text[at], text[at + np.uint64(1)], text[at + np.uint64(2)]
    return (first == 0x2E and second == 0x2E and third == 0x2E) or (first == 0xE2 and second == 0x80 and third == 0xA6)


@part(
    f"void({BYTES}, uint64, uint64, Array(uint8, 1, 'C'), {KINDS}, uint64[::1], uint64[::1], uint64, uint64, "
    "uint64[::1], uint64[::1], uint64[::1], uint64[::1], int64[::1])"
)
def _count(
    text: Any, start: Any, stop: Any, classes: Any, kinds: Any, keys: Any, marks: Any, factor: Any, whole: Any,
    starts: Any, lengths: Any, points_of: Any, hashes: Any, counts: Any,
) -> None:  # fmt: skip
    """Count everything of one text but its repeated n-grams, and remember its first words."""
    i, n, points, word_points = start, np.uint64(0), np.uint64(0), np.uint64(0)
    fresh, word_start, word_length = True, start, np.uint64(0)
    fields, held, alphas = np.uint64(0), 0, np.int64(0)  # marks of words that are all letters, summed up while no field can run over
    while True:
        while i < stop:
            code, length = np.uint32(text[i]), np.uint64(1)
            if code >= np.uint32(0x80):
                code, length = decoded(text, i)
            if not kinds[np.uint64(code)] & SPACE:
                break
            if code == np.uint32(10):
                counts[TRAILING] += not fresh and _is_ellipsis(text, word_start, word_length)
                fresh = True
            points += np.uint64(1)
            i += length
        if i >= stop:
            break
        word_start = i
        seen, kind = np.uint8(0), np.uint8(0)
        while i < stop:
            kind = classes[np.uint64(text[i])]
            if kind == _STOP:
                break
            seen |= kind
            i += np.uint64(1)
        word_length = i - word_start
        letters = word_length
        if seen == _LETTERS and (i == stop or text[i] < 0x80):
            if word_length <= np.uint64(8):
                fields += _marks(_lowered(_first_bytes(eight(text, word_start), word_length)), keys, marks, factor)
                held += 1
                if held == 255:
                    _add(fields, ~np.uint64(0), counts)
                    fields, held = np.uint64(0), 0
            alphas += 1
        else:
            i, letters = _word(text, word_start, stop, kinds, keys, marks, factor, whole, counts)
            word_length = i - word_start
        word_points += letters
        if n < np.uint64(AT_ONCE):
            starts[n], lengths[n], points_of[n] = word_start, word_length, letters
            hashes[n] = _hash(text, word_start, word_length)
        n += np.uint64(1)
        if fresh:
            counts[LINES] += 1
            counts[BULLETS] += _is_bullet(text, word_start, word_length)
            fresh = False
    counts[TRAILING] += not fresh and _is_ellipsis(text, word_start, word_length)
    _add(fields, ~np.uint64(0), counts)
    counts[ALPHAS] += alphas
    counts[WORDS] = np.int64(n)
    counts[WORD_POINTS] = np.int64(word_points)
    counts[POINTS] = np.int64(points + word_points)


@part(f"boolean({BYTES}, uint64, uint64, uint64)")
def _same(text: Any, a: Any, b: Any, length: Any) -> Any:
    while length > np.uint64(8):
        if eight(text, a) != eight(text, b):
            return False
        a += np.uint64(8)
        b += np.uint64(8)
        length -= np.uint64(8)
    return _first_bytes(eight(text, a), length) == _first_bytes(eight(text, b), length)


@kernel(f"int64({BYTES}, uint64[::1], uint64[::1], uint64[::1], uint64[::1], int64, int64, uint64[::1], boolean[::1], int64[::1], int64)")
def _repeated(
    text: Any, starts: Any, lengths: Any, points_of: Any, hashes: Any, n_words: Any, n: Any, grams: Any, twice: Any, table: Any, base: Any
) -> Any:
    """The code points of words in n-grams that occur twice or more, of a text whose words are all remembered.

    An entry of ``table`` is ``base`` and the index of an n-gram; entries below it are of earlier texts.
    """
    n_grams = n_words - n + 1
    bits = 6
    while (1 << bits) < 3 * n_grams:
        bits += 1
    shift, last = np.uint64(64 - bits), np.uint64((1 << bits) - 1)
    gram, top = np.uint64(0), np.uint64(1)
    for j in range(n - 1):
        gram = gram * _GOLDEN + hashes[j]
        top *= _GOLDEN
    found = False
    for j in range(n_grams):
        gram = gram * _GOLDEN + hashes[np.uint64(j + n - 1)]
        grams[np.uint64(j)] = gram
        twice[np.uint64(j)] = False
        slot = (gram * _PRIME) >> shift
        while table[slot] >= base:
            first = table[slot] - base
            if grams[np.uint64(first)] == gram:
                k = 0
                while (
                    k < n
                    and lengths[np.uint64(first + k)] == lengths[np.uint64(j + k)]
                    and _same(text, starts[np.uint64(first + k)], starts[np.uint64(j + k)], lengths[np.uint64(j + k)])
                ):
                    k += 1
                if k == n:
                    found = True
                    twice[np.uint64(first)] = True
                    twice[np.uint64(j)] = True
                    break
            slot = (slot + np.uint64(1)) & last
        if table[slot] < base:
            table[slot] = base + j
        gram -= hashes[np.uint64(j)] * top
    covered = np.int64(0)
    if found:
        until = 0
        for j in range(n_grams):
            if twice[np.uint64(j)]:
                for k in range(max(j, until), j + n):
                    covered += np.int64(points_of[np.uint64(k)])
                until = j + n
    return covered


@part(f"UniTuple(uint64, 3)({BYTES}, uint64, uint64, {KINDS})")
def _next_word(text: Any, i: Any, stop: Any, kinds: Any) -> Any:
    """Where the next word begins and ends, and its code points; both are ``stop`` behind the last."""
    start, points = stop, np.uint64(0)
    while i < stop:
        code, length = np.uint32(text[i]), np.uint64(1)
        if code >= np.uint32(0x80):
            code, length = decoded(text, i)
        if kinds[np.uint64(code)] & SPACE:
            if points:
                break
        else:
            if not points:
                start = i
            points += np.uint64(1)
        i += length
    return start, i, points


@part(f"boolean({BYTES}, uint64, uint64, uint64, int64, {KINDS})")
def _same_words(text: Any, a: Any, b: Any, stop: Any, n: Any, kinds: Any) -> Any:
    """Whether the ``n`` words from two places on are the same."""
    for _ in range(n):
        a, a_end, _points = _next_word(text, a, stop, kinds)
        b, b_end, _points = _next_word(text, b, stop, kinds)
        if a_end - a != b_end - b or not _same(text, a, b, a_end - a):
            return False
        a, b = a_end, b_end
    return True


@kernel(f"int64({BYTES}, uint64, uint64, {KINDS}, int64, int64, int64)")
def _repeated_in_large(text: Any, start: Any, stop: Any, kinds: Any, n_words: Any, n: Any, bins: Any) -> Any:
    """The same of a text of any size, read again and again: each time with the n-grams that follow those of the time before, as many as the table
    takes, held against all that follow."""
    n_grams = n_words - n + 1
    twice = np.zeros(n_grams, np.bool_)
    bits = 2
    while (1 << bits) < min(2 * n_grams, bins):
        bits += 1
    slots, most = np.uint64(1 << bits), (1 << bits) * 3 // 4
    prints, places, numbers = np.empty(slots, np.uint32), np.empty(slots, np.uint64), np.empty(slots, np.int64)
    ring_hash, ring_start = np.empty(n, np.uint64), np.empty(n, np.uint64)
    top = np.uint64(1)
    for _ in range(n - 1):
        top *= _GOLDEN
    from_word, from_place = 0, start
    while from_word < n_grams:
        numbers[:] = -1
        used, gram, i = 0, np.uint64(0), from_place
        next_word, next_place = n_grams, stop
        for word in range(from_word, n_words):
            begin, i, _points = _next_word(text, i, stop, kinds)
            at = word % n
            if word - from_word >= n:
                gram -= ring_hash[at] * top
            h = _hash(text, begin, i - begin)
            ring_hash[at], ring_start[at] = h, begin
            gram = gram * _GOLDEN + h
            j = word - n + 1
            if j < from_word or twice[np.uint64(j)]:  # the equals of the latter were all told when it was
                continue
            place = ring_start[(word + 1) % n]
            mixed = gram * _PRIME
            slot, short = mixed >> np.uint64(64 - bits), np.uint32(mixed & np.uint64(0xFFFFFFFF))
            while numbers[slot] >= 0 and not (prints[slot] == short and _same_words(text, places[slot], place, stop, n, kinds)):
                slot = (slot + np.uint64(1)) & (slots - np.uint64(1))
            if numbers[slot] >= 0:
                twice[np.uint64(numbers[slot])] = True
                twice[np.uint64(j)] = True
            elif used < most:
                prints[slot], places[slot], numbers[slot] = short, place, j
                used += 1
            elif next_word == n_grams:
                next_word, next_place = j, place
        from_word, from_place = next_word, next_place
    covered, until, i = np.int64(0), 0, start
    for word in range(n_words):
        _begin, i, points = _next_word(text, i, stop, kinds)
        if word < n_grams and twice[word]:
            until = word + n
        if word < until:
            covered += np.int64(points)
    return covered


@kernel(f"void({BYTES}, {PLACES}, Array(uint8, 1, 'C'), {KINDS}, uint64[::1], uint64[::1], uint64, uint64, int64, int64[:,::1])")
def counted(text: Any, offsets: Any, classes: Any, kinds: Any, keys: Any, marks: Any, factor: Any, whole: Any, n: Any, out: Any) -> None:
    """Count each text ``text[offsets[i]:offsets[i + 1]]`` into row ``i`` of ``out``, which is zero. Eight bytes behind the last are read.

    ``keys`` and ``marks`` are the words that count for something, by :func:`_marks`; ``whole`` says which fields count whole words less their edges,
    and not runs of letters. ``n`` is that of the n-grams.
    """
    longest = 0
    for i in range(len(offsets) - 1):
        longest = max(longest, offsets[i + 1] - offsets[i])
    room = min(longest // 2 + 1, AT_ONCE)
    starts, lengths, points_of = np.empty(room, np.uint64), np.empty(room, np.uint64), np.empty(room, np.uint64)
    hashes, grams, twice = np.empty(room, np.uint64), np.empty(room, np.uint64), np.empty(room, np.bool_)
    bits = 6
    while (1 << bits) < 3 * room:
        bits += 1
    table, base = np.full(1 << bits, -1, np.int64), 0
    for i in range(len(offsets) - 1):
        start, stop, counts = np.uint64(offsets[i]), np.uint64(offsets[i + 1]), out[i]
        _count(text, start, stop, classes, kinds, keys, marks, factor, whole, starts, lengths, points_of, hashes, counts)
        n_words = counts[WORDS]
        if n_words > AT_ONCE and n_words > n:
            counts[REPEATED] = _repeated_in_large(text, start, stop, kinds, n_words, n, BINS)
        elif n_words > n:
            counts[REPEATED] = _repeated(text, starts, lengths, points_of, hashes, n_words, n, grams, twice, table, base)
            base += n_words
