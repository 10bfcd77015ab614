"""The decisions of stages that compare documents: a table, for one part, of those that went in favour of another."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpusbuild.parts import REMOVED, read_arrow
from corpusbuild.placement import Part


def write(path: Path, part: Part, rows: Any, stage: str, rule: str, **columns: Any) -> None:
    """Write the ``*.removed.parquet`` of ``part`` for the documents in ``rows`` (ascending), removed by the one ``rule``.

    ``columns`` are the others of ``REMOVED`` that the stage knows, a value a row; those it does not name are null.
    """
    n, which = len(rows), pa.array(rows)
    documents = read_arrow(Path(part.documents), ["id", "file", "place"]).take(which)
    same = {"source": part.source, "stage": stage, "rule": rule}
    known = {name: pa.repeat(value, n) for name, value in same.items()} | {
        "id": documents.column("id"),
        "file": documents.column("file"),
        "place": documents.column("place"),
        "row": np.asarray(rows, np.int32),
        "rules": pa.array([[rule]] * n, pa.list_(pa.string())),
        **columns,
    }
    table = pa.table({field.name: known.get(field.name, pa.nulls(n, field.type)) for field in REMOVED}, schema=REMOVED)
    pq.write_table(table, path, compression="zstd")
