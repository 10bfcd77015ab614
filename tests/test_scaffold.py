"""A new project builds as it stands, and a source that was added is pinned, sound and asked about only where no file answers."""

import json
import tomllib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from projects import ROOT, doit, jsonl, make_project, story

from corpusbuild.__main__ import main
from corpusbuild.errors import ConfigError
from corpusbuild.scaffold import DODO, PLUGINS, add


def refuse(question, seen):
    raise AssertionError(question)


def test_a_new_project_builds_as_it_stands(tmp_path):
    assert main(["init", str(tmp_path / "new")]) == 0
    assert doit(tmp_path / "new", "build:first").returncode == 0
    assert "nothing to be done" in doit(tmp_path / "new", "build:first").stdout
    assert (tmp_path / "new" / ".gitignore").read_text().startswith("/cache/")
    assert json.loads((tmp_path / "new" / "configs" / "schema.json").read_text())["$defs"]


def test_a_new_project_of_files_has_them_pinned(tmp_path):
    one, two = tmp_path / "some poems.jsonl", tmp_path / "notes.txt"
    one.write_bytes(jsonl([story(i) for i in range(5)]))
    two.write_text("\n\n".join(story(i) for i in range(5, 9)))
    assert main(["init", str(tmp_path / "new"), "--license", "CC0-1.0", "--from", str(one), str(two)]) == 0
    sources = tomllib.loads((tmp_path / "new" / "configs" / "first.toml").read_text())["sources"]
    assert [(s["id"], s.get("format", "jsonl"), s["size"]) for s in sources] == [
        ("some-poems", "jsonl", one.stat().st_size),
        ("notes", "text", two.stat().st_size),
    ]
    assert doit(tmp_path / "new", "build:first").returncode == 0


def test_what_is_there_is_not_touched(tmp_path, capsys):
    (tmp_path / "configs").mkdir()
    assert main(["init", str(tmp_path)]) == 65
    assert "is there already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["configs"]


def test_the_commands_of_a_new_project_are_ours():
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["doit"]["plugins"] == PLUGINS
    assert (ROOT / "dodo.py").read_text().split('"""')[2] == DODO.split('"""')[2]


@pytest.fixture
def config(tmp_path):
    return make_project(tmp_path)


def test_an_added_source_keeps_every_comment_and_builds(tmp_path, config):
    before = "# mine\n" + config.read_text()
    config.write_text(before)
    (tmp_path / "more.jsonl").write_bytes(jsonl([story(i) for i in range(60, 66)]))
    add(config, str(tmp_path / "more.jsonl"), None, "CC-BY-4.0", None, tmp_path / "cache", refuse)
    assert config.read_text().startswith("# mine\n")
    assert tomllib.loads(config.read_text())["sources"][-1]["license_spdx"] == "CC-BY-4.0"
    assert doit(tmp_path, "build:tiny").returncode == 0


def test_only_what_no_file_says_is_asked(tmp_path, config):
    pq.write_table(pa.table({"n": [1], "body": [story(1)]}), tmp_path / "rows.parquet")
    asked = []

    def ask(question, seen):
        asked.append(question.split()[0])
        return "body" if "column" in question else "CC0-1.0"

    add(config, str(tmp_path / "rows.parquet"), None, None, None, tmp_path / "cache", ask)
    assert asked == ["Under", "Which"]
    assert tomllib.loads(config.read_text())["sources"][-1] | {"sha256": "", "size": 0, "url": ""} == {
        "id": "rows", "license_spdx": "CC0-1.0", "format": "parquet", "text_field": "body", "sha256": "", "size": 0, "url": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "license", "format", "why"),
    [
        ("more.jsonl", "nonsense licence", None, "not in the policy"),
        ("more.jsonl", "CC0-1.0", "pdf", "none of jsonl"),
        ("gone.jsonl", "CC0-1.0", None, "no such file"),
    ],
)
def test_a_source_that_is_not_sound_leaves_the_configuration(tmp_path, config, name, license, format, why):
    (tmp_path / "more.jsonl").write_bytes(jsonl([story(1)]))
    before = config.read_text()
    with pytest.raises(Exception, match=why):
        add(config, str(tmp_path / name), None, license, format, tmp_path / "cache", refuse)
    assert config.read_text() == before
    assert sorted(path.name for path in config.parent.iterdir() if "adding" in path.name) == []


def test_a_name_that_is_taken_is_refused(tmp_path, config):
    with pytest.raises(ConfigError, match="--id"):
        add(config, "x.jsonl", "stories", "CC0-1.0", None, tmp_path / "cache", refuse)


def test_without_a_terminal_the_option_is_named(tmp_path, config, monkeypatch, capsys):
    (tmp_path / "more.jsonl").write_bytes(jsonl([story(1)]))
    monkeypatch.chdir(tmp_path)
    assert main(["add", str(tmp_path / "more.jsonl")]) == 65
    assert "--license" in capsys.readouterr().err
