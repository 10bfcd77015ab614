"""Documents to read: those that were asked for, with their own text, the same on any machine, and nothing that a terminal would obey."""

import json

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from projects import doit_here, make_project

from corpusbuild.commands.show import marked, visible
from corpusbuild.errors import ConfigError
from corpusbuild.explain import recorded
from corpusbuild.selection import dropped, kept
from corpusbuild.store import Store


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    make_project(folder)
    assert doit_here(folder, "build:tiny", "--set", "filters.min_chars=495", "--set", "dedup.jaccard_threshold=0.5") == 0
    return folder


@pytest.fixture(scope="module")
def built(project):
    return recorded(Store(project / "cache"), "tiny")[0]


def shards(project):
    return [row for path in sorted((project / "cache" / "corpus").glob("*/*/*.parquet")) for row in pq.read_table(path).to_pylist()]


def test_kept_documents_come_in_their_order_with_their_text(project, built):
    rows = shards(project)
    found = kept(built, None, 5, None)
    assert [(d.id, d.text, d.url) for d in found] == [(r["id"], r["text"], r["url"]) for r in rows[:5]]
    assert len(kept(built, None, 10**6, None)) == len(rows)


def test_of_a_source_only(project, built):
    rows = [row["id"] for row in shards(project) if row["source_id"] == "notes"]
    assert [d.id for d in kept(built, "notes", 10**6, None)] == rows


def test_a_seed_draws_the_same_and_a_longer_draw_holds_the_shorter(built):
    few, more = ([d.id for d in kept(built, None, n, 7)] for n in (3, 6))
    assert more[:3] == few
    assert [d.id for d in kept(built, None, 6, 8)] != more


def test_dropped_ones_have_the_text_they_came_with(project, built):
    found = dropped(built, "filter.length", None, 10**6, None)
    assert found
    assert {d.values["rule"] for d in found} == {"length"}
    texts = {
        f"{i + 1}": json.loads(line)["text"] for i, line in enumerate((project / "configs" / "stories.jsonl").read_text().splitlines())
    }
    for d in found:
        if d.source == "stories":
            assert d.text == texts[d.url.rpartition("#")[2]]


def test_a_rule_that_dropped_nothing_is_refused_with_those_that_did(built):
    with pytest.raises(ConfigError, match=r"no document was dropped by gopher_words; there is .*filter\.length"):
        dropped(built, "gopher_words", None, 3, None)


def test_the_command_shows_a_duplicate_beside_the_one_that_stays(project, capfd):
    assert doit_here(project, "show", "tiny", "--dropped", "exact_dedup", "-n", "1", "--chars", "0") == 0
    assert "stays" in capfd.readouterr().out
    assert doit_here(project, "show", "tiny", "--source", "nowhere") == 65
    assert "it has stories, notes" in capfd.readouterr().err
    assert doit_here(project, "show", "tiny", "--sample", "x") == 2


@given(st.text())
def test_nothing_reaches_the_terminal_that_it_would_obey(text):
    out = visible(text)
    assert not any((ord(ch) < 32 and ch not in "\n\t") or 127 <= ord(ch) < 160 for ch in out)
    assert not set(out) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\u2028\u2029")


WORDS = st.lists(st.sampled_from(["the", "cat", "sat", "on", "a", "mat"]), max_size=12).map(" ".join)


@given(WORDS, WORDS)
def test_marks_take_nothing_away(a, b):
    left, right = marked(a, b)
    assert left.plain.replace("[-", "").replace("-]", "") == a
    assert right.plain.replace("{+", "").replace("+}", "") == b
