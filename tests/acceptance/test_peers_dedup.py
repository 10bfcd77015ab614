"""What went wrong in other tools when duplicates were removed, and must not here. Each test is named after what failed there."""

import json
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from projects import doit, jsonl, make_project, story
from serial_job import run
from test_near_dedup import lay, near, outcome_of, remaining, variant

from corpusbuild.config import load
from corpusbuild.errors import ConfigError
from corpusbuild.minhash import SignParams
from corpusbuild.parts import read_rows
from corpusbuild.plan import plan
from corpusbuild.stages import exact_dedup, near_dedup
from corpusbuild.stages.near_dedup import NearParams


def rows(entry, suffix=".removed.parquet"):
    return [row for path in entry.files(suffix) for row in read_rows(path)]


def removed_in(cache, stage):
    return [row for path in sorted(cache.glob(f"store/{stage}/*/*.removed.parquet")) for row in read_rows(path)]


def kept_in(corpus):
    return {row["id"]: row for path in sorted(corpus.glob("*.parquet")) for row in pq.read_table(path).to_pylist()}


def test_every_member_of_a_cluster_dropped(tmp_path):
    """text-dedup #129, PR #132: of some clusters nothing was left."""
    families = [[" ".join(f"f{f}w{k}" for k in range(40 + f)) + f" own{i}" for i in range(2 + f % 5)] for f in range(12)]
    shuffled = [text for i in range(6) for family in families for text in family[i : i + 1]]
    entry, texts = near(tmp_path, [[shuffled[:20], shuffled[20:]]], NearParams())
    got, members = outcome_of(entry, NearParams()), defaultdict(list)
    for id, cluster in got.clusters.items():
        members[cluster].append(id)
    assert len(members) == len(families)
    order = list(texts)
    for cluster, ids in members.items():
        stay = [id for id in ids if id not in got.gone]
        assert stay == [cluster] == [min(ids, key=order.index)]
    assert all(survivor in texts and survivor not in got.gone for survivor, _ in got.gone.values())


def test_unverified_chained_matches_removed_what_was_like_nothing_kept(tmp_path):
    """marin #6854, #6851: whole sources went because a like b, b like c, ... made one cluster with one survivor."""
    words = [f"w{k}" for k in range(400)]
    chain = [" ".join(words[k * 4 : k * 4 + 60]) for k in range(60)]  # neighbours share 56 of 64 words, the ends nothing
    params = NearParams(sign=SignParams(num_perm=128, bands=64, shingle=1), jaccard_threshold=0.85)
    entry, _ = near(tmp_path, [[chain]], params)
    got = outcome_of(entry, params)
    assert set(got.clusters.values()) == {"s0:0"}  # they are connected, and told to be
    for id, (survivor, similarity) in got.gone.items():
        a, b = (set(chain[int(i.split(":")[1]) // 10].split()) for i in (id, survivor))
        assert similarity == len(a & b) / len(a | b) >= 0.85
        assert survivor not in got.gone
    assert len(got.gone) == 30  # every other one


def test_a_shared_bucket_is_no_match(tmp_path):
    """marin, text-dedup: documents of one bucket were removed without a look at their texts."""
    texts = [" ".join(f"{'common' if k < 24 else f'own{i}'}w{k}" for k in range(60)) for i in range(40)]
    params = NearParams(sign=SignParams(num_perm=128, bands=128, shingle=1))  # every pair shares a band
    entry, _ = near(tmp_path, [[texts]], params)
    assert entry.contents.counts["s0"].also["candidates"] > 500
    assert rows(entry) == []


def test_survivors_depended_on_workers(tmp_path):
    """marin #6798, dolma #111: another number of workers, or their timing, kept other documents."""
    texts = [variant(i % 11, 40 + i % 3) if i % 4 else f"{story(i)}\n\nthe same end" for i in range(60)]
    told = []
    for name, sources, how in [
        ("one", [[texts]], {}),
        ("many", [[texts[:7], texts[7:30], texts[30:31], texts[31:]]], {"memory": 3000}),
        ("back", [[texts[:41], texts[41:]]], {"memory": 900, "backwards": True}),
    ]:
        home, inputs = tmp_path / name, lay(tmp_path / name, sources, SignParams())
        exact = run(exact_dedup.STAGE, exact_dedup.ExactParams(), inputs, home / "exact", **how)
        entry = run(near_dedup.STAGE, NearParams(), inputs | {"exact": [exact]}, home / "near", **how)
        told.append([{k: v for k, v in row.items() if k != "row"} for e in (exact, entry) for row in rows(e)])
    assert told[0]
    assert told[1:] == [told[0], told[0]]


def test_survivors_depended_on_workers_in_a_whole_build(tmp_path):
    texts = [story(i % 13) + f" {'And so on.' * (i % 3)}" for i in range(30)] + [f"{story(40)}\n\n{story(41)}", story(41)]
    removed = []
    for workers in ("serial", "local:3"):
        home = tmp_path / workers.replace(":", "-")
        make_project(home, {"s": ("s.jsonl", jsonl(texts), "max_removed = 1")})
        done = doit(home, "build:tiny", "--executor", workers)
        assert done.returncode == 0, done.stdout + done.stderr
        removed.append([removed_in(home / "cache", stage) for stage in ("exact_dedup", "near_dedup")])
    assert all(removed[0])
    assert removed[0] == removed[1]


def test_short_documents_vanished(tmp_path):
    """text-dedup #77: what was shorter than a shingle was in no cluster and in no output."""
    texts = ["", "!", "one", "one two", "Two, one", "one two three four", "one two three four.", "one two three four five", "…", "!"]
    params = NearParams()
    entry, all_texts = near(tmp_path, [[texts]], params)
    gone = outcome_of(entry, params).gone
    assert gone == {"s0:60": ("s0:50", 1.0)}  # equal but for the stop; what has no word is nobody's duplicate
    tally = entry.contents.counts["s0"]
    assert (tally.docs_in, tally.kept) == (len(all_texts), len(texts) - 1)


def test_short_documents_vanished_from_a_whole_build(tmp_path):
    texts = ["one", "one two", "ONE.", "…", story(1)]
    make_project(tmp_path, {"s": ("s.jsonl", jsonl(texts), "")}, extra="[stages]\nfilter = false\n")
    done = doit(tmp_path, "build:tiny")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["text"] for row in kept_in(tmp_path / "cache/corpus/tiny/v1").values()] == ["one", "one two", "…", story(1)]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    home = tmp_path_factory.mktemp("published")
    make_project(home, {"then": ("old.jsonl", jsonl([story(i) for i in range(20)]), "")}, name="old")
    done = doit(home, "build:old")
    assert done.returncode == 0, done.stdout + done.stderr
    return home


def test_matches_with_an_index_hid_who_matched(published):
    """datatrove #249, #370: deduplicating against an index told that a document matched, not what."""
    texts = [story(100), story(7), f"{story(9)} And that was that."]
    make_project(published, {"now": ("new.jsonl", jsonl(texts), "")}, name="new", extra='[dedup]\nagainst = ["corpus/old/v1"]\n')
    done = doit(published, "build:new")
    assert done.returncode == 0, done.stdout + done.stderr
    old = kept_in(published / "cache/corpus/old/v1")
    told = {r["id"]: r for stage in ("exact_dedup", "near_dedup") for r in removed_in(published / "cache", stage)}
    assert {id: (r["rule"], r["survivor"]) for id, r in told.items()} == {
        "now:1": ("against", "old@v1/then:7"), "now:2": ("against", "old@v1/then:9"),
    }  # fmt: skip
    for id, row in told.items():
        assert old[row["survivor"].removeprefix("old@v1/")]["text"] == story({"now:1": 7, "now:2": 9}[id])
        assert 0.8 <= row["similarity"] <= 1


def test_a_corpus_matched_itself(published):
    """dclm #83: held against what it had itself brought in, a corpus lost everything."""
    cache, before = published / "cache", kept_in(published / "cache/corpus/old/v1")
    with pytest.raises(ConfigError, match="this configuration publishes old v1 itself and would remove all of it"):
        load(published / "configs" / "old.toml", ('dedup.against=["corpus/old/v1"]',), cache=cache)
    again = doit(published, "build:old", "--set", "dedup.jaccard_threshold=0.81")  # its own last result lies in the cache
    assert again.returncode == 0, again.stdout + again.stderr
    assert kept_in(cache / "corpus/old/v1") == before


def test_a_location_leaked_into_a_key(published, tmp_path, monkeypatch):
    """marin #5216: the name of a bucket was in the hash of a step, and everything was built again elsewhere."""
    new = make_project(published, {"now": ("new.jsonl", jsonl([story(5)]), "")}, name="new", extra='[dedup]\nagainst = ["corpus/old/v1"]\n')
    keys = [(step.label, step.key) for step in plan(load(new, cache=published / "cache")).steps]
    moved = tmp_path / "quite" / "elsewhere"
    moved.parent.mkdir()
    published.rename(moved)
    try:
        monkeypatch.chdir(tmp_path)
        overrides = ("run.workers=7", "run.executor=serial", "run.memory=1 GB")
        assert [(s.label, s.key) for s in plan(load(moved / "configs" / "new.toml", overrides, cache=moved / "cache")).steps] == keys
        for step in plan(load(moved / "configs" / "new.toml", cache=moved / "cache")).steps:
            assert str(tmp_path) not in json.dumps(step.stage.names_output(step.params), default=str), step.label
    finally:
        moved.rename(published)


@pytest.mark.parametrize("damage", ["truncated", "torn"])
def test_a_torn_signature_file_was_read(tmp_path, damage):
    """datatrove #157, #397: a signature file cut short by a dead worker failed, or lied, two stages later."""
    make_project(tmp_path, {"s": ("s.jsonl", jsonl([story(i) for i in range(20)]), "")})
    assert doit(tmp_path, "build:tiny").returncode == 0
    (signs,) = tmp_path.glob("cache/store/sign/*/part-00000.signs.arrow")
    whole = signs.read_bytes()
    signs.write_bytes(whole[: len(whole) // 2] if damage == "truncated" else whole[:400] + bytes(64) + whole[464:])
    done = doit(tmp_path, "build:tiny", "--set", "dedup.jaccard_threshold=0.7")
    told = done.stdout + done.stderr
    assert done.returncode == 65
    assert str(Path(*signs.parts[-5:])) in told
    assert "delete" in told
    assert "Traceback" not in told
    assert kept_in(tmp_path / "cache/corpus/tiny/v1").keys() == {f"s:{i}" for i in range(20)}  # what was published stands


def test_a_template_cluster_took_forever(tmp_path):
    """text-dedup, datatrove #106: one text with thousands of variants made pairs by the square of their number."""
    n, params = 6000, NearParams(max_bucket=16)
    entry, texts = near(tmp_path, [[[variant(i) for i in range(n)]]], params)
    tally = entry.contents.counts["s0"]
    assert (tally.docs_in, tally.kept) == (n, 1)
    assert tally.also["candidates"] <= n * params.max_bucket * 2  # not 18 million
    assert tally.also["not_compared"] > n * (n - 1) // 2  # over 16 bands, and told
    assert {survivor for survivor, _ in outcome_of(entry, params).gone.values()} == {"s0:0"}
    assert remaining([[[variant(0)]]], set(), None) == {"s0:0": texts["s0:0"]}
