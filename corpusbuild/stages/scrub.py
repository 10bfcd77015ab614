"""Scrub: where personal data stands in each document, or, under the policy ``drop``, the decision to let the document go."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpusbuild import pii, removals
from corpusbuild.model import Counts, Record, Tally, add_counts
from corpusbuild.parts import SPANS, part_of, read_arrow, removed_rows
from corpusbuild.stage import Job, Out, Stage, Task
from corpusbuild.texts import texts_of

Policy = Literal["scrub", "drop", "none"]


class Search(Record):
    """What is looked for: the kinds, and the version of the library that checks the further ones, where there are some."""

    kinds: tuple[str, ...] = pii.KINDS
    validators: str | None = None


class Params(Record):
    source: str
    policy: Policy
    pii: Search = Search()


class Scan(Task):
    path: str
    removed: tuple[str, ...]
    params: Params


def build(job: Job) -> Counts:
    params: Params = job.params
    earlier = [path for entry in job.inputs.get("removed", ()) for path in entry.files(".removed.parquet")]
    tasks = [
        Scan(name=part_of(path), path=str(path), removed=tuple(str(p) for p in earlier if part_of(p) == part_of(path)), params=params)
        for path in job.inputs["documents"][0].files(".docs.arrow")
    ]
    return add_counts([{params.source: Tally(**value)} for value in job.map(scan_part, tasks)] or [{params.source: Tally()}])


def scan_part(task: Scan, out: Out) -> Any:
    params = task.params
    kinds = params.pii.kinds
    documents = read_arrow(Path(task.path), ["id", "text", "place", "file"])
    stays = np.ones(len(documents), np.bool_)
    stays[sorted(removed_rows(map(Path, task.removed)))] = False
    found = _found(documents.column("text"), kinds if params.policy != "none" else ())
    found = found.at(stays[found.rows])
    spans = {
        "id": documents.column("id").take(pa.array(found.rows)),
        "source": pa.repeat(params.source, len(found.rows)),
        "row": found.rows.astype(np.int32),
        "kind": pa.DictionaryArray.from_arrays(found.kinds, pa.array(kinds, pa.string())).cast(pa.string()),
        "start": found.starts,
        "end": found.ends,
    }
    pq.write_table(pa.table(spans, schema=SPANS), out.path(".spans.parquet"), compression="zstd")
    rows, counts = np.unique(found.rows if params.policy == "drop" else found.rows[:0], return_counts=True)
    same = {"source": params.source, "stage": STAGE.name, "threshold": pa.repeat(1.0, len(rows))}
    removals.write_rules(
        out.path(".removed.parquet"), documents, rows, pa.repeat("pii", len(rows)), value=counts.astype(np.float64), **same
    )
    also = dict(zip(kinds, np.bincount(found.kinds, minlength=len(kinds)).tolist(), strict=True))
    seen = int(np.count_nonzero(stays))
    return {"docs_in": seen, "kept": seen - len(rows), "dropped": {"pii": len(rows)} if len(rows) else {}, "also": also}


def _found(column: pa.ChunkedArray, kinds: Sequence[str]) -> pii.Places:
    """The personal data of ``kinds`` in a column of texts."""
    found, row = [pii.NOWHERE], 0
    for texts in (block for array in texts_of(column) for block in array.blocks()) if kinds else ():
        places = pii.detect_all(texts, kinds)
        found.append(places._replace(rows=places.rows + row))
        row += len(texts.offsets) - 1
    return pii.joined(found)


STAGE = Stage("scrub", version=2, build=build)
