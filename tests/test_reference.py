"""The page on configuration says of every key that is read what it is, and of none that is not."""

from projects import ROOT

from corpusbuild.config import schema
from corpusbuild.reference import DESCRIPTIONS, keys, page


def test_the_page_is_what_the_types_say():
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == page()


def test_every_key_is_told_of_once():
    told = list(keys())
    assert [key.name for key in told if not key.text] == []
    assert len({key.name for key in told}) == len(told)


def test_nothing_is_told_of_that_is_not_read():
    assert set(DESCRIPTIONS) <= {key.name for key in keys()}
    top = set(schema()["$defs"]["Corpus"]["properties"])
    assert {key.name.partition(".")[0] for key in keys()} == top
