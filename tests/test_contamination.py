import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild.contamination import build_index, protected_texts
from corpusbuild.errors import ConfigError

law = settings(deadline=None, max_examples=200)

texts = st.lists(st.sampled_from(["the", "The", "cat", "sat", "café", "x_1", "42", "İ", ",", "-", "\n"]), max_size=25).map(" ".join)


def grams(text, n):
    words = re.findall(r"\w+", text.lower())
    return [" ".join(words[i : i + n]) for i in range(len(words) - n + 1)]


@law
@given(st.lists(texts, max_size=4), texts, st.integers(1, 5))
def test_hits_are_what_the_definition_says(protected, text, n):
    known = {gram for p in protected for gram in grams(p, n)}
    index = build_index(protected, n)
    assert index.hits(text) == sum(gram in known for gram in grams(text, n))
    assert len(index.digests) == len(known)


@law
@given(texts, texts, texts)
def test_a_text_is_found_wherever_it_stands(before, protected, after):
    found = build_index([protected], 3).hits(f"{before} {protected.upper()} ... {after}")
    assert found >= len(grams(protected.upper(), 3))


def test_thirteen_words_in_a_row_and_no_fewer():
    protected = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    index = build_index([protected], 13)
    assert index.hits("ONE, two: three four five (six) seven eight nine ten eleven twelve\nthirteen!") == 1
    assert index.hits(protected) == 2
    assert index.hits(protected.replace("seven", "7")) == 0
    assert index.hits(protected.removesuffix("thirteen fourteen")) == 0
    assert build_index([protected.removesuffix("thirteen fourteen")], 13).digests == frozenset()


def test_digests_take_sixteen_bytes():
    assert {len(d) for d in build_index(["a b c d"], 2).digests} == {16}


def test_n_below_one_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        build_index([], 0)


def test_strings_of_json_lines_at_any_depth_but_not_under_the_names_of_cases():
    lines = [
        {"case_id": "c1", "prompt": "p", "turns": [{"text": "t1", "id": "x"}, ["t2", 3, None, True, {"tags": ["no"], "a": "t3"}]]},
        {"scorer_args": {"answer": "no"}, "id": {"deep": "no"}, "answer": "a"},
        "bare",
        ["l1", "l2"],
    ]
    data = b"\xef\xbb\xbf" + "\r\n\n".join(json.dumps(line) for line in lines).encode() + b"\n"
    assert list(protected_texts("evals/cases.jsonl", data)) == ["p", "t1", "t2", "t3", "a", "bare", "l1", "l2"]


def test_a_line_nested_deeper_than_calls_can_be():
    deep = '{"a":' * 300 + '"x"' + "}" * 300
    assert list(protected_texts("e.jsonl", deep.encode())) == ["x"]


def test_another_file_is_one_text():
    assert list(protected_texts("evals/story.txt", "\ufeffé\n\n{}".encode())) == ["é\n\n{}"]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("e.jsonl", b'{"a": "x"}\n\n{"a": \n', r"e\.jsonl: line 3 is not JSON"),
        ("e.jsonl", b'{"a": NaN}', r"e\.jsonl: line 1 is not JSON"),
        ("e.jsonl", b'"\xff"', r"e\.jsonl: line 1 is not JSON"),
        ("e.jsonl", b"[" * 100_000, r"e\.jsonl: line 1 is not JSON"),
        ("e.txt", b"ab\xff", r"e\.txt: byte 2 is not UTF-8"),
    ],
)
def test_a_bad_file_is_named_with_its_line(name, data, message):
    with pytest.raises(ConfigError, match=message):
        list(protected_texts(name, data))
