"""Train a tokenizer: a byte-level BPE of a given size on the corpus's own train split, for the tokens of that corpus."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from corpusbuild.errors import StageError
from corpusbuild.hashing import file_sha256
from corpusbuild.model import Counts, Record, Tally, add_counts
from corpusbuild.stage import Job, Out, Stage, Task
from corpusbuild.tokenizer import slices, text_bytes
from corpusbuild.tokenizer.huggingface import train

TOKENIZER = "tokenizer.json"


class Params(Record):
    vocab_size: int
    sample_bytes: int


class Measure(Task):
    """How much text of the train split a shard holds."""

    path: str


class Train(Task):
    paths: tuple[str, ...]
    vocab_size: int
    up_to: int
    """Documents are drawn of which the first 8 bytes of the text's digest, as a number, are at most this."""


def build(job: Job) -> Counts:
    params: Params = job.params
    corpus = job.inputs["corpus"][0]
    shards = [str(path) for path in corpus.files(".parquet")]
    measured = job.map(measure, [Measure(name=Path(path).stem, path=path) for path in shards])
    up_to = threshold(params.sample_bytes, sum(measured))
    (made,) = job.map(train_on, [Train(name="tokenizer", paths=tuple(shards), vocab_size=params.vocab_size, up_to=up_to)])
    job.put("train.json", msgspec.json.format(msgspec.json.encode(made["told"]), indent=2) + b"\n")
    counts = {source: Tally(**tally) for source, tally in made["counts"].items()}
    return {source: counts.get(source, Tally()) for source in corpus.contents.counts}


def threshold(sample_bytes: int, text_bytes: int) -> int:
    """Which digests are drawn so that about ``sample_bytes`` of the text are: those up to this number. All, where the text is no more than that.

    >>> threshold(10, 10) == 2**64 - 1, threshold(5, 10) == 2**63 - 1
    (True, True)
    """
    return (2**64 if text_bytes <= sample_bytes else 2**64 * sample_bytes // text_bytes) - 1


def measure(task: Measure, out: Out) -> int:
    return sum(_size(rows) for rows in _train_split(task.path))


def train_on(task: Train, out: Out) -> Any:
    counted: list[Counts] = []

    def sample() -> Iterator[str]:
        for path in task.paths:
            for rows in _train_split(path):
                drawn = first_bytes(rows.column("sha256")) <= task.up_to
                counted.append(_counts(rows.filter(pa.array(drawn)), rows.filter(pa.array(~drawn))))
                for texts in slices(_texts(rows.filter(pa.array(drawn)))):
                    yield from texts.to_pylist()

    data = train(sample(), task.vocab_size)
    path = out.path(".json")
    path.write_bytes(data)
    counts = add_counts(counted)
    n = sum(tally.kept for tally in counts.values())
    if not n:
        raise StageError("train_tokenizer", "train split", "no document is in it: lower shard.val_permille, or give tokenizer.path")
    merges = len(msgspec.json.decode(data)["model"]["merges"])
    size = sum(tally.also["trained_bytes"] for tally in counts.values())
    return {
        "counts": msgspec.to_builtins(counts),
        "told": {"documents": n, "text_bytes": size, "merges": merges, "sha256": file_sha256(path)},
    }


def first_bytes(digests: pa.ChunkedArray) -> NDArray[np.uint64]:
    """The first 8 bytes of each digest of 32, as a number."""
    held = b"".join(digests.to_pylist())
    return np.frombuffer(held, ">u8").reshape(-1, 4)[:, 0].astype(np.uint64)


def _counts(drawn: pa.Table, others: pa.Table) -> Counts:
    pairs = [*_by_source(drawn, "kept"), *_by_source(others, "not_drawn")]
    out: Counts = {}
    for source, what, n, size in pairs:
        one = Tally(docs_in=n, kept=n if what == "kept" else 0, dropped={} if what == "kept" else {what: n}, also={"trained_bytes": size})
        out = add_counts([out, {source: one}])
    return out


def _by_source(rows: pa.Table, what: str) -> Iterator[tuple[str, str, int, int]]:
    sizes = np.diff(text_bytes(_texts(rows))[1]) if what == "kept" else np.zeros(len(rows), np.int64)
    table = pa.table({"source": rows.column("source_id"), "size": sizes}).group_by("source", use_threads=False)
    for row in table.aggregate([("size", "count"), ("size", "sum")]).to_pylist():
        yield row["source"], what, row["size_count"], row["size_sum"]


def _size(rows: pa.Table) -> int:
    return int(text_bytes(_texts(rows))[1][-1])


def _texts(rows: pa.Table) -> pa.Array:
    return rows.column("text").cast(pa.large_string()).combine_chunks()


def _train_split(path: str) -> Iterator[pa.Table]:
    """The rows of the train split, a row group at a time."""
    shard = pq.ParquetFile(path)
    for group in range(shard.num_row_groups):
        rows = shard.read_row_group(group, columns=["source_id", "split", "text", "sha256"])
        yield rows.filter(pa.array(rows.column("split").to_numpy() == "train"))


STAGE = Stage("train_tokenizer", version=1, build=build)
