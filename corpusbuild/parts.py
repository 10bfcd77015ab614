"""Parts: the tables that travel between stages, as files. A part is cut at 64 MB of text or 100,000 documents, whichever is first.

Documents and signs are Arrow IPC files (zstd or plain), decisions are Parquet (zstd). Row ``i`` of ``part-00003.docs.arrow`` and row ``i`` of every
table that speaks of it by ``row`` are the same document.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from corpusbuild.arrow import read_table

MAX_PART_BYTES = 64 * 1000 * 1000
MAX_PART_DOCS = 100_000
ZSTD_LEVEL = 3  # a third less than at Arrow's own level, 1, and no slower

DOCUMENTS = pa.schema(
    [
        ("id", pa.string()),  # <source>:<k>, k counted over the raw documents of the source
        ("text", pa.large_string()),  # normalised
        ("file", pa.int32()),  # index among the source's files
        ("place", pa.string()),  # where in that file: the 1-based line, or row group/row
        ("lang", pa.string()),  # two letters, or "und"
        ("lang_conf", pa.float64()),
        ("meta", pa.string()),  # JSON object of the columns that the source keeps, or null
    ]
)
"""``*.docs.arrow``, written by filter."""

REMOVED = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("stage", pa.string()),
        ("rule", pa.string()),  # the first rule failed
        ("value", pa.float64()),  # what was measured for it
        ("threshold", pa.float64()),  # what it was held against
        ("rules", pa.list_(pa.string())),  # every rule failed, in order
        ("survivor", pa.string()),  # duplicates: the id of the document that stays in its favour
        ("similarity", pa.float64()),  # duplicates: verified Jaccard, or 1 for equal text
        ("cluster", pa.string()),  # near duplicates: the id of the first document of the cluster
        ("place", pa.string()),
        ("file", pa.int32()),
        ("row", pa.int32()),  # row in the part's documents, or null where it never became one
    ]
)
"""``*.removed.parquet``: one row for a document that a stage removed."""

CUTS = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("row", pa.int32()),
        ("paragraph", pa.int32()),  # index among the document's paragraphs
        ("start", pa.int64()),  # code points of the filtered text
        ("end", pa.int64()),
        ("survivor", pa.string()),  # the document that holds the first occurrence
    ]
)
"""``*.cuts.parquet``, written by exact_dedup: one row for a paragraph that repeats an earlier one."""

SPANS = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("row", pa.int32()),
        ("kind", pa.string()),
        ("start", pa.int64()),  # code points of the filtered text
        ("end", pa.int64()),
    ]
)
"""``*.spans.parquet``, written by scrub: where personal data stands, never what it says."""


def write_arrow(path: Path, table: pa.Table, compression: str | None = "zstd") -> None:
    """Write an Arrow IPC file. Without compression it can be memory-mapped column by column."""
    codec = pa.Codec(compression, ZSTD_LEVEL) if compression else None
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer,
    ):
        writer.write_table(table, max_chunksize=MAX_PART_DOCS)


def read_arrow(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read an Arrow IPC file, memory-mapped; only ``columns`` are decompressed."""
    source = pa.memory_map(str(path), "r")
    options = pa.ipc.IpcReadOptions()
    if columns is not None:
        schema = pa.ipc.open_file(source).schema
        options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(c) for c in columns])
    return pa.ipc.open_file(source, options=options).read_all()


def write_rows(path: Path, rows: Iterable[dict[str, Any]], schema: pa.Schema) -> None:
    """Write decisions as Parquet. Missing fields are null."""
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path, compression="zstd")


def read_rows(path: Path, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_table(path, columns=columns).to_pylist()
    return rows


def part_name(index: int) -> str:
    return f"part-{index:05d}"


def part_of(path: Path) -> str:
    """The part that a file belongs to: ``part-00003`` of ``part-00003.docs.arrow``."""
    return path.name.split(".", 1)[0]


def removed_rows(paths: Iterable[Path]) -> set[int]:
    """The rows of one part's documents that the given ``*.removed.parquet`` tables of that part remove."""
    gone: set[int] = set()
    for path in paths:
        gone.update(row for row in read_table(path, columns=["row"]).column("row").to_pylist() if row is not None)
    return gone
