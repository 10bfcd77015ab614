"""Bad input: one clear line with the remedy, 65 or 75, and earlier builds as they were."""

import gzip
import shutil

import pytest
from projects import doit, jsonl, make_project, story, tree, write_source


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    make_project(folder)
    assert doit(folder, "build:tiny").returncode == 0
    return folder


@pytest.fixture
def project(good, tmp_path):
    shutil.copytree(good, tmp_path / "project", symlinks=True)
    return tmp_path / "project"


def ends(project, code, *words, args=("build:tiny",), env=None):
    """The command ends with ``code`` and says every one of ``words`` in lines of ours; what was built before is still there, byte for byte."""
    before = tree(project / "cache" / "corpus") | tree(project / "cache" / "tokens") if (project / "cache").is_dir() else {}
    run = doit(project, *args, env=env)
    assert run.returncode == code, (run.stdout, run.stderr)
    assert "Traceback" not in run.stderr + run.stdout
    lines = [line for line in run.stderr.splitlines() if line.startswith("corpusbuild: ")]
    assert lines, run.stderr
    for word in words:
        assert any(word in line for line in lines), (word, run.stderr)
    if before:
        assert tree(project / "cache" / "corpus") | tree(project / "cache" / "tokens") == before
    return run


def change(project, old, new):
    path = project / "configs" / "tiny.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_a_missing_file(project):
    change(project, 'url = "stories.jsonl"', 'url = "gone.jsonl"')
    shutil.rmtree(project / "cache" / "store" / "fetch")
    shutil.rmtree(project / "cache" / "downloads", ignore_errors=True)
    ends(project, 65, "gone.jsonl", "stories")


def test_other_bytes_than_pinned(project):
    write_source(project, "stories.jsonl", jsonl([story(1), story(2), "changed"]))
    shutil.rmtree(project / "cache" / "store" / "fetch")
    shutil.rmtree(project / "cache" / "downloads", ignore_errors=True)
    ends(project, 65, "stories.jsonl: its digest is", "is pinned: restore the file, or pin the new digest")


@pytest.mark.parametrize("licence", ["GPL-3.0-only", "CC0", "Proprietary", "CC-BY-NC-4.0", "MIT AND GPL-3.0-only", "NONE"])
def test_a_licence_that_policy_does_not_permit(project, licence):
    change(project, 'license_spdx = "CC0-1.0"', f'license_spdx = "{licence}"')
    ends(project, 65, "source stories", licence.split()[-1])


def test_a_refused_licence_makes_no_request_and_fetches_nothing(tmp_path):
    make_project(tmp_path, {"s": ("s.jsonl", jsonl([story(1)]), 'license_spdx = "GPL-2.0-only"')})
    ends(tmp_path, 65, "source s")
    assert not (tmp_path / "cache" / "store").exists()
    assert not (tmp_path / "cache" / "raw").exists()


def test_a_revoked_source(project):
    (project / "configs" / "policy" / "revocations.toml").write_text(
        'version = 1\n[[revoke]]\nid = "stories"\nwhy = "its author asked for it"\ndate = "2026-01-01"\n'
    )
    ends(project, 65, "source stories", "revoked")


def test_a_truncated_archive(project):
    whole = gzip.compress("\n\n".join(story(i) for i in range(60)).encode(), mtime=0)
    digest = write_source(project, "notes.txt.gz", whole[:-20])
    path = project / "configs" / "tiny.toml"
    lines = path.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if "notes.txt.gz" in line)
    lines[at + 1] = f'sha256 = "{digest}"'
    path.write_text("\n".join(lines))
    ends(project, 65, "notes")


def test_a_bad_line_names_the_line(tmp_path):
    data = jsonl([story(1), story(2)]) + b'{"txet": "no text"}\n'
    make_project(tmp_path, {"s": ("s.jsonl", data, "")})
    ends(tmp_path, 65, "line 3", "s.jsonl")


def test_bad_lines_can_be_rejected_and_are_counted(tmp_path):
    data = jsonl([story(i) for i in range(30)]) + b'{"txet": "no text"}\nno json\n'
    make_project(tmp_path, {"s": ("s.jsonl", data, 'on_bad = "reject"\nmax_bad = 0.1')})
    run = doit(tmp_path, "build:tiny")
    assert run.returncode == 0, run.stderr
    assert "fetch.no_text" in run.stdout
    assert "fetch.not_json" in run.stdout


def test_an_empty_configuration(project):
    (project / "configs" / "tiny.toml").write_text("")
    ends(project, 65, "configs/tiny.toml: is empty")


def test_a_configuration_that_is_no_toml(project):
    (project / "configs" / "tiny.toml").write_text("dataset = 'x")
    ends(project, 65, "configs/tiny.toml: is not TOML")


def test_a_cache_that_cannot_be_written(tmp_path):
    make_project(tmp_path)
    (tmp_path / "cache").write_text("a file stands here")
    ends(tmp_path, 75, "cache")


def test_a_server_that_is_not_there(tmp_path):
    path = make_project(tmp_path)
    path.write_text(
        path.read_text().replace('url = "stories.jsonl"', 'url = "http://127.0.0.1:9/stories.jsonl"') + "\n[run]\nattempts = 1\n"
    )
    run = ends(tmp_path, 75, "stories")
    assert "fetch:notes" in run.stdout, "the other source is fetched all the same"


@pytest.mark.parametrize(
    "harm",
    [
        ("filters", "min_chars = 1000000", "filter.length"),
        ("filters", 'langs = ["pt"]', "filter.lang"),
    ],
)
def test_a_source_whose_every_document_is_dropped_builds_an_empty_corpus_or_says_so(tmp_path, harm):
    make_project(tmp_path, extra=f"[{harm[0]}]\n{harm[1]}\nmax_chars = 2000000")
    ends(tmp_path, 65, "no document is left", harm[2])


def test_a_harmed_store_is_named_with_the_remedy(project):
    [part, *_] = sorted((project / "cache" / "store" / "sign").glob("*/part-00000.signs.arrow"))
    part.write_bytes(part.read_bytes()[:-1] + b"\0\0")
    change(project, "shard_rows = 20", "shard_rows = 21\n[dedup]\njaccard_threshold = 0.7")
    ends(project, 65, part.name, "delete", "build again")


def test_empty_files_of_every_format(tmp_path):
    for format in ("jsonl", "text"):
        folder = tmp_path / format
        make_project(
            folder, {"empty": ("empty", b"", f'format = "{format}"'), "stories": ("s.jsonl", jsonl([story(i) for i in range(5)]), "")}
        )
        run = doit(folder, "build:tiny")
        assert run.returncode == 0, run.stderr
        assert "empty" in run.stdout
