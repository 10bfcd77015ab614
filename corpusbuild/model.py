"""The nouns. Plain frozen data, no behaviour beyond what a value needs, no I/O."""

from typing import NewType, dataclass_transform

from msgspec import Struct

Key = NewType("Key", str)
"""Lower-case hex SHA-256 naming a step; also the name of its directory in the store."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every persisted or configured value: immutable, named fields, typos refused. Fields with defaults come last."""


class Tally(Record):
    """What became of the documents of one source in one stage; ``docs_in = kept + dropped + rejected``.

    ``dropped`` is by rule. ``rejected`` are documents that could not be read at all, by reason.
    ``also`` holds further numbers of the stage (bytes, paragraphs, spans); they are not part of the sum.
    """

    docs_in: int = 0
    kept: int = 0
    dropped: dict[str, int] = {}
    rejected: dict[str, int] = {}
    also: dict[str, int] = {}

    def adds_up(self) -> bool:
        return self.docs_in == self.kept + sum(self.dropped.values()) + sum(self.rejected.values())

    def plus(self, other: "Tally") -> "Tally":
        """
        >>> a = Tally(docs_in=2, kept=1, dropped={"lang": 1})
        >>> a.plus(Tally(docs_in=1, dropped={"lang": 1})).dropped
        {'lang': 2}
        """
        return Tally(
            docs_in=self.docs_in + other.docs_in,
            kept=self.kept + other.kept,
            dropped=_add(self.dropped, other.dropped),
            rejected=_add(self.rejected, other.rejected),
            also=_add(self.also, other.also),
        )


Counts = dict[str, Tally]
"""What a stage reports: one tally a source, in plan order."""


def total(tallies: "list[Tally]") -> Tally:
    out = Tally()
    for tally in tallies:
        out = out.plus(tally)
    return out


def add_counts(parts: "list[Counts]") -> Counts:
    """Add the counts of several parts, source by source, in the order of their first appearance."""
    out: Counts = {}
    for counts in parts:
        for source, tally in counts.items():
            out[source] = out[source].plus(tally) if source in out else tally
    return out


class File(Record):
    """One file of a store entry, as its contents page vouches for it. ``blake3`` is 64 hex digits."""

    path: str
    size: int
    blake3: str


class Contents(Record):
    """The contents page of a store entry, written last. Its presence under the key is the proof of completion."""

    key: Key
    stage: str
    version: int
    label: str
    files: tuple[File, ...]
    counts: Counts


def _add(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in [*a, *(n for n in b if n not in a)]}
