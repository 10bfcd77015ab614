"""The same configuration gives the same bytes: whatever the folder, the day, the workers, the hash seed."""

import pytest
from conftest import copy_sample
from projects import ROOT, doit, tree

DATED = ("LEDGER.jsonl", "raw", "store/fetch", ".doit.json", "downloads", "staging", "runs")
"""What may hold a date, by the design: acquisitions, receipts and raw parts, and doit's own database, which holds nothing that is needed."""

DAY = """
import corpusbuild.fetch
class Clock:
    def now(self): return {day}
corpusbuild.fetch.SystemClock = Clock
"""


def build(folder, workers, seed, day):
    """Build the sample in ``folder`` with a clock that stands on ``day`` (Unix seconds)."""
    copy_sample(folder)
    (folder / "day").mkdir()
    (folder / "day" / "sitecustomize.py").write_text(DAY.format(day=day))
    env = {"PYTHONHASHSEED": str(seed), "PYTHONPATH": f"{folder / 'day'}:{ROOT}", "TZ": "Pacific/Kiritimati" if seed else "UTC"}
    run = doit(folder, "build:sample", "--workers", str(workers), env=env, timeout=300)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    first, second = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two") / "in" / "another" / "place"
    said = build(first, 1, 0, 1_767_225_600.0), build(second, 3, 4242, 1_798_761_601.5)
    return first / "cache", second / "cache", said


def test_every_byte_is_the_same(both):
    one, two, _ = both
    left, right = tree(one, skip=DATED), tree(two, skip=DATED)
    assert len(left) > 60
    assert sorted(left) == sorted(right)
    assert [name for name in left if left[name] != right[name]] == []


def test_the_published_trees_are_the_same(both):
    one, two, _ = both
    for name in ("corpus/sample/v1", "tokens/bytes/sample"):
        assert tree((one / name).resolve()) == tree((two / name).resolve())


def test_both_days_are_in_the_ledger_and_nowhere_else(both):
    one, two, _ = both
    assert '"retrieved_at":"2026-01-01T00:00:00Z"' in (one / "LEDGER.jsonl").read_text()
    assert '"retrieved_at":"2027-01-01T00:00:01Z"' in (two / "LEDGER.jsonl").read_text()
    assert sorted(p.name for p in (two / "raw" / "speeches").iterdir()) == ["20270101"]
    for name, data in tree(two, skip=DATED).items():
        assert b"2027-01-01" not in data.encode() if isinstance(data, str) else b"2027-01-01T" not in data, name


def test_both_say_the_same(both):
    _, _, (said, other) = both
    summary = said[said.index("sample v1") :]
    assert summary == other[other.index("sample v1") :]
