"""Two versions differ in what a reader of both would find: every document that came, went or changed, once, with its reason."""

import shutil

import pyarrow.parquet as pq
import pytest
from projects import doit_here, make_project

from corpusbuild.compare import compare, version
from corpusbuild.errors import ConfigError
from corpusbuild.store import Store


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    make_project(folder)
    config = folder / "configs" / "tiny.toml"
    other = config.read_text().replace('dataset = "tiny"', 'dataset = "other"')
    assert other != config.read_text()
    (folder / "configs" / "other.toml").write_text(other)
    assert doit_here(folder, "build:tiny") == 0
    assert doit_here(folder, "build:other", "--set", "filters.min_chars=495", "--set", "dedup.jaccard_threshold=0.5") == 0
    return folder


def rows(folder, dataset):
    shards = sorted((folder / "cache" / "corpus" / dataset).glob("*/*.parquet"))
    return {row["id"]: row for shard in shards for row in pq.read_table(shard).to_pylist()}


def of(project, a, b):
    store = Store(project / "cache")
    return compare(version(a, store), version(b, store))


def test_every_document_is_told_once(project):
    found, a, b = of(project, "tiny", "other"), rows(project, "tiny"), rows(project, "other")
    assert sum(c.before for c in found.sources.values()) == len(a)
    assert sum(c.after for c in found.sources.values()) == len(b)
    assert sum(c.removed for c in found.sources.values()) == len(a.keys() - b.keys()) > 0
    assert sum(c.added for c in found.sources.values()) == len(b.keys() - a.keys())
    assert sum(c.changed for c in found.sources.values()) == sum(a[i]["text"] != b[i]["text"] for i in a.keys() & b.keys())
    assert sum(n for by in found.gone.values() for n in by.values()) == len(a.keys() - b.keys())
    assert "filter.length" in found.gone


def test_the_other_way_round_is_the_mirror(project):
    there, back = of(project, "tiny", "other"), of(project, "other", "tiny")
    assert (there.gone, there.come) == (back.come, back.gone)
    assert {name: (old, new) for name, old, new in there.fields} == {name: (new, old) for name, old, new in back.fields}


def test_fields_are_named_as_the_configuration_has_them(project):
    fields = {name: (old, new) for name, old, new in of(project, "tiny", "other").fields}
    assert fields["dataset"] == ("tiny", "other")
    assert fields["filters.min_chars"][1] == 495


def test_a_copy_elsewhere_is_the_same(project, tmp_path, capfd):
    shutil.copytree(next((project / "cache" / "corpus" / "tiny").glob("*")), tmp_path / "copy")
    found = of(project, "tiny", str(tmp_path / "copy"))
    assert found.comparable
    assert not any(c.added or c.removed or c.changed for c in found.sources.values())
    assert doit_here(project, "diff", "tiny", str(tmp_path / "copy")) == 0
    assert capfd.readouterr().out.endswith("the same\n")


def test_locks_and_configurations_say_what_they_hold(project, capfd):
    assert doit_here(project, "lock", "tiny") == 0
    lock, config = project / "configs" / "tiny.lock", project / "configs" / "tiny.toml"
    found = of(project, str(lock), "other")
    assert not found.comparable
    assert "shard" in [label for label, _, _ in found.steps]
    assert of(project, str(config), "tiny").fields == []
    lock.unlink()


def test_what_is_nothing_is_refused_in_a_line(project, tmp_path, capfd):
    for what, why in ((str(tmp_path), "holds no _MANIFEST.json"), ("nothing", "no build of that name")):
        with pytest.raises(ConfigError, match=why):
            version(what, Store(project / "cache"))
    assert doit_here(project, "diff", "tiny") == 2
