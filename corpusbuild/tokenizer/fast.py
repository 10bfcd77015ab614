"""A faster library in front of the one that decides: ``fastokens``, held against it on hostile texts when it is opened and on documents of every table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from corpusbuild.tokenizer import SLICE_BYTES, Encoded, Ids, Spec, Tokenizer, joined, narrow, slices, text_bytes
from corpusbuild.tokenizer.cutting import cut, together

COMPARED_BYTES = 16_384
"""Of the first table of a split in each piece of a shard, about so much text is encoded twice."""
FRESH_BYTES = 500_000_000
"""After so much text the library is opened anew, for it remembers every word that it has seen."""
COMPARED_SHARE = 1 / 1024
"""Of every table, this share of the text is: it costs some hundredths of the time."""

HOSTILE = (
    "",
    " ",
    "\n",
    "a",
    "Hello world",
    "  two  spaces   and three \t tab\r\n\r\nlines\n\n\n end ",
    "I'm you're he'll WE'VE IT'S D'oh 'tis rock'n'roll ’s",
    "x" * 3000,
    "1234567890" * 40,
    "".join(chr(c) for c in range(0x20)) + "\x7f\x80\x9f",
    "a\u00a0b\u1680c\u2000d\u2028e\u2029f\u202fg\u205fh\u3000i\u200bj\ufeffk\u0085l",
    "e\u0301\u0301\u0301 \u0344 \u1e9b\u0323 \ufb01 \u212b \uac00 \u1100\u1161 \u0958",
    "Ünï ßẞ İı ǅ ʰ ª º Ⅷ ² ½ ٣ ४ 〇 𝟘 ㊀ ௧",
    "日本語の文章。中文，没有空格。한국어 문장 ไทย ភាសា မြန်မာ",
    "עברית العربية हिन्दी বাংলা தமிழ் ქართული Ἀθῆναι Москва",
    "👩‍👩‍👧‍👦🏳️‍🌈🇩🇪😀\U000e0067 𝕳𝖊𝖑𝖑𝖔 \U0010fffd \ufffd \ufffe",
    "def f(x):\n    return {\"a\": [1, 2.5e-3], 'b': None}  # !!!???...###\n\n\n",
    "https://example.org/a/b?c=d&e=%20f#g --- *** ___ ::: ((())) <|>",
    "<s></s><unk><pad>[CLS][SEP][MASK]<|im_start|><|endoftext|><0x0A>▁▁Ġ Ċ",
)
"""Texts in which tokenizers have been known to differ: white space of every kind, marks, numerals, controls, emoji, and tokens written out."""


class Differs(Exception):
    """The faster library gave other ids than the one that decides. ``index`` is the text's in the table."""

    def __init__(self, index: int):
        super().__init__(index)
        self.index = index


class Fast:
    """What the plain tokenizer is, but quicker."""

    def __init__(self, plain: Tokenizer, open_library: Callable[[], Any]):
        self._plain, self._open, self.library, self._seen = plain, open_library, open_library(), 0
        self.vocab_size, self.special_tokens, self.unknown = plain.vocab_size, plain.special_tokens, plain.unknown
        self.losses, self.cuttable, self.spelled = plain.losses, plain.cuttable, plain.spelled
        self._dtype = narrow(plain.vocab_size)

    def encode(self, texts: pa.Array) -> Encoded:
        parts, first = cut(texts, SLICE_BYTES) if self.cuttable else (texts, np.arange(len(texts) + 1))
        return together(joined([self._encode(one) for one in slices(parts)]), first)

    def _encode(self, texts: pa.Array) -> Encoded:
        self._seen += texts.nbytes
        if self._seen > FRESH_BYTES:
            self.library, self._seen = None, texts.nbytes
            self.library = self._open()
        try:
            ids, offsets = self.library.encode_batch_flat(texts.to_pylist(), split_special_tokens=True)
        except Exception:  # noqa: BLE001 - for whatever reason it cannot, the library that decides can
            return self._plain.encode(texts)
        return np.frombuffer(ids, np.uint32).astype(self._dtype), np.frombuffer(offsets, np.uint64).astype(np.int64)

    def decode(self, ids: Ids) -> str:
        return self._plain.decode(ids)

    def compare(self, texts: pa.Array, encoded: Encoded, least: int = COMPARED_BYTES) -> None:
        """Encode some of the texts again, through the library that decides. ``Differs`` names the first that has other ids."""
        ids, offsets = encoded
        chosen = to_compare(texts, offsets, least)
        if chosen:
            expected, places = self._plain.encode(texts.take(pa.array(chosen)))
            for k, i in enumerate(chosen):
                if not np.array_equal(ids[offsets[i] : offsets[i + 1]], expected[places[k] : places[k + 1]]):
                    raise Differs(i)


def open_fast(plain: Tokenizer, spec: Spec) -> Fast | None:
    """None where the library is not installed, does not know the tokenizer, or differs on a hostile text."""
    if find_spec("fastokens") is None:
        return None
    fast = Fast(plain, partial(_library, plain, spec))
    if fast.library is None:
        return None
    texts = pa.array([*HOSTILE, *(f"a{token} b {token}{token}\n" for token in plain.special_tokens[:200])], pa.large_string())
    (ids, offsets), (expected, places) = fast.encode(texts), plain.encode(texts)
    return fast if np.array_equal(ids, expected) and np.array_equal(offsets, places) else None


def _library(plain: Tokenizer, spec: Spec) -> Any:
    from fastokens import Tokenizer as Native

    from corpusbuild.tokenizer.ranks import Ranks, special_tokens_of

    try:
        if isinstance(plain, Ranks):
            special = special_tokens_of(spec.pattern, dict(spec.special_tokens))
            return Native.from_tiktoken(spec.path, pattern=plain.pattern, special_tokens=special)
        if spec.kind == "huggingface":
            return Native.from_file(spec.path)
    except Exception:  # noqa: BLE001 - it says in many ways that a tokenizer is not one of those it knows
        return None
    return None


def to_compare(texts: pa.Array, offsets: NDArray[np.int64], least: int) -> list[int]:
    """Which texts are encoded twice: by turns one of those spread evenly and one of the least usual, which have the most ids for their bytes.

    As many as fit in ``least`` bytes or, where that is more, in the share of the table; a text longer than that not at all.
    """
    sizes = np.diff(text_bytes(texts)[1])
    budget = max(least, int(sizes.sum() * COMPARED_SHARE))
    short = np.flatnonzero((sizes > 0) & (sizes <= budget))
    if not len(short):
        return []
    k = min(len(short), max(1, int(budget / 2 / sizes[short].mean())))
    even = short[np.linspace(0, len(short) - 1, k).astype(np.int64)]
    odd = short[np.argsort(-np.diff(offsets)[short] / sizes[short], kind="stable")[:k]]
    turns = np.array(list(dict.fromkeys(np.stack([even, odd], axis=1).ravel().tolist())))
    return sorted(turns[np.cumsum(sizes[turns]) <= budget].tolist())
