"""A value that is changed runs what stands below it and nothing else: counted by what a real run builds."""

import collections
import shutil

import pytest
from projects import doit, jsonl, make_project, story, write_source


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("redecide") / "project"
    make_project(folder)
    assert doit(folder, "build:tiny").returncode == 0
    return folder


@pytest.fixture
def project(built, tmp_path):
    shutil.copytree(built, tmp_path / "project", symlinks=True)
    return tmp_path / "project"


def entries(folder):
    """Every entry with the moment and place of its contents page: what was built again has others."""
    pages = (folder / "cache" / "store").glob("*/*/contents.json")
    return {page.parent: (page.stat().st_ino, page.stat().st_mtime_ns) for page in pages}


def ran(folder, *args):
    """How many entries of each stage a run made. None that was there is made again."""
    before = entries(folder)
    run = doit(folder, *args)
    assert run.returncode == 0, run.stderr
    after = entries(folder)
    assert {path: after[path] for path in before} == before
    return collections.Counter(path.parent.name for path in after.keys() - before.keys())


def below(*stages):
    """One entry of each of these stages."""
    return dict.fromkeys(stages, 1)


def test_another_threshold_decides_again_and_signs_nothing(project):
    made = ran(project, "build:tiny", "--set", "dedup.jaccard_threshold=0.6")
    assert made == below("near_dedup", "rails", "shard", "ledger", "tokenize")


def test_another_source_is_filtered_and_signed_alone(project):
    data = jsonl([story(i) for i in range(200, 220)])
    digest = write_source(project, "third.jsonl", data)
    config = project / "configs" / "tiny.toml"
    source = f'[[sources]]\nid = "third"\nurl = "third.jsonl"\nsha256 = "{digest}"\nlicense_spdx = "CC0-1.0"\n\n'
    config.write_text(config.read_text().replace("[shard]", source + "[shard]", 1))
    made = ran(project, "build:tiny")
    one_source = below("fetch", "filter", "scrub", "sign")
    assert made == one_source | below("exact_dedup", "near_dedup", "rails", "shard", "ledger", "tokenize")


def test_another_filter_of_one_source_leaves_the_others(project):
    config = project / "configs" / "tiny.toml"
    config.write_text(config.read_text().replace('id = "notes"', 'id = "notes"\nfilters = { min_chars = 60 }', 1))
    made = ran(project, "build:tiny")
    assert made == below("filter", "scrub", "sign", "exact_dedup", "near_dedup", "rails", "shard", "ledger", "tokenize")


def test_a_corrected_licence_reads_no_document_again(project):
    config = project / "configs" / "tiny.toml"
    config.write_text(config.read_text().replace("CC0-1.0", "CC-BY-4.0", 1))
    assert ran(project, "build:tiny") == below("shard", "ledger", "tokenize")


def test_how_a_build_runs_runs_nothing(project):
    config = project / "configs" / "tiny.toml"
    config.write_text(config.read_text() + '\n[run]\nexecutor = "serial"\nworkers = 3\n')
    assert ran(project, "build:tiny") == {}
