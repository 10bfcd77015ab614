"""The decisions of stages that compare documents: a table, for one part, of those that went in favour of another."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpusbuild.parts import REMOVED, read_arrow
from corpusbuild.placement import Part

AGAINST = "against"
"""The rule of every stage here by which a document goes in favour of one in an earlier corpus."""


def write(path: Path, part: Part, rows: Any, stage: str, rule: str, against: Any, **columns: Any) -> dict[str, int]:
    """Write the ``*.removed.parquet`` of ``part`` for the documents in ``rows`` (ascending), and say how many went by which rule.

    They went by ``rule``, or where ``against`` is true in favour of a document in an earlier corpus. ``columns`` are the others of ``REMOVED`` that the stage knows, a value a row; those it does not name are null.
    """
    rules = pa.DictionaryArray.from_arrays(np.asarray(against, np.int32), [rule, AGAINST]).cast(pa.string())
    write_rules(path, read_arrow(Path(part.documents), ["id", "file", "place"]), rows, rules, source=part.source, stage=stage, **columns)
    n = len(rows)
    n_against = int(np.count_nonzero(against))
    return {rule: n - n_against} | ({AGAINST: n_against} if n_against else {})


def write_rules(path: Path, documents: pa.Table, rows: Any, rules: pa.Array, source: str, stage: str, **columns: Any) -> None:
    """Write the ``*.removed.parquet`` of a part with these ``documents`` for those in ``rows`` (ascending), each of which goes by its rule alone."""
    n, taken = len(rows), documents.select(["id", "file", "place"]).take(pa.array(rows, pa.int64()))
    known = {name: taken.column(name) for name in taken.column_names} | {
        "source": pa.repeat(source, n),
        "stage": pa.repeat(stage, n),
        "row": np.asarray(rows, np.int32),
        "rule": rules,
        "rules": pa.ListArray.from_arrays(np.arange(n + 1, dtype=np.int32), rules),
        **columns,
    }
    table = pa.table({field.name: known.get(field.name, pa.nulls(n, field.type)) for field in REMOVED}, schema=REMOVED)
    pq.write_table(table, path, compression="zstd")
