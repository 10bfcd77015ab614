"""Decontaminate: a decision for each document that shares an n-gram with a protected evaluation text."""

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from msgspec import Meta

from corpusbuild import contamination, removals
from corpusbuild.model import Counts, Record, Tally, add_counts
from corpusbuild.parts import part_of, read_arrow
from corpusbuild.stage import Job, Out, Stage, Task
from corpusbuild.texts import texts_of


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
    found = [index.hits_of(block) for texts in texts_of(documents.column("text")) for block in texts.blocks()]
    hits = np.concatenate([np.empty(0, np.int64), *found])
    rows = np.flatnonzero(hits)
    same = {"source": params.source, "stage": STAGE.name, "threshold": pa.repeat(1.0, len(rows))}
    removals.write_rules(
        out.path(".removed.parquet"), documents, rows, pa.repeat("ngram", len(rows)), value=hits[rows].astype(np.float64), **same
    )
    return {"docs_in": len(documents), "kept": len(documents) - len(rows), "dropped": {"ngram": len(rows)} if len(rows) else {}}


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
