"""Which documents hold words of a protected evaluation text."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from corpusbuild import kernels, minhash
from corpusbuild.errors import ConfigError
from corpusbuild.texts import Texts, texts_of

UNPROTECTED_KEYS = frozenset({"case_id", "id", "tags", "scorer_args"})
"""What stands under these keys of a protected JSON object names a case and is no text of it."""

Digests = NDArray[np.uint64]
_WORD = re.compile(r"\w+")
BLOCK = 1 << 20  # words of a text looked at together


@dataclass(frozen=True, eq=False)
class Index:
    """The n-grams of some protected texts: ``n`` words of ``\\w+`` of the lower-cased text, joined by one space.

    ``digests`` has a row for each, ascending: its BLAKE2b of 16 bytes as two numbers. ``anchors`` has of each its longest word, the first of
    equals, and which word of the n-gram it is: where no anchor stands in its place, no protected n-gram begins, and nothing need be hashed to
    know it. A million n-grams take 16 MB, and what their words take. ``table`` has hashes of all of them for the compiled pass, if it was to be used.
    """

    n: int
    digests: Digests
    anchors: dict[str, tuple[int, ...]]
    table: NDArray[np.uint64]

    def hits(self, text: str) -> int:
        """At how many words of ``text`` a protected n-gram begins.

        >>> build_index(["One two three four."], 3).hits("zero one, two (three) four")
        2
        """
        return sum(map(self._hits, _blocks(text, self.n)))

    def hits_of(self, texts: Texts) -> NDArray[np.int64]:
        """:meth:`hits` of each text."""
        which: NDArray[np.int64] = np.arange(len(texts.offsets) - 1)
        if kernels.compiled():
            which = np.flatnonzero(_may_hold(texts, self.n, self.table, learn=False))
        hits = np.zeros(len(texts.offsets) - 1, np.int64)
        for row in which.tolist():
            (text,) = Texts(texts.data, texts.offsets[row : row + 2]).strings()
            hits[row] = self.hits(text)
        return hits

    def _hits(self, words: list[str]) -> int:
        starts = {at - k for at, word in enumerate(words) for k in self.anchors.get(word, ())}
        return self._known(b"".join([_digest(words[i : i + self.n]) for i in starts if 0 <= i <= len(words) - self.n]))

    def _known(self, digests: bytes) -> int:
        """How many of some digests, one after the other, are protected."""
        asked = _numbers(digests)
        first = np.searchsorted(self.digests[:, 0], asked[:, 0])
        last = np.searchsorted(self.digests[:, 0], asked[:, 0], side="right")
        # of two n-grams that share the first number, of which nobody will see a pair, each is compared
        return sum(bool((self.digests[a:b, 1] == second).any()) for a, b, second in zip(first, last, asked[:, 1], strict=True) if a < b)


def build_index(texts: Iterable[str], n: int) -> Index:
    """The index of all n-grams of ``texts``. A text of fewer than ``n`` words has none. ``ValueError`` for ``n`` below 1."""
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}")
    digests = bytearray()
    places: dict[str, int] = {}  # of a word its places, a bit each
    normal = []
    for text in texts:
        words = _words(text)
        normal.append(" ".join(words))
        for i in range(len(words) - n + 1):
            gram = words[i : i + n]
            digests += _digest(gram)
            anchor = max(gram, key=len)
            places[anchor] = places.get(anchor, 0) | 1 << gram.index(anchor)
    listed = {bits: tuple(k for k in range(n) if bits >> k & 1) for bits in set(places.values())}
    distinct = _distinct(_numbers(digests))
    table = np.zeros(1 << (2 * len(distinct)).bit_length(), np.uint64)
    if kernels.compiled():
        for column in texts_of(pa.chunked_array([pa.array(normal, pa.large_string())])):
            _may_hold(column, n, table, learn=True)
    return Index(n, distinct, {word: listed[bits] for word, bits in places.items()}, table)


def protected_texts(name: str, data: bytes) -> Iterator[str]:
    """The texts of the protected file ``name``, in order.

    Of ``.jsonl`` every string in every line, however deep, but for what stands under ``UNPROTECTED_KEYS`` (and keys themselves); of another
    file all of it, as UTF-8. ``ConfigError`` names the file, and the line that is not JSON.

    >>> list(protected_texts("cases.jsonl", b'{"id": "a", "turns": [{"text": "Hi."}, "Ho."]}'))
    ['Hi.', 'Ho.']
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    if not name.endswith(".jsonl"):
        try:
            yield data.decode()
        except UnicodeDecodeError as e:
            raise ConfigError(f"{name}: byte {e.start} is not UTF-8; a protected file is UTF-8 text, or JSON Lines named .jsonl") from None
        return
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            line.decode()
            value = msgspec.json.decode(line)
        except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError) as e:
            raise ConfigError(f"{name}: line {number} is not JSON ({e}); put it right, or name the file otherwise than .jsonl") from None
        yield from _strings(value)


def _strings(value: Any) -> Iterator[str]:
    pending = [value]  # a stack, for a value may be nested deeper than calls can be
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            pending.extend(reversed(value))
        elif isinstance(value, dict):
            pending.extend(value[key] for key in reversed(value) if key not in UNPROTECTED_KEYS)


def _numbers(digests: bytes | bytearray) -> Digests:
    return np.frombuffer(digests, ">u8").astype(np.uint64).reshape(-1, 2)


def _distinct(rows: Digests) -> Digests:
    """The rows in ascending order, each once."""
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    first = np.concatenate([[True], (rows[1:] != rows[:-1]).any(axis=1)])[: len(rows)]
    out: Digests = rows[first]
    return out


def _may_hold(texts: Texts, n: int, table: NDArray[np.uint64], learn: bool) -> NDArray[np.bool_]:
    from corpusbuild.kernels import contamination as kernel

    out = np.zeros(len(texts.offsets) - 1, np.bool_)
    kernel.grams(texts.data, texts.offsets, _letters(), n, learn, table, out)
    return out


@cache
def _letters() -> NDArray[np.uint32]:
    """Of each code point its lower case, 0 where that is no part of a word. Both lower cases of the sigma are one, for which it is depends on where it stands."""
    letters = minhash.letters().copy()
    letters[ord("ς")], letters[ord("İ")] = ord("σ"), ord("i")
    return letters


def _blocks(text: str, n: int) -> Iterator[list[str]]:
    """The words of a text, some at a time, in lists that have n - 1 words in common with the one before."""
    if len(text) <= BLOCK:
        yield _words(text)
        return
    words = (match[0] for match in _WORD.finditer(text.lower()))
    block: list[str] = []
    while more := list(islice(words, BLOCK)):
        block = block[max(len(block) - n + 1, 0) :] + more
        yield block


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _digest(words: list[str]) -> bytes:
    return hashlib.blake2b(" ".join(words).encode(), digest_size=16).digest()
