"""Tokenizers: a door to bytes and to Hugging Face ``tokenizer.json`` files. Special tokens that stand in a text are text, never control ids."""

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from corpusbuild.errors import ConfigError, IntegrityError

BYTES_SHA256 = hashlib.sha256(b"").hexdigest()
"""What stands for the byte tokenizer's file, which does not exist."""

Ids = NDArray[Any]
"""Of an unsigned integer type."""
Encoded = tuple[Ids, NDArray[np.int64]]
"""The ids of all texts, one text after another, and n + 1 offsets: text ``i`` has ``ids[offsets[i]:offsets[i + 1]]``."""


class Tokenizer(Protocol):
    vocab_size: int
    """One more than the largest id."""

    def encode(self, texts: pa.Array) -> Encoded:
        """The ids of each text of a ``large_string`` array without nulls, in its order and without separators."""
        ...


class Bytes:
    """A token is a byte of UTF-8; the id is its value."""

    vocab_size = 256

    def encode(self, texts: pa.Array) -> Encoded:
        return text_bytes(texts)


def text_bytes(texts: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The UTF-8 of a ``large_string`` array and where each text begins in it, without a copy."""
    if not len(texts):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, places, data = texts.buffers()
    offsets = np.frombuffer(places, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    held = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return held[offsets[0] : offsets[-1]], offsets - offsets[0]


class HuggingFace:
    """Any ``tokenizer.json``, through the ``tokenizers`` library."""

    def __init__(self, path: Path):
        try:
            from tokenizers import Tokenizer as Library
        except ImportError:
            raise ConfigError("tokenizer.path needs the tokenizers library: pip install 'corpusbuild[hf]'") from None
        try:
            self._library = Library.from_str(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(f"tokenizer.path: {path} does not exist") from None
        except Exception as error:  # noqa: BLE001 - the library raises bare Exception for a file that it cannot read
            raise ConfigError(f"tokenizer.path: {path} is not a tokenizer.json ({error})") from None
        self._library.encode_special_tokens = True
        self._library.no_truncation()
        self._library.no_padding()
        vocab = self._library.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocab.values(), default=-1) + 1

    def encode(self, texts: pa.Array) -> Encoded:
        found = [np.array(e.ids, np.uint32) for e in self._library.encode_batch_fast(texts.to_pylist(), add_special_tokens=False)]
        return np.concatenate([np.empty(0, np.uint32), *found]), np.cumsum([0, *map(len, found)], dtype=np.int64)


@lru_cache(maxsize=2)
def open_tokenizer(path: str | None, sha256: str) -> Tokenizer:
    """The tokenizer at ``path``, or the byte tokenizer. ``IntegrityError`` when the file is not the one that was planned with."""
    if path is None:
        return Bytes()
    if hashlib.sha256(Path(path).read_bytes()).hexdigest() != sha256:
        raise IntegrityError(f"{path} changed while the build ran: run again")
    return HuggingFace(Path(path))


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
