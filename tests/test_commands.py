"""The verbs as a person types them: what they say, what they leave, how they end."""

import json
import shutil

import pytest
from projects import doit, jsonl, make_project, story, tree


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A project with one finished build, and what the build printed."""
    folder = tmp_path_factory.mktemp("project")
    make_project(folder)
    return folder, doit(folder, "build:tiny")


@pytest.fixture
def project(built, tmp_path):
    """A copy of the finished project, to be harmed."""
    shutil.copytree(built[0], tmp_path / "project", symlinks=True)
    return tmp_path / "project"


def states(output):
    return {line.split()[0]: line.split()[1] for line in output.splitlines()}


def test_a_build_runs_every_stage_and_ends_with_a_summary(built):
    folder, run = built
    assert run.returncode == 0, run.stderr
    steps = ["fetch", "filter", "scrub", "sign", "exact_dedup", "near_dedup", "rails", "shard", "ledger", "tokenize"]
    assert [s for s in steps if any(line.startswith(s) for line in run.stdout.splitlines())] == steps
    for words in ("stories", "notes", "CC0-1.0", "dropped by", "train", "val", "tokens", "cache/corpus/tiny/v1", "next: doit list"):
        assert words in run.stdout
    assert (folder / "cache" / "corpus" / "tiny" / "v1" / "_MANIFEST.json").exists()
    assert (folder / "cache" / "tokens" / "bytes" / "tiny" / "train-00000.bin").exists()


def test_a_second_run_does_nothing_and_says_so(project):
    before = tree(project / "cache", skip=(".doit.json",))
    run = doit(project, "build:tiny")
    assert (run.returncode, run.stdout) == (0, "build:tiny: nothing to be done\n")
    assert tree(project / "cache", skip=(".doit.json",)) == before


def test_deleting_doits_database_changes_nothing(project):
    (project / "cache" / ".doit.json").unlink()
    assert doit(project, "build:tiny").stdout == "build:tiny: nothing to be done\n"
    (project / "cache" / ".doit.json").write_text("{torn")
    assert doit(project, "build:tiny").stdout == "build:tiny: nothing to be done\n"


def test_no_database_of_another_kind_is_left(built):
    names = [p.name for p in built[0].rglob("*") if "doit" in p.name]
    assert set(names) <= {".doit.json", "dodo.py"}
    json.loads((built[0] / "cache" / ".doit.json").read_text())


def test_bare_doit_shows_the_list_and_builds_nothing(tmp_path):
    make_project(tmp_path)
    run = doit(tmp_path)
    assert run.returncode == 0
    assert states(run.stdout)["build:tiny"] == "missing"
    assert not (tmp_path / "cache" / "store").exists()


def test_list_shows_sources_stages_and_builds(built):
    run = doit(built[0], "list")
    table = states(run.stdout)
    assert {"build:tiny", "fetch:stories", "fetch:notes", "build:tiny:filter:notes", "build:tiny:near_dedup", "build:tiny:tokenize"} <= set(
        table
    )
    assert set(table.values()) == {"fresh"}
    assert len(run.stdout.splitlines()[1].split()[2]) == 12


def test_list_names_the_field_that_made_a_step_stale(project):
    path = project / "configs" / "tiny.toml"
    path.write_text(path.read_text() + "\n[dedup]\njaccard_threshold = 0.7\n")
    run = doit(project, "list", "tiny")
    table = states(run.stdout)
    assert table["build:tiny"] == table["build:tiny:near_dedup"] == table["build:tiny:shard"] == "stale"
    assert table["build:tiny:exact_dedup"] == table["build:tiny:sign:notes"] == "fresh"
    near = next(line for line in run.stdout.splitlines() if "build:tiny:near_dedup" in line)
    assert near.endswith("dedup.jaccard_threshold 0.8 -> 0.7")
    assert run.stdout.splitlines()[0].endswith("dedup.jaccard_threshold 0.8 -> 0.7")
    run = doit(project, "build:tiny")
    assert [line.split()[0] for line in run.stdout.splitlines()[:5]] == ["near_dedup", "rails", "shard", "ledger", "tokenize"]


def test_one_value_can_be_set_for_one_run(project):
    for spelling in (["--set", "shard.shard_rows=7"], ["--set=shard.shard_rows=7"], ["shard.shard_rows=7"]):
        run = doit(project, "list", "build:tiny", *spelling)
        assert states(run.stdout)["build:tiny:shard"] == "stale", run
        assert "shard.shard_rows 20 -> 7" in run.stdout


def test_limit_takes_the_first_documents_of_each_source(project):
    run = doit(project, "build:tiny", "--limit", "5")
    assert run.returncode == 0, run.stderr
    manifest = json.loads((project / "cache" / "corpus" / "tiny" / "v1" / "_MANIFEST.json").read_text())
    assert manifest["n_docs"] == 10


def test_the_cache_can_lie_elsewhere(tmp_path):
    make_project(tmp_path / "p")
    assert doit(tmp_path / "p", "build:tiny", "--cache-dir", str(tmp_path / "c1")).returncode == 0
    assert doit(tmp_path / "p", "build:tiny", env={"CORPUSBUILD_CACHE": str(tmp_path / "c2")}).returncode == 0
    assert not (tmp_path / "p" / "cache").exists()
    dated = ("LEDGER.jsonl", "raw", "store/fetch", "builds", "runs")
    assert tree(tmp_path / "c1" / "corpus") == tree(tmp_path / "c2" / "corpus")
    assert tree(tmp_path / "c1", skip=dated) == tree(tmp_path / "c2", skip=dated)


@pytest.mark.parametrize("task", ["build:tiny", "tiny", "fetch:notes", "build:tiny:near_dedup"])
def test_info_shows_one_task(built, task):
    run = doit(built[0], "info", task)
    assert run.returncode == 0
    assert "cache" in run.stdout
    assert run.stdout.splitlines()[0].split()[0] in ("build", "step")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["build:tiney"], "did you mean 'build:tiny'?"),
        (["fetch:note"], "did you mean 'fetch:notes'?"),
        (["list", "nothing-like-it"], "doit list shows them"),
        (["info"], "info takes one task"),
        (["info", "build:tiny:shrad"], "is not a build"),
        (["build:tiny", "-n", "2"], "--workers"),
        (["build:tiny", "--no-such-option"], "no-such-option"),
        (["clean", "tinny"], "did you mean"),
    ],
)
def test_usage_errors_are_one_line_and_2(built, args, words):
    run = doit(built[0], *args)
    assert run.returncode == 2, run
    assert words in run.stderr
    assert "Traceback" not in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1


def test_a_broken_configuration_stops_only_itself(project):
    (project / "configs" / "broken.toml").write_text('dataset = "x"\n')
    run = doit(project, "list")
    assert run.returncode == 0
    assert states(run.stdout)["build:broken"] == "broken"
    assert states(run.stdout)["build:tiny"] == "fresh"
    assert doit(project, "build:tiny").returncode == 0
    run = doit(project, "build:broken")
    assert run.returncode == 65
    assert "configs/broken.toml: version: required, and missing" in run.stderr


def test_two_configurations_may_not_publish_the_same_corpus(project):
    text = (project / "configs" / "tiny.toml").read_text()
    (project / "configs" / "copy.toml").write_text(text)
    run = doit(project, "build:copy")
    assert run.returncode == 65
    assert "configs/copy.toml and configs/tiny.toml both publish tiny v1" in run.stderr


def test_two_configurations_may_not_pin_one_source_to_two_things(project):
    make_project(project, {"stories": ("other.jsonl", jsonl([story(90)]), "")}, name="other")
    run = doit(project, "build:other")
    assert run.returncode == 65
    assert "pin the source 'stories' to different files" in run.stderr
    assert "configs/other.toml" in run.stderr
    assert "configs/tiny.toml" in run.stderr


def test_fetch_fetches_every_source_and_clean_leaves_raw_documents(tmp_path):
    make_project(tmp_path)
    run = doit(tmp_path, "fetch")
    assert run.returncode == 0
    rows = [json.loads(line) for line in (tmp_path / "cache" / "LEDGER.jsonl").read_text().splitlines()]
    assert [row["source_id"] for row in rows] == ["stories", "notes"]
    assert doit(tmp_path, "build:tiny").returncode == 0
    raw = tree(tmp_path / "cache" / "raw")
    told = doit(tmp_path, "clean", "build:tiny", "--dry-run")
    assert told.stdout.startswith("would remove build:tiny, its corpus and tokens (")
    assert (tmp_path / "cache" / "corpus" / "tiny" / "v1").exists()
    run = doit(tmp_path, "clean", "build:tiny")
    assert run.stdout == told.stdout.replace("would remove", "removed")
    assert not (tmp_path / "cache" / "corpus" / "tiny" / "v1").exists()
    assert not (tmp_path / "cache" / "tokens" / "bytes" / "tiny").exists()
    assert tree(tmp_path / "cache" / "raw") == raw
    assert doit(tmp_path, "clean").stdout == "clean: nothing to remove\n"
    table = states(doit(tmp_path, "list").stdout)
    assert table["build:tiny:filter:notes"] == "fresh"
    assert table["build:tiny:shard"] == "missing"
    assert doit(tmp_path, "build:tiny").returncode == 0


def test_clean_removes_what_an_interrupted_build_left(project):
    left = project / "cache" / "staging" / ("0" * 64) / "elsewhere_000000000000-1-1"
    here = project / "cache" / "staging" / ("1" * 64) / f"{_machine()}_000000000000-1-1"
    for home in (left, here):
        (home / "out").mkdir(parents=True)
        (home / "out" / "part-00000.docs.arrow").write_bytes(b"x" * 2_000_000)
    run = doit(project, "clean")
    assert run.stdout == "removed unfinished 111111111111 (2.0 MB)\n"
    assert left.exists(), "another machine may be at work there"
    assert not here.exists()


def _machine():
    from corpusbuild.staging import owner_token

    return owner_token().split("_")[0]


def test_a_corpus_without_tokens_can_be_built(tmp_path):
    make_project(tmp_path, extra="[stages]\ntokenize = false\nnear_dedup = false\nscrub = false")
    run = doit(tmp_path, "build:tiny")
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "cache" / "corpus" / "tiny" / "v1").exists()
    assert not (tmp_path / "cache" / "tokens").exists()
