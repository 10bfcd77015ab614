"""The ledger is appended to and survives what tears its last line."""

import json
import multiprocessing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild.errors import DiskError, IntegrityError
from corpusbuild.ledger import LEDGER_NAME, TORN_NAME, append_rows, encode_row, read_rows

ROWS = [{"source_id": "a", "n": 1}, {"source_id": "bé", "n": 2}]


@given(
    st.lists(
        st.dictionaries(st.text(max_size=5), st.one_of(st.text(max_size=9), st.integers(-(2**50), 2**50)), max_size=3),
        max_size=4,
        unique_by=repr,
    ),
    st.integers(0, 200),
)
@settings(deadline=None, max_examples=60)
def test_a_tear_loses_at_most_the_torn_row(tmp_path_factory, rows, tear):
    path = tmp_path_factory.mktemp("l") / LEDGER_NAME
    append_rows(path, rows)
    data = path.read_bytes() if path.exists() else b""
    path.write_bytes(data[: max(0, len(data) - tear)])
    left = read_rows(path)
    assert left == rows[: len(left)]
    append_rows(path, ROWS)
    assert read_rows(path) == left + ROWS
    assert path.read_bytes().endswith(b"\n")
    assert all(json.loads(line) for line in path.read_bytes().splitlines() if line != b"{}")


def test_a_torn_line_is_moved_aside_and_not_lost(tmp_path):
    path = tmp_path / LEDGER_NAME
    append_rows(path, ROWS[:1])
    with path.open("ab") as f:
        f.write(b'{"source_id": "tor')
    assert read_rows(path) == ROWS[:1]
    append_rows(path, ROWS[1:])
    assert read_rows(path) == ROWS
    assert (tmp_path / TORN_NAME).read_bytes() == b'{"source_id": "tor\n'


def test_a_whole_line_without_its_end_is_kept(tmp_path):
    path = tmp_path / LEDGER_NAME
    path.write_bytes(encode_row(ROWS[0])[:-1])
    append_rows(path, ROWS[1:])
    assert read_rows(path) == ROWS
    assert not (tmp_path / TORN_NAME).exists()


def test_a_bad_line_is_named(tmp_path):
    path = tmp_path / LEDGER_NAME
    path.write_bytes(encode_row(ROWS[0]) + b"\nnot json\n" + encode_row(ROWS[1]))
    with pytest.raises(IntegrityError, match="line 3"):
        read_rows(path)


def test_a_row_that_is_there_is_not_written_again(tmp_path):
    path = tmp_path / LEDGER_NAME
    append_rows(path, ROWS)
    append_rows(path, ROWS)
    assert read_rows(path) == ROWS


def test_nothing_to_append_touches_nothing(tmp_path):
    append_rows(tmp_path / LEDGER_NAME, [])
    assert list(tmp_path.iterdir()) == []


def test_half_a_batch_is_taken_back(tmp_path, monkeypatch):
    import os

    path = tmp_path / LEDGER_NAME
    append_rows(path, ROWS)
    before = path.read_bytes()
    real, calls = os.write, []

    def failing(fd, data):
        calls.append(1)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(os, "write", failing)
    with pytest.raises(DiskError, match="disk is full"):
        append_rows(path, [{"n": 3}, {"n": 4}])
    assert path.read_bytes() == before


def test_a_link_in_its_place_is_refused(tmp_path):
    (tmp_path / "other").write_bytes(b"")
    (tmp_path / LEDGER_NAME).symlink_to("other")
    with pytest.raises((DiskError, OSError)):
        append_rows(tmp_path / LEDGER_NAME, ROWS)
    assert (tmp_path / "other").read_bytes() == b""


def _append(path, n):
    for i in range(20):
        append_rows(path, [{"source_id": f"p{n}", "n": i}])


def test_two_processes_mix_no_rows(tmp_path):
    path = tmp_path / LEDGER_NAME
    processes = [multiprocessing.get_context("fork").Process(target=_append, args=(path, n)) for n in range(2)]
    for p in processes:
        p.start()
    for p in processes:
        p.join()
    rows = read_rows(path)
    for n in range(2):
        assert [r["n"] for r in rows if r["source_id"] == f"p{n}"] == list(range(20))
