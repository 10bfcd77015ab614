"""What Python says of every code point, as arrays for loops over UTF-8."""

import re
import sys
import unicodedata
from functools import cache

import numpy as np
from numpy.typing import NDArray

CODE_POINTS = sys.maxunicode + 1
ASSIGNED = 0x40000
"""Above these planes there are only code points for private use and those that choose a variant, of which Python says nothing."""

BLOCK = 256
"""Code points looked at together, to skip those of whose kind nothing decomposes."""

SPACE, ALPHA, LETTER, EDGE = (np.uint32(1 << bit) for bit in (24, 25, 26, 27))
LOWER = np.uint32(0x1FFFFF)

TURNS = np.uint8(255)
"""What ``order`` says of a code point that composition may change, or join to the one before."""

_HANGUL_JOINED = [*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)]


@cache
def kinds(edges: str) -> NDArray[np.uint32]:
    """For each code point its lower case (``& LOWER``), whether ``str.split`` splits at it (``SPACE``) or it ``isalpha`` (``ALPHA``), whether its
    lower case is a letter to ``[^\\W\\d_]`` (``LETTER``), and whether it is among ``edges`` (``EDGE``).

    Sigma becomes the one that stands within a word. Capital I with dot becomes ``i``; the dot that should follow is left out.
    """
    text = _every()
    found = np.arange(CODE_POINTS, dtype=np.uint32)
    # alone in becoming two, and in asking what stands beside it
    lowered = text.replace("\u0130", "i").replace("\u03a3", "\u03c3").lower()
    found[:ASSIGNED] = np.frombuffer(lowered.encode("utf-32-le", "surrogatepass"), np.uint32)
    letters = np.zeros(CODE_POINTS, bool)
    for start, end in _runs(r"[^\W\d_]+"):
        letters[start:end] = True
        found[start:end] |= np.where(list(map(str.isalpha, text[start:end])), ALPHA, np.uint32(0))
    found |= np.where(letters[found & LOWER], LETTER, np.uint32(0))
    for start, end in _runs(r"\s+"):
        found[start:end] |= SPACE
    for edge in edges:
        found[ord(edge)] |= EDGE
    found.flags.writeable = False
    return found


@cache
def order() -> NDArray[np.uint8]:
    """For each code point ``TURNS``, or its canonical combining class. Text without a ``TURNS``, in which no class but 0 is below the class of the code
    point before, is in NFC."""
    text = _every()
    found = np.zeros(CODE_POINTS, np.uint8)
    for start, end in _runs(r"[^\w\s]+"):
        found[start:end] = list(map(unicodedata.combining, text[start:end]))
    # what decomposes and is not the second of a pair that composes stays as it is, where NFC says so
    for start in range(0, ASSIGNED, BLOCK):
        if unicodedata.is_normalized("NFD", text[start : start + BLOCK]):  # most: nothing in it decomposes
            continue
        parts = list(map(unicodedata.decomposition, text[start : start + BLOCK]))
        for at in (start + i for i, part in enumerate(parts) if part and part[0] != "<"):
            if unicodedata.normalize("NFC", text[at]) != text[at]:
                found[at] = TURNS
            else:
                for second in parts[at - start].split()[1:]:
                    found[int(second, 16)] = TURNS
    found[_HANGUL_JOINED] = TURNS
    found.flags.writeable = False
    return found


@cache
def _every() -> str:
    return np.arange(ASSIGNED, dtype=np.uint32).tobytes().decode("utf-32-le", "surrogatepass")


def _runs(pattern: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(pattern, _every())]
