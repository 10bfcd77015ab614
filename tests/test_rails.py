"""The rails: a source that loses more than was allowed stops the build and shows why."""

import json

import pytest
from projects import doit, jsonl, make_project, story
from serial_job import run
from test_near_dedup import lay, variant

from corpusbuild.config import load
from corpusbuild.errors import StageError
from corpusbuild.minhash import SignParams
from corpusbuild.model import Tally
from corpusbuild.plan import plan
from corpusbuild.stages import exact_dedup, near_dedup, rails


def deduplicated(home, sources):
    inputs = lay(home, sources, SignParams())
    exact = run(exact_dedup.STAGE, exact_dedup.ExactParams(), inputs, home / "exact")
    near = run(near_dedup.STAGE, near_dedup.NearParams(), inputs | {"exact": [exact]}, home / "near")
    return {"documents": inputs["documents"], "exact": [exact], "near": [near]}


def held(home, inputs, **limits):
    return run(rails.STAGE, rails.Params(max_removed=limits), inputs, home)


SOURCES = [
    [["one text alone in the world", *(variant(i) for i in range(3))]],  # loses 2 of 4
    [["said before", "said before", "said before"], [variant(9), "said once"]],  # loses 3 of 5, two of them in whole paragraphs
]


def test_what_is_allowed_passes_and_is_written_down(tmp_path):
    inputs = deduplicated(tmp_path, SOURCES)
    entry = held(tmp_path / "rails", inputs, s0=0.5, s1=0.6)
    assert entry.contents.counts == {"s0": Tally(docs_in=2, kept=2), "s1": Tally(docs_in=2, kept=2)}
    assert json.loads((entry.path / "rails.json").read_bytes()) == {
        "s0": {"docs_in": 4, "removed": 2, "against": 0, "share": 0.5, "max_removed": 0.5},
        "s1": {"docs_in": 5, "removed": 3, "against": 0, "share": 0.6, "max_removed": 0.6},
    }


def test_what_is_more_stops_the_build_with_its_clusters_and_the_line_that_accepts_it(tmp_path):
    inputs = deduplicated(tmp_path, SOURCES)
    with pytest.raises(StageError) as failed:
        held(tmp_path / "rails", inputs, s0=0.5, s1=0.59)
    lines = str(failed.value).split("\n")
    assert lines == [
        "rails: s1: duplicates took 3 of the 5 documents of s1 (60%), and max_removed lets 59% go. The largest clusters:",
        "    2 went with s1:0 (similarity 1.00 to 1.00): said before",
        "    1 went with s0:10 (similarity 0.97 to 0.97): w0 w1 w2 w3 w4 w5 w6 w7 w8 w9 w10 w11",
        'If they are duplicates, accept it: max_removed = 0.6 in the [[sources]] with id = "s1"; '
        "if not, raise dedup.jaccard_threshold or drop the text that they share by a filter.",
    ]


def test_ten_clusters_are_shown_the_largest_first(tmp_path):
    families = [[" ".join(f"f{f}w{k}" for k in range(60)) + f" own{i}" for i in range(f + 1)] for f in range(1, 14)]
    inputs = deduplicated(tmp_path, [[[text for family in families for text in family]]])
    with pytest.raises(StageError) as failed:
        held(tmp_path / "rails", inputs, s0=0.1)
    shown = [line.split()[0] for line in str(failed.value).split("\n")[1:-1]]
    assert shown == [str(n) for n in range(13, 3, -1)]


def test_what_went_against_an_earlier_corpus_is_not_counted(tmp_path):
    old, new = [story(i) for i in range(4)], [*(story(i) for i in range(4)), "said before", "said before", "said once"]
    inputs = lay(tmp_path, [[old], [new]], SignParams())
    inputs = {role: entries[1:] for role, entries in inputs.items()} | {
        "earlier": inputs["documents"][:1],
        "earlier_signs": inputs["signs"][:1],
    }
    exact = run(exact_dedup.STAGE, exact_dedup.ExactParams(), inputs, tmp_path / "exact")
    taken = {"documents": inputs["documents"], "earlier": inputs["earlier"], "exact": [exact]}
    entry = held(tmp_path / "rails", taken, s1=0.15)
    assert json.loads((entry.path / "rails.json").read_bytes())["s1"] == {
        "docs_in": 7, "removed": 1, "against": 4, "share": 1 / 7, "max_removed": 0.15,
    }  # fmt: skip
    assert entry.contents.counts == {"s1": Tally(docs_in=2, kept=2)}
    with pytest.raises(StageError) as failed:
        held(tmp_path / "over", taken, s1=0.1)
    assert [line.split(" (")[0] for line in str(failed.value).split("\n")[1:-1]] == ["    1 went with s1:40"]


def test_a_source_without_documents_loses_nothing(tmp_path):
    inputs = deduplicated(tmp_path, [[], [[]]])
    assert held(tmp_path / "rails", inputs, s0=0.0, s1=0.0).contents.counts == {"s0": Tally(), "s1": Tally()}


def test_the_limit_moves_no_step_but_the_rails(tmp_path):
    path = make_project(tmp_path)
    before = {step.label: step.key for step in plan(load(path)).steps}
    after = {step.label: step.key for step in plan(load(path, ("dedup.max_removed=0.5",))).steps}
    assert {label for label in before if before[label] != after[label]} == {"rails"}


def test_a_build_stops_before_its_shards_and_goes_on_when_accepted(tmp_path):
    texts = [f"{story(1)} The {i}th of them was late." for i in range(10)] + [story(i) for i in range(100, 102)]
    make_project(tmp_path, {"s": ("s.jsonl", jsonl(texts), "")})
    done = doit(tmp_path, "build:tiny")
    told = done.stdout + done.stderr
    assert done.returncode == 65
    assert "rails: s: duplicates took 9 of the 12 documents of s (75%), and max_removed lets 60% go." in told
    assert "    9 went with s:0 (similarity 0." in told
    assert not list((tmp_path / "cache" / "store").glob("shard/*"))
    assert not (tmp_path / "cache" / "corpus").exists()
    path = tmp_path / "configs" / "tiny.toml"
    path.write_text(path.read_text().replace('id = "s"\n', 'id = "s"\nmax_removed = 0.75\n'))
    done = doit(tmp_path, "build:tiny")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "near_dedup " not in done.stdout.split("source ")[0]
