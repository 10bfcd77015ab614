"""Any Hugging Face ``tokenizer.json``, through the ``tokenizers`` library; and training one."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from corpusbuild.errors import ConfigError
from corpusbuild.tokenizer import Encoded, Ids, each, joined, narrow, slices, smallest
from corpusbuild.tokenizer.cutting import BORDER, cut, together
from corpusbuild.tokenizer.ranks import PATTERNS

END_OF_TEXT = "<|endoftext|>"
TRAINED_END_OF_TEXT = 0
"""The control token of a tokenizer that was trained here, and its id."""

SLICE_BYTES = 1_000_000  # the library keeps some hundred bytes for an id until the ids are taken out

_SPLIT = r"{}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_ENDINGS = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)", "'(?i:[sdmt]|ll|ve|re)")
SPLITS = PATTERNS | {_SPLIT.format(ending, digits) for ending in _ENDINGS for digits in ("", "{1,3}")}
"""Patterns that cut between a letter and a space before a letter."""

_DROPS_SPACE = ("Whitespace", "WhitespaceSplit", "BertPreTokenizer", "CharDelimiterSplit")


class HuggingFace:
    def __init__(self, path: str, data: bytes):
        library = _library()
        try:
            text = data.decode()
            self._tokenizer = library.Tokenizer.from_str(text)
            model = json.loads(text)
        except Exception as error:  # noqa: BLE001 - the library raises bare Exception for a file that it cannot read
            raise ConfigError(
                f"tokenizer.path: {path} is not a tokenizer.json, or its vocabulary and merges do not belong together ({error})"
            ) from None
        if model["model"].get("dropout"):
            raise ConfigError(f"tokenizer.path: {path} has dropout, so that no two encodings are the same: set model.dropout to null in it")
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        vocab: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocab.values(), default=-1) + 1
        self.special_tokens = tuple(token["content"] for token in model.get("added_tokens") or () if token.get("special"))
        self.unknown = _unknown(model["model"], vocab)
        self.losses = tuple(_losses(model))
        self.cuttable = _is_cuttable(model)
        self._dtype = narrow(self.vocab_size)
        self.spelled = _spelled(model, vocab, self.vocab_size) if _is_byte_level(model) else None

    def encode(self, texts: pa.Array) -> Encoded:
        parts, first = cut(texts, SLICE_BYTES) if self.cuttable else (texts, np.arange(len(texts) + 1))
        return together(joined([self._encode(one) for one in slices(parts, SLICE_BYTES)]), first)

    def _encode(self, texts: pa.Array) -> Encoded:
        found = self._tokenizer.encode_batch_fast(texts.to_pylist(), add_special_tokens=False)
        return each([np.array(one.ids, self._dtype) for one in found])

    def decode(self, ids: Ids) -> str:
        return str(self._tokenizer.decode(ids.tolist(), skip_special_tokens=False))


def train(texts: Iterable[str], vocab_size: int) -> bytes:
    """A byte-level BPE in GPT-2's form with ``vocab_size`` entries, or fewer where the texts hold no more pairs, as a ``tokenizer.json``.

    The same texts give the same file, whatever their order and the number of threads: pairs are counted, and of pairs that are as frequent the one
    of smaller ids comes first. ``ConfigError`` when the size leaves no room for the bytes.
    """
    library = _library()
    alphabet = sorted(library.pre_tokenizers.ByteLevel.alphabet())
    if vocab_size <= len(alphabet):
        raise ConfigError(f"tokenizer.train.vocab_size: {vocab_size} has no room for the {len(alphabet)} bytes and the end of a text")
    made = library.Tokenizer(library.models.BPE())
    made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[END_OF_TEXT], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(texts, trainer)
    return str(made.to_str(pretty=False)).encode() + b"\n"


def _library() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise ConfigError("tokenizer: a tokenizer.json needs the tokenizers library: pip install 'corpusbuild[hf]'") from None
    return tokenizers


def _unknown(model: dict[str, Any], vocab: dict[str, int]) -> int | None:
    if isinstance(model.get("unk_id"), int):
        return int(model["unk_id"])
    return vocab.get(model.get("unk_token") or "")


def _parts(step: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """A step of the file and, where it is a sequence, those within."""
    if step is not None:
        inner = [part for name in ("normalizers", "pretokenizers", "decoders") for part in step.get(name) or ()]
        if inner:
            for part in inner:
                yield from _parts(part)
        else:
            yield step


def _is_byte_level(model: dict[str, Any]) -> bool:
    """Whether ids spell exactly the bytes of the text: each character of a token stands for a byte, and every byte is in the vocabulary."""
    before, after = list(_parts(model.get("pre_tokenizer"))), list(_parts(model.get("decoder")))
    return (
        model["model"].get("type") == "BPE"
        and model.get("normalizer") is None
        and _covers_bytes(model)
        and not any(part.get("add_prefix_space") or part["type"] in _DROPS_SPACE or part.get("behavior") == "Removed" for part in before)
        and [part["type"] for part in after] == ["ByteLevel"]
        and not any(token.get("lstrip") or token.get("rstrip") for token in model.get("added_tokens") or ())
    )


def _covers_bytes(model: dict[str, Any]) -> bool:
    """Whether text is cut to bytes, each of which is in the vocabulary."""
    return any(part["type"] == "ByteLevel" for part in _parts(model.get("pre_tokenizer"))) and all(
        character in model["model"]["vocab"] for character in _library().pre_tokenizers.ByteLevel.alphabet()
    )


def _is_cuttable(model: dict[str, Any]) -> bool:
    """Whether text is cut to words by a known pattern, with nothing before it and no added token that could stand over a border."""
    before = list(_parts(model.get("pre_tokenizer")))
    added = model.get("added_tokens") or ()
    known = [
        part
        for part in before[:-1]
        if part["type"] == "Split" and part["pattern"].get("Regex") in SPLITS and part["behavior"] == "Isolated"
    ]
    by_pattern = len(before) == len(known) + 1 and before[-1]["type"] == "ByteLevel" and not before[-1].get("add_prefix_space")
    return (
        model.get("normalizer") is None
        and by_pattern
        and (len(known) == 1 or bool(before[-1].get("use_regex", True)))
        and not any(token.get("rstrip") or BORDER.search(token["content"].encode()) for token in added)
    )


def _spelled(model: dict[str, Any], vocab: dict[str, int], vocab_size: int) -> NDArray[np.unsignedinteger[Any]]:
    sizes = np.zeros(vocab_size, np.int64)
    written = {token["content"] for token in model.get("added_tokens") or ()}
    for token, id in vocab.items():
        sizes[id] = len(token.encode()) if token in written else len(token)
    return smallest(sizes)


def _losses(model: dict[str, Any]) -> Iterator[str]:
    if normalizers := [part["type"] for part in _parts(model.get("normalizer"))]:
        yield f"normaliser {', '.join(normalizers)}"
    for part in _parts(model.get("pre_tokenizer")):
        if part["type"] in _DROPS_SPACE or part.get("behavior") == "Removed":
            yield f"{part['type']} drops white space"
        if part.get("add_prefix_space") or part.get("prepend_scheme") in ("always", "first"):
            yield f"{part['type']} puts a space before a text"
    if not list(_parts(model.get("decoder"))):
        yield "no decoder"
    if any(token.get("lstrip") or token.get("rstrip") for token in model.get("added_tokens") or ()):
        yield "added tokens take the space beside them"
    inner = model["model"]
    if inner.get("unk_token") is not None or inner.get("unk_id") is not None:
        yield "unknown tokens"
    elif inner.get("type") == "BPE" and not inner.get("byte_fallback") and not _covers_bytes(model):
        yield "characters that the vocabulary lacks are left out"
