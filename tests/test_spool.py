"""Spools and repeats: what is written under a partition is read back, and of equal digests the first is told."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild import repeats, spool
from corpusbuild.errors import IntegrityError

ADDITIONS = st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 99)), max_size=8), max_size=5)


@settings(deadline=None, max_examples=60)
@given(ADDITIONS)
def test_a_partition_is_read_back_in_the_order_it_was_added(additions: list[list[tuple[int, int]]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "spool"
        with spool.writing(path) as out:
            for addition in additions:
                partitions, records = np.array(addition, np.uint64).reshape(-1, 2).T
                out.add(partitions, records)
        for partition in range(5):
            expected = [[record for p, record in addition if p == partition] for addition in additions]
            assert [run.tolist() for run in spool.runs(path, partition, "<u8")] == [run for run in expected if run]
            assert spool.read(path, partition, "<u8").tolist() == [record for run in expected for record in run]


def test_a_spool_with_a_hole_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    with spool.writing(path) as out:
        out.add(np.zeros(4, np.int64), np.arange(4, dtype=np.uint64))
    path.write_bytes(path.read_bytes()[24:])
    with pytest.raises(IntegrityError, match="ends early"):
        spool.read(path, 0, np.dtype([("a", "<u8"), ("b", "<u8")]))


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=20))
def test_each_digest_is_linked_to_its_first(pairs: list[tuple[int, int]]) -> None:
    hi, lo = np.array(pairs, np.uint64).reshape(-1, 2).T
    firsts, links = repeats.split(repeats.digests(hi, lo, np.arange(100, 100 + len(pairs), dtype=np.uint64)))
    assert [tuple(row) for row in firsts.tolist()] == [(*p, 100 + i) for i, p in enumerate(pairs) if pairs.index(p) == i]
    assert links.tolist() == [(100 + i, 100 + pairs.index(p)) for i, p in enumerate(pairs) if pairs.index(p) != i]


@pytest.mark.parametrize("bits", [0, 1, 7, 16])
def test_partitions_are_the_highest_bits(bits: int) -> None:
    keys = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
    assert spool.partition_of(keys, bits).tolist() == [key >> (64 - bits) for key in keys.tolist()]
