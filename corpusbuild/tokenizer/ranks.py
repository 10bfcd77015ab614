"""Rank files of tiktoken: a token in base64 and its rank a line. The pattern that cuts words and the control tokens come from the configuration."""

import base64
import re
from typing import Any

import numpy as np
import pyarrow as pa

from corpusbuild.errors import ConfigError
from corpusbuild.tokenizer import SLICE_BYTES, Encoded, Ids, each, narrow, slices, smallest
from corpusbuild.tokenizer.cutting import cut, together

RANK_LINE = re.compile(rb"([A-Za-z0-9+/]+={0,2}) (\d+)")

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_CL100K = rf"{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDING}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDING}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
END_OF_TEXT = "<|endoftext|>"
_FILL = {f"<|fim_{part}|>": 100258 + i for i, part in enumerate(("prefix", "middle", "suffix"))}

KNOWN: dict[str, tuple[str, dict[str, int]]] = {
    "gpt2": (_GPT2, {END_OF_TEXT: 50256}),
    "r50k_base": (_GPT2, {END_OF_TEXT: 50256}),
    "p50k_base": (_GPT2, {END_OF_TEXT: 50256}),
    "cl100k_base": (_CL100K, {END_OF_TEXT: 100257, **_FILL, "<|endofprompt|>": 100276}),
    "o200k_base": (_O200K, {END_OF_TEXT: 199999, "<|endofprompt|>": 200018}),
}
"""Published encodings: the pattern, and the control tokens where the configuration names none."""
PATTERNS = frozenset(pattern for pattern, _ in KNOWN.values())


class Ranks:
    unknown: int | None = None
    losses: tuple[str, ...] = ()

    def __init__(self, path: str, data: bytes, pattern: str | None, special_tokens: dict[str, int]):
        try:
            import tiktoken
        except ImportError:
            raise ConfigError("tokenizer: a rank file needs the tiktoken library: pip install 'corpusbuild[tiktoken]'") from None
        ranks = read_ranks(path, data)
        self.pattern = pattern_of(pattern)
        special = special_tokens_of(pattern, special_tokens)
        if clash := sorted(set(special.values()) & set(ranks.values())):
            raise ConfigError(f"tokenizer.special_tokens: {clash[0]} is the rank of a token of {path}")
        self.vocab_size = max([*ranks.values(), *special.values()]) + 1
        self.special_tokens = tuple(special)
        self.cuttable = self.pattern in PATTERNS
        self._dtype = narrow(self.vocab_size)
        sizes = np.zeros(self.vocab_size, np.int64)
        for token, rank in ranks.items():
            sizes[rank] = len(token)
        self.spelled = smallest(sizes)
        try:
            self._encoding: Any = tiktoken.Encoding(path, pat_str=self.pattern, mergeable_ranks=ranks, special_tokens=special)
        except ValueError as error:
            raise ConfigError(f"tokenizer.pattern: {error}") from None

    def encode(self, texts: pa.Array) -> Encoded:
        parts, first = cut(texts, SLICE_BYTES) if self.cuttable else (texts, np.arange(len(texts) + 1))
        return together(each([self._encode(text) for one in slices(parts) for text in one.to_pylist()]), first)

    def _encode(self, text: str) -> Ids:
        found: Ids = self._encoding.encode_to_numpy(text, allowed_special=frozenset(), disallowed_special=())
        return found.astype(self._dtype)

    def decode(self, ids: Ids) -> str:
        return str(self._encoding.decode_bytes(ids.tolist()).decode())


def read_ranks(path: str, data: bytes) -> dict[bytes, int]:
    """Token -> rank. ``ConfigError`` for a line that is none, for a token or a rank that stands twice, and for a byte that is missing."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        found = RANK_LINE.fullmatch(line)
        if found is None or len(found[1]) % 4:
            raise ConfigError(f"tokenizer.path: {path}:{number} is not a token in base64 and a rank")
        token = base64.b64decode(found[1])
        if token in ranks:
            raise ConfigError(f"tokenizer.path: {path}:{number} gives {token!r} a second rank")
        ranks[token] = int(found[2])
    if len(set(ranks.values())) < len(ranks):
        raise ConfigError(f"tokenizer.path: {path} gives one rank to two tokens")
    if missing := [byte for byte in range(256) if bytes([byte]) not in ranks]:
        raise ConfigError(f"tokenizer.path: {path} has no rank for the byte {missing[0]:#04x}, so not every text can be encoded")
    return ranks


def pattern_of(name: str | None) -> str:
    return KNOWN[name][0] if name in KNOWN else name or ""


def special_tokens_of(pattern: str | None, named: dict[str, int]) -> dict[str, int]:
    """The control tokens that are named, or else those of a known encoding."""
    return named or (KNOWN[pattern][1] if pattern in KNOWN else {})
