"""Whatever became of a document of the sample, the tables say it once, and explain finds it there."""

import collections
import gzip
import itertools
import json
import random
import shutil

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from projects import doit, jsonl, make_project, story

from corpusbuild import explain
from corpusbuild.commands.explain import answer
from corpusbuild.errors import ConfigError, IntegrityError
from corpusbuild.likeness import likeness
from corpusbuild.raw import read_raw
from corpusbuild.store import Store

STAGES = ("filter", "decontaminate", "scrub", "exact_dedup", "near_dedup")


@pytest.fixture(scope="module")
def built(sample):
    (only,) = explain.recorded(Store(sample[0] / "cache"))
    return only


@pytest.fixture(scope="module")
def rows(sample):
    return pl.read_parquet(str(sample[0] / "cache" / "corpus" / "sample" / "v1" / "*.parquet"))


@pytest.fixture(scope="module")
def removed(sample):
    """Id -> removal rows, over every table of every stage."""
    found = collections.defaultdict(list)
    for stage in STAGES:
        for path in sorted((sample[0] / "cache" / "store" / stage).glob("*/*.removed.parquet")):
            for row in pq.read_table(path).to_pylist():
                found[row["id"]].append(row)
    return found


@pytest.fixture(scope="module")
def raw_ids(sample, built):
    """The id of every raw document, in plan order."""
    ids = []
    for source in built.sources:
        entry = built.entry(f"fetch:{source['id']}")
        ids += [f"{source['id']}:{line.get('id') or k}" for k, line in enumerate(read_raw(entry))]
    return ids


def said(built, what):
    return "\n".join(answer(built, str(what)))


def test_every_document_is_in_the_shards_or_in_one_row_of_one_table(raw_ids, rows, removed):
    kept = rows["id"].to_list()
    assert len(set(raw_ids)) == len(raw_ids) > 2000
    assert set(kept) | set(removed) == set(raw_ids)
    assert set(kept).isdisjoint(removed)
    assert len(kept) == len(set(kept))
    assert {len(found) for found in removed.values()} == {1}


def test_every_chain_of_survivors_ends_in_the_shards(built, rows, removed):
    kept = set(rows["id"].to_list())
    lengths = collections.Counter()
    followed = set(random.Random(7).sample(sorted(removed), 60))
    for id, (row,) in removed.items():
        if row["survivor"] is None:
            assert row["stage"] not in ("exact_dedup", "near_dedup")
            continue
        chain = [row["survivor"]]
        while chain[-1] not in kept:
            chain.append(removed[chain[-1]][0]["survivor"])
        lengths[len(chain)] += 1
        if id in followed:
            fate = explain.fate(built, explain.by_id(built, id))
            assert fate.end.document.id == chain[-1]
            assert fate.end.where.values["id"] == chain[-1]
    assert lengths[1] > 400


def test_a_document_that_fell_with_its_survivor_is_followed_to_the_shards(tmp_path):
    first, second = [story(i, sentences=12) for i in range(2)]
    near = first.rsplit(".", 2)[0] + "."  # nearly all of the first, so near_dedup lets it go
    repeated = f"{near}\n\n{second}"
    sources = {
        "one": ("one.jsonl", jsonl([first, f"{story(5)}\n\n{story(6)}"]), ""),
        "two": ("two.jsonl", jsonl([near]), "allow_empty = true"),
        "three": ("three.jsonl", jsonl([near, repeated]), "allow_empty = true"),
    }
    make_project(tmp_path, sources)
    assert doit(tmp_path, "build:tiny").returncode == 0
    run = doit(tmp_path, "explain", "three:0")
    assert run.returncode == 0, run.stderr
    assert "in favour of  two:0, which went in favour of one:0, which is in the shards" in run.stdout
    heads = [line for line in run.stdout.splitlines() if line and not line.startswith(" ")]
    assert heads == [
        "three:0 is not in build:tiny: exact_dedup removed it",
        "two:0 is not in build:tiny: near_dedup removed it",
        "one:0 is in build:tiny",
    ]


def test_a_kept_document_is_found_in_its_shard_and_in_the_tokens(built, sample, rows):
    values = rows.rows(named=True)
    for at in [0, 499, 500, 1139, *random.Random(1).sample(range(len(values)), 20)]:
        where = explain.fate(built, explain.by_id(built, values[at]["id"])).where
        assert (where.corpus_row, where.values["id"]) == (at, values[at]["id"])
        assert where.row == at - 500 * (at // 500)
        shard = pq.read_table(where.path).slice(where.row, 1).to_pylist()[0]
        assert {name: shard[name] for name in where.values} == where.values
        (tokens,) = where.tokens
        ids = np.memmap(tokens.path, np.uint16, offset=1024, mode="r")
        assert ids[tokens.start : tokens.start + tokens.length].astype(np.uint8).tobytes() == shard["text"].encode()


def test_every_token_leads_back_to_its_document(built, sample, rows):
    index = pq.read_table(sample[0] / "cache" / "tokens" / "bytes" / "sample" / "index.parquet").to_pylist()
    for row in random.Random(2).sample(index, 20):
        for offset in (row["start"], row["start"] + row["length"] - 1):
            document, tokens = explain.by_token(built, row["file"], offset)
            assert document.id == row["id"]
            assert (tokens.start, tokens.length) == (row["start"], row["length"])
    kept = rows.filter(pl.col("split") == "train").row(10, named=True)
    row = next(r for r in index if r["id"] == kept["id"])
    text = said(built, f"{row['file']}@{row['start'] + 3}")
    for part in (kept["id"], kept["url"], kept["sha256"].hex(), kept["license_spdx"], "shard-00000-of-00003.parquet, row ", kept["split"]):
        assert part in text
    source = next(
        s for s in json.loads((sample[0] / "cache/builds/sample.json").read_text())["config"]["sources"] if s["id"] == kept["source_id"]
    )
    assert source["sha256"] in text


@pytest.mark.parametrize(("file", "offset"), [("train-00000.bin", 10**12), ("val-00000.bin", 40035)])
def test_a_token_that_does_not_exist_is_told_with_the_last_that_does(built, file, offset):
    with pytest.raises(ConfigError, match=r"ids, so offsets 0 to [0-9]+, not"):
        explain.by_token(built, file, offset)
    assert explain.by_token(built, "train-00007.bin", 0) is None


def test_every_removal_is_explained_by_rule_value_and_threshold(built, removed):
    by_rule = {(row["stage"], row["rule"]): row for (row,) in removed.values()}
    assert len(by_rule) == 15
    for row in by_rule.values():
        fate = explain.fate(built, explain.by_id(built, row["id"]))
        assert fate.removed == row
        assert fate.where is None
        text = said(built, row["id"])
        assert f"{row['id']} is not in build:sample: {row['stage']} removed it" in text
        assert all(other in text for other in row["rules"] if row["rule"] != "paragraphs")


def test_a_place_is_its_document_however_the_file_is_named(built, rows, sample):
    for value in rows.sample(10, seed=3).rows(named=True):
        for what in (value["url"], f"configs/{value['url']}", value["url"].split("/")[-1], sample[0] / "configs" / value["url"]):
            assert [d.id for d in explain.by_place(built, str(what))] == [value["id"]]
    assert explain.by_place(built, "ple/book.txt#1") == []
    assert explain.by_place(built, "other.txt#1") == []


def test_a_line_within_a_document_leads_to_the_one_that_begins_before_it(built):
    begins = explain.by_place(built, "book.txt#33")
    assert [d.place for d in begins] == ["33"]
    inside = said(built, "book.txt#34")
    assert inside.startswith(f"no document begins at book.txt#34; the last that begins before it, and may hold it, is {begins[0].id}:")


def test_changes_of_a_kept_document_are_told(built, rows):
    changed = collections.Counter()
    for id, redactions in rows.select("id", "pii_redactions").iter_rows():
        if redactions or id.startswith("pages:"):
            fate = explain.fate(built, explain.by_id(built, id))
            assert len(fate.spans) == redactions
            changed.update(span["kind"] for span in fate.spans)
            assert ("are replaced by <" in said(built, id)) == bool(redactions)
    assert set(changed) == {"email", "phone", "card", "ip", "key"}


def test_a_file_is_told_to_be_in_and_which(built, rows, tmp_path):
    for value in rows.filter(pl.col("n_chars") > 100).sample(5, seed=5).rows(named=True):
        (tmp_path / "text.txt").write_text(value["text"] + "\r\n")
        assert said(built, tmp_path / "text.txt").startswith(f"{tmp_path}/text.txt is {value['id']}\n\n{value['id']} is in build:sample")


def test_a_file_that_was_removed_is_told_by_whom(built, removed, tmp_path, sample):
    """One document of each source and stage, as its raw text has it: dropped by filters, decontaminated, duplicate."""
    texts = {}
    for source in built.sources:
        for k, line in enumerate(itertools.islice(read_raw(built.entry(f"fetch:{source['id']}")), 300)):
            texts[f"{source['id']}:{line.get('id') or k}"] = line["text"]
    picked = {}
    for id, (row,) in removed.items():
        if id in texts and (texts[id].strip() or row["rule"] == "empty"):
            picked.setdefault((row["source"], row["stage"], row["rule"]), id)
    assert {stage for _, stage, _ in picked} == set(STAGES)
    for (_, stage, _), id in picked.items():
        (tmp_path / "text.txt").write_text(texts[id])
        first = said(built, tmp_path / "text.txt")
        assert f"{id} is not in build:sample: {stage} removed it" in first or f" {id}" in first.splitlines()[0], (id, first)


def test_a_changed_copy_is_told_its_nearest_by_true_similarity(built, rows, tmp_path):
    value = rows.filter((pl.col("source_id") == "speeches") & (pl.col("n_chars") < 30000)).row(0, named=True)
    words = value["text"].split()
    words[10] = "lighthouse"
    changed = " ".join(words)
    like = likeness(built, changed)
    assert like.near[0].document.id == value["id"]
    assert 0.95 < like.near[0].similarity < 1
    shingles = [{tuple(t.lower().split()[i : i + 5]) for i in range(len(t.split()) - 4)} for t in (value["text"], changed)]
    assert like.near[0].similarity == pytest.approx(len(shingles[0] & shingles[1]) / len(shingles[0] | shingles[1]), abs=0.01)
    (tmp_path / "text.txt").write_text(changed)
    text = said(built, tmp_path / "text.txt")
    assert f"{value['id']}, which is in the shards: similarity 0.9" in text
    assert "enough to go in its favour" in text


def test_a_text_of_its_own_is_judged_by_the_filters_and_by_its_paragraphs(built, rows, tmp_path):
    held = rows.filter((pl.col("source_id") == "book") & (pl.col("n_chars") < 900)).row(0, named=True)
    (tmp_path / "text.txt").write_text(f"{story(1)}\n\n{held['text']}\n\n{story(2)}")
    text = said(built, tmp_path / "text.txt")
    assert text.startswith(f"{tmp_path}/text.txt is not in build:sample, and no source of it has this text")
    assert "of every source would keep it" in text
    assert f"paragraph 2 of 3 stands in {held['id']}" in text
    (tmp_path / "text.txt").write_text("Nothing of this kind.")
    text = said(built, tmp_path / "text.txt")
    assert "of book would drop it: length 21 (limit 50)" in text
    assert "nearest       nothing: no document agrees" in text


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["book:99999"], 2, "book has no such document; it has 1,580 in build:sample, book:0 to book:1579"),
        (["nonsense"], 2, "sources are book, chapters, declarations, edits, pages, speeches"),
        (["train-00009.bin@3"], 2, "no build has this token file"),
        (["train-00000.bin@999999999"], 65, "2,771,014 ids"),
        (["build:nothing", "book:1"], 65, "build:nothing was not built"),
        ([], 2, "train-00000.bin@123456"),
        (["book:1", "book:2"], 2, "one thing"),
        (["https://example.org/?a=b#3"], 2, "'https://example.org/?a=b#3' is no document"),
        (["elsewhere/train-00000.bin@3"], 2, "no build has this token file"),
    ],
)
def test_what_cannot_be_explained_is_one_line(sample, args, code, words):
    run = doit(sample[0], "explain", *args)
    assert (run.returncode, run.stdout) == (code, "")
    assert words in run.stderr
    assert "Traceback" not in run.stderr


def test_the_command_answers_all_four_kinds(sample):
    for what in ("pages:3", "sample/pages.jsonl#4", "cache/tokens/bytes/sample/train-00000.bin@2768180", "configs/sample/NOTICE"):
        run = doit(sample[0], "explain", what)
        assert run.returncode == 0, run.stderr
        assert "build:sample" in run.stdout
        assert run.stderr == ""
    assert doit(sample[0], "explain", "build:sample", "pages:3").stdout == doit(sample[0], "explain", "pages:3").stdout


def test_a_line_that_could_not_be_read_is_told(tmp_path):
    good = jsonl([story(i) for i in range(30)])
    make_project(tmp_path, {"a": ("a.jsonl", good[:-1] + b"\n{broken\n", 'on_bad = "reject"\nmax_bad = 0.5')})
    assert doit(tmp_path, "build:tiny").returncode == 0
    run = doit(tmp_path, "explain", "a.jsonl#31")
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("a.jsonl#31 is not in build:tiny: fetch removed it")


def test_two_builds_that_know_it_both_answer(tmp_path):
    texts = {"a": ("a.txt.gz", gzip.compress("\n\n".join(story(i) for i in range(9)).encode(), mtime=0), 'format = "text"')}
    make_project(tmp_path, texts)
    make_project(tmp_path, texts, name="other", extra="[filters]\nmin_chars = 600\n[shard]\nshard_rows = 5\n", head="")
    config = tmp_path / "configs" / "other.toml"
    config.write_text(config.read_text().replace("sha256 = ", "allow_empty = true\nsha256 = "))
    assert doit(tmp_path, "build:tiny", "build:other").returncode == 0
    heads = [line for line in doit(tmp_path, "explain", "a:0").stdout.splitlines() if line.startswith("a:0")]
    assert [head.split(":")[2].split()[0] for head in heads] == ["other", "tiny"]


def test_what_is_gone_from_the_store_is_told(sample, tmp_path):
    shutil.copytree(sample[0], tmp_path / "project", symlinks=True)
    shutil.rmtree(tmp_path / "project" / "cache" / "store" / "near_dedup")
    (only,) = explain.recorded(Store(tmp_path / "project" / "cache"))
    with pytest.raises(IntegrityError, match=r"near_dedup of build:sample, is gone: run doit build:sample"):
        said(only, "edits:40")
    with pytest.raises(ConfigError, match="nothing was built"):
        explain.recorded(Store(tmp_path / "none"))
