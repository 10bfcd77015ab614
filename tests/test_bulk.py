"""What kernels make of a file is what the plain reader makes of it, whatever the bytes and however little of them is held at a time."""

import json
import tempfile
from itertools import chain
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild import bulk
from corpusbuild.raw import RawLine
from corpusbuild.split import Reject, documents

law = settings(deadline=None, max_examples=80)
FORMS = {
    "jsonl": {"fmt": "jsonl"},
    "columns": {"fmt": "jsonl", "id_field": "id", "keep": ("n", "é", "id")},
    "body": {"fmt": "jsonl", "text_field": "body", "keep": ("text",)},
    "text": {"fmt": "text"},
    "separator": {"fmt": "text", "separator": "<s>"},
    "newlines": {"fmt": "text", "separator": "\n\n"},
    "overlap": {"fmt": "text", "separator": "aa"},
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
TEXTS = (
    st.text(max_size=30)
    | st.text(st.characters(max_codepoint=127), max_size=30)
    | st.sampled_from(["\ud800", "😀\udc00", '\\"/\b\f\x7f\x00'])
)


@st.composite
def json_line(draw):
    keys = draw(st.permutations(["text", "id", "n", "é", "body", "x"]))
    value = {key: draw(TEXTS) if key in ("text", "body") else draw(VALUES) for key in keys[: draw(st.integers(0, 6))]}
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " :\r")]))
    line = json.dumps(value, ensure_ascii=draw(st.booleans()), separators=separators).replace("/", draw(st.sampled_from(["/", "\\/"])))
    data = bytearray(line.encode(errors="surrogatepass"))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.sampled_from(b'0 "\\{}[]:,eE.-\x00u\xff\xc3\xe2\x80\n'))
    return bytes(data) + draw(st.sampled_from([b"\n", b"\r\n", b" \n", b"\n \n", b""]))


PIECES = st.sampled_from(
    [b"\n", b"\n\n", b"\r\n", b"\r", b" ", b"\t", b"\x0b\x1c", "\u3000".encode(), "\u00a0\u2028".encode(), "\u1680".encode(), "\u205f\u0085".encode(), b"a", b"aa",
     b"<s>", b"<s", b">", "é😀ퟆ".encode(), b"\xff", b"\xc3", b"\xe2\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b'"\\\x01\x7f', b"\xef\xbb\xbf"]
)  # fmt: skip
BYTES = st.lists(st.one_of(PIECES, TEXTS.map(lambda t: t.encode(errors="surrogatepass"))), max_size=40).map(b"".join)
FILES = {name: (st.lists(json_line(), max_size=8).map(b"".join) if form["fmt"] == "jsonl" else BYTES) for name, form in FORMS.items()}


def plain(data, form, line=1, begins=True):
    return [
        found
        if isinstance(found, Reject)
        else msgspec.json.encode(RawLine(f"http://h/ü#f:{found.place}", "2026", "MIT", found.text, found.id, found.meta)) + b"\n"
        for found in documents([data], **form, line=line, begins=begins)
    ]


def by_kernels(path, start, end, line, begins, form):
    """(what is found, bytes of texts, digests)"""
    data, found, size, digests = path.read_bytes(), [], 0, b""
    for made in bulk.lines(bulk.Range(path, start, end, line, begins), bulk.Form("http://h/ü#f:", "2026", "MIT", **form)):
        if isinstance(made, bulk.Lines):
            some = bytes(made.data).splitlines(keepends=True) if b"\r" not in bytes(made.data) else None
            some = [one + b"\n" for one in bytes(made.data).split(b"\n")[:-1]]
            assert len(some) == made.documents
            assert len(made.digests) == 16 * len(some)
            found += some
            size += made.text_bytes
            digests += made.digests
        else:
            rest = data[made.offset : end] if made.offset is not None else b""
            for one in plain(made.data + rest, form, made.line, begins=False):
                found.append(one)
                if not isinstance(one, Reject):
                    text = msgspec.json.decode(one)["text"].encode()
                    size += len(text)
                    digests += bulk.digest(text)
    return found, size, digests


@pytest.mark.parametrize("name", FORMS)
@law
@given(st.data())
def test_kernels_make_what_the_plain_reader_makes(name, data):
    form, content = FORMS[name], data.draw(FILES[name])
    line, begins, least = data.draw(st.integers(1, 12)), data.draw(st.booleans()), data.draw(st.sampled_from([1, 5, 40, 4096]))
    before = bulk.BUFFER, bulk.ROWS
    bulk.BUFFER, bulk.ROWS = least, data.draw(st.sampled_from([1, 3, 1000]))
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "f"
            path.write_bytes(b"-\n" + content + b"behind")
            found, size, digests = by_kernels(path, 2, 2 + len(content), line, begins, form)
    finally:
        bulk.BUFFER, bulk.ROWS = before
    assert found == plain(content, form, line, begins)
    texts = [msgspec.json.decode(one)["text"].encode() for one in found if not isinstance(one, Reject)]
    assert size == sum(map(len, texts))
    assert digests == b"".join(map(bulk.digest, texts))


def test_digests_differ_where_texts_do():
    texts = [b"a" * n for n in range(40)] + [b"\x00" * n for n in range(1, 40)] + [b"abcdefgh" * n + b"x" for n in range(9)]
    assert len({bulk.digest(text) for text in texts}) == len(texts)


@pytest.mark.parametrize("name", ["jsonl", "text", "separator"])
def test_a_document_longer_than_any_buffer_may_be_goes_to_the_plain_reader_with_all_behind_it(name, tmp_path, monkeypatch):
    monkeypatch.setattr(bulk, "MAX_DOCUMENT_BYTES", 100)
    monkeypatch.setattr(bulk, "BUFFER", 64)
    one = {"jsonl": b'{"text":"%b"}\n', "text": b"%b\n\n", "separator": b"%b<s>"}[name]
    content = b"".join(one % (b"x" * n) for n in (3, 90, 1000, 4, 5))
    path = tmp_path / "f"
    path.write_bytes(content)
    assert by_kernels(path, 0, len(content), 1, True, FORMS[name])[0] == plain(content, FORMS[name])


def test_most_real_lines_are_made_by_the_kernel(tmp_path):
    rows = [{"id": n, "text": f'Line {n} \u2019\n\t"é\\ 😀', "meta": {"a": [1.5, None, True], "b": {}}, "score": -0.25} for n in range(100)]
    content = "".join(json.dumps(row, ensure_ascii=n % 2 == 0) + "\n" for n, row in enumerate(rows)).encode()
    (tmp_path / "f").write_bytes(content)
    made = list(
        bulk.lines(
            bulk.Range(tmp_path / "f", 0, len(content), 1, True), bulk.Form("u#", "2026", "MIT", "jsonl", id_field="id", keep=("meta",))
        )
    )
    assert all(isinstance(one, bulk.Lines) for one in made)
    assert b"".join(chain(bytes(one.data) for one in made)).count(b"\n") == 100
