"""Tokenizers: a door to bytes, tokenizer.json, rank files and SentencePiece. Special tokens that stand in a text are text, never control ids."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from corpusbuild.errors import ConfigError, IntegrityError
from corpusbuild.model import Record

BYTES_SHA256 = hashlib.sha256(b"").hexdigest()
"""What stands for the byte tokenizer's file, which does not exist."""

SLICE_BYTES = 4_000_000
"""About so much text is handed to a library at once: what it holds beside the ids does not grow with the table."""

MOST_IDS = 2**31 - 1
"""What a header of the token files, an int32, holds: of ids in a file, and of the size of a vocabulary."""

Kind = Literal["bytes", "huggingface", "tiktoken", "sentencepiece"]

Ids = NDArray[Any]
"""Of an unsigned integer type."""
Encoded = tuple[Ids, NDArray[np.int64]]
"""The ids of all texts, one text after another, and n + 1 offsets: text ``i`` has ``ids[offsets[i]:offsets[i + 1]]``."""


class Spec(Record):
    """Which tokenizer. All of it but ``path`` decides the ids."""

    kind: Kind = "bytes"
    sha256: str = BYTES_SHA256
    """Of the tokenizer's file."""
    pattern: str | None = None
    """tiktoken: the name of a known pattern that cuts text into words, or the pattern itself."""
    special_tokens: tuple[tuple[str, int], ...] = ()
    """tiktoken: control tokens and their ids, which its file does not hold."""
    path: str | None = None


class Tokenizer(Protocol):
    vocab_size: int
    """One more than the largest id."""

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """How control tokens are written; in a text they are text."""

    @property
    def unknown(self) -> int | None:
        """The id that stands for what the vocabulary lacks."""

    @property
    def losses(self) -> tuple[str, ...]:
        """What may keep a decoded text from being the text that was encoded; empty where nothing may."""

    @property
    def cuttable(self) -> bool:
        """Whether long texts can be encoded in parts (see ``cutting``)."""

    @property
    def spelled(self) -> NDArray[np.unsignedinteger[Any]] | None:
        """How many bytes of text each id stands for, where every text is exactly what its ids spell."""

    def encode(self, texts: pa.Array) -> Encoded:
        """The ids of each text of a ``large_string`` array without nulls, in its order and without separators."""
        ...

    def decode(self, ids: Ids) -> str: ...


class Bytes:
    """A token is a byte of UTF-8; the id is its value."""

    vocab_size = 256
    special_tokens: tuple[str, ...] = ()
    unknown: int | None = None
    losses: tuple[str, ...] = ()
    cuttable = False
    spelled: NDArray[np.unsignedinteger[Any]] | None = None  # there is nothing between the text and the ids

    def encode(self, texts: pa.Array) -> Encoded:
        return text_bytes(texts)

    def decode(self, ids: Ids) -> str:
        return ids.astype(np.uint8).tobytes().decode()


def text_bytes(texts: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The UTF-8 of a ``large_string`` array and where each text begins in it, without a copy."""
    if not len(texts):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, places, data = texts.buffers()
    offsets = np.frombuffer(places, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    held = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return held[offsets[0] : offsets[-1]], offsets - offsets[0]


def slices(texts: pa.Array, size: int = SLICE_BYTES) -> Iterator[pa.Array]:
    """The array in consecutive slices of at most ``size`` bytes of text; a longer text alone.

    >>> [len(s) for s in slices(pa.array(["aa", "b", "", "ccccc", "d"], pa.large_string()), 3)]
    [3, 1, 1]
    """
    _, offsets = text_bytes(texts)
    at = 0
    while at < len(texts):
        end = max(at + 1, int(np.searchsorted(offsets, offsets[at] + size, side="right")) - 1)
        yield texts.slice(at, end - at)
        at = end


def joined(found: Sequence[Encoded]) -> Encoded:
    """What was encoded in slices, as if it had been at once."""
    first = np.cumsum([0, *(len(ids) for ids, _ in found)])
    offsets = [offsets[:-1] + at for (_, offsets), at in zip(found, first[:-1], strict=True)]
    held = np.concatenate([ids for ids, _ in found]) if found else np.empty(0, np.uint16)
    return held, np.concatenate([*offsets, first[-1:]]).astype(np.int64)


def each(found: Sequence[Ids]) -> Encoded:
    """Texts that were encoded one by one."""
    offsets = np.cumsum([0, *map(len, found)], dtype=np.int64)
    return np.concatenate(found) if len(found) else np.empty(0, np.uint16), offsets


def narrow(vocab_size: int) -> np.dtype[Any]:
    """The type of ids below ``vocab_size``."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)


def smallest(sizes: NDArray[np.int64]) -> NDArray[np.unsignedinteger[Any]]:
    """The same numbers in as few bytes as hold them, for looking up is twice as quick then.

    >>> smallest(np.array([0, 255])).dtype, smallest(np.array([256])).dtype
    (dtype('uint8'), dtype('uint16'))
    """
    return sizes.astype(np.min_scalar_type(int(sizes.max(initial=0))))


def kind_of(data: bytes) -> Kind | None:
    """What a tokenizer's file is, by what stands in it; None when it is none that is known.

    >>> kind_of(b'{"model": 1}'), kind_of(b"IQ== 0\\nIg== 1\\n"), kind_of(b"\\n\\x0e\\n\\x05<unk>\\x15"), kind_of(b"no json")
    ('huggingface', 'tiktoken', 'sentencepiece', None)
    """
    if data.lstrip()[:1] == b"{":
        return "huggingface"
    if is_rank_line(data.split(b"\n", 1)[0]):
        return "tiktoken"
    return "sentencepiece" if data[:1] == b"\n" and b"<unk>" in data[:100_000] else None


def is_rank_line(line: bytes) -> bool:
    from corpusbuild.tokenizer.ranks import RANK_LINE

    return RANK_LINE.fullmatch(line.rstrip(b"\r")) is not None


@lru_cache(maxsize=2)
def open_tokenizer(spec: Spec) -> Tokenizer:
    """The tokenizer, through its own library. ``IntegrityError`` when its file is not the one that was planned with, ``ConfigError`` when it is none."""
    if spec.path is None:
        return Bytes()
    data = Path(spec.path).read_bytes()
    if hashlib.sha256(data).hexdigest() != spec.sha256:
        raise IntegrityError(f"{spec.path} changed while the build ran: run again")
    opened = _open(spec, spec.path, data)
    if not 1 <= opened.vocab_size <= MOST_IDS:
        raise ConfigError(
            f"tokenizer.path: {spec.path} has a vocabulary of {opened.vocab_size:,}, and the header of a token file holds 1 to {MOST_IDS:,}: "
            "give its tokens smaller ids"
        )
    return opened


def _open(spec: Spec, path: str, data: bytes) -> Tokenizer:
    if spec.kind == "tiktoken":
        from corpusbuild.tokenizer.ranks import Ranks

        return Ranks(path, data, spec.pattern, dict(spec.special_tokens))
    if spec.kind == "sentencepiece":
        from corpusbuild.tokenizer.pieces import Pieces

        return Pieces(path, data)
    from corpusbuild.tokenizer.huggingface import HuggingFace

    return HuggingFace(path, data)


@lru_cache(maxsize=2)
def open_quickest(spec: Spec) -> Tokenizer:
    """The same through a faster library (``fast.Fast``), where one is installed that knows the tokenizer and gave the same ids for hostile texts."""
    from corpusbuild.tokenizer.fast import open_fast

    plain = open_tokenizer(spec)
    return (open_fast(plain, spec) if spec.path is not None else None) or plain


def separator_beside(path: Path) -> int | None:
    """The end-of-text id that a ``generation_config.json`` beside the tokenizer names, if there is one."""
    config = path.with_name("generation_config.json")
    if not config.exists():
        return None
    try:
        id = json.loads(config.read_text(encoding="utf-8")).get("eos_token_id")
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"{config}: not a JSON object ({error}); mend it or move it away") from None
    return id if isinstance(id, int) and not isinstance(id, bool) else None
