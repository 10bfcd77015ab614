"""Sign: what deduplication needs to know of each document of a source, so that its text need not be read again."""

from pathlib import Path
from typing import Any

import numpy as np

from corpusbuild import paragraphs
from corpusbuild.minhash import SignParams as SignParams
from corpusbuild.minhash import join, sign_texts
from corpusbuild.model import Counts, Tally, add_counts
from corpusbuild.parts import part_of, read_arrow
from corpusbuild.signfile import write_signs
from corpusbuild.stage import Job, Out, Stage, Task
from corpusbuild.texts import texts_of


class SignPart(Task):
    path: str
    params: SignParams


def build(job: Job) -> Counts:
    entry = job.inputs["documents"][0]
    tasks = [SignPart(name=part_of(path), path=str(path), params=job.params) for path in entry.files(".docs.arrow")]
    return add_counts([{entry.source: Tally(**value)} for value in job.map(sign_part, tasks)] or [{entry.source: Tally()}])


def sign_part(task: SignPart, out: Out) -> Any:
    """Write the signs of one part, made of a block of its documents at a time."""
    table = read_arrow(Path(task.path), ["id", "text"])
    signed, counts = [], [np.empty(0, np.int64)]
    for texts in (block for column in texts_of(table.column("text")) for block in column.blocks()):
        signed.append(sign_texts(texts, task.params))
        counts.append(paragraphs.counts(texts))
    whole, per_document = join(signed, task.params.bands), np.concatenate(counts)
    write_signs(out.path(".signs.arrow"), {"id": table.column("id"), "paragraphs": per_document.astype(np.int32)}, whole)
    return {
        "docs_in": len(table),
        "kept": len(table),
        "also": {"paragraphs": int(per_document.sum()), "shingles": int(whole.shingles.sum())},
    }


STAGE = Stage("sign", version=4, build=build)
