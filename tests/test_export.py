"""What is handed on is whole, plain files, and shows every change that was made to it."""

import shutil

import pytest
from projects import doit_here, make_project

from corpusbuild.__main__ import main
from corpusbuild.corpus import open as open_corpus


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    make_project(folder)
    assert doit_here(folder, "build:tiny") == 0
    assert doit_here(folder, "export", "tiny", str(folder / "out")) == 0
    return folder


@pytest.fixture
def copy(project, tmp_path):
    shutil.copytree(project / "out", tmp_path / "elsewhere")
    return tmp_path / "elsewhere"


def test_it_holds_everything_and_no_link(project, copy, capsys):
    assert not [path for path in copy.rglob("*") if path.is_symlink()]
    names = {path.name for path in copy.iterdir()}
    assert {"_MANIFEST.json", "ATTRIBUTION.md", "DATASHEET.md", "croissant.json", "tokens"} <= names
    assert main(["verify", str(copy)]) == 0
    assert "every file is what its manifest says" in capsys.readouterr().out
    mine = [d["text"] for d in open_corpus("tiny", cache=project / "cache").documents()]
    assert [d["text"] for d in open_corpus(copy).documents()] == mine


def test_every_file_that_was_changed_is_named(project, copy, capsys):
    vouched = [path for path in sorted(copy.rglob("*")) if path.is_file() and path.suffix in (".parquet", ".bin", ".json")]
    assert len(vouched) > 4
    unnoticed = []
    for path in vouched:
        before = path.read_bytes()
        path.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        code, said = main(["verify", str(copy)]), capsys.readouterr().err
        if code != 65 or path.name not in said:
            unnoticed.append(path.name)
        path.write_bytes(before)
    assert [name for name in unnoticed if name not in ("croissant.json", "ledger.schema.json")] == []


def test_a_missing_and_a_foreign_file_are_named(copy, capsys):
    (copy / "shard-of-mine.parquet").write_bytes(b"")
    assert main(["verify", str(copy)]) == 65
    assert "shard-of-mine.parquet" in capsys.readouterr().err
    (copy / "shard-of-mine.parquet").unlink()
    next(copy.glob("tokens/*.bin")).unlink()
    assert main(["verify", str(copy)]) == 65
    assert ".bin is missing" in capsys.readouterr().err


def test_nothing_is_overwritten_and_nothing_half_is_left(project, tmp_path, capfd):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note").write_text("mine")
    assert doit_here(project, "export", "tiny", str(tmp_path / "mine")) == 65
    assert "not empty" in capfd.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "note"]
    assert doit_here(project, "export", "tiny") == 2
