"""pyarrow loads neither pandas nor its data sets for us, and still knows what others made with pandas."""

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusbuild.arrow import read_table


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_a_table_is_what_pyarrow_reads(tmp_path):
    table = pa.table({"row": [1, None, 3], "id": ["a", "b", None], "rules": [["x"], [], None]})
    pq.write_table(table, tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").equals(pq.read_table(tmp_path / "t.parquet"))
    assert read_table(tmp_path / "t.parquet", ["id", "row"]).equals(pq.read_table(tmp_path / "t.parquet", columns=["id", "row"]))


def test_tables_are_made_and_read_without_pandas_and_data_sets(tmp_path):
    path = str(tmp_path / "t.parquet")
    code = f"""
import sys
from pathlib import Path
from corpusbuild.arrow import read_table
import pyarrow as pa, pyarrow.parquet as pq
pq.write_table(pa.table({{"a": [1, 2]}}), {path!r})
read_table(Path({path!r}), ["a"]).column("a").to_pylist()
print("pandas" in sys.modules, "pyarrow.dataset" in sys.modules)
"""
    assert run(code) == ["False", "False"]


def test_pandas_that_a_plugin_loads_is_known():
    pytest.importorskip("pandas")
    code = """
from corpusbuild import arrow
import pandas, pyarrow
arrow.meet_pandas()
print(pyarrow.array(pandas.Series([1.0, float("nan")])).null_count)
"""
    assert run(code) == ["1"]
