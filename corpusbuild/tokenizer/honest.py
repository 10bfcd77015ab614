"""Whether ids are what they say: checks of every table of texts and its ids, whatever the tokenizer."""

import re
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from corpusbuild.tokenizer import MOST_IDS, Encoded, Tokenizer, text_bytes

BLOCK = 1 << 18  # ids

DECODED_DOCUMENTS = 8
DECODED_BYTES = 64_000
"""Of every table, so many documents of at most so much text together are decoded again."""


def misspelled(tokenizer: Tokenizer, texts: pa.Array, encoded: Encoded) -> int | None:
    """The first text of which the ids stand for another number of bytes than it has; None where every number is right or none is known."""
    if tokenizer.spelled is None:
        return None
    ids, offsets = encoded
    found = np.zeros(len(texts), np.int64)
    for start in range(0, len(ids), BLOCK):  # what is looked up stays in the processor's cache
        first = int(np.searchsorted(offsets, start, "right")) - 1
        here = offsets[first : int(np.searchsorted(offsets, start + BLOCK)) + 1].clip(start, start + BLOCK) - start
        found[first : first + len(here) - 1] += sums(tokenizer.spelled.take(ids[start : start + BLOCK]), here)
    wrong = np.flatnonzero(found != np.diff(text_bytes(texts)[1]))
    return int(wrong[0]) if len(wrong) else None


def sums(values: NDArray[np.unsignedinteger[Any]], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of the values between two offsets each.

    >>> sums(np.array([1, 2, 3], np.uint32), np.array([0, 2, 2, 3])).tolist()
    [3, 0, 3]
    """
    out = np.zeros(len(offsets) - 1, np.int64)
    filled = np.flatnonzero(np.diff(offsets))
    if len(filled):
        out[filled] = np.add.reduceat(values, offsets[filled], dtype=np.int64)
    return out


def decoded(tokenizer: Tokenizer, texts: pa.Array, encoded: Encoded) -> list[tuple[int, bool]]:
    """A few texts spread evenly, and of each whether its ids decode to it."""
    ids, offsets = encoded
    spread = np.unique(np.linspace(0, max(0, len(texts) - 1), min(len(texts), DECODED_DOCUMENTS)).astype(np.int64))
    fits = np.cumsum(np.diff(text_bytes(texts)[1])[spread]) <= DECODED_BYTES
    return [(int(i), tokenizer.decode(ids[offsets[i] : offsets[i + 1]]) == texts[int(i)].as_py()) for i in spread[fits]]


def too_long(sizes: NDArray[np.int64]) -> int | None:
    """The first document that no token file can hold, of documents with so many ids."""
    wrong = np.flatnonzero(sizes > MOST_IDS)
    return int(wrong[0]) if len(wrong) else None


def holding(texts: pa.Array, tokens: tuple[str, ...]) -> pa.Array:
    """Of each text, whether a control token is written in it.

    >>> holding(pa.array(["a<s>", "s", ""], pa.large_string()), ("<s>", "</s>")).to_pylist()
    [True, False, False]
    """
    import pyarrow.compute as pc  # here, for it costs 30 ms that planning need not spend

    if not tokens:
        return pa.array(np.zeros(len(texts), np.bool_))
    return pc.match_substring_regex(texts, "|".join(re.escape(token) for token in sorted(tokens)))
