"""Where documents stand in a build: its parts in plan order, the ordinal of each document, and the names of files that speak of one part."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from blake3 import blake3
from numpy.typing import NDArray

from corpusbuild.arrow import read_table
from corpusbuild.minhash import I64, U64
from corpusbuild.model import Record
from corpusbuild.parts import part_of, read_arrow
from corpusbuild.signfile import paragraph_counts
from corpusbuild.stage import Input, Job, Out, Task


class Part(Record):
    """One part of one source, as a stage over all sources sees it.

    Documents are numbered through the whole build in plan order, and so are paragraphs; ``first`` and ``first_paragraph`` are the numbers (ordinals)
    of the part's first; it has ``docs`` and ``paragraphs`` of them. ``removed`` are the tables of the documents that earlier stages removed; ``cuts`` that of removed paragraphs, if any.
    """

    name: str
    source: str
    documents: str
    signs: str
    paragraphs: int
    removed: tuple[str, ...]
    cuts: str | None
    docs: int
    first: int
    first_paragraph: int
    earlier: bool = False
    """Whether it is of a corpus that was published before: compared with, never decided about."""
    exact_survivors: str | None = None
    """Ordinals of the documents in whose favour exact_dedup removed some of this part."""


class Layout(Task):
    parts: tuple[Part, ...]


def part_name_of(source: int, part: str) -> str:
    """The name of a part among those of all sources, given the source's position in the plan. Names sort in plan order.

    >>> part_name_of(3, "part-00012")
    '00003-part-00012'
    """
    return f"{source:05d}-{part}"


def source_and_part(name: str) -> tuple[int, str]:
    """Undo :func:`part_name_of`.

    >>> source_and_part("00003-part-00012")
    (3, 'part-00012')
    """
    source, _, part = name.partition("-")
    return int(source), part


def lay_out(inputs: Mapping[str, Sequence[Input]]) -> tuple[Part, ...]:
    """The parts of a build in plan order, from its inputs ``documents``, ``signs``, ``removed`` (of any source) and ``exact`` (of the build).

    Those of ``earlier`` (with ``earlier_signs``) come before all.
    """
    removed: dict[tuple[str, str], list[str]] = {}
    for entry in inputs.get("removed", ()):
        for path in entry.files(".removed.parquet"):
            removed.setdefault((entry.source, part_of(path)), []).append(str(path))
    built = {path.name: str(path) for entry in inputs.get("exact", ()) for suffix in (".parquet", ".arrow") for path in entry.files(suffix)}
    before = [("earlier-", *entries) for entries in zip(inputs.get("earlier", ()), inputs.get("earlier_signs", ()), strict=True)]
    own = [("", *entries) for entries in zip(inputs["documents"], inputs["signs"], strict=True)]
    parts: list[Part] = []
    first = first_paragraph = 0
    for i, (kind, documents, signs) in [*enumerate(before), *enumerate(own)]:
        columns = zip(documents.files(".docs.arrow"), signs.files(".signs.arrow"), strict=True)
        for docs_path, signs_path in columns:
            name = kind + part_name_of(i, part_of(docs_path))
            counts = paragraph_counts(signs_path)
            docs, n_paragraphs = len(counts), int(counts.sum())
            part = Part(
                name=name,
                source=signs.source,
                documents=str(docs_path),
                signs=str(signs_path),
                paragraphs=n_paragraphs,
                removed=(*removed.get((signs.source, part_of(docs_path)), ()), *filter(None, [built.get(f"{name}.removed.parquet")])),
                cuts=built.get(f"{name}.cuts.parquet"),
                docs=docs,
                first=first,
                first_paragraph=first_paragraph,
                earlier=bool(kind),
                exact_survivors=built.get(f"{name}.survivors.arrow"),
            )
            parts.append(part)
            first += docs
            first_paragraph += n_paragraphs
    return tuple(parts)


def earlier_documents(parts: Sequence[Part]) -> int:
    """How many documents, the first ones, are of corpora that were published before."""
    return sum(part.docs for part in parts if part.earlier)


def paragraphs(parts: Sequence[Part]) -> int:
    """How many paragraphs the documents of all parts have."""
    return parts[-1].first_paragraph + parts[-1].paragraphs if parts else 0


def documents(parts: Sequence[Part]) -> int:
    return parts[-1].first + parts[-1].docs if parts else 0


def share(job: Job, parts: tuple[Part, ...]) -> str:
    """Put the parts where every task of the build can read them, and give the name to :func:`load` them by."""
    name = f"layout-{blake3(msgspec.json.encode(parts)).hexdigest(8)}"
    job.map(_write, [Layout(name=name, parts=parts)])
    return name


def load(scratch: str, name: str) -> tuple[Part, ...]:
    return msgspec.json.decode((Path(scratch) / f"{name}.json").read_bytes(), type=tuple[Part, ...])


def alive(part: Part) -> NDArray[np.bool_]:
    """For each document of the part whether no earlier stage removed it."""
    mask = np.ones(part.docs, np.bool_)
    for path in part.removed:
        mask[read_table(path, columns=["row"]).column("row").drop_null().to_numpy()] = False
    return mask


def part_indices(parts: Sequence[Part], ordinals: U64) -> I64:
    """The index of the part that each document stands in."""
    return np.searchsorted(np.array([part.first for part in parts], np.uint64), ordinals, side="right") - 1


def paragraph_owners(parts: Sequence[Part], paragraph_ordinals: U64) -> U64:
    """The ordinal of the document that each paragraph belongs to."""
    firsts = np.array([part.first_paragraph for part in parts], np.uint64)
    where = np.searchsorted(firsts, paragraph_ordinals, side="right") - 1
    out = np.empty(len(paragraph_ordinals), np.uint64)
    for index in np.unique(where).tolist():
        part, here = parts[index], where == index
        ends = part.first_paragraph + np.cumsum(paragraph_counts(Path(part.signs)))
        out[here] = part.first + np.searchsorted(ends.astype(np.uint64), paragraph_ordinals[here], side="right")
    return out


def ids(parts: Sequence[Part], ordinals: U64) -> pa.ChunkedArray:
    """The ids of documents, in the order asked for."""
    wanted, inverse = np.unique(ordinals, return_inverse=True)
    where = part_indices(parts, wanted)
    found = []
    for index in np.unique(where).tolist():
        rows = wanted[where == index] - np.uint64(parts[index].first)
        found += read_arrow(Path(parts[index].signs)).column("id").take(pa.array(rows)).chunks
    return pa.chunked_array(found, pa.string()).take(pa.array(inverse))


def _write(task: Layout, out: Out) -> None:
    out.scratch(".json").write_bytes(msgspec.json.encode(task.parts))
