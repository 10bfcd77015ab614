"""A project whose tokens are mixed, shuffled, packed and written for every trainer: built, read, explained and verified as a person would."""

import json

import pyarrow.parquet as pq
import pytest
from projects import doit, make_project

import corpusbuild
from corpusbuild.errors import IntegrityError

FORMATS = ("litdata", "mds", "megatron", "nanotron", "npy")
EXTRA = f"""
[mix]
stories = {{ tokens = "9k", epochs = 2 }}
notes = {{ weight = 0.2 }}
[shard]
shard_rows = 9
val_permille = 0
[tokenizer]
id = "bytes"
formats = {list(FORMATS)}
shuffle = {{ seed = 1 }}
sequence_length = 256
packing = "best-fit"
[run]
workers = 1
executor = "serial"
kernels = "reference"
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    make_project(folder, extra=EXTRA)
    run = doit(folder, "build:tiny")
    assert run.returncode == 0, run.stderr + run.stdout
    return folder


def tokens(project):
    return project / "cache" / "tokens" / "bytes" / "tiny"


def test_the_folders_of_all_trainers_are_published_and_verified(project):
    manifest = json.loads((tokens(project) / "_MANIFEST.json").read_text())
    assert sorted({file["format"] for file in manifest["formats"]}) == sorted(FORMATS)
    verified = doit(project, "verify", "tiny", "--deep")
    assert verified.returncode == 0, verified.stdout
    corpus = corpusbuild.open("tiny", cache=project / "cache", configs=project / "configs")
    corpus.check()
    assert sum(map(len, corpus.tokens("train"))) % 256 == 0


def test_a_document_is_led_to_all_its_places_and_back(project):
    index = pq.read_table(tokens(project) / "index.parquet").to_pylist()
    places = {}
    for row in index:
        places.setdefault(row["id"], []).append(row)
    id, rows = max(places.items(), key=lambda item: len(item[1]))
    assert len(rows) > 1
    told = doit(project, "explain", id).stdout
    assert all(f"train-00000.bin@{row['start']}, {row['length']:,} ids" in told for row in rows[:3])
    later = next(row for row in index if row["offset"])
    told = doit(project, "explain", f"{later['file']}@{later['start'] + 1}").stdout
    assert told.startswith(f"{later['file']}@{later['start'] + 1} is id {later['offset'] + 1:,} ")
    assert later["id"] in told.split("\n")[0]


def test_padding_and_a_document_that_the_mix_leaves_out_are_told(project):
    rows = pq.read_table(tokens(project) / "sequences.parquet").to_pylist()
    padded = next(row for row in rows if row["length"] < 256)
    run = doit(project, "explain", f"{padded['file']}@{padded['start'] + 255}")
    assert run.returncode == 65
    assert "is padding, behind the last document of its sequence" in run.stdout + run.stderr
    drawn = set(pq.read_table(tokens(project) / "index.parquet").column("id").to_pylist())
    shards = (project / "cache" / "corpus" / "tiny" / "v1").glob("*.parquet")
    kept = [id for shard in shards for id in pq.read_table(shard, columns=["id"]).column("id").to_pylist()]
    (left_out, *_) = sorted(set(kept) - drawn)
    assert "none: [mix] draws fewer documents of notes" in doit(project, "explain", left_out).stdout
    assert "left out by [mix]: stories 11, notes 15" in doit(project, "info", "build:tiny").stdout


def test_a_file_of_a_trainers_folder_that_was_altered_or_added_is_named(project):
    path = (tokens(project) / "mds" / "train" / "train-00000.mds").resolve()
    data = path.read_bytes()
    stranger = path.with_name("more.mds")
    try:
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        stranger.write_bytes(b"")
        told = doit(project, "verify", "tiny", "--deep").stderr
        assert "/mds/train/train-00000.mds changed since it was committed" in told
        assert "/mds/train/train-00000.mds has not the sha256 that _MANIFEST.json says" in told
        assert "/mds/train/more.mds does not belong there" in told
        with pytest.raises(IntegrityError, match=r"train-00000\.mds has the sha256"):
            corpusbuild.open("tiny", cache=project / "cache", configs=project / "configs").check()
    finally:
        path.write_bytes(data)
        stranger.unlink(missing_ok=True)
