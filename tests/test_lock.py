"""A lock says what a build must give; a build that gives something else stops, and what was published stays."""

import json
import shutil

import pytest
from projects import doit, jsonl, make_project, story, tree


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    """A project whose only build is built and locked."""
    folder = tmp_path_factory.mktemp("locked") / "project"
    make_project(folder)
    assert doit(folder, "build:tiny").returncode == 0
    assert doit(folder, "lock", "tiny").returncode == 0
    return folder


@pytest.fixture
def project(locked, tmp_path):
    shutil.copytree(locked, tmp_path / "project", symlinks=True)
    return tmp_path / "project"


def lock(folder):
    return folder / "configs" / "tiny.lock"


def published(folder):
    return {**tree(folder / "cache" / "corpus"), **tree(folder / "cache" / "tokens"), **tree(folder / "cache" / "builds")}


def test_a_lock_holds_the_digests_and_every_step(locked):
    held = json.loads(lock(locked).read_text())
    record = json.loads((locked / "cache" / "builds" / "tiny.json").read_text())
    manifest = (locked / "cache" / "corpus" / "tiny" / "v1" / "_MANIFEST.json.sha256").read_text()
    tokens = (locked / "cache" / "tokens" / "bytes" / "tiny" / "_MANIFEST.json.sha256").read_text()
    assert held["manifest_sha256"] == manifest.split()[0]
    assert held["tokens_manifest_sha256"] == tokens.split()[0]
    assert held["steps"] == {step["label"]: step["key"] for step in record["steps"]}
    assert held["config_sha256"] == record["config_sha256"]


def test_a_lock_is_the_same_in_another_folder_and_says_when_nothing_changed(locked, tmp_path):
    make_project(tmp_path / "elsewhere" / "deeper")
    assert doit(tmp_path / "elsewhere" / "deeper", "build:tiny", "--workers", "1").returncode == 0
    assert doit(tmp_path / "elsewhere" / "deeper", "lock", "build:tiny").returncode == 0
    assert lock(tmp_path / "elsewhere" / "deeper").read_bytes() == lock(locked).read_bytes()
    assert "nothing changed" in doit(locked, "lock", "tiny").stdout


def test_a_build_under_its_lock_has_nothing_to_do(project):
    assert doit(project, "build:tiny").stdout == "build:tiny: nothing to be done\n"


def test_another_result_is_refused_with_what_differs_and_the_earlier_one_stays(project):
    before = published(project)
    run = doit(project, "build:tiny", "--set", "dedup.jaccard_threshold=0.5")
    assert run.returncode == 65
    assert "gives another result than configs/tiny.lock allows" in run.stderr
    assert "step near_dedup: " in run.stderr
    assert "doit lock tiny" in run.stderr
    assert published(project) == before


def test_a_result_that_is_wanted_is_locked_and_then_published(project):
    config = project / "configs" / "tiny.toml"
    config.write_text(config.read_text().replace("shard_rows = 20", "shard_rows = 10"))
    assert doit(project, "build:tiny").returncode == 65
    run = doit(project, "lock", "tiny")
    assert run.returncode == 0, run.stderr
    assert "step shard:" in run.stdout
    assert doit(project, "build:tiny").returncode == 0
    assert len(list((project / "cache" / "corpus" / "tiny" / "v1").glob("*.parquet"))) == 5


def test_a_lock_that_came_from_elsewhere_is_held_against_what_is_published(project):
    held = json.loads(lock(project).read_text())
    lock(project).write_text(json.dumps(held | {"rows_blake3": "0" * 64, "manifest_sha256": "1" * 64}))
    run = doit(project, "build:tiny")
    assert run.returncode == 65
    assert "manifest_sha256: 111111111111 is locked" in run.stderr
    assert "rows_blake3: 000000000000 is locked" in run.stderr


def test_other_files_of_the_same_rows_are_told_apart(project):
    held = json.loads(lock(project).read_text())
    lock(project).write_text(json.dumps(held | {"manifest_sha256": "1" * 64}))
    assert "the rows are the same" in doit(project, "build:tiny").stderr


def test_a_torn_lock_is_refused_and_can_be_written_anew(project):
    whole = lock(project).read_bytes()
    lock(project).write_bytes(whole[:100])
    run = doit(project, "build:tiny")
    assert run.returncode == 65
    assert "configs/tiny.lock is not a lock" in run.stderr
    assert "Traceback" not in run.stderr
    assert doit(project, "lock", "tiny").returncode == 0
    assert lock(project).read_bytes() == whole


def test_what_is_not_built_cannot_be_locked(tmp_path):
    make_project(tmp_path, {"a": ("a.jsonl", jsonl([story(i) for i in range(4)]), "")})
    run = doit(tmp_path, "lock", "tiny")
    assert (run.returncode, run.stdout) == (65, "")
    assert "run doit build:tiny first" in run.stderr
    assert not lock(tmp_path).exists()
    assert doit(tmp_path, "lock").returncode == 2
    assert doit(tmp_path, "lock", "tinny").returncode == 2
