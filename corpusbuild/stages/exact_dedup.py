"""Exact dedup: of equal paragraphs the first in plan order stays; a document of which no paragraph stays goes."""

from collections.abc import Iterable, Iterator
from io import BufferedWriter
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Meta
from numpy.typing import NDArray

from corpusbuild import paragraphs, placement, removals, repeats, spool
from corpusbuild.minhash import I64
from corpusbuild.model import Counts, Record, Tally, add_counts
from corpusbuild.parts import CUTS, read_arrow, write_arrow
from corpusbuild.placement import Part
from corpusbuild.signfile import paragraph_counts
from corpusbuild.stage import Job, Out, Stage, Task
from corpusbuild.texts import texts_of

SURVIVORS = pa.schema([("row", pa.int32()), ("survivor", pa.uint64())])
"""``*.survivors.arrow``: of each document removed, the ordinal of its survivor, for near_dedup, which may remove that one too."""

SPAN, SPANS = np.dtype("<i8"), ".spans"


class ExactParams(Record):
    bloom_bytes_per_item: Annotated[
        int,
        Meta(
            ge=1,
            description="Accepted from configurations that filter candidates first. No result depends on it, and nothing here uses it.",
        ),
    ] = 10


class Step(Task):
    """A unit of work: one part, or one partition of the digests; ``index`` says which. Digests fall into ``2**bits`` partitions."""

    scratch: str
    layout: str
    index: int
    bits: int


def build(job: Job) -> Counts:
    parts = placement.lay_out(job.inputs)
    layout = placement.share(job, parts)
    together = min(job.memory, repeats.TOGETHER * repeats.WORKING_BYTES)  # so that little but the data decides how the work is cut
    bits = spool.partition_bits(placement.paragraphs(parts), repeats.WORKING_BYTES, together)

    def steps(names: Iterable[tuple[int, str]]) -> list[Step]:
        return [Step(name=name, scratch=str(job.scratch), layout=layout, index=i, bits=bits) for i, name in names]

    job.map(spread_digests, steps((i, _spread(part, bits)) for i, part in enumerate(parts)))
    job.map(match_digests, steps(enumerate(_matches(bits))))
    counts = job.map(decide_part, steps((i, part.name) for i, part in enumerate(parts) if not part.earlier))
    return add_counts([{entry.source: Tally() for entry in job.inputs["signs"]}, *msgspec.convert(counts, list[Counts])])


def spread_digests(task: Step, out: Out) -> None:
    """Deal out the digests of the paragraphs of a part, and note where each stands."""
    part = placement.load(task.scratch, task.layout)[task.index]
    with out.scratch(SPANS).open("wb") as spans:
        repeats.spread(spool.gathered(_digests(part, spans), repeats.TOGETHER), task.bits, out)


def match_digests(task: Step, out: Out) -> None:
    parts = placement.load(task.scratch, task.layout)
    files = [Path(task.scratch, _spread(part, task.bits)) for part in parts]
    repeats.match(files, task.index, np.array([part.first_paragraph for part in parts], np.uint64), out)


def decide_part(task: Step, out: Out) -> Any:
    """Write what is cut and what is removed of one part."""
    parts = placement.load(task.scratch, task.layout)
    part = parts[task.index]
    spread = Path(task.scratch, _spread(part, task.bits))
    links = repeats.links(spread, [Path(task.scratch, name) for name in _matches(task.bits)], task.index)
    had = paragraph_counts(Path(part.signs))
    rows = np.repeat(np.arange(part.docs), had)
    cut = (links["at"] - np.uint64(part.first_paragraph)).astype(np.int64)
    owners = placement.paragraph_owners(parts, links["first"])
    survivors = placement.ids(parts, owners)
    _write_cuts(out.path(".cuts.parquet"), _cuts(part, rows, cut, _spans(spread, cut), survivors))

    alive = placement.alive(part)
    lost = np.bincount(rows[cut], minlength=part.docs)
    gone = np.flatnonzero((had > 0) & (lost == had))
    first_cut = np.searchsorted(rows[cut], gone)  # a document names in whose favour the first of its paragraphs went
    dropped = removals.write(
        out.path(".removed.parquet"), part, gone, stage=STAGE.name, rule="paragraphs",
        against=owners[first_cut] < placement.earlier_documents(parts),
        value=had[gone].astype(np.float64), similarity=np.ones(len(gone)), survivor=survivors.take(pa.array(first_cut)),
    )  # fmt: skip
    write_arrow(out.path(".survivors.arrow"), pa.table({"row": gone.astype(np.int32), "survivor": owners[first_cut]}, schema=SURVIVORS))
    n = int(alive.sum())
    also = {"paragraphs": int(had[alive].sum()), "duplicate_paragraphs": len(cut)}
    return {part.source: {"docs_in": n, "kept": n - len(gone), "dropped": dropped, "also": also}}


def _cuts(part: Part, rows: I64, cut: I64, spans: I64, survivors: pa.ChunkedArray) -> pa.Table:
    """The table of cut paragraphs: ``rows`` says which document each paragraph of the part belongs to, ``cut`` which paragraphs go, ``spans`` where
    those begin and end."""
    columns = {
        "id": read_arrow(Path(part.signs)).column("id").take(pa.array(rows[cut])),
        "source": pa.repeat(part.source, len(cut)),
        "row": rows[cut].astype(np.int32),
        "paragraph": (cut - np.searchsorted(rows, rows[cut])).astype(np.int32),
        "start": spans[:, 0],
        "end": spans[:, 1],
        "survivor": survivors,
    }
    return pa.table(columns, schema=CUTS)


def _write_cuts(path: Path, cuts: pa.Table) -> None:
    """Numbers that rise are written a byte of all after another, which zstd makes a third less of."""
    numbers = dict.fromkeys(("row", "paragraph", "start", "end"), "BYTE_STREAM_SPLIT")
    pq.write_table(cuts, path, compression="zstd", compression_level=3, use_dictionary=["source"], column_encoding=numbers)


def _digests(part: Part, spans: BufferedWriter) -> Iterator[NDArray[Any]]:
    """The digests of the paragraphs of documents that are still there, in blocks. Where each paragraph of any document stands is written to ``spans``."""
    alive, first, row = placement.alive(part), part.first_paragraph, 0
    column = read_arrow(Path(part.documents), ["text"]).column("text")
    for texts in (block for chunk in texts_of(column) for block in chunk.blocks()):
        found = paragraphs.found(texts)
        spans.write(np.stack([found.starts, found.ends], axis=1).astype(SPAN, copy=False).data)
        here = alive[row + found.rows]
        yield repeats.digests(found.hi[here], found.lo[here], np.arange(first, first + len(here), dtype=np.uint64)[here])
        first += len(here)
        row += len(texts.offsets) - 1


def _spans(spread: Path, which: I64) -> I64:
    """Where some paragraphs of a part begin and end, in code points of their text."""
    if not len(which):
        return np.empty((0, 2), np.int64)
    return np.asarray(np.memmap(spread.with_name(spread.name + SPANS), SPAN, "r").reshape(-1, 2)[which], np.int64)


def _spread(part: Part, bits: int) -> str:
    return f"spread-{bits}-{part.name}"


def _matches(bits: int) -> list[str]:
    return [f"match-{bits}-{i:05d}" for i in range(1 << bits)]


STAGE = Stage("exact_dedup", version=4, build=build, names_output=lambda params: None)
