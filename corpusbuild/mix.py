"""Mixing: how many times each document of a source is drawn, so that sources have the weights or the numbers of ids that were asked for.

Documents are drawn in the order of a hash of their ids, so what a smaller number takes, a larger one takes too.
"""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusbuild.errors import ConfigError
from corpusbuild.model import Record
from corpusbuild.order import keyed

BINS = 4096
"""Into which the documents of a source are counted by their hash, so that only those of one bin need be sorted."""
_SALT = 0x6D6978
_BUDGET = re.compile(r"(\d+(?:\.\d+)?) ?([kMBT]?)")


class Share(Record):
    """What is asked of a source: a weight or a number of ids, and how often it may be gone through for it."""

    weight: float | None = None
    tokens: str | None = None
    epochs: float = 1

    def __post_init__(self) -> None:
        if (self.weight is None) == (self.tokens is None):
            raise ValueError("a source has a weight or tokens, one of the two")
        if self.weight is not None and not 0 <= self.weight < float("inf"):
            raise ValueError(f"a weight is 0 or more, not {self.weight}")
        if not 0 < self.epochs < float("inf"):
            raise ValueError(f"epochs is more than 0, not {self.epochs}")
        if self.tokens is not None:
            budget(self.tokens)


def share(asked: float | str) -> Share:
    """The share that a weight or a number of ids alone asks for."""
    return Share(tokens=asked) if isinstance(asked, str) else Share(weight=float(asked))


class Draw(Record):
    """How a source is drawn: ``passes`` whole, and once more the documents up to hash ``key`` and, of equal hashes, up to ``place`` in the corpus."""

    passes: int = 0
    key: int = 0
    place: int = -1


def budget(text: str) -> int:
    """A number of ids.

    >>> budget("2B"), budget("1.5M"), budget("300")
    (2000000000, 1500000, 300)
    """
    found = _BUDGET.fullmatch(text)
    if found is None:
        raise ValueError(f'{text!r} is no number of tokens; write "2B", "1.5M", "300k" or "70000"')
    return int(Fraction(found[1]) * 1000 ** " kMBT".index(found[2] or " "))


def targets(asked: Mapping[str, Share], available: Mapping[str, int]) -> dict[str, int]:
    """How many ids each source gives, of those that it has. ``ConfigError`` when a source has too few for it.

    Weights alone are shares of as much as the sources allow; beside numbers of ids, of a whole of which those are the rest.

    >>> targets({"a": Share(weight=0.75), "b": Share(weight=0.25)}, {"a": 300, "b": 1000})
    {'a': 300, 'b': 100}
    >>> targets({"a": Share(weight=0.5), "b": Share(tokens="200")}, {"a": 300, "b": 1000})
    {'a': 200, 'b': 200}
    """
    weights = {name: Fraction(repr(float(s.weight))) for name, s in asked.items() if s.weight is not None}
    fixed = {name: budget(s.tokens) for name, s in asked.items() if s.tokens is not None}
    most = {name: Fraction(repr(float(asked[name].epochs))) * available[name] for name in asked}
    if weights and fixed:
        rest = 1 - sum(weights.values())
        if rest <= 0:
            raise ConfigError(
                f"mix: the weights add up to {float(1 - rest):g}, which leaves nothing for {', '.join(fixed)}: keep them below 1"
            )
        whole = sum(fixed.values()) / rest
    else:
        total = sum(weights.values())
        weights = {name: weight / total for name, weight in weights.items() if total}
        whole = min((most[name] / weight for name, weight in weights.items() if weight), default=Fraction(0))
    wanted = {name: fixed[name] if name in fixed else int(whole * weights.get(name, Fraction(0))) for name in asked}
    for name, ids in wanted.items():
        if ids > most[name]:
            raise ConfigError(
                f"mix.{name}: {ids:,} ids are asked for, and it has {available[name]:,}: ask for less, or allow epochs = "
                f"{-(-ids // available[name]) if available[name] else 'more'}"
            )
    return wanted


class Drawn(Record):
    """What a source gives: ``tokens`` and ``documents``, repeats included, of ``available`` ids; ``left_out`` documents are not drawn at all."""

    draw: Draw
    available: int
    tokens: int
    documents: int
    left_out: int


class Draws:
    """The draws of all sources, as arrays by source."""

    def __init__(self, draws: tuple[Draw, ...]):
        self._passes = np.array([d.passes for d in draws], np.int64)
        self._keys = np.array([d.key for d in draws], np.uint64)
        self._places = np.array([d.place for d in draws], np.int64)

    def most(self) -> int:
        """How many times a document may be drawn at most."""
        return int((self._passes + (self._places >= 0)).max(initial=0))

    def copies(self, sources: NDArray[Any], hashes: NDArray[np.uint64], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many times each document is drawn."""
        keys, last = _keys(hashes), self._keys[sources]
        more = (keys < last) | ((keys == last) & (places <= self._places[sources]))
        drawn: NDArray[np.int64] = self._passes[sources] + more
        return drawn


class Scale:
    """Finds the draws: documents are counted into bins of their hash, then those of the bin in which a source is full are looked at one by one.

    ``count`` all documents in plan order, ``aim``, ``narrow`` all of them again, and see what is ``drawn``.
    """

    def __init__(self, sources: Sequence[str]):
        self._sources = sources
        self._ids = np.zeros((len(sources), BINS), np.int64)
        self._documents = np.zeros((len(sources), BINS), np.int64)
        self._last: list[list[NDArray[Any]]] = [[] for _ in sources]
        self._place = 0

    def count(self, sources: NDArray[Any], hashes: NDArray[np.uint64], ids: NDArray[np.int64]) -> None:
        at = sources * BINS + _bins(_keys(hashes))
        self._ids += np.bincount(at, ids, self._ids.size).astype(np.int64).reshape(self._ids.shape)
        self._documents += np.bincount(at, minlength=self._ids.size).reshape(self._ids.shape)

    def aim(self, asked: Mapping[str, Share]) -> None:
        """Say what is asked for. ``ConfigError`` as in ``targets``."""
        self._available = self._ids.sum(axis=1)
        wanted = targets(asked, dict(zip(self._sources, self._available.tolist(), strict=True)))
        aims = np.array([wanted[name] for name in self._sources], np.int64)
        self._passes, self._rest = np.divmod(aims, np.maximum(self._available, 1))
        self._border = np.array([np.searchsorted(np.cumsum(of), rest) for of, rest in zip(self._ids, self._rest, strict=True)], np.int64)

    def narrow(self, sources: NDArray[Any], hashes: NDArray[np.uint64], ids: NDArray[np.int64]) -> None:
        keys = _keys(hashes)
        here = np.flatnonzero((_bins(keys) == self._border[sources]) & (self._rest[sources] > 0))
        for source in np.unique(sources[here]).tolist():
            mine = here[sources[here] == source]
            rows = np.empty(len(mine), _ROW)
            rows["key"], rows["place"], rows["ids"] = keys[mine], self._place + mine, ids[mine]
            self._last[source].append(rows)
        self._place += len(ids)

    def drawn(self) -> dict[str, Drawn]:
        return {name: self._drawn(i) for i, name in enumerate(self._sources)}

    def _drawn(self, i: int) -> Drawn:
        passes, border, available, n = int(self._passes[i]), self._border[i], int(self._available[i]), int(self._documents[i].sum())
        draw, tokens, documents = Draw(passes=passes), passes * available, passes * n
        if self._rest[i]:
            rows = np.concatenate(self._last[i])
            rows = rows[np.lexsort((rows["place"], rows["key"]))]
            below = int(self._ids[i, :border].sum())
            more = int(np.searchsorted(below + np.cumsum(rows["ids"]), self._rest[i])) + 1
            draw = Draw(passes=passes, key=int(rows["key"][more - 1]), place=int(rows["place"][more - 1]))
            tokens += below + int(rows["ids"][:more].sum())
            documents += int(self._documents[i, :border].sum()) + more
        return Drawn(draw=draw, available=available, tokens=tokens, documents=documents, left_out=max(n - documents, 0))


_ROW = np.dtype([("key", "<u8"), ("place", "<i8"), ("ids", "<i8")])


def _keys(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """By which the documents of a source are drawn."""
    return keyed(hashes, _SALT)


def _bins(keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    return (keys >> np.uint64(52)).astype(np.int64)
