"""Arrow, without what it would load for nobody: pandas, and a reader for data sets of many files."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def read_table(path: str | Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read one Parquet file, or only ``columns`` of it. Not by pyarrow's own ``read_table``, which first imports a module for data sets of many files."""
    with pq.ParquetFile(path) as file:
        return file.read(columns=columns)


class _NoPandas:
    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not looked for here", name=name)
        return None


def leave_pandas() -> None:
    """Keep pyarrow from importing pandas, which takes longer than all else here, to see whether the first list it is given is a pandas object.

    It looks once, and finds none. Where pandas is loaded by then nothing changes; ``to_pandas`` and the like still find it later.
    """
    if "pandas" in sys.modules:
        return
    nothing = _NoPandas()
    sys.meta_path.insert(0, nothing)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(nothing)


def meet_pandas() -> None:
    """Have pyarrow know pandas objects again, where code that is not of this package has loaded pandas."""
    if "pandas" in sys.modules:
        pa.array([0]).to_pandas()


leave_pandas()
