"""However the bytes come and whoever makes the parts: the same parts, and every document in one of them."""

import gzip
import io
import itertools
import threading
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild import child
from corpusbuild.errors import SourceError
from corpusbuild.kernels import PLAIN
from corpusbuild.machinecode import make_ready
from corpusbuild.segments import Verified
from corpusbuild.sources import Source
from corpusbuild.split import cuts, documents
from corpusbuild.stages.fetch import SplitSource, distinct_in, split_source
from corpusbuild.staging import Staging, perform

law = settings(deadline=None, max_examples=150)

WAYS = [("jsonl", None), ("text", None), ("text", "<s>"), ("text", "\n\n"), ("text", "aa")]
tokens = st.sampled_from(
    [b"\n", b"\n\n", b"\r\n", b" ", b" \n", b"\t\n", "\u3000\n".encode(), "\u00a0".encode(), b"\xc2", b"a", b"aa", b"<s>", b"<s", b">", "\u00e9".encode(), b"\xff"]
)  # fmt: skip
raws = st.lists(tokens, max_size=40).map(b"".join)


def chunked(data, marks):
    edges = sorted({0, len(data), *(m for m in marks if m < len(data))})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def cut_at(way, chunks, size, most):
    found, before = [], 0
    made = cuts(*way, size, most)
    for chunk in chunks:
        found += [before + cut for cut in made.feed(chunk)]
        before += len(chunk)
    return found, made.end_file()


@law
@given(st.sampled_from(WAYS), raws, st.lists(st.integers(1, 80), max_size=8), st.integers(1, 60), st.integers(1, 5))
def test_a_cut_changes_no_document_and_depends_on_no_chunk(way, data, marks, size, most):
    fmt, separator = way
    found, due = cut_at(way, [data] if data else [], size, most)
    assert cut_at(way, chunked(data, marks), size, most) == (found, due)
    assert cut_at(way, [data[i : i + 1] for i in range(len(data))], size, most) == (found, due)
    edges = [0, *found, *([len(data)] if not found or found[-1] < len(data) else [])]
    together = []
    for start, end in itertools.pairwise(edges):
        some = list(documents([data[start:end]], fmt, separator=separator, line=1 + data[:start].count(b"\n"), begins=start == 0))
        assert len(some) <= most
        together += some
    assert together == list(documents([data], fmt, separator=separator))


def test_a_cut_comes_as_soon_as_it_may():
    assert cut_at(("jsonl", None), [b"1\n22\n3\n"], 3, 9) == ([5], False)
    assert cut_at(("jsonl", None), [b"1\n2\n3"], 99, 2) == ([4], False)
    assert cut_at(("jsonl", None), [b"1\n2\n3"], 99, 3) == ([], True)
    assert cut_at(("text", None), [b"a\n \nb\n\nc"], 3, 9) == ([4, 7], False)
    blank = [b"a\n b\n\nc\n\n"]  # of its lines, " b" may be blank for all one sees at first: it counts, but is no place to cut
    assert cut_at(("text", None), blank, 99, 2) == ([6], True)
    assert cut_at(("text", "<s>"), [b"a<s>b<s>c"], 99, 2) == ([8], False)


TEXTS = [f"Document {n}: " + "\u00e9\u4e00 word\n\n" * (n % 5) + "x" * (n % 700) for n in range(400)]


def encoded(format):
    if format == "text":
        return "<s>".join(TEXTS).encode(), {"format": "text", "separator": "<s>"}
    if format == "blocks":
        return "\n \n".join(t.replace("\n\n", "\n") for t in TEXTS).encode(), {"format": "text"}
    if format == "parquet":
        data = io.BytesIO()
        table = pa.table(
            {"n": list(range(400)), "text": pa.array([None if n == 7 else t for n, t in enumerate(TEXTS)]).dictionary_encode()}
        )
        pq.write_table(table, data, row_group_size=150)
        return data.getvalue(), {"format": "parquet", "id_field": "n", "keep": ("n",)}
    rows = [msgspec.json.encode({"n": n, "text": t}) if n != 7 else b"[" for n, t in enumerate(TEXTS)]
    return b"\n".join(rows) + b"\n", {"format": "jsonl", "keep": ("n",)}


PACK = {
    "plain": bytes,
    "gzip": gzip.compress,
    "zstd": zstandard.compress,
    "frames": lambda d: zstandard.compress(d[:9000]) + zstandard.compress(d[9000:]),
}


def lines(path):
    return zstandard.ZstdDecompressor().stream_reader(path.read_bytes(), read_across_frames=True).read().split(b"\n")[:-1]


def made(home, task, workers, kernels=PLAIN):
    """(value, lines of each part) of a split by this many processes, or in this one for 0."""
    staging = Staging(home)
    staging.create()
    value = (
        child.split_apart(task, home, threading.Event(), workers=workers, kernels=kernels)
        if workers
        else perform((split_source, task, home), kernels)
    )
    names = sorted(p.name for p in staging.out.iterdir())
    assert not (staging.scratch / "spool").exists()
    return value, names, [lines(p) for p in sorted(staging.out.glob("*.zst"))]


@pytest.mark.parametrize(
    ("format", "packing"), [("jsonl", "plain"), ("text", "gzip"), ("blocks", "frames"), ("parquet", "plain"), ("jsonl", "zstd")]
)
def test_any_number_of_processes_makes_the_same_parts(format, packing, tmp_path):
    data, settings = encoded(format)
    files = []
    for n, content in enumerate([data, b"" if format != "parquet" else data, data]):
        path = tmp_path / f"{n}.{format}"
        path.write_bytes(PACK[packing](content))
        files.append(Verified(str(path), f"http://h/{n}", path.name, f"{n:064}", path.stat().st_size))
    source = Source("s", "http://h/", "0" * 64, "MIT", on_bad="reject", max_bad=0.1, **settings)
    task = SplitSource("part", source, tuple(files), "2026-01-01T00:00:00Z", part_docs=70)
    one = made(tmp_path / "one", task, 0)
    assert made(tmp_path / "two", task, 2) == one
    assert made(tmp_path / "kernels", task, 0, make_ready(print)) == one
    if packing == "frames":
        assert made(tmp_path / "three", task, 3, make_ready(print)) == one
    value, _, parts = one
    assert len(parts) > 5
    assert max(map(len, parts)) <= 70
    bad = 0 if format in ("text", "blocks") else 1
    assert [f["documents"] for f in value["files"]] == [400 - bad, 0 if format != "parquet" else 399, 400 - bad]
    assert [f["unique"] for f in value["files"]] == [f["documents"] for f in value["files"]]
    texts = [msgspec.json.decode(line)["text"] for part in parts for line in part]
    assert texts[: 400 - bad] == [
        t if format != "blocks" else t.replace("\n\n", "\n").rstrip("\n") for n, t in enumerate(TEXTS) if not bad or n != 7
    ]


def test_the_first_document_that_cannot_be_read_is_named_whoever_finds_it(tmp_path):
    rows = [b'{"text": "%d"}' % n for n in range(1000)]
    rows[350] = rows[351] = rows[900] = b"broken"
    path = tmp_path / "a"
    path.write_bytes(b"\n".join(rows))
    file = Verified(str(path), "http://h/a", "a", "0" * 64, 1)
    task = SplitSource("part", Source("s", "http://h/a", "0" * 64, "MIT"), (file,), "2026-01-01T00:00:00Z", part_docs=30)
    for workers in (0, 2):
        with pytest.raises(SourceError, match="a: line 351 is not JSON"):
            made(tmp_path / f"{workers}", task, workers)


def test_what_an_earlier_attempt_finished_is_not_made_again(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"".join(b'{"text": "%d"}\n' % n for n in range(300))))
    file = Verified(str(path), "http://h/a", "a", "0" * 64, 1)
    task = SplitSource("part", Source("s", "http://h/a", "0" * 64, "MIT"), (file,), "2026-01-01T00:00:00Z", part_docs=100)
    value, names, parts = made(tmp_path / "home", task, 2)
    staging = Staging(tmp_path / "home")
    kept = (staging.out / "part-00000.jsonl.zst").stat().st_ino
    (staging.out / "part-00001.jsonl.zst").write_bytes(b"damaged")
    assert made(tmp_path / "home", task, 2) == (value, names, parts)
    assert (staging.out / "part-00000.jsonl.zst").stat().st_ino == kept
    other = SplitSource("part", task.source, (file,), "2026-01-01T00:00:00Z", part_docs=101)
    assert [len(p) for p in made(tmp_path / "home", other, 2)[2]] == [101, 101, 98]


def test_a_process_that_dies_is_an_error_that_may_heal_or_blames_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(child.sys, "executable", "/bin/false")
    path = tmp_path / "a"
    path.write_bytes(b'{"text": "a"}\n')
    file = Verified(str(path), "http://h/a", "a", "0" * 64, 1)
    for format, retryable in (("jsonl", True), ("parquet", False)):
        task = SplitSource("part", Source("s", "http://h/a", "0" * 64, "MIT", format=format), (file,), "2026-01-01T00:00:00Z")
        Staging(tmp_path / format).create()
        with pytest.raises(SourceError, match=r"its process|the process that split it") as failure:
            child.split_apart(task, tmp_path / format, threading.Event(), workers=2)
        assert failure.value.retryable is retryable


@law
@given(st.lists(st.integers(0, 5), max_size=60), st.integers(1, 9), st.integers(0, 60))
def test_different_digests_are_counted_in_any_memory(values, at_once, middle):
    import tempfile

    from corpusbuild.stages import fetch

    digests = [v.to_bytes(1, "little") * 4 + (v * 0x30000000 % (1 << 32)).to_bytes(4, "little") * 3 for v in values]
    before, fetch.COUNTED_AT_ONCE = fetch.COUNTED_AT_ONCE, at_once
    try:
        with tempfile.TemporaryDirectory() as folder:
            pages = [Path(folder) / "a", Path(folder) / "b"]
            middle = min(middle, len(values))
            pages[0].write_bytes(b"-" * 16 + b"".join(digests[:middle]))
            pages[1].write_bytes(b"".join(digests[middle:]) + b"-" * 16)
            assert distinct_in([(pages[0], 1, middle), (pages[1], 0, len(values) - middle)]) == len(set(values))
    finally:
        fetch.COUNTED_AT_ONCE = before
