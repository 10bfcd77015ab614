"""Workers that hang or die in the middle of a build: tried again, with fewer neighbours after a death, then named with the setting to change.

The fault sits in a rule of the project's own, which is called in the workers like any other.
"""

import pytest
from projects import doit, jsonl, make_project, story, tree

RULES = '''
import os, signal, time
from pathlib import Path

HERE = Path(__file__).parent

def begun():
    """Notes one more process that reached the document, and gives how many that makes."""
    marks = HERE / "marks"
    with marks.open("a") as file:
        file.write(f"{{os.getpid()}}\\n")
    return len(marks.read_text().split())

def fault(text, meta):
    if meta["id"] == "one:7" and begun() <= {times}:
        {deed}
    return None
'''
HANG, DIE = "time.sleep(3600)", "os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What the project gives when nothing happens to its workers."""
    return built(tmp_path_factory.mktemp("whole"), "pass", 0)[1]


def built(folder, deed, times, run=""):
    """The finished command, the corpus if there is one, and how many processes reached the document."""
    sources = {"one": ("one.jsonl", jsonl([story(i) for i in range(12)]), "")}
    extra = f'[shard]\nshard_rows = 5\n[filters]\nrules = ["fault:fault"]\n[run]\nworkers = 2\nmemory = "4 GB"\n{run}\n'
    make_project(folder, sources, extra=extra)
    (folder / "fault.py").write_text(RULES.format(deed=deed, times=times))
    done = doit(folder, "build:tiny")
    corpus = folder / "cache" / "corpus" / "tiny" / "v1"
    marks = folder / "marks"
    return done, documents(corpus) if corpus.exists() else None, len(marks.read_text().split()) if marks.exists() else 0


def documents(corpus):
    """The shards; the manifest and the papers name keys, which hold the digest of the rule."""
    return {name: data for name, data in tree(corpus.resolve()).items() if name.endswith(".parquet")}


def test_a_worker_that_hangs_is_killed_by_the_heartbeat_and_its_part_begun_again(tmp_path, whole):
    done, corpus, reached = built(tmp_path, HANG, 1, "heartbeat = 1.5")
    assert done.returncode == 0, done.stderr
    assert (corpus, reached) == (whole, 2)


def test_a_worker_that_dies_costs_one_more_attempt(tmp_path, whole):
    done, corpus, reached = built(tmp_path, DIE, 2)
    assert done.returncode == 0, done.stderr
    assert (corpus, reached) == (whole, 3)


def test_a_part_whose_workers_always_die_is_named_with_its_memory_and_the_setting(tmp_path, whole):
    done, corpus, reached = built(tmp_path, DIE, 99)
    assert done.returncode == 75
    assert (corpus, reached) == (None, 3)
    (line,) = [line for line in done.stderr.splitlines() if "filter:one/part-00000" in line]
    for part in ("SIGKILL", "3 attempts", "3,800 MB of memory", "run.memory", "run.workers"):
        assert part in line
    (tmp_path / "marks").write_text("\n".join("1" * 100))  # the fault has passed
    again = doit(tmp_path, "build:tiny")
    assert again.returncode == 0, again.stderr
    assert documents(tmp_path / "cache" / "corpus" / "tiny" / "v1") == whole


def test_attempts_and_heartbeat_are_settings(tmp_path):
    done, corpus, reached = built(tmp_path, HANG, 99, "part_attempts = 2\nheartbeat = 1.0")
    assert done.returncode == 75
    assert (corpus, reached) == (None, 2)
    assert "stood still for 1 s (timeout, 2 attempts)" in done.stderr
    assert "run.heartbeat" in done.stderr


def test_a_part_that_works_for_too_long_is_killed_too(tmp_path):
    work = "sum(iter(lambda: 1, 0))"
    done, corpus, reached = built(tmp_path, work, 99, "part_attempts = 1\npart_timeout = 1.5")
    assert done.returncode == 75
    assert (corpus, reached) == (None, 1)
    assert "ran longer than 1.5 s" in done.stderr
