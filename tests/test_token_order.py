"""Tokens in other orders than the plan's: shuffled, mixed, packed, and in the layouts of trainers, each led back to its documents."""

import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import serial_job
import test_writers as loaders
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild.binfile import read
from corpusbuild.errors import ConfigError
from corpusbuild.hashing import file_sha256
from corpusbuild.mix import Share
from corpusbuild.model import Contents, File, Key, Tally
from corpusbuild.stage import Input
from corpusbuild.stages.shard import MANIFEST
from corpusbuild.stages.tokenize import STAGE, Packing, Params, Shuffle
from corpusbuild.tokenizer import Spec

SOURCES = ("a", "b", "c")
DOCUMENTS = st.lists(
    st.tuples(st.sampled_from(SOURCES), st.text(max_size=9), st.sampled_from(["train", "train", "train", "val"])), max_size=25
).map(lambda documents: sorted(documents, key=lambda d: d[0]))
laws = settings(deadline=None, max_examples=10)


class Tokens:
    """The outcome of the stage over shards of (source, text, split); a document is called ``<source>:<place in the corpus>``."""

    def __init__(self, folder, documents, per_shard=7, memory=1 << 30, backwards=False, **params):
        corpus = folder / "corpus"
        corpus.mkdir(parents=True)
        rows = [{"id": f"{s}:{i}", "source_id": s, "split": split, "text": text} for i, (s, text, split) in enumerate(documents)]
        schema = pa.schema([(c, pa.string()) for c in ("id", "source_id", "split", "text")])
        files = []
        for i in range(0, max(len(rows), 1), per_shard):
            files.append(File(path=f"shard-{i:05d}.parquet", size=1, blake3=""))
            pq.write_table(pa.Table.from_pylist(rows[i : i + per_shard], schema=schema), corpus / files[-1].path, row_group_size=3)
        (corpus / MANIFEST).write_text("{}")
        counts = {s: Tally(docs_in=sum(d[0] == s for d in documents), kept=sum(d[0] == s for d in documents)) for s in SOURCES}
        contents = Contents(key=Key("0"), stage="ledger", version=1, label="ledger", files=tuple(files), counts=counts)
        made = Params(dataset="d", version="v", id="t", **{"tokenizer": Spec(), **params})
        entry = serial_job.run(STAGE, made, {"corpus": [Input(corpus, "", contents)]}, folder, memory=memory, backwards=backwards)
        self.path, self.counts, self.documents = entry.path, entry.contents.counts, {r["id"]: r for r in rows}
        self.manifest = json.loads((self.path / MANIFEST).read_text())
        self.index = pq.read_table(self.path / "index.parquet").to_pylist()
        self.files = {f["name"]: read(self.path / f["name"])[1].tolist() for f in self.manifest["files"]}
        self.separator = made.doc_sep_id

    def bytes(self):
        return {p.relative_to(self.path).as_posix(): p.read_bytes() for p in self.path.rglob("*") if p.is_file()}

    def ids(self, split):
        return [i for name, ids in self.files.items() if name.startswith(split) for i in ids]

    def order(self, split):
        """The ids of documents in the order in which they begin."""
        return [r["id"] for r in self.index if r["file"].startswith(split) and r["offset"] == 0]

    def of(self, id):
        return [*([] if self.separator is None else [self.separator]), *self.documents[id]["text"].encode()]

    def check(self):
        """Every row of the index leads to its ids, rows stand in order, and the manifest has every file."""
        for row in self.index:
            assert self.documents[row["id"]]["split"] == row["file"].split("-")[0]
            found = self.files[row["file"]][row["start"] : row["start"] + row["length"]]
            assert found == self.of(row["id"])[row["offset"] : row["offset"] + row["length"]]
        places = [(row["file"], row["start"]) for row in self.index]
        assert places == sorted(places)
        listed = [
            *self.manifest["files"],
            *self.manifest.get("formats", []),
            *(self.manifest[t] for t in ("index", "sequences", "refused") if t in self.manifest),
        ]
        assert {f["name"]: f["sha256"] for f in listed} == {
            name: file_sha256(self.path / name) for name in self.bytes() if not name.startswith(MANIFEST)
        }
        assert [f["n_docs"] for f in self.manifest["files"]] == [
            sum(r["file"] == f["name"] and r["offset"] == 0 for r in self.index) for f in self.manifest["files"]
        ]
        return self


def plan_order(documents, split):
    return [f"{source}:{i}" for i, (source, _, s) in enumerate(documents) if s == split]


UNITS = st.sampled_from([Shuffle(seed=1), Shuffle(seed=1, unit="window", window=5)])


@laws
@given(DOCUMENTS, UNITS, st.integers(1, 9), st.integers(1, 9), st.integers(1, 40))
def test_a_shuffle_depends_on_seed_and_ids_only(tmp_path_factory, documents, shuffle, one, two, limit):
    folder = tmp_path_factory.mktemp("t")
    options = {"shuffle": shuffle, "doc_sep_id": 255, "max_file_tokens": limit}
    first = Tokens(folder / "1", documents, per_shard=one, **options).check()
    second = Tokens(folder / "2", documents, per_shard=two, memory=2000, backwards=True, **options)
    assert first.bytes() == second.bytes()
    plain = Tokens(folder / "3", documents, doc_sep_id=255, max_file_tokens=limit).check()
    for split in ("train", "val"):
        assert plain.order(split) == plan_order(documents, split)
        assert sorted(first.order(split)) == sorted(plain.order(split))
        assert sorted(first.ids(split)) == sorted(plain.ids(split))


def test_a_document_keeps_its_place_among_the_others_whatever_else_is_there(tmp_path):
    documents = [("a", f"{i}", "train") for i in range(50)]
    order = Tokens(tmp_path / "1", documents, shuffle=Shuffle(seed=3)).order("train")
    assert order != sorted(order, key=lambda id: int(id[2:]))
    fewer = Tokens(tmp_path / "2", documents[:30], shuffle=Shuffle(seed=3)).order("train")
    assert fewer == [id for id in order if int(id[2:]) < 30]
    assert Tokens(tmp_path / "3", documents, shuffle=Shuffle(seed=4)).order("train") != order


def test_windows_are_moved_whole(tmp_path):
    documents = [("a", "abcdefg"[: 1 + i % 7], "train") for i in range(42)]
    plain = Tokens(tmp_path / "1", documents).ids("train")
    moved = Tokens(tmp_path / "2", documents, shuffle=Shuffle(seed=1, unit="window", window=8)).check().ids("train")
    whole = [tuple(plain[i : i + 8]) for i in range(0, len(plain) // 8 * 8, 8)]
    assert len(plain) % 8 == 0
    assert sorted(tuple(moved[i : i + 8]) for i in range(0, len(moved), 8)) == sorted(whole)
    assert moved != plain


BUDGETS = st.integers(0, 90)


@laws
@given(DOCUMENTS, BUDGETS, BUDGETS, st.integers(1, 9))
def test_a_larger_budget_takes_all_that_a_smaller_one_takes_and_reaches_it_by_less_than_a_document(
    tmp_path_factory, documents, one, two, per_shard
):
    folder = tmp_path_factory.mktemp("t")
    drawn = []
    for budget in sorted((one, two)):
        mix = {"a": Share(tokens=str(budget), epochs=1000), "b": Share(weight=0), "c": Share(tokens="0")}
        has = sum(len(text.encode()) + 1 for source, text, split in documents if (source, split) == ("a", "train"))
        if budget > 1000 * has:
            return
        tokens = Tokens(folder / str(len(drawn)), documents, per_shard=per_shard, mix=mix, doc_sep_id=0).check()
        drawn.append(tokens.order("train"))
        of_a = tokens.manifest["mix"]["a"]
        assert of_a["tokens"] == len(tokens.ids("train")) == tokens.counts["a"].also.get("train_tokens", 0)
        assert of_a["documents"] == len(drawn[-1])
        assert of_a["available"] == has
        assert budget <= of_a["tokens"] < budget + max([len(text.encode()) + 1 for _, text, _ in documents], default=1)
        assert tokens.order("val") == plan_order(documents, "val")
        for source in SOURCES:
            left_out = set(plan_order(documents, "train")) - set(drawn[-1])
            assert tokens.counts[source].dropped.get("mix", 0) == sum(id.startswith(source) for id in left_out)
        counts = [drawn[-1].count(id) for id in plan_order(documents, "train") if id.startswith("a")]
        assert max(counts, default=0) - min(counts, default=0) <= 1, "none is drawn again before all were drawn"
    smaller, larger = drawn
    assert all(smaller.count(id) <= larger.count(id) for id in smaller)


def test_weights_are_reached(tmp_path):
    documents = [(source, "x" * 9, "train") for source in SOURCES for _ in range(200)]
    mix = {"a": Share(weight=3), "b": Share(weight=1, epochs=2), "c": Share(weight=0)}
    tokens = Tokens(tmp_path, documents, mix=mix, shuffle=Shuffle(seed=1)).check()
    assert {s: (m["tokens"], m["weight"], m["passes"]) for s, m in tokens.manifest["mix"].items()} == {
        "a": (1800, round(1800 / 2403, 9), 1),
        "b": (603, round(603 / 2403, 9), 0.335),  # 600 are asked for, and 9 a document
        "c": (0, 0, 0),
    }


def test_what_is_drawn_twice_has_two_rows_apart_from_each_other_in_a_shuffle(tmp_path):
    documents = [("a", f"{i:03d}", "train") for i in range(60)]
    mix = {"a": Share(tokens="360", epochs=2), "b": Share(weight=0), "c": Share(weight=0)}
    plain = Tokens(tmp_path / "1", documents, mix=mix).check().order("train")
    assert plain == plan_order(documents, "train") * 2
    order = Tokens(tmp_path / "2", documents, mix=mix, shuffle=Shuffle(seed=1)).check().order("train")
    assert sorted(order) == sorted(plain)
    assert sum(a == b for a, b in pairwise(order)) < 8
    assert [*dict.fromkeys(order)] != order[:60]


def test_a_source_that_has_too_little_is_named_with_what_helps(tmp_path):
    mix = {"a": Share(tokens="1k"), "b": Share(weight=0), "c": Share(weight=0)}
    with pytest.raises(ConfigError, match=r"mix\.a: 1,000 ids are asked for, and it has 300: ask for less, or allow epochs = 4"):
        Tokens(tmp_path, [("a", "x" * 300, "train")], mix=mix)


PACKINGS = st.builds(Packing, sequence_length=st.integers(2, 12), method=st.sampled_from(["concatenate", "best-fit"]), pad_id=st.just(254))


@laws
@given(DOCUMENTS, PACKINGS, st.none() | st.just(Shuffle(seed=1)), st.integers(12, 60), st.integers(1, 9))
def test_sequences_are_what_their_table_says(tmp_path_factory, documents, packing, shuffle, limit, per_shard):
    size = packing.sequence_length
    options = {"packing": packing, "shuffle": shuffle, "doc_sep_id": 255, "max_file_tokens": limit}
    tokens = Tokens(tmp_path_factory.mktemp("t"), documents, per_shard=per_shard, **options).check()
    rows = pq.read_table(tokens.path / "sequences.parquet").to_pylist()
    assert [(r["file"], r["start"]) for r in rows] == [(f, i) for f, ids in tokens.files.items() for i in range(0, len(ids), size)]
    assert all(len(ids) % size == 0 and len(ids) <= limit for ids in tokens.files.values())
    for row in rows:
        begin, end = row["start"], row["start"] + row["length"]
        starts = [r["start"] - begin for r in tokens.index if r["file"] == row["file"] and begin <= r["start"] < begin + size]
        assert row["resets"] == starts
        assert row["resets"][0] == 0
        assert tokens.files[row["file"]][end : begin + size] == [254] * (size - row["length"])
    covered = sorted((r["id"], r["offset"] + i) for r in tokens.index for i in range(r["length"]))
    assert covered == sorted((id, i) for id in tokens.documents for i in range(len(tokens.of(id))))
    if packing.method == "best-fit":
        assert all(r["length"] == len(tokens.of(r["id"])) for r in tokens.index if len(tokens.of(r["id"])) <= size)
    for split in ("train", "val"):
        told, mine = tokens.manifest["packing"][split], [r for r in rows if r["file"].startswith(split)]
        assert told["n_sequences"] == len(mine)
        assert told["padding"] == sum(size - r["length"] for r in mine)
        assert told["cuts"] == sum(r["offset"] > 0 for r in tokens.index if r["file"].startswith(split))


ALL = ("litdata", "mds", "megatron", "nanotron", "npy")


@pytest.mark.parametrize("packing", [None, Packing(sequence_length=8, method="best-fit", pad_id=254)])
def test_every_loader_reads_the_ids_of_the_bin_files(tmp_path, packing):
    documents = [("a", "the quick brown fox"[: 1 + i % 19], "train") for i in range(40)]  # and no val: its files have no ids
    tokens = Tokens(tmp_path, documents, formats=ALL, packing=packing, doc_sep_id=255, max_file_tokens=160, shuffle=Shuffle(seed=1)).check()
    train = [ids for name, ids in tokens.files.items() if name.startswith("train")]
    assert len(train) > 2
    home = tokens.path
    assert sorted(p.name for p in home.iterdir() if p.is_dir()) == sorted(ALL)
    assert [p for p in home.rglob("*val*") if p.parent != home] == []
    samples = (
        [[ids[i : i + 8] for i in range(0, len(ids), 8)] for ids in train]
        if packing
        else [[ids[r["start"] : r["start"] + r["length"]] for r in tokens.index if r["file"] == name] for name, ids in tokens.files.items()]
    )
    flat = [sample for file in samples for sample in file]
    loaders.equal(loaders.by_numpy(home / "npy" / "train"), train)
    loaders.equal(loaders.by_mds(home / "mds" / "train"), flat)
    loaders.equal(loaders.by_megatron(home / "megatron" / "train"), flat)
    blocks = [ids[i : i + 8] for ids in train for i in range(0, len(ids) // 8 * 8, 8)]
    loaders.equal(loaders.by_litdata(home / "litdata" / "train", 8), blocks)
    loaders.equal([r["input_ids"] for r in loaders.by_nanotron(home / "nanotron" / "train", 8, 2)], blocks)


def test_ids_are_copied_alike_in_small_and_large_spans(tmp_path, monkeypatch):
    documents = [("a", chr(97 + i % 26) * (1 + i * 37 % 9000), "train") for i in range(60)]
    whole = Tokens(tmp_path / "1", documents, shuffle=Shuffle(seed=1), formats=("mds",)).check()
    monkeypatch.setattr("corpusbuild.encoded.BLOCK", 1000)
    monkeypatch.setattr("corpusbuild.encoded.CHUNK", 3)
    monkeypatch.setattr("corpusbuild.gather.LONG", 50)
    assert Tokens(tmp_path / "2", documents, shuffle=Shuffle(seed=1), formats=("mds",)).bytes() == whole.bytes() | {
        "index.parquet": (tmp_path / "2" / "out" / "index.parquet").read_bytes(),
        MANIFEST: (tmp_path / "2" / "out" / MANIFEST).read_bytes(),
        f"{MANIFEST}.sha256": (tmp_path / "2" / "out" / f"{MANIFEST}.sha256").read_bytes(),
    }
    assert np.array_equal(whole.ids("train"), Tokens(tmp_path / "3", documents, shuffle=Shuffle(seed=1)).ids("train"))
