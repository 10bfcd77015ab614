"""Sign: what deduplication needs to know of each document of a source, so that its text need not be read again."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from corpusbuild.minhash import SignParams as SignParams
from corpusbuild.minhash import join, sign_texts
from corpusbuild.model import Counts, Tally, add_counts
from corpusbuild.parts import part_of, read_arrow
from corpusbuild.signfile import PARAGRAPHS, paragraph_rows, write_signs
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
    """Write the signs and the paragraphs of one part, a block of its documents at a time."""
    table = read_arrow(Path(task.path), ["id", "text"])
    signed, row, n_paragraphs = [], 0, 0
    with pa.OSFile(str(out.path(".paragraphs.arrow")), "wb") as sink, pa.ipc.new_file(sink, PARAGRAPHS) as writer:
        for texts in (block for column in texts_of(table.column("text")) for block in column.blocks()):
            signed.append(sign_texts(texts, task.params))
            found = paragraph_rows(row, texts)
            writer.write_batch(found)
            row += len(texts.offsets) - 1
            n_paragraphs += len(found)
    whole = join(signed, task.params.bands)
    write_signs(out.path(".signs.arrow"), "id", table.column("id"), whole)
    return {"docs_in": len(table), "kept": len(table), "also": {"paragraphs": n_paragraphs, "shingles": int(whole.shingles.sum())}}


STAGE = Stage("sign", version=2, build=build)
