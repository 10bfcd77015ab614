"""1,000 documents on, just under and just over each threshold: each is decided as its side says, and as the golden page remembers."""

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import thresholds
from projects import doit, jsonl, make_project

from corpusbuild.parts import read_rows

GOLDEN = Path(__file__).parent / "golden" / "thresholds.json"


@pytest.fixture(scope="module")
def decided(tmp_path_factory):
    """(case, side, decision) of every document, in order: a row of what removed it, or the split it is kept for."""
    folder = tmp_path_factory.mktemp("thresholds")
    cases = list(thresholds.documents())
    sources = {"edge": ("edge.jsonl", jsonl(text for *_, text in cases), 'pii_policy = "none"')}
    make_project(folder, sources, extra=thresholds.CONFIG)
    (folder / "measures.py").write_text(thresholds.MEASURES)
    (folder / "configs" / "protected.txt").write_text(thresholds.PROTECTED)
    done = doit(folder, "build:tiny")
    assert done.returncode == 0, done.stdout + done.stderr
    tables = (folder / "cache" / "store").glob("*/*/*.removed.parquet")
    gone = {row["id"]: row for path in sorted(tables) for row in read_rows(path)}
    shards = sorted((folder / "cache" / "corpus" / "tiny" / "v1").glob("*.parquet"))
    kept = {row["id"]: row for path in shards for row in pq.read_table(path).to_pylist()}
    assert not gone.keys() & kept.keys()
    assert [row["id"] for path in shards for row in pq.read_table(path, columns=["id"]).to_pylist()] == sorted(kept, key=number)
    found = []
    for n, (case, side, _) in enumerate(cases):
        id = f"edge:{n}"
        row = gone.get(id)
        if row is None:
            found.append((case, side, {"kept": kept[id]["split"]}))
        else:
            told = {name: row[name] for name in ("stage", "rule", "value", "threshold", "rules", "similarity")}
            found.append((case, side, told | {"survivor": number(row["survivor"]) - n if row["survivor"] else None}))
    return found


def number(id):
    return int(id.split(":")[1])


def test_there_are_a_thousand_and_every_threshold_has_its_three_sides(decided):
    assert len(decided) == 1000
    assert Counter((case, side) for case, side, _ in decided).keys() >= {(c, s) for c in thresholds.CASES for s in thresholds.SIDES}


def test_each_side_is_decided_as_it_must_be(decided):
    wrong = []
    for case, side, decision in decided:
        sides, stage, rule = thresholds.FAILS[case]
        expected = (stage, rule, [rule]) if side in sides.split() else (None, None, None)
        if (decision.get("stage"), decision.get("rule"), decision.get("rules")) != expected:
            wrong.append((case, side, decision))
    assert wrong == []


def test_what_was_measured_stands_on_its_side_of_the_threshold(decided):
    for case, _, decision in decided:
        if decision.get("threshold") is not None:
            upper = thresholds.FAILS[case][0] != "under"
            on = decision["value"] == decision["threshold"]
            assert on or (decision["value"] > decision["threshold"]) is upper
            assert not on or case in ("ngram", "jaccard")
    assert {d["similarity"] for c, s, d in decided if (c, s) == ("jaccard", "on")} == {0.8}
    assert {d["survivor"] for c, s, d in decided if (c, s) in (("jaccard", "on"), ("paragraphs", "over"))} == {-1}
    assert {(s, d["kept"]) for c, s, d in decided if c == "split"} == {("under", "val"), ("on", "train"), ("over", "train")}


def test_the_decisions_are_the_golden_ones(decided):
    """To renew: delete the file and run this test twice."""
    lines = [json.dumps([n, *decision], ensure_ascii=False) for n, decision in enumerate(decided)]
    text = "[\n" + ",\n".join(lines) + "\n]\n"
    if not GOLDEN.exists():
        GOLDEN.write_text(text)
        pytest.fail(f"{GOLDEN.name} was missing and is written; look at it and run again")
    assert json.loads(text) == json.loads(GOLDEN.read_text())
