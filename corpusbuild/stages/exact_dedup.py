"""Exact dedup: of equal paragraphs the first in plan order stays; a document of which no paragraph stays goes."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Meta
from numpy.typing import NDArray

from corpusbuild import placement, removals, repeats, spool
from corpusbuild.model import Counts, Record, Tally, add_counts
from corpusbuild.parts import CUTS, read_arrow, write_arrow
from corpusbuild.placement import Part
from corpusbuild.stage import Job, Out, Stage, Task

SURVIVORS = pa.schema([("row", pa.int32()), ("survivor", pa.uint64())])
"""``*.survivors.arrow``: of each document removed, the ordinal of its survivor, for near_dedup, which may remove that one too."""


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
    part = placement.load(task.scratch, task.layout)[task.index]
    repeats.spread(spool.gathered(_digests(part), repeats.TOGETHER), task.bits, out)


def match_digests(task: Step, out: Out) -> None:
    parts = placement.load(task.scratch, task.layout)
    files = [Path(task.scratch, _spread(part, task.bits)) for part in parts]
    repeats.match(files, task.index, np.array([part.first_paragraph for part in parts], np.uint64), out)


def decide_part(task: Step, out: Out) -> Any:
    """Write what is cut and what is removed of one part."""
    parts = placement.load(task.scratch, task.layout)
    part = parts[task.index]
    links = repeats.links(
        Path(task.scratch, _spread(part, task.bits)), [Path(task.scratch, name) for name in _matches(task.bits)], task.index
    )
    rows = read_arrow(Path(part.paragraphs)).column("row").to_numpy()
    cut = (links["at"] - np.uint64(part.first_paragraph)).astype(np.int64)
    owners = placement.paragraph_owners(parts, links["first"])
    survivors = placement.ids(parts, owners)
    pq.write_table(_cuts(part, rows, cut, survivors), out.path(".cuts.parquet"), compression="zstd")

    alive = placement.alive(part)
    had, lost = np.bincount(rows, minlength=part.docs), np.bincount(rows[cut], minlength=part.docs)
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


def _cuts(part: Part, rows: NDArray[np.int32], cut: NDArray[np.int64], survivors: pa.ChunkedArray) -> pa.Table:
    """The table of cut paragraphs: ``rows`` says which document each paragraph of the part belongs to, ``cut`` which paragraphs go."""
    spans = read_arrow(Path(part.paragraphs)).select(["start", "end"]).take(pa.array(cut))
    columns = {
        "id": read_arrow(Path(part.signs)).column("id").take(pa.array(rows[cut])),
        "source": pa.repeat(part.source, len(cut)),
        "row": rows[cut],
        "paragraph": (cut - np.searchsorted(rows, rows[cut])).astype(np.int32),
        "start": spans.column("start"),
        "end": spans.column("end"),
        "survivor": survivors,
    }
    return pa.table(columns, schema=CUTS)


def _digests(part: Part) -> Iterator[NDArray[Any]]:
    """The digests of the paragraphs of documents that are still there, in blocks."""
    alive, first = placement.alive(part), part.first_paragraph
    for batch in read_arrow(Path(part.paragraphs)).select(["row", "hi", "lo"]).to_batches():
        row, hi, lo = (column.to_numpy() for column in batch.columns)
        here = alive[row]
        yield repeats.digests(hi[here], lo[here], np.arange(first, first + len(row), dtype=np.uint64)[here])
        first += len(row)


def _spread(part: Part, bits: int) -> str:
    return f"spread-{bits}-{part.name}"


def _matches(bits: int) -> list[str]:
    return [f"match-{bits}-{i:05d}" for i in range(1 << bits)]


STAGE = Stage("exact_dedup", version=2, build=build, names_output=lambda params: None)
