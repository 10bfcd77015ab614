"""Rails: a build of which deduplication takes more of a source than anybody expected stops here, before its shards are written, and shows why."""

import math
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from corpusbuild.arrow import read_table
from corpusbuild.errors import StageError
from corpusbuild.model import Counts, Record, Tally
from corpusbuild.parts import read_arrow
from corpusbuild.placement import source_and_part
from corpusbuild.removals import AGAINST
from corpusbuild.stage import Job, Stage

SHOWN = 10
WORDS = 12


class Params(Record):
    max_removed: dict[str, float]
    """Source -> the largest share of its documents that may go as duplicates of others in the build."""


class Loss(Record):
    """What deduplication took of one source. ``removed`` leaves out ``against``, which went in favour of an earlier corpus."""

    docs_in: int
    removed: int
    against: int
    share: float
    max_removed: float


def build(job: Job) -> Counts:
    params: Params = job.params
    sources = [entry.source for entry in job.inputs["documents"]]
    losses = {source: _loss(job, source, params.max_removed[source]) for source in sources}
    over = [source for source, loss in losses.items() if loss.share > loss.max_removed]
    if over:
        raise StageError("rails", ", ".join(over), "\n".join(_problem(job, source, losses[source]) for source in over))
    job.put("rails.json", msgspec.json.format(msgspec.json.encode(losses), indent=1) + b"\n")
    kept = {source: loss.docs_in - loss.removed - loss.against for source, loss in losses.items()}
    return {source: Tally(docs_in=n, kept=n) for source, n in kept.items()}


def _loss(job: Job, source: str, max_removed: float) -> Loss:
    tallies = [
        entry.contents.counts[source] for role in ("exact", "near") for entry in job.inputs.get(role, ()) if source in entry.contents.counts
    ]
    docs_in = tallies[0].docs_in if tallies else 0
    against = sum(tally.dropped.get(AGAINST, 0) for tally in tallies)
    removed = sum(sum(tally.dropped.values()) for tally in tallies) - against
    return Loss(docs_in=docs_in, removed=removed, against=against, share=removed / docs_in if docs_in else 0.0, max_removed=max_removed)


def _problem(job: Job, source: str, loss: Loss) -> str:
    found = largest_clusters(job, source)
    texts = _texts(job, [head for head, *_ in found])
    lines = [
        f"duplicates took {loss.removed:,} of the {loss.docs_in:,} documents of {source} ({loss.share:.0%}), "
        f"and max_removed lets {loss.max_removed:.0%} go. The largest clusters:",
        *(
            f"    {n:,} went with {head} (similarity {low:.2f} to {high:.2f}): {' '.join(texts.get(head, '').split()[:WORDS])}"
            for head, n, low, high in found
        ),
        f'If they are duplicates, accept it: max_removed = {math.ceil(loss.share * 100) / 100:g} in the [[sources]] with id = "{source}"; '
        "if not, raise dedup.jaccard_threshold or drop the text that they share by a filter.",
    ]
    return "\n".join(lines)


def largest_clusters(job: Job, source: str) -> list[tuple[str, int, float, float]]:
    """Those that took most documents of a source: the document they are known by, how many went, and how similar they were (lowest, highest).

    Known by the first document of the cluster of near duplicates, or for equal paragraphs by the document in whose favour they went.
    """
    index = [entry.source for entry in job.inputs["documents"]].index(source)
    tables = [
        pa.table(
            {
                "head": pa.array([], pa.string()),
                "n": pa.array([], pa.int64()),
                "low": pa.array([], pa.float64()),
                "high": pa.array([], pa.float64()),
            }
        )
    ]
    for path in (p for role in ("exact", "near") for entry in job.inputs.get(role, ()) for p in entry.files(".removed.parquet")):
        if source_and_part(path.name)[0] == index:
            rows = read_table(path, columns=["rule", "survivor", "cluster", "similarity"])
            rows = rows.filter(np.array([rule != AGAINST for rule in rows.column("rule").to_pylist()], np.bool_))
            heads = [c or s for c, s in zip(rows.column("cluster").to_pylist(), rows.column("survivor").to_pylist(), strict=True)]
            one = pa.table({"head": pa.array(heads, pa.string()), "similarity": rows.column("similarity")}).group_by("head")
            table = one.aggregate([("similarity", "count"), ("similarity", "min"), ("similarity", "max")])
            tables.append(table.rename_columns(["head", "n", "low", "high"]))
    whole = pa.concat_tables(tables).group_by("head").aggregate([("n", "sum"), ("low", "min"), ("high", "max")])
    ordered = whole.sort_by([("n_sum", "descending"), ("head", "ascending")]).slice(0, SHOWN).to_pylist()
    return [(row["head"], row["n_sum"], row["low_min"], row["high_max"]) for row in ordered]


def _texts(job: Job, ids: list[str]) -> dict[str, str]:
    """The texts of a few documents, wherever they stand."""
    found: dict[str, str] = {}
    for entry in [*job.inputs.get("earlier", ()), *job.inputs["documents"]]:
        mine = [id for id in ids if id.startswith((f"{entry.source}:", f"{entry.source}/"))]
        for path in entry.files(".docs.arrow") if mine else ():
            found |= dict(_named(path, mine))
    return found


def _named(path: Path, ids: list[str]) -> Iterator[tuple[str, str]]:
    import pyarrow.compute as pc  # here, for it costs 30 ms that planning need not spend

    column = read_arrow(path, ["id"]).column("id")
    for id in ids:
        row = pc.index(column, id).as_py()
        if row >= 0:
            yield id, read_arrow(path, ["text"]).column("text")[row].as_py()


STAGE = Stage("rails", version=1, build=build)
