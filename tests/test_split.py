import itertools
import json
import re
import tracemalloc

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild.split import MAX_DEPTH, REASONS, RawDocument, Reject, documents, split_documents

law = settings(deadline=None, max_examples=200)

SEP = "<|end|>"
tokens = st.sampled_from(
    [
        b"\n",
        b"\r\n",
        b" ",
        b"\t",
        b"a",
        "é\u00a0".encode(),
        "\u2028".encode(),
        b"\xff",
        b"\xc3",
        b"<|end|>",
        b"<|end",
        b"|>",
        b"<",
        b"\xef\xbb\xbf",
        b'{"text": "a"}\n',
        b'{"text": "b", "id": 7, "n": [1]}',
        b"[1]",
        b'{"text": 1}',
        b'{"text": "\\ud800"}',
        b'{"text":NaN}',
        b'"',
        b"\\",
    ]
)
raws = st.lists(tokens, max_size=30).map(b"".join)
WAYS = {
    "jsonl": {"fmt": "jsonl", "id_field": "id", "keep": ("n",)},
    "text": {"fmt": "text"},
    "separator": {"fmt": "text", "separator": SEP},
    "newlines": {"fmt": "text", "separator": "\n\n"},
}


def chunked(data, cuts):
    edges = [0, *sorted(c for c in cuts if c <= len(data)), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@law
@pytest.mark.parametrize("way", WAYS)
@given(data=raws, cuts=st.lists(st.integers(0, 80), max_size=8), max_bytes=st.integers(0, 40))
def test_where_the_chunks_are_cut_changes_nothing(way, data, cuts, max_bytes):
    whole = list(documents([data], **WAYS[way], max_bytes=max_bytes))
    assert list(documents(chunked(data, cuts), **WAYS[way], max_bytes=max_bytes)) == whole
    assert list(documents([data[i : i + 1] for i in range(len(data))], **WAYS[way], max_bytes=max_bytes)) == whole


@law
@given(raws)
def test_separated_documents_are_what_split_says(data):
    found = list(documents([data], "text", separator=SEP))
    expected, at = [], 0
    data = data.removeprefix(b"\xef\xbb\xbf")
    for piece in data.split(SEP.encode()):
        text = piece.decode(errors="replace")
        if text.strip():
            line = 1 + data[:at].count(b"\n") + text[: len(text) - len(text.lstrip())].count("\n")
            try:
                expected.append(RawDocument(str(line), piece.decode().strip("\r\n")))
            except UnicodeDecodeError:
                expected.append(Reject(str(line), "not_utf8"))
        at += len(piece) + len(SEP)
    assert found == expected


@law
@given(raws)
def test_blocks_are_what_a_regular_expression_says(data):
    data = data.replace(b"\xff", b"").replace(b"\xc3\xa9", b"e").replace(b"\xc3", b"")
    text = data.decode().removeprefix("\ufeff").replace("\r\n", "\n")
    expected = [
        (text.count("\n", 0, m.start()) + 1, m[0].removesuffix("\n"))
        for m in re.finditer(r"(?:^(?![^\S\n]*$)[^\n]*(?:\n|\Z))+", text, re.MULTILINE)
    ]
    assert list(split_documents(data, "text")) == expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@law
@given(json_values, st.booleans(), st.data())
def test_json_lines_read_what_the_standard_library_reads_and_say_why_not(value, ascii_only, data):
    try:
        line = bytearray(json.dumps({"text": "x", "v": value}, ensure_ascii=ascii_only).encode())
    except UnicodeEncodeError:
        return
    if data.draw(st.booleans()):
        line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.sampled_from(b'0 "\\{}[]:,eE.-\x00u\xff'))
    [found] = list(documents([bytes(line)], "jsonl", keep=["v"]))

    def refuse(constant):
        raise ValueError(constant)

    try:
        text = line.decode()
    except UnicodeDecodeError:
        assert found == Reject("1", "not_utf8")
        return
    try:
        parsed = json.loads(text, parse_constant=refuse)
        json.dumps(parsed, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        assert found == Reject("1", "surrogate")
    except ValueError:
        assert found == Reject("1", "not_json")
    else:
        if found != Reject("1", "number"):
            assert found == (
                RawDocument("1", "x", None, {"v": parsed["v"]} if "v" in parsed else None) if parsed.get("text") == "x" else found
            )
        else:
            assert "Infinity" in json.dumps(parsed)


def test_the_vector_for_text():
    data = b"The cat sat.\nIt purred.\n\n  \nA dog ran.\n\n\nEnd\n"
    assert list(split_documents(data, "text")) == [(1, "The cat sat.\nIt purred."), (5, "A dog ran."), (8, "End")]


def test_the_worked_example_for_json_lines():
    data = b'{"text": "Tom has a red ball."}\n{"text": "Mia naps."}\n'
    assert len(data) == 54
    assert list(split_documents(data, "jsonl")) == [(1, "Tom has a red ball."), (2, "Mia naps.")]


@pytest.mark.parametrize(
    ("data", "fmt", "message"),
    [
        (b'{"text": "a"}\n\n{"text"\n', "jsonl", "line 3 is not JSON"),
        (b'{"text": "a"}\n{"txt": "b"}\n', "jsonl", "line 2 has no string"),
        (b'{"text": 5}', "jsonl", "line 1 has no string"),
        (b"\n[]\n", "jsonl", "line 2 is no JSON object"),
        (b'{"text": "\xe9"}', "jsonl", "line 1 is not UTF-8"),
        (b"a\n\nb\n\xe9\n", "text", "line 3 is not UTF-8"),
        (b"", "parquet", "format 'parquet'"),
    ],
)
def test_the_strict_form_names_the_line(data, fmt, message):
    with pytest.raises(ValueError, match=message):
        list(split_documents(data, fmt))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"nonsense", "not_json"),
        (b'{"text": "a"} {"text": "b"}', "not_json"),
        (b'{"text": "a\tb"}', "not_json"),
        (b'{"text": "a", "x": NaN}', "not_json"),
        (b'{"text": "a", "x": -Infinity}', "not_json"),
        (b'{"text": "a", "x": 1e999}', "number"),
        (b'{"text": "a", "x": ' + b"9" * 5000 + b"}", "number"),
        (b'{"text": "\\ud800"}', "surrogate"),
        (b'{"text": "a", "x": ["\\udc00"]}', "surrogate"),
        (b'{"text": "a", "\\udc00": 1}', "surrogate"),
        (b'{"text": "\xff"}', "not_utf8"),
        (b'{"text": "\xed\xa0\x80"}', "not_utf8"),  # a surrogate in UTF-8
        (b'"text"', "not_object"),
        (b'[{"text": "a"}]', "not_object"),
        (b"null", "not_object"),
        (b"{}", "no_text"),
        (b'{"text": null}', "no_text"),
        (b'{"text": ["a"]}', "no_text"),
        (b'{"text": "a", "x": ' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}", "too_deep"),
        (b"[" * 200_000, "too_deep"),
        (b'{"text": "' + b"a" * 300_000 + b'"}', "too_long"),
        ("\u3000".encode(), "not_json"),
        (b"\xef\xbb\xbf{}", "not_json"),  # only the first bytes of a file are a byte order mark
    ],
)
def test_a_bad_json_line_is_a_reject_between_good_documents(line, reason):
    data = b'{"text": "before"}\n' + line + b'\n{"text": "after"}\n'
    found = list(documents([data], "jsonl", max_bytes=250_000))
    assert found == [RawDocument("1", "before"), Reject("2", reason), RawDocument("3", "after")]
    assert reason in REASONS


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b'{"text": "a"}\r', "a"),
        (b' \t{"text": "a"} ', "a"),
        (b'{"text": ""}', ""),
        ('{"text": "a\u2028b\u0085c"}'.encode(), "a\u2028b\u0085c"),
        (b'{"text": "\\ud83d\\ude00\\n\\u0000"}', "😀\n\x00"),
        (b'{"text": "a", "text": "b"}', "b"),
        (b'{"text": "' + b"[{" * 500 + b'"}', "[{" * 500),
        (b'{"text": "' + b'\\"[' * 500 + b'"}', '"[' * 500),
        (b'{"text": "a", "x": ' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}", "a"),
    ],
)
def test_a_good_json_line(line, text):
    assert list(documents([b"\xef\xbb\xbf\n" + line], "jsonl")) == [RawDocument("2", text)]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ({"body": "a", "key": "k1", "b": 1, "a": [None]}, RawDocument("1", "a", "k1", {"a": [None], "b": 1})),
        ({"body": "a", "key": 12}, RawDocument("1", "a", "12", None)),
        ({"body": "a"}, Reject("1", "no_id")),
        ({"body": "a", "key": ""}, Reject("1", "no_id")),
        ({"body": "a", "key": True}, Reject("1", "no_id")),
        ({"body": "a", "key": 1.5}, Reject("1", "no_id")),
        ({"text": "a", "key": "k"}, Reject("1", "no_text")),
    ],
)
def test_fields(line, found):
    data = msgspec.json.encode(line)
    [got] = documents([data], "jsonl", text_field="body", id_field="key", keep=["a", "b", "c"])
    assert got == found
    if isinstance(got, RawDocument) and got.meta:
        assert list(got.meta) == ["a", "b"]  # as kept, not as found


def test_separator_stands_anywhere_and_white_space_is_no_document():
    data = "\ufeff\n\n one\r\n\r\ntwo<s> \n\u00a0<s><s>three<s>\n\n\n  four\n\n".encode()
    assert list(documents([data], "text", separator="<s>")) == [
        RawDocument("3", " one\r\n\r\ntwo"),
        RawDocument("6", "three"),
        RawDocument("9", "  four"),
    ]


def test_a_separator_may_hold_line_ends_and_overlap_itself():
    assert [d.text for d in documents([b"a---b\n--\nc"], "text", separator="--")] == ["a", "-b", "c"]
    assert list(documents([b"a\n\n\nb\n\nc"], "text", separator="\n\n")) == [
        RawDocument("1", "a"),
        RawDocument("4", "b"),
        RawDocument("6", "c"),
    ]


def test_too_long_is_passed_over_and_lines_still_count():
    lines = b"a\n" + b"b" * 100 + b"\n\nc\n"
    assert list(documents([lines], "text", max_bytes=50)) == [Reject("1", "too_long"), RawDocument("4", "c")]
    many = b"a\n" * 30 + b"\nc\n"
    assert list(documents([many], "text", max_bytes=58)) == [Reject("1", "too_long"), RawDocument("32", "c")]
    assert list(documents([many], "text", max_bytes=59))[1:] == [RawDocument("32", "c")]
    pieces = b"\n" + b"b\n" * 100 + b"<s>\nc"
    assert list(documents([pieces], "text", separator="<s>", max_bytes=200)) == [Reject("2", "too_long"), RawDocument("103", "c")]
    assert [type(d) for d in documents([pieces], "text", separator="<s>", max_bytes=201)] == [RawDocument, RawDocument]
    assert list(documents([b" " * 51 + b"a<s>c"], "text", separator="<s>", max_bytes=50)) == [
        Reject("1", "too_long"),
        RawDocument("1", "c"),
    ]


def test_a_piece_of_the_longest_length_may_end_in_a_separator_cut_in_two():
    assert list(documents([b"abc<", b"s>d"], "text", separator="<s>", max_bytes=3)) == [RawDocument("1", "abc"), RawDocument("1", "d")]
    assert list(documents([b"abc<s", b">d"], "text", separator="<s>", max_bytes=3)) == [RawDocument("1", "abc"), RawDocument("1", "d")]


@pytest.mark.parametrize("way", WAYS)
def test_one_document_is_held_at_a_time(way):
    drawn = 0

    def endless():
        nonlocal drawn
        while True:
            drawn += 1
            yield b'{"text": "a", "id": 1}\n\n' + SEP.encode()[: 0 if way == "jsonl" else None]

    stream = documents(endless(), **WAYS[way])
    for _ in range(50):
        next(stream)
    assert drawn <= 60


@pytest.mark.parametrize("way", WAYS)
def test_a_document_without_end_is_not_held(way):
    chunk = b"[ab" * 20_000
    tracemalloc.start()
    found = list(documents((chunk for _ in range(500)), **WAYS[way], max_bytes=100_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == [Reject("1", "too_long")]
    assert peak < 1_500_000


def test_a_hostile_line_takes_linear_time():
    line = b'{"text": "' + b'\\"[' * 400_000
    assert list(documents([line], "jsonl")) == [Reject("1", "not_json")]


@pytest.mark.parametrize("given_", [("parquet", None), ("csv", None), ("jsonl", "<s>"), ("text", "")])
def test_what_cannot_be_split_is_refused_before_the_first_byte(given_):
    fmt, separator = given_
    with pytest.raises(ValueError, match=r"format|separator"):
        documents([], fmt, separator=separator)


@pytest.mark.parametrize("way", WAYS)
def test_nothing_gives_nothing(way):
    assert list(documents([], **WAYS[way])) == []
    assert list(documents([b"", b"\xef\xbb", b"\xbf", b""], **WAYS[way])) == []
