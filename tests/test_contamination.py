import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
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
    assert len(build_index([protected.removesuffix("thirteen fourteen")], 13).digests) == 0


def test_an_ngram_takes_sixteen_bytes_however_often_it_is_protected():
    index = build_index(["a b c d", "b c d", "c d"], 2)
    assert index.digests.nbytes == 3 * 16
    assert index.digests.tolist() == sorted(index.digests.tolist())


def test_ngrams_that_share_the_first_half_of_their_digest_are_told_apart():
    index = build_index(["a b", "c d"], 2)
    first, other = index.digests.tolist()
    twins = replace(index, digests=np.array([[first[0], 0], first, [first[0], 2**64 - 1]], np.uint64))
    assert sorted([twins.hits("a b"), twins.hits("c d")]) == [0, 1]
    assert replace(index, digests=np.array([[other[0], 0]], np.uint64)).hits("a b c d") == 0


MEMORY = """
import random, resource
from corpusbuild.contamination import build_index
rng = random.Random(1)
words = [f"word{i}" for i in range(50_000)]
texts = (" ".join(rng.choices(words, k=1012)) for _ in range({texts}))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
index = build_index(texts, 13)
print(len(index.digests), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def held(texts):
    """(n-grams, KiB at the highest) of an index of so many texts of 1,000 n-grams."""
    run = subprocess.run([sys.executable, "-c", MEMORY.replace("{texts}", str(texts))], capture_output=True, text=True, check=True)
    return tuple(map(int, run.stdout.split()))


def test_an_index_stays_small():
    ngrams, kib = held(50)
    assert ngrams == 50_000
    assert kib < 16_000, "the words alone are 50,000 strings"


@pytest.mark.slow
def test_an_index_of_a_million_ngrams_stays_modest():
    ngrams, kib = held(1000)
    assert ngrams == 1_000_000
    assert kib < 110_000


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
