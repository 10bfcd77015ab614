"""The detectors on sentences that were labelled before they were tuned, half of which nobody looked at."""

import json

import pytest
from pii_quality import LABELLED, mistakes, scores, sentences, table

from corpusbuild.pii import ALL_KINDS, KINDS

ROWS = [json.loads(line) for line in LABELLED.read_text("utf-8").split("\n") if line]


def test_the_set_is_what_it_is_said_to_be():
    assert len(ROWS) >= 400
    assert sum(row["origin"] == "mail" for row in ROWS) >= 100
    assert sum(not row["spans"] for row in ROWS) >= 200, "lookalikes"
    assert len({row["text"] for row in ROWS}) == len(ROWS)
    for row in ROWS:
        at = 0
        for kind, start, end in row["spans"]:
            assert kind in ALL_KINDS
            assert at <= start < end <= len(row["text"])
            at = end
    halves = [{row["text"] for row in sentences(half)} for half in ("tune", "held out")]
    assert halves[0].isdisjoint(halves[1])
    assert len(halves[0] | halves[1]) == len(ROWS)
    assert min(map(len, halves)) >= 250


@pytest.mark.parametrize("kinds", [KINDS, ALL_KINDS], ids=["the five", "all"])
@pytest.mark.parametrize("half", ["tune", "held out"])
def test_precision_and_recall_of_each_kind(half, kinds):
    for kind, score in scores(half, kinds).items():
        assert score.right > 0, kind
        assert score.precision >= 0.98, (kind, score)
        assert score.recall >= 0.98, (kind, score)


def test_mistakes_are_told_for_the_half_to_tune_on(monkeypatch):
    monkeypatch.setattr("pii_quality.detect", lambda text, kinds: [("email", 0, 1)])
    told = list(mistakes("tune", KINDS))
    assert {(kind, what) for kind, what, *_ in told} >= {("email", "wrong"), ("email", "missed"), ("card", "missed")}
    assert scores("tune", KINDS)["email"].precision == 0


def test_the_table_of_the_decision_page_is_the_measured_one():
    page = (LABELLED.parent.parent.parent / "docs" / "decisions" / "personal-data.md").read_text("utf-8")
    assert table() in page
