"""An earlier corpus: what it holds does not come again, and nothing of it is lost or told."""

import json
import shutil

import pyarrow.parquet as pq
import pytest
from projects import doit, jsonl, make_project, story
from serial_job import run

from corpusbuild.config import load
from corpusbuild.errors import ConfigError, IntegrityError
from corpusbuild.parts import DOCUMENTS, read_arrow, read_rows
from corpusbuild.plan import plan
from corpusbuild.stages import earlier

OLD = [story(i) for i in range(12)]
NEW = [
    story(100),
    OLD[3],  # whole
    f"{OLD[4]} And one more.",  # near
    f"{story(101)}\n\n{OLD[5]}",  # one paragraph of two
    story(102),
    f"{story(102)} Again.",  # near one of its own
]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project in which ``old`` v1 was published, and ``new`` is to be without it."""
    folder = tmp_path_factory.mktemp("project")
    make_project(folder, {"then": ("old.jsonl", jsonl(OLD), "")}, name="old")
    done = doit(folder, "build:old")
    assert done.returncode == 0, done.stdout + done.stderr
    make_project(folder, {"now": ("new.jsonl", jsonl(NEW), "")}, name="new", extra='[dedup]\nagainst = ["corpus/old/v1"]\n')
    return folder


def entries(folder, stage):
    return sorted((folder / "cache" / "store" / stage).glob("*"))


def test_what_an_earlier_corpus_holds_does_not_come_again(project):
    done = doit(project, "build:new")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "against 1" in done.stdout
    kept = {r["id"]: r["text"] for p in (project / "cache/corpus/new/v1").glob("*.parquet") for r in pq.read_table(p).to_pylist()}
    assert kept == {"now:0": NEW[0], "now:3": story(101), "now:4": NEW[4]}
    removed = [
        r for s in ("exact_dedup", "near_dedup") for e in entries(project, s) for p in e.glob("*.removed.parquet") for r in read_rows(p)
    ]
    assert {(r["id"], r["rule"], r["survivor"]) for r in removed} == {
        ("now:1", "against", "old@v1/then:3"), ("now:2", "against", "old@v1/then:4"), ("now:5", "jaccard", "now:4"),
    }  # fmt: skip
    assert {r["cluster"] for r in removed if r["id"] == "now:2"} == {"old@v1/then:4"}
    cuts = [r for e in entries(project, "exact_dedup") for p in e.glob("*.cuts.parquet") for r in read_rows(p)]
    assert [(r["id"], r["paragraph"], r["survivor"]) for r in cuts] == [("now:1", 0, "old@v1/then:3"), ("now:3", 1, "old@v1/then:5")]
    manifest = json.loads((project / "cache/corpus/new/v1/_MANIFEST.json").read_bytes())
    assert (manifest["dedup"]["exact_dropped"], manifest["dedup"]["near_dropped"]) == (1, 2)
    told = doit(project, "explain", "now:1").stdout + doit(project, "explain", "now:2").stdout
    assert "in favour of  then:3 of the earlier corpus old v1" in told
    assert "in favour of  then:4 of the earlier corpus old v1" in told
    again = doit(project, "build:new")
    assert (again.returncode, "dedup" in again.stdout) == (0, False)


def test_its_manifest_is_in_the_keys_and_its_place_is_not(project, tmp_path):
    config, cache = project / "configs" / "new.toml", project / "cache"
    keys = {s.label: s.key for s in plan(load(config, cache=cache)).steps}
    shutil.copytree(cache / "corpus" / "old" / "v1", tmp_path / "elsewhere")
    moved = plan(load(config, (f'dedup.against=["{tmp_path}/elsewhere"]',), cache=cache))
    assert {s.label: s.key for s in moved.steps} == keys
    manifest = tmp_path / "elsewhere" / "_MANIFEST.json"
    manifest.write_bytes(manifest.read_bytes() + b"\n")
    other = plan(load(config, (f'dedup.against=["{tmp_path}/elsewhere"]',), cache=cache))
    assert {s.label for s in other.steps if keys[s.label] != s.key} == {
        "earlier:old@v1", "sign:old@v1", "exact_dedup", "near_dedup", "rails", "shard", "ledger", "tokenize",
    }  # fmt: skip


def test_a_corpus_is_never_held_against_itself(project):
    with pytest.raises(ConfigError, match=r"dedup.against\[0\]: this configuration publishes old v1 itself and would remove all of it"):
        load(project / "configs" / "old.toml", ('dedup.against=["corpus/old/v1"]',), cache=project / "cache")


def test_what_is_no_corpus_is_refused_by_name(project, tmp_path):
    def problem(*against):
        with pytest.raises(ConfigError) as failed:
            load(project / "configs" / "new.toml", (f"dedup.against={json.dumps([str(a) for a in against])}",), cache=project / "cache")
        return str(failed.value)

    assert "dedup.against[0]: there is no corpus at" in problem("corpus/none/v1")
    (tmp_path / "_MANIFEST.json").write_bytes(b'{"dataset": "x"}')
    assert "is no manifest of a corpus" in problem(tmp_path)
    assert "dedup.against[1]: old v1 is named twice" in problem("corpus/old/v1", project / "cache" / "corpus" / "old" / "v1")


def test_a_shard_that_is_not_what_the_manifest_says_is_refused(project, tmp_path):
    home = tmp_path / "copy"
    shutil.copytree(project / "cache" / "corpus" / "old" / "v1", home)
    (params,) = load(project / "configs" / "new.toml", (f'dedup.against=["{home}"]',), cache=project / "cache").against
    entry = run(earlier.STAGE, params, {}, tmp_path / "sound", source=params.name)
    (path,) = entry.files(".docs.arrow")
    documents = read_arrow(path)
    assert documents.schema == DOCUMENTS
    assert [(r["id"], r["text"], r["place"]) for r in documents.to_pylist()] == [(f"old@v1/then:{i}", t, str(i)) for i, t in enumerate(OLD)]

    (shard,) = home.glob("*.parquet")
    whole = shard.read_bytes()
    for n, damaged in enumerate([whole[:-1], whole[:100] + b"x" + whole[101:]]):
        shard.write_bytes(damaged)
        with pytest.raises(IntegrityError, match="is not what its manifest says: build that corpus again"):
            run(earlier.STAGE, params, {}, tmp_path / f"damaged-{n}")
    shard.unlink()
    with pytest.raises(IntegrityError, match="is missing, though its manifest names it"):
        run(earlier.STAGE, params, {}, tmp_path / "missing")
    (home / "_MANIFEST.json").write_bytes(b"{}")
    with pytest.raises(IntegrityError, match="changed while the build was running"):
        run(earlier.STAGE, params, {}, tmp_path / "changed")


def test_a_large_shard_becomes_several_parts(project, tmp_path, monkeypatch):
    (params,) = load(project / "configs" / "new.toml", cache=project / "cache").against
    whole = run(earlier.STAGE, params, {}, tmp_path / "whole")
    monkeypatch.setattr(earlier, "MAX_PART_BYTES", 1)
    monkeypatch.setattr(earlier, "BATCH", 5)
    parts = run(earlier.STAGE, params, {}, tmp_path / "parts")
    assert [len(read_arrow(p)) for p in parts.files(".docs.arrow")] == [5, 5, 2]
    rows = [row for p in parts.files(".docs.arrow") for row in read_arrow(p).to_pylist()]
    assert rows == [row for p in whole.files(".docs.arrow") for row in read_arrow(p).to_pylist()]
