"""Decontaminate: a document that shares n words in a row with a protected text goes, and says with how many."""

import hashlib
import json
import re

import pytest
import serial_job
from hypothesis import given, settings
from hypothesis import strategies as st
from serial_job import documents

from corpusbuild.errors import ConfigError
from corpusbuild.parts import read_rows
from corpusbuild.stages import decontaminate
from corpusbuild.stages.decontaminate import Protected

THIRTEEN = "one two three four five six seven eight nine ten eleven twelve thirteen"
STORY = "Once there was a small dog who lived by the sea and barked at every wave that came."


def run(home, parts, protected, ngram=13, backwards=False):
    home.mkdir(parents=True, exist_ok=True)
    files = []
    for name, data in protected.items():
        (home / name).write_bytes(data)
        files.append(Protected(name=name, path=str(home / name), sha256=hashlib.sha256(data).hexdigest()))
    params = decontaminate.Params(source="s", protected=tuple(files), ngram=ngram)
    return serial_job.run(
        decontaminate.STAGE, params, {"documents": [documents(home / "docs", "s", parts)]}, home / "run", source="s", backwards=backwards
    )


def removed(entry):
    return [
        (r["id"], r["row"], r["rule"], r["value"], r["threshold"], r["rules"])
        for p in entry.files(".removed.parquet")
        for r in read_rows(p)
    ]


@pytest.mark.parametrize("backwards", [False, True])
def test_the_worked_example(tmp_path, backwards):
    parts = [
        [f"Before. {THIRTEEN.upper()}! After.", THIRTEEN.removesuffix(" thirteen"), THIRTEEN.replace("seven", "7")],
        ["x", f"{THIRTEEN} fourteen", THIRTEEN.replace(" ", ", \n")],
    ]
    entry = run(tmp_path / "p", parts, {"story.txt": THIRTEEN.encode()}, backwards=backwards)
    assert removed(entry) == [(id, row, "ngram", 1.0, 1.0, ["ngram"]) for id, row in (("s:0", 0), ("s:40", 1), ("s:50", 2))]
    tally = entry.contents.counts["s"]
    assert (tally.docs_in, tally.kept, tally.dropped) == (6, 3, {"ngram": 3})


def test_the_value_is_how_many_words_begin_a_protected_run(tmp_path):
    entry = run(tmp_path / "p", [[STORY, f"{STORY} And {STORY}", STORY[10:]]], {"story.txt": STORY.encode()})
    n = len(STORY.split()) - 12
    assert [(r[0], r[3]) for r in removed(entry)] == [("s:0", n), ("s:10", 2 * n), ("s:20", n - 2)]


def test_strings_of_json_lines_are_protected_and_the_names_of_cases_are_not(tmp_path):
    case = {
        "case_id": "ii jj kk",
        "prompt": "aa bb cc",
        "turns": [{"text": ["dd ee ff", 5]}],
        "scorer_args": {"x": "gg hh ii"},
        "tags": ["ll mm nn"],
    }
    texts = ["aa bb cc", "dd ee ff", "gg hh ii", "ii jj kk", "ll mm nn", "prompt turns text", "cc dd ee"]
    entry = run(tmp_path / "p", [texts], {"cases.jsonl": json.dumps(case).encode()}, ngram=3)
    assert [r[0] for r in removed(entry)] == ["s:0", "s:10"]
    assert [r[0] for r in removed(run(tmp_path / "q", [texts], {"cases.json": json.dumps(case).encode()}, ngram=3))] != ["s:0", "s:10"]


def test_texts_shorter_than_a_run_match_nothing_and_protect_nothing(tmp_path):
    entry = run(tmp_path / "p", [["one two", "", "one two three"]], {"a.txt": b"one two", "b.txt": b""}, ngram=3)
    assert removed(entry) == []


def test_a_source_without_documents(tmp_path):
    entry = run(tmp_path / "p", [], {"a.txt": b"one two"}, ngram=1)
    assert entry.contents.counts["s"].docs_in == 0


def test_a_protected_line_that_is_no_json_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"e\.jsonl: line 2 is not JSON"):
        run(tmp_path / "p", [["x"]], {"e.jsonl": b'"fine"\n{"a": \n'})


words = st.lists(st.sampled_from("a b c A é 1 x_y".split()), max_size=12).map(" ".join)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.lists(words, max_size=3), max_size=3), st.lists(words, max_size=3), st.integers(1, 4))
def test_documents_go_if_and_only_if_they_share_a_run(tmp_path_factory, parts, protected, n):
    def grams(text):
        found = re.findall(r"\w+", text.lower())
        return {tuple(found[i : i + n]) for i in range(len(found) - n + 1)}

    entry = run(tmp_path_factory.mktemp("d"), parts, {f"{i}.txt": t.encode() for i, t in enumerate(protected)}, n)
    known = set().union(*map(grams, protected))
    texts = [text for part in parts for text in part]
    assert [r[0] for r in removed(entry)] == [f"s:{10 * k}" for k, text in enumerate(texts) if grams(text) & known]
