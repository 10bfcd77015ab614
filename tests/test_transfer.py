"""Sources as people have them: mirrors, many files, checksum files, folders, parallel ranges, object stores, formats."""

import asyncio
import hashlib
import io
import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from servers import cut, head, reply, running, served, span

from corpusbuild import ledger, raw, resume, tables
from corpusbuild.errors import SourceError
from corpusbuild.fetch import How, Source, SourceFile, fetch, read_raw
from corpusbuild.progress import Event, Meter
from corpusbuild.sources import checksum_files, fetch_key, file_names, files_digest, hub_url, sources_from_config

BODY = b"".join(b'{"text":"document %04d"}\n' % i for i in range(100))


@pytest.fixture
def server():
    with running() as s:
        yield s


async def no_wait(seconds):
    await asyncio.sleep(0)


def sha(data):
    return hashlib.sha256(data).hexdigest()


def get(source, dest, **more):
    more.setdefault("environment", {})
    more.setdefault("sleep", no_wait)
    return asyncio.run(fetch([source], dest, **more)).entries[0]


def one(url, body=BODY, **more):
    return Source(more.pop("id", "s"), url, more.pop("sha256", sha(body)), "MIT", **more)


def texts(entry):
    return [d["text"] for d in read_raw(entry.raw_dir)]


# mirrors


def test_a_failing_mirror_is_followed_by_the_next(server, tmp_path):
    first, second = server.on("/1/a.jsonl", reply(404)), server.on("/2/a.jsonl", served(BODY))
    assert get(one(first, urls=(second,)), tmp_path).status == "fetched"
    assert [r.path for r in server.requests] == ["/1/a.jsonl", "/2/a.jsonl"]


def test_a_lying_mirror_is_followed_by_the_next_and_tried_last_by_the_next_file(server, tmp_path):
    for name in ("a", "b"):
        server.on(f"/1/{name}", served(b"lies"))
        server.on(f"/2/{name}", served(BODY))
    sources = [one(server.url(f"/1/{n}"), id=n, urls=(server.url(f"/2/{n}"),)) for n in ("a", "b")]
    manifest = asyncio.run(fetch(sources, tmp_path, concurrency=1, environment={}, sleep=no_wait))
    assert manifest.ok
    first, *others = [r.path for r in server.requests]
    name, other = ("a", "b") if first == "/1/a" else ("b", "a")
    assert others == [f"/2/{name}", f"/2/{other}"]


def test_another_mirror_goes_on_where_the_first_was_cut(server, tmp_path):
    first, second = server.on("/1/a", cut(BODY, 700), reply(503)), server.on("/2/a", served(BODY))
    assert get(one(first, urls=(second,)), tmp_path, attempts=2).status == "fetched"
    assert [(r.path, r.range) for r in server.requests][-1] == ("/2/a", "bytes=700-")


def test_quarantine_only_when_every_mirror_lies_and_it_is_remembered(server, tmp_path):
    first, second = server.on("/1/a", served(b"lies")), server.on("/2/a", served(b"more lies"))
    source = one(first, urls=(second,))
    entry = get(source, tmp_path)
    assert (entry.status, entry.requests, entry.sha256) == ("quarantined", 2, sha(b"more lies"))
    assert (tmp_path / "quarantine/s/a").read_bytes() == b"more lies"
    again = get(source, tmp_path)
    assert (again.status, again.requests, again.sha256) == ("quarantined", 0, sha(b"more lies"))
    server.on("/1/a", served(BODY))
    assert get(source, tmp_path, how=How(retry_quarantined=True)).status == "fetched"


def test_a_new_pin_forgets_the_quarantine(server, tmp_path):
    url = server.on("/a", served(b'{"text":"lies"}'))
    assert get(one(url), tmp_path).status == "quarantined"
    assert get(one(url, b'{"text":"lies"}'), tmp_path).status == "fetched"


def test_a_lying_and_a_failing_mirror_are_no_reason_to_quarantine(server, tmp_path):
    with pytest.raises(SourceError) as failure:
        get(one(server.on("/1/a", served(b"lies")), urls=(server.on("/2/a", reply(503)),)), tmp_path)
    assert failure.value.retryable
    assert not (tmp_path / "quarantine").exists()


def test_the_mirrors_of_many_files_are_other_bases(server, tmp_path):
    data = bodies(2)
    files = tuple(SourceFile(server.url(f"/main/sub/{i}.jsonl"), sha(b)) for i, b in enumerate(data))
    for i, b in enumerate(data):
        server.on(f"/mirror/sub/{i}.jsonl", served(b))
    source = Source("s", server.url("/main/"), "", "MIT", files=files, urls=(server.url("/mirror/"),))
    assert get(source, tmp_path, concurrency=1).n_docs == 4
    assert "/mirror/sub/1.jsonl" in {r.path for r in server.requests}


# many files


def bodies(n):
    return [b'{"text":"file %d"}\n{"text":"again %d"}\n' % (i, i) for i in range(n)]


def test_many_files_are_one_source_and_each_resumes(server, tmp_path):
    data = bodies(4)
    files = tuple(SourceFile(server.on(f"/{i}/x.jsonl", served(b)), sha(b), len(b)) for i, b in enumerate(data))
    source = Source("s", "", "", "MIT", files=files)
    assert source.sha256 == files_digest(files)
    server.on("/2/x.jsonl", cut(data[2], 10), reply(404))
    with pytest.raises(SourceError, match="404"):
        get(source, tmp_path, concurrency=1)
    assert not (tmp_path / "raw").exists()
    asked = len(server.requests)
    server.on("/2/x.jsonl", served(data[2]))
    entry = get(source, tmp_path, concurrency=1)
    assert [(r.path, r.range) for r in server.requests[asked:]] == [("/2/x.jsonl", "bytes=10-"), ("/3/x.jsonl", None)]
    rows = list(raw.read_part(Path(entry.raw_dir) / "part-00000.jsonl.zst"))
    assert [(r.file, r.place, r.text) for r in rows][:3] == [(0, "1", "file 0"), (0, "2", "again 0"), (1, "1", "file 1")]
    assert [f.documents for f in raw.receipt(Path(entry.raw_dir)).files] == [2, 2, 2, 2]
    assert sum(n for _, n in raw.parts(Path(entry.raw_dir))[0].files) == 8
    assert ledger.read_rows(tmp_path / "LEDGER.jsonl")[0]["url"] == files[0].url


def test_a_checksum_file_names_the_files_and_pins_them(server, tmp_path):
    data = bodies(3)
    sums = "".join(f"{sha(b)}  data/{i}.jsonl\n" for i, b in enumerate(data)).encode() + b"%s *README\n" % sha(b"x").encode()
    for i, b in enumerate(data):
        server.on(f"/set/data/{i}.jsonl", served(b))
    source = one(server.on("/set/SHA256SUMS", served(sums)), sums, checksums=True, select=("*.jsonl",))
    entry = get(source, tmp_path)
    assert texts(entry) == ["file 0", "again 0", "file 1", "again 1", "file 2", "again 2"]
    assert [d["url"].rpartition("#")[2] for d in read_raw(entry.raw_dir)][2] == "data/1.jsonl:1"
    assert "/set/README" not in {r.path for r in server.requests}
    server.on("/set/data/1.jsonl", served(b"lies"))
    assert get(Source(**{**source.__dict__, "id": "other"}), tmp_path).status == "quarantined"


@pytest.mark.parametrize("line", ["nonsense", f"{'0' * 64}  /etc/passwd", f"{'0' * 64}  ../x", f"{'0' * 64}  http://h/x", f"{'0' * 63}  x"])
def test_a_bad_checksum_line_is_named(line):
    with pytest.raises(ValueError, match="line 2"):
        checksum_files(f"{'1' * 64}  good\n{line}\n", "https://h/SHA256SUMS")


def test_folders_and_globs_are_pinned_by_what_sha256sum_prints(tmp_path):
    folder = tmp_path / "texts"
    (folder / "sub").mkdir(parents=True)
    for name, text in (("b.txt", "B\n\nB2\n"), ("sub/a.txt", "A\n"), (".hidden", "no\n"), ("c.md", "C\n")):
        (folder / name).write_text(text)
    listed = subprocess.run(
        "find . -type f -not -path '*/.*' -printf '%P\\n' | LC_ALL=C sort | xargs sha256sum",
        shell=True,
        cwd=folder,
        capture_output=True,
        check=True,
    ).stdout
    source = one("texts/", listed, format="text", root=str(tmp_path))
    entry = get(source, tmp_path / "cache")
    assert [(d["url"], d["text"]) for d in read_raw(entry.raw_dir)] == [
        ("texts/#b.txt:1", "B"), ("texts/#b.txt:3", "B2"), ("texts/#c.md:1", "C"), ("texts/#sub/a.txt:1", "A"),
    ]  # fmt: skip
    some = f"{sha(b'B' + chr(10).encode() * 2 + b'B2' + chr(10).encode())}  b.txt\n".encode()
    assert texts(get(one("texts/*.txt", some, id="glob", format="text", root=str(tmp_path)), tmp_path / "cache")) == ["B", "B2"]
    (folder / "b.txt").write_text("changed")
    with pytest.raises(SourceError, match="have the digest") as failure:
        get(Source(**{**source.__dict__, "id": "new"}), tmp_path / "cache")
    assert not failure.value.retryable
    with pytest.raises(SourceError, match="names no file"):
        get(one("none/*.txt", root=str(tmp_path), id="none"), tmp_path / "cache")


# local files


def test_local_files(tmp_path):
    path = tmp_path / "a b.jsonl"
    path.write_bytes(BODY)
    for n, url in enumerate((str(path), path.as_uri(), "a b.jsonl")):
        entry = get(one(url, id=f"s{n}", root=str(tmp_path)), tmp_path / "cache")
        assert (entry.status, entry.requests, entry.n_docs) == ("fetched", 0, 100)
        assert next(iter(read_raw(entry.raw_dir)))["url"] == f"{url}#1"


def test_a_local_file_with_another_digest_or_none_at_all(tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    with pytest.raises(SourceError, match=f"its digest is {sha(b'x')}"):
        get(one(str(tmp_path / "a")), tmp_path / "cache")
    with pytest.raises(SourceError, match="no such file"):
        get(one(str(tmp_path / "b")), tmp_path / "cache")
    with pytest.raises(SourceError, match="no regular file"):
        get(one(str(tmp_path)), tmp_path / "cache")
    assert not (tmp_path / "cache/downloads/s/a").exists()


# parallel ranges


LARGE = b"".join(b'{"text":"document %07d"}\n' % i for i in range(8000))


@pytest.fixture
def small_segments(monkeypatch):
    monkeypatch.setattr(resume.segments, "__defaults__", (20_000,))


def test_a_large_file_comes_in_parallel_ranges(server, tmp_path, small_segments):
    entry = get(one(server.on("/a.jsonl", served(LARGE, ETag='"v"')), LARGE, size=len(LARGE)), tmp_path, how=How(connections=4))
    assert entry.status == "fetched"
    assert (tmp_path / "downloads/s/a.jsonl").read_bytes() == LARGE
    assert sorted(p.name for p in (tmp_path / "downloads/s").iterdir()) == [".lock", "a.jsonl"]
    quarter = len(LARGE) // 4
    assert {r.range for r in server.requests} == {
        None, f"bytes={quarter}-{2 * quarter - 1}", f"bytes={2 * quarter}-{3 * quarter - 1}", f"bytes={3 * quarter}-{len(LARGE) - 1}",
    }  # fmt: skip
    assert all(r.headers.get("if-range") == '"v"' for r in server.requests if r.range)


def test_parallel_ranges_keep_the_limit_of_a_host_and_do_not_wait_for_each_other(server, tmp_path, small_segments):
    sources = [one(server.on(f"/{i}", served(LARGE, ETag='"v"')), LARGE, id=f"s{i}") for i in range(3)]
    how = How(connections=4, per_host=2)
    assert asyncio.run(asyncio.wait_for(fetch(sources, tmp_path, how=how, environment={}, sleep=no_wait), 20)).ok
    assert server.most <= 2
    assert len(server.requests) == 12


def segment_cut(n):
    def answer(conn, request, stop):
        start, end = span(request, len(LARGE))
        if request.range is None:
            conn.sendall(head(200, {"Content-Length": len(LARGE), "Accept-Ranges": "bytes", "ETag": '"v"'}) + LARGE[:n])
        else:
            told = {"Content-Length": end - start, "Content-Range": f"bytes {start}-{end - 1}/{len(LARGE)}", "ETag": '"v"'}
            conn.sendall(head(206, told) + LARGE[start:end][:n])

    return answer


def test_each_range_resumes_within_a_run_and_in_the_next(server, tmp_path, small_segments):
    source = one(server.on("/a.jsonl", segment_cut(9000)), LARGE)
    with pytest.raises(SourceError):
        get(source, tmp_path, attempts=1, how=How(connections=4))
    held = {p.name: p.stat().st_size for p in (tmp_path / "downloads/s/a.jsonl.segments").iterdir()}
    assert set(held.values()) <= {0, 9000}
    assert 9000 in held.values()
    server.on("/a.jsonl", served(LARGE, ETag='"v"'))
    before = len(server.requests)
    entry = get(source, tmp_path, how=How(connections=4))
    assert entry.bytes <= len(LARGE) - sum(held.values())
    assert {r.range for r in server.requests[before:]} >= {f"bytes={int(s) + n}-{e}" for s, n, e in ends(held)}
    assert (tmp_path / "downloads/s/a.jsonl").read_bytes() == LARGE


def ends(held):
    starts = sorted(map(int, held))
    for start, after in zip(starts, [*starts[1:], len(LARGE)], strict=True):
        yield start, held[str(start)], after - 1


def test_a_server_without_ranges_is_asked_once(server, tmp_path, small_segments):
    entry = get(one(server.on("/a.jsonl", reply(200, LARGE)), LARGE), tmp_path, how=How(connections=4))
    assert (entry.status, entry.requests) == ("fetched", 1)


def test_a_server_that_promises_ranges_and_gives_none_still_ends_in_the_pinned_object(server, tmp_path, small_segments):
    entry = get(one(server.on("/a.jsonl", reply(200, LARGE, Accept_Ranges="bytes")), LARGE), tmp_path, how=How(connections=4))
    assert entry.status == "fetched"
    assert (tmp_path / "downloads/s/a.jsonl").read_bytes() == LARGE


def test_ranges_of_two_versions_end_in_one_clean_get(server, tmp_path, small_segments):
    other = LARGE.replace(b"document", b"DOCUMENT")

    def two_versions(conn, request, stop):
        body = LARGE if request.range is None else other
        start, end = span(request, len(body))
        told = {"Content-Length": end - start, "Accept-Ranges": "bytes"}
        if request.range:
            told["Content-Range"] = f"bytes {start}-{end - 1}/{len(body)}"
        conn.sendall(head(206 if request.range else 200, told) + body[start:end])

    entry = get(one(server.on("/a.jsonl", two_versions), LARGE), tmp_path, how=How(connections=4))
    assert entry.status == "fetched"
    assert server.requests[-1].range is None


# modes


def test_offline_makes_no_request_and_says_what_is_missing(server, tmp_path):
    source = one(server.on("/a.jsonl", served(BODY)))
    with pytest.raises(SourceError, match=r"a\.jsonl is not here and offline") as failure:
        get(source, tmp_path, how=How(offline=True))
    assert failure.value.retryable
    assert server.connections == 0
    get(source, tmp_path)
    assert get(source, tmp_path, how=How(offline=True)).status == "cached"


def test_offline_takes_what_is_there(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(BODY)
    assert get(one(str(tmp_path / "a.jsonl")), tmp_path / "c", how=How(offline=True)).status == "fetched"


def test_resume_only_begins_nothing_and_goes_on_with_what_was_begun(server, tmp_path):
    source = one(server.on("/a.jsonl", cut(BODY, 700)))
    with pytest.raises(SourceError, match="without resume-only") as failure:
        get(source, tmp_path, how=How(resume_only=True))
    assert not failure.value.retryable
    assert server.connections == 0
    with pytest.raises(SourceError):
        get(source, tmp_path, attempts=1)
    server.on("/a.jsonl", served(BODY))
    assert get(source, tmp_path, how=How(resume_only=True)).status == "fetched"
    assert server.requests[-1].range == "bytes=700-"


# formats


def test_parquet_documents_keep_row_group_and_row(tmp_path):
    data = io.BytesIO()
    pq.write_table(pa.table({"body": ["a", None, "c"], "n": [1, 2, 3], "key": ["x", "y", "z"]}), data, row_group_size=2)
    (tmp_path / "a.parquet").write_bytes(data.getvalue())
    source = one(
        str(tmp_path / "a.parquet"),
        data.getvalue(),
        format="parquet",
        text_field="body",
        id_field="key",
        keep=("n",),
        on_bad="reject",
        max_bad=0.5,
    )
    entry = get(source, tmp_path / "c")
    rows = list(raw.read_part(Path(entry.raw_dir) / "part-00000.jsonl.zst"))
    assert [(r.place, r.text, r.id, r.meta) for r in rows] == [("0/0", "a", "x", '{"n":1}'), ("1/0", "c", "z", '{"n":3}')]
    (removed,) = pq.read_table(Path(entry.raw_dir) / "part-00000.removed.parquet").to_pylist()
    assert (removed["place"], removed["rule"], removed["stage"], removed["file"]) == ("0/1", "no_text", "fetch", 0)
    for change, message in (
        ({"text_field": "bodi"}, "did you mean 'body'"),
        ({"text_field": "n"}, "holds int64"),
        ({"keep": ("q",)}, "no column 'q'"),
    ):
        with pytest.raises(ValueError, match=message):
            list(tables.parquet_documents(tmp_path / "a.parquet", **{"text_field": "body", **change}))


def test_a_hostile_parquet_file_ends_its_own_process_only(tmp_path, monkeypatch):
    from corpusbuild import child

    data = io.BytesIO()
    pq.write_table(pa.table({"text": ["x" * 1000] * 9000}), data)
    damaged = data.getvalue()[:4] + b"\xff" * (len(data.getvalue()) - 600) + data.getvalue()[-596:]
    (tmp_path / "a").write_bytes(damaged)
    with pytest.raises(SourceError, match=r"Parquet|process"):
        get(one(str(tmp_path / "a"), damaged, format="parquet"), tmp_path / "c")
    monkeypatch.setattr(child.split_apart, "__defaults__", (80 << 20,))
    (tmp_path / "b").write_bytes(data.getvalue())
    with pytest.raises(SourceError, match=r"memory|process"):
        get(one(str(tmp_path / "b"), data.getvalue(), format="parquet"), tmp_path / "c")


@pytest.mark.parametrize(("format", "data"), [("csv", b'id,text\r\n1,"a ""b"",\r\nc"\r\n2,d\r\n'), ("tsv", b'id\ttext\n1\ta "b",\n2\td\n')])
def test_csv_and_tsv(format, data, tmp_path):
    (tmp_path / "a").write_bytes(data)
    entry = get(one(str(tmp_path / "a"), data, format=format, id_field="id"), tmp_path / "c")
    found = list(raw.read_part(Path(entry.raw_dir) / "part-00000.jsonl.zst"))
    assert [(r.place, r.id) for r in found] == [("2", "1"), ("4" if format == "csv" else "3", "2")]
    assert [r.text for r in found] == (['a "b",\r\nc', "d"] if format == "csv" else ['a "b",', "d"])


def test_csv_rejects_what_it_cannot_read(tmp_path):
    data = b'text,n\n"ok",1\nshort\n"bad"x,2\n\xff,3\n"never closed,4\n'
    (tmp_path / "a").write_bytes(data)
    source = one(str(tmp_path / "a"), data, format="csv", on_bad="reject", max_bad=0.9)
    entry = get(source, tmp_path / "c")
    assert texts(entry) == ["ok"]
    rows = pq.read_table(Path(entry.raw_dir) / "part-00000.removed.parquet").to_pylist()
    assert [(r["place"], r["rule"]) for r in rows] == [("3", "fields"), ("4", "not_csv"), ("5", "not_utf8"), ("6", "not_csv")]


def warc(*payloads):
    from warcio.statusandheaders import StatusAndHeaders
    from warcio.warcwriter import WARCWriter

    out = io.BytesIO()
    writer = WARCWriter(out, gzip=True)
    for status, kind, body in payloads:
        http = StatusAndHeaders(status, [("Content-Type", kind)], protocol="HTTP/1.1")
        writer.write_record(writer.create_warc_record("http://h/page", "response", payload=io.BytesIO(body), http_headers=http))
    wet = writer.create_warc_record("http://h/wet", "conversion", payload=io.BytesIO(b"A plain text."), warc_content_type="text/plain")
    writer.write_record(wet)
    return out.getvalue()


SENTENCE = "The old harbour town wakes slowly, and its fishermen carry their nets down to the quiet water before sunrise. "
PAGE = (
    "<html><head><title>T</title></head><body><nav><ul><li><a href='/'>Home</a></li><li><a href='/b'>Subscribe now</a></li></ul></nav><article>"
    + "".join(f"<p>{SENTENCE * 2}</p>" for _ in range(4))
    + "</article><footer><a href='/t'>Terms of service</a></footer></body></html>"
)


def test_web_archives(tmp_path):
    import gzip

    data = warc(("200 OK", "text/html; charset=utf-8", PAGE.encode()), ("404 Not Found", "text/html", PAGE.encode()),
                ("200 OK", "text/html", b"<html></html>"), ("200 OK", "image/png", b"\x89PNG"))  # fmt: skip
    (tmp_path / "a.warc.gz").write_bytes(data)
    entry = get(one(str(tmp_path / "a.warc.gz"), data, format="warc", keep=("url",)), tmp_path / "c")
    found = list(raw.read_part(Path(entry.raw_dir) / "part-00000.jsonl.zst"))
    assert [r.meta for r in found] == ['{"url":"http://h/page"}', '{"url":"http://h/wet"}']
    assert "harbour" in found[0].text
    assert "Subscribe" not in found[0].text
    assert "Terms of service" not in found[0].text
    assert found[1].text == "A plain text."
    plain = gzip.decompress(data)
    assert plain[int(found[1].place) :].startswith(b"WARC/1.")
    (removed,) = pq.read_table(Path(entry.raw_dir) / "part-00000.removed.parquet").to_pylist()
    assert removed["rule"] == "no_main_text"
    for lost in (1, 3, 10, 200):
        torn = plain[:-lost]
        (tmp_path / "torn").write_bytes(torn)
        with pytest.raises(SourceError, match="cut short"):
            get(one(str(tmp_path / "torn"), torn, id=f"torn{lost}", format="warc"), tmp_path / "c")


def test_rejects_are_rows_and_too_many_end_the_source(server, tmp_path):
    body = BODY + b"not json\n"
    url = server.on("/a.jsonl", served(body))
    entry = get(one(url, body, on_bad="reject"), tmp_path)
    assert entry.n_docs == 100
    receipt = raw.receipt(Path(entry.raw_dir))
    assert receipt.rejected == {"not_json": 1}
    assert receipt.parts[0].rejected == 1
    with pytest.raises(SourceError, match="1 of 101 documents"):
        get(one(url, body, id="b", on_bad="reject", max_bad=0.001), tmp_path)


def test_a_name_that_disagrees_with_its_bytes_is_recorded(server, tmp_path):
    entry = get(one(server.on("/a.jsonl.gz", served(BODY))), tmp_path)
    assert raw.receipt(Path(entry.raw_dir)).files[0].note == "a.jsonl.gz is named as gzip, but its bytes are none"


# an object store


@pytest.fixture(scope="module")
def s3():
    from moto.server import ThreadedMotoServer

    store = ThreadedMotoServer(port=0, verbose=False)
    store.start()
    host, port = store.get_host_and_port()
    yield f"http://{host}:{port}"
    store.stop()


def test_an_object_store(s3, tmp_path, monkeypatch):
    import s3fs

    for name, value in (
        ("AWS_ACCESS_KEY_ID", "k"),
        ("AWS_SECRET_ACCESS_KEY", "s"),
        ("AWS_ENDPOINT_URL", s3),
        ("AWS_DEFAULT_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(name, value)
    files = s3fs.S3FileSystem(endpoint_url=s3)
    files.mkdir("corpus")
    files.pipe("corpus/a.jsonl", BODY)
    assert get(one("s3://corpus/a.jsonl"), tmp_path, environment=dict(os.environ)).status == "fetched"
    (tmp_path / "downloads/b").mkdir(parents=True)
    (tmp_path / "downloads/b/a.jsonl.part").write_bytes(BODY[:700])
    entry = get(one("s3://corpus/a.jsonl", id="b"), tmp_path, environment=dict(os.environ))
    assert (entry.status, entry.bytes) == ("fetched", len(BODY) - 700)
    with pytest.raises(SourceError, match="404") as failure:
        get(one("s3://corpus/none", id="c"), tmp_path, environment=dict(os.environ))
    assert not failure.value.retryable


# names, keys, configuration


def test_names_are_one_segment_short_and_unlike_each_other():
    urls = [
        "https://h/a/x.txt", "https://h/b/x.txt", "https://h/X.TXT", "https://h/%2e%2e", "https://h/..%2f..%2fetc%2fpasswd", "https://h/",
        "https://h/" + "y" * 300, "https://h/" + "y" * 301, "https://h/a.part", "https://h/a.partial.json", "https://h/n%00l%0a",
        "https://h/caf%C3%A9", "https://h/cafe%CC%81", "https://h/.hidden", "https://h/a%5Cb",
    ]  # fmt: skip
    names = file_names(urls)
    assert len({n.casefold() for n in names}) == len(urls)
    for name in names:
        assert "/" not in name
        assert name not in ("", ".", "..")
        assert name.isprintable()
        assert len(f"{name}.partial.json".encode()) <= 255
        assert not name.endswith((".part", ".partial.json"))
    assert names == file_names(urls)
    assert names[0] == "x.txt"


def test_the_key_names_what_decides_the_documents_and_nothing_else():
    source = one("https://h/a", format="text")
    same = [{"url": "https://other/a"}, {"urls": ("https://m/a",)}, {"license_spdx": "CC0-1.0"}, {"size": 7}, {"root": "/x"}, {"text_field": "body"},
            {"allowed_uses": ("eval",)}, {"pii_policy": "drop"}, {"allow_private": True}, {"max_bad": 0.5}]  # fmt: skip
    other = [{"sha256": "1" * 64}, {"format": "jsonl"}, {"separator": "<s>"}, {"on_bad": "reject"}]
    for change in same:
        assert fetch_key(Source(**{**source.__dict__, **change})) == fetch_key(source), change
    keys = [fetch_key(Source(**{**source.__dict__, **change})) for change in other]
    assert len({*keys, fetch_key(source)}) == len(other) + 1


def test_every_problem_of_a_configuration_is_named_at_once():
    config = {"sources": [
        {"id": "A", "url": "ssh://h/x", "sha256": "0", "license_spdx": "MIT", "formt": "text"},
        {"id": "b", "license_spdx": "MIT", "files": [{"url": "https://u:p@h/x", "sha256": "0" * 64}], "max_bad": 2},
        {"id": "c", "url": "hf://datasets/x", "sha256": "0" * 64, "license_spdx": "MIT", "separator": "<s>"},
    ]}  # fmt: skip
    with pytest.raises(ValueError) as failure:  # noqa: PT011  # the lines are compared below
        sources_from_config(config)
    problems = str(failure.value).splitlines()
    places = ["sources[0].formt", "sources[0].id", "sources[0].url", "sources[0].sha256", "sources[1].max_bad", "sources[1].files[0].url",
              "sources[2].url", "sources[2].separator"]  # fmt: skip
    assert [p.partition(":")[0] for p in problems] == places
    assert "did you mean format?" in problems[0]
    assert "u:p" not in str(failure.value)


def test_mirrors_are_of_one_kind():
    entry = {"id": "a", "url": "https://h/a", "sha256": "0" * 64, "license_spdx": "MIT"}
    assert sources_from_config({"sources": [entry | {"urls": ["https://m/a"]}]})
    many = {"id": "a", "license_spdx": "MIT", "files": [{"url": "https://h/a", "sha256": "0" * 64}], "urls": ["https://m/"]}
    assert sources_from_config({"sources": [many]})
    with pytest.raises(ValueError, match=r"sources\[0\]\.urls"):
        sources_from_config({"sources": [entry | {"urls": ["here/a"]}]})


def test_hub_urls():
    assert hub_url("hf://datasets/o/s@v1/a#b.txt", "https://m/") == "https://m/datasets/o/s/resolve/v1/a%23b.txt"
    for bad in ("hf://datasets/o/s/a.txt", "hf://x", "hf://datasets/o/s@v1"):
        with pytest.raises(ValueError, match="write hf://"):
            hub_url(bad)


def test_progress_adds_up(server, tmp_path):
    events = []
    get(one(server.on("/a.jsonl", cut(BODY, 700), served(BODY))), tmp_path, progress=events.append)
    meter = Meter()
    for n, event in enumerate(events):
        meter.take(event, float(n))
    state = meter.files[("s", "a.jsonl")]
    assert (state.have, state.total, state.retries, state.state) == (len(BODY), len(BODY), 1, "done")
    assert meter.line(float(len(events))).startswith("1 of 1 files, 2.5 kB, ")
    meter.take(Event("begin", "s", "b", 0, 2500), 100.0)
    meter.take(Event("bytes", "s", "b", 500), 101.0)
    assert "left" in meter.line(101.0)
    assert meter.lines(101.0)[1:] == ["s/b: 500 B of 2.5 kB (20 %), 500 B/s, 4 s left"]
