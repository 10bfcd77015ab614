"""Sign: what deduplication needs to know of each document of a source, so that its text need not be read again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from corpusbuild.minhash import BLOCK, batches, join, signs
from corpusbuild.minhash import SignParams as SignParams
from corpusbuild.model import Counts, Tally, add_counts
from corpusbuild.parts import part_of, read_arrow
from corpusbuild.signfile import PARAGRAPHS, paragraph_rows, write_signs
from corpusbuild.stage import Job, Out, Stage, Task


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
    signed, n_paragraphs = [], 0
    with pa.OSFile(str(out.path(".paragraphs.arrow")), "wb") as sink, pa.ipc.new_file(sink, PARAGRAPHS) as writer:
        for first_row, texts in _blocks(table.column("text")):
            signed.append(signs(texts, task.params))
            found = paragraph_rows(first_row, texts)
            writer.write_batch(found)
            n_paragraphs += len(found)
    whole = join(signed, task.params.bands)
    write_signs(out.path(".signs.arrow"), "id", table.column("id"), whole)
    return {"docs_in": len(table), "kept": len(table), "also": {"paragraphs": n_paragraphs, "shingles": int(whole.shingles.sum())}}


def _blocks(texts: pa.ChunkedArray) -> Iterator[tuple[int, list[str]]]:
    import pyarrow.compute as pc  # here, for it costs 30 ms that planning need not spend

    for start, end in batches(pc.binary_length(texts).to_pylist(), BLOCK):
        yield start, texts.slice(start, end - start).to_pylist()


STAGE = Stage("sign", version=1, build=build)
