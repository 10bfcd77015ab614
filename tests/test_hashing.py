"""Canonical JSON and the keys made of it."""

import json
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild.hashing import canonical, config_sha256, key_digest

SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20)

WORKED = {"version": "v1", "dataset": "tinystories", "tokenizer": {"id": "bytes"}}


def shuffled(value, rng):
    if isinstance(value, dict):
        items = [(k, shuffled(v, rng)) for k, v in value.items()]
        rng.shuffle(items)
        return dict(items)
    return [shuffled(v, rng) for v in value] if isinstance(value, list) else value


@settings(deadline=None)
@given(VALUES, st.randoms(use_true_random=False))
def test_order_of_keys_does_not_matter(value, rng):
    assert canonical(value) == canonical(shuffled(value, rng))


@settings(deadline=None)
@given(VALUES)
def test_it_reads_back_as_the_same_value(value):
    def without_surrogates(text):
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(text, str) else text

    def same(a, b):
        if isinstance(a, dict):
            # keys that differ only in a lone surrogate fall together, as they do in Go
            return {without_surrogates(k) for k in a} >= set(b)
        if isinstance(a, list):
            return len(a) == len(b) and all(map(same, a, b))
        if isinstance(a, str):
            return any("\ud800" <= c <= "\udfff" for c in a) or a == b
        if isinstance(a, float):  # beyond 2**53 the shortest digits are those of another integer, which reads back as the same float
            return a == float(b)
        return a == b and isinstance(b, bool) == isinstance(a, bool)

    assert same(value, json.loads(canonical(value)))


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_spelled_shortest_and_read_back(number):
    text = canonical(number).decode()
    assert float(text) == number
    assert len(text.lstrip("-").replace(".", "").strip("0")) <= 25


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (0.8, "0.8"),
        (1e-7, "1e-7"),
        (1e-6, "0.000001"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e-10, "1.5e-10"),
        (-2.5, "-2.5"),
        (2**53, "9007199254740992"),
        ("<a> & b", '"\\u003ca\\u003e \\u0026 b"'),
        ("\u2028é\n\x01", '"\\u2028é\\n\\u0001"'),
        ({"b": [], "a": {}}, '{"a":{},"b":[]}'),
        ([True, False, None], "[true,false,null]"),
    ],
)
def test_it_is_spelled_as_go_spells_it(value, text):
    assert canonical(value).decode() == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53 + 1, -(2**53) - 1])
def test_numbers_without_an_exact_common_form_are_refused(value):
    with pytest.raises(ValueError, match=r"canonical form|common form"):
        canonical({"a": [value]})


def test_the_worked_example_of_the_specification():
    assert canonical(WORKED) == b'{"dataset":"tinystories","tokenizer":{"id":"bytes"},"version":"v1"}'
    assert len(canonical(WORKED)) == 67
    assert config_sha256(WORKED) == "a03711ec959b2a8fb6cf51d9445bee90fcb69a103cfa033483b52f836269c0a6"


def test_a_changed_value_changes_the_key():
    rng = random.Random(7)
    assert key_digest("step", "filter", 1, shuffled(WORKED, rng)) == key_digest("step", "filter", 1, WORKED)
    assert key_digest("step", "filter", 1, WORKED | {"version": "v2"}) != key_digest("step", "filter", 1, WORKED)
    assert key_digest("step", "filter", 2, WORKED) != key_digest("step", "filter", 1, WORKED)


def test_structs_are_hashed_as_what_they_hold():
    class Point(msgspec.Struct):
        y: int
        x: int

    assert canonical(Point(y=2, x=1)) == b'{"x":1,"y":2}'
