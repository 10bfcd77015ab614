"""From Python: what is built, opened and asked is what the commands build, show and say."""

import threading

import pyarrow.parquet as pq
import pytest
from projects import doit_here, make_project

import corpusbuild as cb
from corpusbuild.errors import ConfigError, LicenseError


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    make_project(folder)
    return folder


@pytest.fixture(scope="module")
def corpus(project):
    return cb.build(project / "configs" / "tiny.toml", cache=project / "cache")


def test_a_build_is_the_commands_build(project, corpus, capfd):
    assert doit_here(project, "build:tiny") == 0
    assert "nothing to be done" in capfd.readouterr().out
    said = []
    again = cb.build(project / "configs" / "tiny.toml", cache=project / "cache", say=said.append)
    assert said == []
    assert again.manifest == corpus.manifest


def test_a_table_is_the_shards(project, corpus):
    whole = [row for path in corpus.shards for row in pq.read_table(path).to_pylist()]
    assert corpus.table().to_pylist() == whole
    ids = corpus.table(["id"], split="val").column("id").to_pylist()
    assert ids == [row["id"] for row in whole if row["split"] == "val"] == [d["id"] for d in corpus.documents(split="val")]


def test_it_can_be_asked_what_became_of_a_document(corpus):
    kept = next(corpus.documents())
    (fate,) = corpus.explain(kept["id"])
    assert fate.where.values["url"] == kept["url"]
    assert corpus.explain(kept["url"])[0].document.id == kept["id"]
    assert corpus.explain("train-00000.bin@0")[0].where is not None
    assert corpus.explain("stories:999999") == []
    with pytest.raises(ConfigError, match="open it by its build's name"):
        cb.open(corpus.path).explain(kept["id"])


def test_overrides_are_for_one_build(project, tmp_path):
    other = cb.build(project / "configs" / "tiny.toml", cache=tmp_path, overrides=["filters.min_chars=495"])
    assert len(other) < len(cb.open("tiny", cache=project / "cache"))


def test_what_the_command_would_end_with_is_raised(project, tmp_path):
    with pytest.raises(ConfigError, match="nowhere"):
        cb.build(tmp_path / "nowhere.toml", cache=tmp_path)
    config = project / "configs" / "refused.toml"
    config.write_text(
        (project / "configs" / "tiny.toml").read_text().replace('"tiny"', '"refused"', 1).replace("CC0-1.0", "LicenseRef-Mine")
    )
    with pytest.raises(LicenseError, match="not in the policy"):
        cb.build(config, cache=tmp_path)
    config.unlink()


def test_it_builds_in_a_thread(project, tmp_path):
    made = []
    thread = threading.Thread(target=lambda: made.append(cb.build(project / "configs" / "tiny.toml", cache=tmp_path)))
    thread.start()
    thread.join()
    assert len(made[0]) > 0


def test_the_functions_stay_what_they_are_when_modules_of_theirs_are_imported():
    import corpusbuild.batches
    import corpusbuild.cli  # noqa: F401

    assert callable(cb.build)
    assert callable(cb.tokens)
    assert callable(cb.open)
