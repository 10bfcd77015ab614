"""The arrays say what Python says, for every code point."""

import re
import unicodedata

import numpy as np

from corpusbuild.codepoints import ALPHA, CODE_POINTS, EDGE, LETTER, LOWER, SPACE, TURNS, kinds, order

EVERY = list(map(chr, range(CODE_POINTS)))


def told(bit):
    return np.flatnonzero(kinds("'x") & bit).tolist()


def test_white_space_and_letters():
    assert told(SPACE) == [code for code, char in enumerate(EVERY) if char.isspace()]
    assert told(ALPHA) == [code for code, char in enumerate(EVERY) if char.isalpha()]
    assert told(EDGE) == [ord("'"), ord("x")]
    letter = re.compile(r"[^\W\d_]")
    assert told(LETTER) == [code for code, char in enumerate(EVERY) if letter.match(char.lower())]


def test_lower_case():
    several = [code for code, char in enumerate(EVERY) if len(char.lower()) != 1]
    assert several == [0x130]
    lower = (kinds("'x") & LOWER).tolist()
    assert [code for code, char in enumerate(EVERY) if code != 0x130 and lower[code] != ord(char.lower())] == []
    assert lower[0x130] == ord("i")


def test_order_is_the_combining_class_where_nothing_turns():
    steady = order() != TURNS
    assert [code for code in np.flatnonzero(steady).tolist() if order()[code] != unicodedata.combining(EVERY[code])] == []
    assert [code for code in np.flatnonzero(steady).tolist() if unicodedata.normalize("NFC", EVERY[code]) != EVERY[code]] == []


def test_what_joins_the_code_point_before_turns():
    pairs = [char for char in EVERY if len(unicodedata.decomposition(char).split()) == 2 and unicodedata.decomposition(char)[0] != "<"]
    seconds = {ord(unicodedata.normalize("NFD", char)[-1]) for char in pairs if unicodedata.normalize("NFC", char) == char}
    hangul = {ord(part) for char in map(chr, range(0xAC00, 0xD7A4)) for part in unicodedata.normalize("NFD", char)[1:]}
    assert all(order()[code] == TURNS for code in seconds | hangul)
    assert np.count_nonzero(order() == TURNS) < 1500
