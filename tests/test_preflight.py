"""A build that cannot fit is refused before it begins, with how much it needs and for what."""

import shutil
from collections import namedtuple

import pytest
from projects import doit_here, make_project

from corpusbuild.config import load
from corpusbuild.plan import plan
from corpusbuild.preflight import needed
from corpusbuild.store import Store

Usage = namedtuple("Usage", "total used free")
GB = 10**9


@pytest.fixture
def remote(tmp_path):
    """A configuration of 10 GB that nobody has fetched yet."""
    path = make_project(tmp_path)
    text = path.read_text().replace('url = "stories.jsonl"', 'url = "http://127.0.0.1:9/stories.jsonl"\nsize = 10000000000')
    path.write_text(text.replace('url = "notes.txt.gz"', 'url = "http://127.0.0.1:9/notes.txt.gz"\nsize = 1000000000'))
    return path


def test_the_needs_follow_from_the_sizes_that_are_known(remote):
    wants = needed(plan(load(remote)), Store(remote.parent.parent / "cache"))
    assert wants["downloads"] == 11 * GB
    assert list(wants) == ["downloads", "raw parts", "documents", "decisions and signatures", "scratch", "shards", "tokens"]
    assert wants["tokens"] == 2 * (10 + 4) * GB
    less = needed(
        plan(load(remote, ("stages.tokenize=false", "stages.near_dedup=false", "stages.exact_dedup=false"))), Store(remote.parent)
    )
    assert set(less) == {"downloads", "raw parts", "documents", "shards"}


def test_a_build_that_cannot_fit_is_refused_before_anything_is_asked_for(remote, monkeypatch, capfd):
    folder = remote.parent.parent
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(50 * GB, 10 * GB, 40 * GB))
    assert doit_here(folder, "build:tiny") == 75
    [line] = capfd.readouterr().err.splitlines()
    assert line.startswith("corpusbuild: tiny needs about ")
    for words in ("downloads 11.0 GB", "raw parts", "scratch", "tokens 28.0 GB", "40.0 GB are free", "in cache"):
        assert words in line
    assert not (folder / "cache" / "store").exists()
    assert not (folder / "cache" / "downloads").exists()
    assert doit_here(folder, "build:tiny", "--set", "run.check_space=false", "--offline") == 75
    assert "needs about" not in capfd.readouterr().err


def test_what_is_built_already_needs_no_room(tmp_path):
    path = make_project(tmp_path)
    store = Store(tmp_path / "cache")
    before = needed(plan(load(path)), store)
    assert before["downloads"] == sum(p.stat().st_size for p in path.parent.iterdir() if p.name in ("stories.jsonl", "notes.txt.gz"))
    assert doit_here(tmp_path, "build:tiny", "--executor", "serial") == 0
    assert needed(plan(load(path)), store) == {}
    assert set(needed(plan(load(path, ("dedup.jaccard_threshold=0.7",))), store)) == {
        "decisions and signatures",
        "scratch",
        "shards",
        "tokens",
    }


def test_the_estimate_is_not_below_what_a_build_takes(sample):
    """The sample is small, so fixed costs weigh more than they will: an estimate that holds here holds for larger text."""
    folder, _ = sample
    wants = needed(plan(load(folder / "configs" / "sample.toml")), Store(folder / "nowhere"))
    sizes = {stage.name: sum(p.stat().st_size for p in stage.rglob("*") if p.is_file()) for stage in (folder / "cache" / "store").iterdir()}
    assert sizes["fetch"] <= wants["raw parts"]
    assert sizes["filter"] <= wants["documents"]
    assert sum(sizes[s] for s in ("decontaminate", "scrub", "sign", "exact_dedup", "near_dedup")) <= wants["decisions and signatures"]
    assert sizes["ledger"] <= wants["shards"]
    assert sizes["tokenize"] <= wants["tokens"]
