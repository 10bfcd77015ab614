"""Scrub: where personal data stands in each document, or, under the policy ``drop``, the decision to let the document go."""

from pathlib import Path
from typing import Any, Literal

from corpusbuild import pii
from corpusbuild.model import Counts, Record, Tally, add_counts
from corpusbuild.parts import REMOVED, SPANS, part_of, read_arrow, removed_rows, write_rows
from corpusbuild.stage import Job, Out, Stage, Task

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
    gone = removed_rows(map(Path, task.removed))
    spans: list[dict[str, Any]] = []
    removed: list[dict[str, Any]] = []
    also = dict.fromkeys(params.pii.kinds, 0)
    seen = 0
    for row, document in enumerate(read_arrow(Path(task.path), ["id", "text", "place", "file"]).to_pylist()):
        if row in gone:
            continue
        seen += 1
        found = pii.detect(document.pop("text"), params.pii.kinds) if params.policy != "none" else []
        for span in found:
            also[span.kind] += 1
            spans.append(
                {"id": document["id"], "source": params.source, "row": row, "kind": span.kind, "start": span.start, "end": span.end}
            )
        if found and params.policy == "drop":
            removed.append(
                document
                | {
                    "row": row,
                    "source": params.source,
                    "stage": "scrub",
                    "rule": "pii",
                    "value": len(found),
                    "threshold": 1,
                    "rules": ["pii"],
                }
            )
    write_rows(out.path(".spans.parquet"), spans, SPANS)
    write_rows(out.path(".removed.parquet"), removed, REMOVED)
    return {"docs_in": seen, "kept": seen - len(removed), "dropped": {"pii": len(removed)} if removed else {}, "also": also}


STAGE = Stage("scrub", version=2, build=build)
