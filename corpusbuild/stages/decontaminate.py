"""Decontaminate: a decision for each document that shares an n-gram with a protected evaluation text."""

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from corpusbuild import contamination
from corpusbuild.model import Counts, Record, Tally, add_counts
from corpusbuild.parts import REMOVED, part_of, read_arrow, write_rows
from corpusbuild.stage import Job, Out, Stage, Task


class Protected(Record):
    """An evaluation file. Only its digest decides the output; its name says how it is read (``.jsonl`` or plain text)."""

    name: str
    path: str
    sha256: str


class Params(Record):
    source: str
    protected: tuple[Protected, ...]
    ngram: Annotated[int, Meta(ge=1)] = 13


class Check(Task):
    path: str
    params: Params


def build(job: Job) -> Counts:
    params: Params = job.params
    tasks = [Check(name=part_of(path), path=str(path), params=params) for path in job.inputs["documents"][0].files(".docs.arrow")]
    return add_counts([{params.source: Tally(**value)} for value in job.map(check_part, tasks)] or [{params.source: Tally()}])


def check_part(task: Check, out: Out) -> Any:
    params = task.params
    index = _index(params.protected, params.ngram)
    documents = read_arrow(Path(task.path), ["id", "text", "place", "file"])
    rows = []
    for row, document in enumerate(documents.to_pylist()):
        shared = index.hits(document.pop("text"))
        if shared:
            rows.append(
                document
                | {
                    "row": row,
                    "source": params.source,
                    "stage": "decontaminate",
                    "rule": "ngram",
                    "value": shared,
                    "threshold": 1,
                    "rules": ["ngram"],
                }
            )
    write_rows(out.path(".removed.parquet"), rows, REMOVED)
    return {"docs_in": len(documents), "kept": len(documents) - len(rows), "dropped": {"ngram": len(rows)} if rows else {}}


@lru_cache(maxsize=1)
def _index(protected: tuple[Protected, ...], n: int) -> contamination.Index:
    """The n-grams of the protected texts, made once in a process."""
    texts = (text for p in protected for text in contamination.protected_texts(p.name, Path(p.path).read_bytes()))
    return contamination.build_index(texts, n)


def _names_output(params: Params) -> object:
    return {
        "source": params.source,
        "ngram": params.ngram,
        "protected": [{"sha256": p.sha256, "jsonl": p.name.endswith(".jsonl")} for p in params.protected],
    }


STAGE = Stage("decontaminate", version=1, build=build, names_output=_names_output)
