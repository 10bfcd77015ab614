"""The reader gives nothing that the manifest or the lock does not vouch for."""

import hashlib
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from projects import ROOT, doit, make_project

import corpusbuild
from corpusbuild.errors import ConfigError, IntegrityError


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus") / "project"
    make_project(folder)
    assert doit(folder, "build:tiny").returncode == 0
    assert doit(folder, "lock", "tiny").returncode == 0
    return folder


@pytest.fixture
def project(built, tmp_path):
    shutil.copytree(built, tmp_path / "project", symlinks=True)
    return tmp_path / "project"


@pytest.fixture
def open_in():
    return lambda folder, what="tiny": corpusbuild.open(what, cache=folder / "cache", configs=folder / "configs")


def corpus_of(folder):
    return folder / "cache" / "corpus" / "tiny" / "v1"


def tokens_of(folder):
    return folder / "cache" / "tokens" / "bytes" / "tiny"


def renew_sum(folder):
    data = (folder / "_MANIFEST.json").read_bytes()
    (folder / "_MANIFEST.json.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  _MANIFEST.json\n")


def flip(path, at=-20):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def read_all(corpus):
    return list(corpus.documents()), [ids for split in ("train", "val") for ids in corpus.tokens(split)]


@pytest.mark.parametrize("name", ["tiny", "build:tiny"])
def test_a_build_opens_by_its_name_and_gives_what_the_shards_hold(built, open_in, name):
    corpus = open_in(built, name)
    documents, tokens = read_all(corpus)
    frame = pl.read_parquet(str(corpus_of(built) / "*.parquet"))
    assert [d["text"] for d in documents] == frame["text"].to_list()
    assert len(corpus) == len(documents)
    text = "".join(d["text"] for split in ("train", "val") for d in corpus.documents(split)).encode()
    assert np.concatenate(tokens).astype(np.uint8).tobytes() == text
    assert next(b.schema.names for b in corpus.batches(["id"])) == ["id"]
    assert not tokens[0].flags.writeable
    assert "tiny v1" in repr(corpus)
    corpus.check()


def test_a_folder_opens_without_tokens_or_lock(built):
    corpus = corpusbuild.open(corpus_of(built))
    assert len(list(corpus.documents())) == len(corpus)
    with pytest.raises(ConfigError, match="without tokens"):
        next(corpus.tokens("train"))


def test_what_does_not_exist_is_told(built, open_in, tmp_path):
    with pytest.raises(ConfigError, match="doit build:nothing"):
        open_in(built, "nothing")
    with pytest.raises(ConfigError, match="no such lock"):
        corpusbuild.open(corpus_of(built), lock=tmp_path / "x.lock")


@pytest.mark.parametrize("folder_of", [corpus_of, tokens_of])
def test_an_altered_manifest_is_refused(project, open_in, folder_of):
    flip(folder_of(project) / "_MANIFEST.json")
    with pytest.raises(IntegrityError, match=r"_MANIFEST.json is not what _MANIFEST.json.sha256 says"):
        open_in(project)


@pytest.mark.parametrize("folder_of", [corpus_of, tokens_of])
def test_the_lock_does_not_vouch_for_a_manifest_that_vouches_for_itself(project, open_in, folder_of):
    path = folder_of(project) / "_MANIFEST.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": "v9"}))
    renew_sum(folder_of(project))
    with pytest.raises(IntegrityError, match=r"(tiny.lock says|is of another corpus)"):
        open_in(project)


@pytest.mark.parametrize("folder_of", [corpus_of, tokens_of])
@pytest.mark.parametrize("name", ["_MANIFEST.json", "_MANIFEST.json.sha256"])
def test_a_missing_manifest_or_sum_is_refused(project, open_in, folder_of, name):
    (folder_of(project) / name).unlink()
    with pytest.raises(IntegrityError, match=f"{name} is missing"):
        open_in(project)


@pytest.mark.parametrize(("folder_of", "name"), [(corpus_of, "shard-00001-of-00003.parquet"), (tokens_of, "val-00000.bin")])
def test_a_missing_and_a_foreign_file_are_refused_when_it_is_opened(project, open_in, folder_of, name):
    folder = folder_of(project)
    stranger = folder / f"zz-{name}"
    shutil.copyfile(folder / name, stranger)
    with pytest.raises(IntegrityError, match=f"zz-{name} is not in"):
        open_in(project)
    stranger.unlink()
    (folder / name).unlink()
    with pytest.raises(IntegrityError, match=f"{name} is missing"):
        open_in(project)


@pytest.mark.parametrize(("folder_of", "name"), [(corpus_of, "shard-00001-of-00003.parquet"), (tokens_of, "train-00000.bin")])
def test_no_row_or_id_of_an_altered_file_is_given(project, open_in, folder_of, name):
    flip(folder_of(project) / name)
    corpus = open_in(project)
    with pytest.raises(IntegrityError, match=name):
        read_all(corpus)
    with pytest.raises(IntegrityError, match=name):
        corpus.check()


@pytest.mark.parametrize("name", ["DATASHEET.md", "ATTRIBUTION.md", "ledger.jsonl"])
def test_check_reads_the_papers_too(project, open_in, name):
    flip(corpus_of(project) / name)
    with pytest.raises(IntegrityError, match=name):
        open_in(project).check()


def test_tokens_of_another_corpus_are_refused(project, open_in):
    path = tokens_of(project) / "_MANIFEST.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"corpus_manifest_sha256": "0" * 64}))
    renew_sum(tokens_of(project))
    with pytest.raises(IntegrityError, match="is of another corpus"):
        open_in(project)


@pytest.mark.parametrize("folder_of", [corpus_of, tokens_of])
def test_sha256sum_checks_the_manifest(built, folder_of):
    run = subprocess.run(["sha256sum", "-c", "_MANIFEST.json.sha256"], cwd=folder_of(built), capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "_MANIFEST.json: OK\n")


def test_importing_the_package_imports_no_reader():
    code = "import sys, corpusbuild; print(sorted(m for m in sys.modules if m.startswith(('corpusbuild', 'numpy', 'pyarrow'))))"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True
    )
    assert run.stdout == "['corpusbuild']\n"
    with pytest.raises(AttributeError):
        _ = corpusbuild.nothing
