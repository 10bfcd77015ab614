"""Which documents hold words of a protected evaluation text."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from corpusbuild.errors import ConfigError

UNPROTECTED_KEYS = frozenset({"case_id", "id", "tags", "scorer_args"})
"""What stands under these keys of a protected JSON object names a case and is no text of it."""

_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Index:
    """The n-grams of some protected texts: ``n`` words of ``\\w+`` of the lower-cased text, joined by one space.

    ``digests`` holds 16 bytes for each (BLAKE2b of its UTF-8). ``anchors`` has of each its longest word, the first of equals, and which word of
    the n-gram it is: where no anchor stands in its place, no protected n-gram begins, and nothing need be hashed to know it.
    """

    n: int
    digests: frozenset[bytes]
    anchors: dict[str, tuple[int, ...]]

    def hits(self, text: str) -> int:
        """At how many words of ``text`` a protected n-gram begins.

        >>> build_index(["One two three four."], 3).hits("zero one, two (three) four")
        2
        """
        words = _words(text)
        starts = {at - k for at, word in enumerate(words) for k in self.anchors.get(word, ())}
        return sum(_digest(words[i : i + self.n]) in self.digests for i in starts if 0 <= i <= len(words) - self.n)


def build_index(texts: Iterable[str], n: int) -> Index:
    """The index of all n-grams of ``texts``. A text of fewer than ``n`` words has none. ``ValueError`` for ``n`` below 1."""
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}")
    digests = set()
    anchors: dict[str, set[int]] = {}
    for text in texts:
        words = _words(text)
        for i in range(len(words) - n + 1):
            gram = words[i : i + n]
            digests.add(_digest(gram))
            anchor = max(gram, key=len)
            anchors.setdefault(anchor, set()).add(gram.index(anchor))
    return Index(n, frozenset(digests), {word: tuple(sorted(places)) for word, places in anchors.items()})


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


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _digest(words: list[str]) -> bytes:
    return hashlib.blake2b(" ".join(words).encode(), digest_size=16).digest()
