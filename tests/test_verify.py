"""Verify names every byte, count and link that is not as it was, and stays silent otherwise."""

import json
import os
import shutil

import msgspec
import pyarrow.parquet as pq
import pytest
from projects import doit, jsonl, make_project, story, tree

from corpusbuild.store import Store
from corpusbuild.verify import differences, verify

EVERY = ("fetch", "filter", "scrub", "sign", "exact_dedup", "near_dedup", "shard", "ledger", "tokenize")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify") / "project"
    make_project(folder)
    assert doit(folder, "build:tiny").returncode == 0
    return folder


@pytest.fixture
def project(built, tmp_path):
    """A copy of a whole project. Hard links in it are still one file, as in the original."""
    shutil.copytree(built, tmp_path / "project", symlinks=True)
    for shard in (tmp_path / "project" / "cache" / "store" / "shard").glob("*/*.parquet"):
        (twin,) = (tmp_path / "project" / "cache" / "store" / "ledger").glob(f"*/{shard.name}")
        twin.unlink()
        os.link(shard, twin)
    return tmp_path / "project"


def check(folder, *names, deep=False):
    return verify(Store(folder / "cache"), list(names), deep)


def steps(folder):
    return len(json.loads((folder / "cache" / "builds" / "tiny.json").read_text())["steps"])


def entry_of(folder, stage):
    return sorted((folder / "cache" / "store" / stage).iterdir())[0]


def contents_of(entry):
    return json.loads((entry / "contents.json").read_text())


def largest(entry):
    return entry / max(contents_of(entry)["files"], key=lambda f: f["size"])["path"]


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("names", [[], ["tiny"]])
def test_what_is_whole_has_no_problem(built, names, deep):
    seen = check(built, *names, deep=deep)
    assert seen.problems == ()
    assert (seen.builds, seen.entries) == (1, steps(built))
    assert seen.files > 30
    assert seen.bytes > 10_000


@pytest.mark.parametrize("stage", EVERY)
def test_a_flipped_bit_is_found_by_its_digest_and_named(project, stage):
    path = largest(entry_of(project, stage))
    flip(path)
    assert check(project).problems == ()
    problems = check(project, deep=True).problems
    again = "fetch again" if stage == "fetch" else "build again"
    assert f"{path} changed since it was committed: delete {path.parent} and {again}" in problems


@pytest.mark.parametrize("stage", EVERY)
def test_a_file_that_is_cut_or_gone_is_found_without_reading(project, stage):
    path = largest(entry_of(project, stage))
    path.write_bytes(path.read_bytes()[:-1])
    (problem,) = [p for p in check(project, "tiny").problems if str(path) in p]
    assert "bytes, not" in problem
    path.unlink()
    assert any(p.startswith(f"{path} is missing: delete {path.parent}") for p in check(project, "tiny").problems)


@pytest.mark.parametrize("stage", EVERY)
def test_an_entry_that_is_gone_is_missed_by_its_build(project, stage):
    entry = entry_of(project, stage)
    shutil.rmtree(entry)
    assert any(p.startswith(f"{entry} is missing: ") for p in check(project, "tiny", deep=True).problems)


def test_a_torn_missing_or_foreign_contents_page_is_named(project):
    page = entry_of(project, "sign") / "contents.json"
    whole = page.read_bytes()
    for data, words in (
        (whole[:50], "cannot be read"),
        (whole.replace(page.parent.name.encode(), b"0" * 64), "speaks of sign 000000000000"),
    ):
        page.write_bytes(data)
        assert any(str(page) in p and words in p for p in check(project).problems)
    page.unlink()
    assert any(p.startswith(f"{page} is missing") for p in check(project).problems)


def test_a_file_that_nobody_made_is_named(project):
    stranger = entry_of(project, "near_dedup") / "notes.txt"
    stranger.write_text("mine")
    assert check(project).problems == (f"{stranger} does not belong there: move it away",)


def change_counts(entry, source, **fields):
    page = entry / "contents.json"
    contents = json.loads(page.read_text())
    contents["counts"][source] |= fields
    page.write_text(json.dumps(contents))


def change_record(folder, label, source, **fields):
    page = folder / "cache" / "builds" / "tiny.json"
    record = json.loads(page.read_text())
    next(s for s in record["steps"] if s["label"] == label)["counts"][source] |= fields
    page.write_text(json.dumps(record))


def test_counts_that_do_not_add_up_are_named(project):
    change_counts(entry_of(project, "exact_dedup"), "notes", kept=1)
    problems = check(project).problems
    assert any("25 documents came in, but 1 kept" in p for p in problems)
    assert any("other counts than builds/tiny.json" in p for p in problems)


def test_what_one_step_gave_and_the_next_did_not_take_is_named(project):
    kept = next(s for s in json.loads((project / "cache/builds/tiny.json").read_text())["steps"] if s["label"] == "shard")["counts"][
        "notes"
    ]["kept"]
    for label in ("shard", "ledger", "tokenize"):
        change_record(project, label, "notes", docs_in=kept - 1, kept=kept - 1)
        change_counts(entry_of(project, label), "notes", docs_in=kept - 1, kept=kept - 1)
    assert check(project).problems == (
        f"build:tiny: shard: notes: {kept} documents were kept before it, but {kept - 1} came in; nothing was published, please report this",
    )


def test_rows_that_are_not_as_counted_are_named(project):
    """A table that lost a row, with a contents page that vouches for it: only counting finds that."""
    entry = entry_of(project, "exact_dedup")
    path = next(p for p in sorted(entry.glob("*.removed.parquet")) if pq.read_metadata(p).num_rows)
    pq.write_table(pq.read_table(path).slice(1), path)
    from corpusbuild.hashing import file_blake3

    contents = contents_of(entry)
    for file in contents["files"]:
        if file["path"] == path.name:
            file |= {"size": path.stat().st_size, "blake3": file_blake3(path)}
    (entry / "contents.json").write_text(json.dumps(contents))
    assert check(project).problems == ()
    (problem,) = check(project, deep=True).problems
    assert "exact_dedup counts 5 paragraphs of notes, its tables hold 4" in problem


def test_a_manifest_that_is_not_as_its_sum_says_is_named(project):
    for stage in ("ledger", "tokenize"):
        entry = entry_of(project, stage)
        line = entry / "_MANIFEST.json.sha256"
        line.write_text("0" * 64 + line.read_text()[64:])
        assert f"{entry}/_MANIFEST.json is not what _MANIFEST.json.sha256 says: delete {entry} and build again" in check(project).problems


def test_a_name_that_stands_for_something_else_is_named(project):
    link = project / "cache" / "corpus" / "tiny" / "v1"
    link.unlink()
    link.symlink_to("../../store/shard")
    assert check(project).problems == (f"{link} does not stand for what build:tiny made: run doit build:tiny",)


def test_the_command_tells_and_its_remedy_works(project):
    path = largest(entry_of(project, "near_dedup"))
    flip(path)
    run = doit(project, "verify", "tiny", "--deep")
    assert run.returncode == 65
    assert run.stderr.startswith(f"corpusbuild: cache/store/near_dedup/{path.parent.name}/{path.name} changed since it was committed")
    assert "1 wrong" in run.stdout
    shutil.rmtree(path.parent)
    assert doit(project, "build:tiny").returncode == 0
    run = doit(project, "verify", "build:tiny", "--deep")
    assert (run.returncode, run.stderr) == (0, "")
    assert f"1 build, {steps(project)} entries" in run.stdout
    assert "digests, sizes and counts are right" in run.stdout


def test_a_lock_is_held_against_what_stands(project):
    assert doit(project, "lock", "tiny").returncode == 0
    assert doit(project, "verify").returncode == 0
    lock = project / "configs" / "tiny.lock"
    lock.write_text(lock.read_text().replace(json.loads(lock.read_text())["rows_blake3"], "0" * 64))
    run = doit(project, "verify")
    assert run.returncode == 65
    assert "gives another result than configs/tiny.lock allows: rows_blake3" in run.stderr


def test_building_again_gives_the_same_and_leaves_nothing(project):
    before = tree(project / "cache", skip=("staging", ".doit.json"))
    run = doit(project, "verify", "tiny", "--rebuild", "--workers", "1")
    assert (run.returncode, run.stderr) == (0, "")
    assert f"{steps(project) - 2} steps of build:tiny were built again and gave the same bytes" in run.stdout
    assert tree(project / "cache", skip=("staging", ".doit.json")) == before
    assert not [p for p in (project / "cache" / "staging").iterdir() if p.is_dir()]


def test_building_again_names_every_file_that_comes_out_otherwise(project):
    """A table whose contents page vouches for it, but which the stage would not make: a decision that somebody edited."""
    from corpusbuild.hashing import file_blake3

    entry = entry_of(project, "near_dedup")
    path = sorted(entry.glob("*.removed.parquet"))[0]
    path.write_bytes(path.read_bytes() + b"\0")
    contents = contents_of(entry)
    for file in contents["files"]:
        if file["path"] == path.name:
            file |= {"size": path.stat().st_size, "blake3": file_blake3(path)}
    (entry / "contents.json").write_text(msgspec.json.format(json.dumps(contents)))
    run = doit(project, "verify", "tiny", "--rebuild")
    assert run.returncode == 65
    assert f"near_dedup: cache/store/near_dedup/{entry.name}/{path.name} (" in run.stderr
    assert "comes out otherwise" in run.stderr


def test_trees_are_compared_in_both_directions(tmp_path):
    for name, files in (("one", {"a": "1", "b": "2", "c": "3"}), ("two", {"b": "2", "c": "4", "d": "5"})):
        (tmp_path / name).mkdir()
        for file, data in files.items():
            (tmp_path / name / file).write_text(data)
    lines = differences(tmp_path / "one", tmp_path / "two", "shard")
    assert [line.split("/")[-1].split(" ", 1)[0] for line in lines] == ["a", "c", "d"]
    assert "is not made again" in lines[0]
    assert "comes out otherwise" in lines[1]
    assert "is missing" in lines[2]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [(["tinny"], 2, "did you mean"), (["--rebuild"], 2, "names of builds"), (["other"], 65, "was not built")],
)
def test_usage_errors_are_one_line(built, tmp_path, args, code, words):
    shutil.copytree(built, tmp_path / "project", symlinks=True)
    make_project(tmp_path / "project", {"a": ("a.jsonl", jsonl([story(1)]), "")}, name="other")
    run = doit(tmp_path / "project", "verify", *args)
    assert (run.returncode, run.stdout) == (code, "")
    assert words in run.stderr
    assert "Traceback" not in run.stderr
