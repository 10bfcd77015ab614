"""Long texts in parts that are encoded one by one to the same ids, so that what a library holds does not grow with a document.

A part ends between a letter and a space that a letter follows. Every known pattern cuts words there, whatever stands around, and pairs are only merged
within a word; so for tokenizers that cut by such a pattern and do nothing before, the ids of the parts are the ids of the text.
"""

import re

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from corpusbuild.tokenizer import Encoded, text_bytes

BORDER = re.compile(rb"[A-Za-z](?= [A-Za-z])")


def cut(texts: pa.Array, size: int) -> tuple[pa.Array, NDArray[np.int64]]:
    """The texts, those of more than ``size`` bytes in parts of a little more than that, and where each text begins among the parts.

    >>> parts, first = cut(pa.array(["one two three", "four"], pa.large_string()), 4)
    >>> parts.to_pylist(), first.tolist()
    (['one two', ' three', 'four'], [0, 2, 3])
    """
    data, offsets = text_bytes(texts)
    long = np.flatnonzero(np.diff(offsets) > size)
    if not len(long):
        return texts, np.arange(len(texts) + 1)
    borders = [np.array(_borders(data, int(offsets[i]), int(offsets[i + 1]), size), np.int64) for i in long]
    counts = np.ones(len(texts), np.int64)
    counts[long] += [len(found) for found in borders]
    ends = np.sort(np.concatenate([offsets, *borders]), kind="stable")
    parts = pa.LargeStringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends), pa.py_buffer(data))
    return parts, np.concatenate([[0], np.cumsum(counts)])


def together(encoded: Encoded, first: NDArray[np.int64]) -> Encoded:
    """The ids of parts as the ids of the texts."""
    ids, offsets = encoded
    return ids, offsets[first]


def _borders(data: NDArray[np.uint8], start: int, end: int, size: int) -> list[int]:
    out = []
    while start + size < end and (found := BORDER.search(data.data, start + size - 1, end)) is not None:
        start = found.end()
        out.append(start)
    return out
