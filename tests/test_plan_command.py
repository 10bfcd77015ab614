"""What a build would run and why is told before anything runs, and is what then runs."""

import json

import pytest
from projects import doit_here, make_project

PLANNED = ("reuse", "build", "fetch")


@pytest.fixture
def project(tmp_path):
    make_project(tmp_path)
    return tmp_path


def run(project, capfd, *args):
    code = doit_here(project, *args)
    said = capfd.readouterr()
    return code, said.out, said.err


def planned(text):
    return {line.split()[0]: line.split()[1] for line in text.splitlines() if len(line.split()) > 1 and line.split()[1] in PLANNED}


def ran(text):
    return [event["step"] for event in map(json.loads, text.splitlines()) if event["event"] == "built"]


CHANGES = [(), ("--set", "dedup.jaccard_threshold=0.7"), ("--set", "dedup.shingle=4"), ("--set", "shard.val_permille=9")]


def test_what_is_planned_is_what_runs(project, capfd):
    for change in CHANGES:
        code, out, _ = run(project, capfd, "plan", "tiny", *change)
        assert code == 0
        wanted = [label for label, what in planned(out).items() if what != "reuse"]
        code, out, _ = run(project, capfd, "build:tiny", "--json", *change)
        assert code == 0
        assert sorted(ran(out)) == sorted(wanted), change


def test_a_plan_runs_nothing_and_tells_disk_memory_and_that_no_time_is_known(project, capfd):
    code, out, _ = run(project, capfd, "plan", "tiny")
    assert code == 0
    assert not (project / "cache").exists()
    assert "steps to run, 0 reused" in out
    assert "time      unknown: no earlier run here tells what filter" in out
    assert "memory    1.5 GB at most" in out


def test_the_time_follows_from_the_journal(project, capfd, monkeypatch):
    monkeypatch.setattr("corpusbuild.estimate.LEAST_TEXT", 1)
    assert run(project, capfd, "build:tiny")[0] == 0
    for path in (project / "cache" / "runs").rglob("*.jsonl"):  # a filter that takes 10 s a kilobyte
        events = [json.loads(line) for line in path.read_text().splitlines()]
        for event in events:
            if event["event"] == "step":
                event["worked"] = event["text_bytes"] / 100
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
    _, out, _ = run(project, capfd, "plan", "tiny", "--set", "filters.min_chars=51", "--workers", "1")
    said = next(line for line in out.splitlines() if line.startswith("time"))
    assert "by what earlier runs took" in said
    assert "min" in said


def test_a_build_that_cannot_fit_says_so_before(project, capfd, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    code, out, _ = run(project, capfd, "plan", "tiny")
    assert code == 0
    assert "are missing: the build would be refused" in out


def test_why_names_every_field_that_changed(project, capfd):
    assert run(project, capfd, "build:tiny")[0] == 0
    change = ("--set", "dedup.jaccard_threshold=0.7", "--set", "dedup.max_bucket=9")
    code, out, _ = run(project, capfd, "why", "build:tiny:near_dedup", *change)
    assert code == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "near_dedup: stale"
    assert "dedup.jaccard_threshold 0.8 -> 0.7" in lines
    assert "dedup.max_bucket 64 -> 9" in lines
    assert len(lines) == 5, "nothing that did not change is named"


def test_why_follows_a_change_to_where_it_began(project, capfd):
    assert run(project, capfd, "build:tiny")[0] == 0
    _, out, _ = run(project, capfd, "why", "build:tiny:exact_dedup", "--set", "filters.min_chars=51")
    assert "takes filter:stories" in out
    assert "filters.min_chars 50 -> 51" in out


def test_why_of_what_is_fresh_missing_or_unknown(project, capfd):
    assert "never under the name tiny" in run(project, capfd, "why", "build:tiny:shard")[1]
    assert run(project, capfd, "build:tiny")[0] == 0
    assert "build:tiny is fresh" in run(project, capfd, "why", "tiny")[1]
    assert "the same" in run(project, capfd, "why", "fetch:stories")[1]
    code, _, err = run(project, capfd, "why", "build:tiny:nothing")
    assert code == 2
    assert "is not a build, source or step" in err
