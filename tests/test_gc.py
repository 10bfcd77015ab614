"""``doit gc`` and ``doit log``: what nothing reaches goes, and nothing else; what ran can be read."""

import os
import time

import pytest
from projects import doit, make_project, tree

from corpusbuild.staging import owner_token


@pytest.fixture
def project(tmp_path):
    make_project(tmp_path)
    assert doit(tmp_path, "build:tiny").returncode == 0
    return tmp_path


def entries(folder):
    return {f"{p.parent.name}/{p.name}" for p in (folder / "cache" / "store").glob("*/*")}


def test_nothing_that_is_reached_goes(project):
    before = tree(project / "cache" / "store")
    assert doit(project, "gc").stdout == "gc: nothing to remove\n"
    assert tree(project / "cache" / "store") == before


def test_what_no_configuration_reaches_goes_and_raw_documents_stay(project):
    first = entries(project)
    assert doit(project, "build:tiny", "--set", "dedup.shingle=4").returncode == 0
    second = entries(project) - first
    assert doit(project, "build:tiny").returncode == 0
    told = doit(project, "gc", "--dry-run")
    assert entries(project) == first | second
    run = doit(project, "gc")
    assert run.stdout == told.stdout.replace("would remove", "removed")
    assert entries(project) == first
    assert doit(project, "build:tiny").stdout == "build:tiny: nothing to be done\n"
    (project / "configs" / "tiny.toml").unlink()
    for name in ("corpus", "tokens", "builds"):
        os.rename(project / "cache" / name, project / f"old-{name}")
    doit(project, "gc")
    assert {e.split("/")[0] for e in entries(project)} == {"fetch"}


@pytest.mark.parametrize("reach", ["a published name", "a lock", "a running build", "the last runs"])
def test_what_else_reaches_an_entry(project, reach):
    first = entries(project)
    assert doit(project, "build:tiny", "--set", "shard.shard_rows=7").returncode == 0
    second = entries(project) - first
    args = []
    if reach == "a published name":
        os.remove(project / "cache" / "builds" / "tiny.json")
        second = {e for e in second if not e.startswith("shard/")}  # the corpus holds hard links to the shards
    else:
        assert doit(project, "build:tiny").returncode == 0
        if reach == "a lock":
            (project / "configs" / "tiny.lock").write_text("\n".join(f'key = "{e.split("/")[1]}"' for e in sorted(second)))
        elif reach == "a running build":
            uses = ",".join(f'["{e.split("/")[0]}","{e.split("/")[1]}"]' for e in sorted(second))
            page = f'{{"build":"tiny","owner":"{owner_token()}","state":"running","uses":[{uses}],"names":{{}},"record":null}}'
            (project / "cache" / "runs" / "active" / f"tiny--{owner_token()}.json").write_text(page)
        else:
            args = ["--keep", "2"]
    doit(project, "gc", *args)
    assert first | second <= entries(project)


def test_young_entries_can_be_spared(project):
    first = entries(project)
    assert doit(project, "build:tiny", "--set", "shard.shard_rows=7").returncode == 0
    assert doit(project, "build:tiny").returncode == 0
    second = entries(project)
    assert doit(project, "gc", "--older-than", "1d").stdout == "gc: nothing to remove\n"
    assert entries(project) == second
    for path in (project / "cache" / "store").glob("*/*/contents.json"):
        os.utime(path, (time.time() - 90_000, time.time() - 90_000))
    assert doit(project, "gc", "--older-than", "1d").returncode == 0
    assert entries(project) == first


def test_downloads_go_only_when_asked_for_and_only_of_sources_that_nothing_names(project):
    for name in ("stories", "gone"):
        folder = project / "cache" / "downloads" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "file").write_bytes(b"x" * 1000)
    doit(project, "gc")
    assert (project / "cache" / "downloads" / "gone").exists()
    assert "downloads/gone (1.0 kB)" in doit(project, "gc", "--downloads").stdout
    assert not (project / "cache" / "downloads" / "gone").exists()
    assert (project / "cache" / "downloads" / "stories").exists()


def test_with_a_broken_configuration_nothing_is_removed(project):
    assert doit(project, "build:tiny", "--set", "shard.shard_rows=7").returncode == 0
    (project / "configs" / "tiny.toml").write_text("dataset = ")
    before = entries(project)
    run = doit(project, "gc")
    assert run.returncode == 65
    assert "tiny cannot be read" in run.stderr
    assert entries(project) == before


def test_the_log_tells_what_ran_what_was_reused_and_what_failed(project):
    assert doit(project, "build:tiny", "--set", "dedup.jaccard_threshold=0.7").returncode == 0
    assert doit(project, "build:tiny", "--set", "filters.langs=['pt']").returncode == 65
    said = doit(project, "log", "tiny").stdout
    first = said.splitlines()[0]
    assert "tiny  corpus/tiny/v1/" in first
    assert "failed in" in first
    assert "failed: shard: shard: stories: no document is left of 30 (filter.lang 30)" in said
    assert "undone: what was begun" in said
    runs = [line for line in said.splitlines() if line.startswith("20")]
    assert len(runs) == 3
    assert "reused 9 of 14 steps, built 5" in said
    assert "reused 0 of 14 steps, built 14" in said
    assert len([line for line in doit(project, "log", "-n", "1").stdout.splitlines() if line.startswith("20")]) == 1
    assert doit(project, "log", "tinny").returncode == 2
