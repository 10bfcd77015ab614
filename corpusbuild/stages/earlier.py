"""Earlier: the documents of a corpus that was published before, as deduplication takes them. They are compared with, and never part of the result."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from corpusbuild.errors import IntegrityError
from corpusbuild.hashing import file_sha256
from corpusbuild.model import Counts, Record, Tally, total
from corpusbuild.parts import DOCUMENTS, MAX_PART_BYTES, MAX_PART_DOCS, part_name, write_arrow
from corpusbuild.stage import Job, Out, Stage, Task

MANIFEST = "_MANIFEST.json"
BATCH = 1000  # documents read at once


class Params(Record):
    """A published corpus. Its manifest's digest stands for all that it holds; where it lies decides nothing."""

    dataset: str
    version: str
    manifest_sha256: str
    path: str

    @property
    def name(self) -> str:
        """What its documents are known by: theirs are ``<dataset>@<version>/<id>``, which is no id of a source's document."""
        return f"{self.dataset}@{self.version}"


class Take(Task):
    path: str
    sha256: str
    index: int
    prefix: str


class _Shard(msgspec.Struct):
    name: str
    sha256: str


class Manifest(msgspec.Struct):
    """What must be known of an earlier corpus's manifest."""

    dataset: str
    version: str
    shards: list[_Shard]


def read_manifest(data: bytes) -> Manifest:
    """``msgspec.DecodeError`` when it is no manifest of a corpus."""
    return msgspec.json.decode(data, type=Manifest)


def build(job: Job) -> Counts:
    params: Params = job.params
    home = Path(params.path)
    try:
        manifest = home / MANIFEST
        if file_sha256(manifest) != params.manifest_sha256:
            raise IntegrityError(f"{manifest} changed while the build was running: run it again")
        shards = read_manifest(manifest.read_bytes()).shards
    except FileNotFoundError:
        raise IntegrityError(f"{home} went while the build was running: run it again") from None
    tasks = [
        Take(name=part_name(i), path=str(home / shard.name), sha256=shard.sha256, index=i, prefix=params.name)
        for i, shard in enumerate(shards)
    ]
    return {params.name: total([Tally(**value) for value in job.map(take_shard, tasks)])}


def take_shard(task: Take, out: Out) -> Any:
    """Write the documents of one shard as parts. A shard that is missing or not what its manifest says is refused by name."""
    path = Path(task.path)
    if not path.is_file():
        raise IntegrityError(f"{path} is missing, though its manifest names it: build that corpus again, or take it out of dedup.against")
    if file_sha256(path) != task.sha256:
        raise IntegrityError(f"{path} is not what its manifest says: build that corpus again, or take it out of dedup.against")
    docs = size = 0
    for i, table in enumerate(_parts(path)):
        n, row = len(table), docs
        columns = {
            "id": pa.array([f"{task.prefix}/{id}" for id in table.column("id").to_pylist()], pa.string()),
            "text": table.column("text").cast(pa.large_string()),
            "file": pa.repeat(task.index, n).cast(pa.int32()),
            "place": pa.array([str(k) for k in range(row, row + n)], pa.string()),
        }
        missing = {field.name: pa.nulls(n, field.type) for field in DOCUMENTS if field.name not in columns}
        write_arrow(
            out.path(f"-{i:05d}.docs.arrow"), pa.table({name: (columns | missing)[name] for name in DOCUMENTS.names}, schema=DOCUMENTS)
        )
        docs += n
        size += table.column("text").nbytes
    return {"docs_in": docs, "kept": docs, "also": {"text_bytes": size}}


def _parts(path: Path) -> Iterator[pa.Table]:
    """The ids and texts of a shard, as tables of the size of a part; one without rows if the shard has none."""
    with pq.ParquetFile(path) as shard:
        held: list[pa.RecordBatch] = []
        docs = size = given = 0
        for batch in shard.iter_batches(BATCH, columns=["id", "text"]):
            if held and (docs + len(batch) > MAX_PART_DOCS or size + batch.nbytes > MAX_PART_BYTES):
                yield pa.Table.from_batches(held)
                held, docs, size, given = [], 0, 0, given + 1
            held.append(batch)
            docs, size = docs + len(batch), size + batch.nbytes
        if held or not given:
            yield pa.Table.from_batches(held, schema=pa.schema([("id", pa.string()), ("text", pa.string())]))


STAGE = Stage(
    "earlier",
    version=2,
    build=build,
    names_output=lambda params: {"dataset": params.dataset, "version": params.version, "manifest_sha256": params.manifest_sha256},
)
