"""The contract of fetch: what its specification lists, by name, against a server that does as it is told."""

import asyncio
import hashlib
import json
import re
import threading
import time
from pathlib import Path

import jsonschema
import pytest
import zstandard
from servers import cut, head, ok, reply, running, served, stall

from corpusbuild import split
from corpusbuild.fetch import (
    Fetched,
    FetchError,
    Source,
    fetch,
    fetch_all,
    ledger_row,
    read_raw,
    sources_from_config,
    split_documents,
)
from corpusbuild.sources import fetch_key
from corpusbuild.split import RawDocument

TINY = b'{"text": "Tom has a red ball."}\n{"text": "Mia naps."}\n'
TINY_SHA256 = "e9d5b783f9fbf6ec94f8144919e20e8fea345376df3ad331cc01df785a7bd42b"
ROW_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": [
        "source_id", "url", "license_spdx", "retrieved_at", "sha256", "n_docs", "allowed_uses", "pii_policy",
        "filters_applied", "kept", "dropped", "notes",
    ],
    "properties": {
        "source_id": {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]*$"},
        "url": {"type": "string", "minLength": 1},
        "license_spdx": {"type": "string", "minLength": 1},
        "retrieved_at": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"},
        "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        "n_docs": {"type": "integer", "minimum": 0},
        "allowed_uses": {"type": "array", "items": {"enum": ["train", "eval"]}},
        "pii_policy": {"enum": ["scrub", "drop", "none"]},
        "filters_applied": {"type": "array", "items": {"type": "string"}},
        "kept": {"type": "integer", "minimum": 0},
        "dropped": {"type": "integer", "minimum": 0},
        "notes": {"type": "string"},
        "revoked": {"type": "boolean"},
    },
}  # fmt: skip


class FakeClock:
    def __init__(self, seconds=1_767_225_600):
        self.seconds = seconds

    def now(self):
        return self.seconds


class FakeSleep:
    def __init__(self):
        self.waits = []

    async def __call__(self, seconds):
        self.waits.append(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def server():
    with running() as s:
        yield s


def sha(body):
    return hashlib.sha256(body).hexdigest()


def source(url, body=TINY, id="tiny", **more):
    return Source(id, url, more.pop("sha256", sha(body)), more.pop("license_spdx", "CC-BY-4.0"), **more)


def run(sources, dest, **more):
    more.setdefault("clock", FakeClock())
    more.setdefault("sleep", FakeSleep())
    more.setdefault("environment", {})
    return asyncio.run(fetch(sources if isinstance(sources, list) else [sources], dest, **more))


def rows(dest):
    path = Path(dest) / "LEDGER.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def ranges(server):
    return [r.range for r in server.requests]


def big(n=2000):
    """At least ``n`` bytes of documents."""
    return b"".join(b'{"text":"document %06d"}\n' % i for i in range(n // 25 + 1))


# the 24 behaviours


def test_hand_example_resume_after_a_cut(server, tmp_path):
    sleep = FakeSleep()
    url = server.on("/tiny.jsonl", cut(TINY, 20), served(TINY))
    manifest = run(source(url), tmp_path, sleep=sleep)
    assert ranges(server) == [None, "bytes=20-"]
    assert sleep.waits == [0.5]
    (entry,) = manifest.entries
    assert (entry.status, entry.requests, entry.bytes, entry.n_docs) == ("fetched", 2, 54, 2)
    assert entry.sha256 == TINY_SHA256
    assert entry.raw_dir == str(tmp_path / "raw/tiny/20260101")
    assert [d["url"].rpartition("#")[2] for d in read_raw(entry.raw_dir)] == ["1", "2"]
    assert (tmp_path / "downloads/tiny/tiny.jsonl").read_bytes() == TINY
    assert (tmp_path / "LEDGER.jsonl").read_text() == (
        '{"source_id":"tiny","url":"' + url + '","license_spdx":"CC-BY-4.0","retrieved_at":"2026-01-01T00:00:00Z",'
        f'"sha256":"{TINY_SHA256}","n_docs":2,"allowed_uses":["train","eval"],"pii_policy":"scrub","filters_applied":[],'
        '"kept":2,"dropped":0,"notes":""}\n'
    )


def test_raw_parts_are_zstd_json_lines(server, tmp_path):
    body = '{"text": "Zoë läuft \\u2028 <b>"}\n'.encode()
    url = server.on("/a.jsonl", served(body))
    (entry,) = run(source(url, body), tmp_path).entries
    data = (Path(entry.raw_dir) / "part-00000.jsonl.zst").read_bytes()
    assert data[:4] == b"\x28\xb5\x2f\xfd"
    with zstandard.ZstdDecompressor().stream_reader(data) as stream:
        text = stream.read().decode()
    assert text == f'{{"url":"{url}#1","fetched_at":"2026-01-01T00:00:00Z","license_spdx":"CC-BY-4.0","text":"Zoë läuft \u2028 <b>"}}\n'


def test_ledger_rows_validate_against_the_schema(server, tmp_path):
    run(source(server.on("/a.jsonl", served(TINY))), tmp_path, clock=FakeClock(1_791_547_200.5))
    (row,) = rows(tmp_path)
    jsonschema.validate(row, ROW_SCHEMA)
    assert row["retrieved_at"] == "2026-10-09T12:00:00Z"


def test_ledger_row_is_a_pure_function_of_fetched():
    s = Source("a", "http://h/a", "0" * 64, "MIT", ("eval",), pii_policy="drop")
    fetched = Fetched(s, "fetched", "/x", "0" * 64, 9, 3, "2026-01-01T00:00:00Z", 1)
    assert ledger_row(fetched) == ledger_row(fetched)
    assert list(ledger_row(fetched).items()) == [
        ("source_id", "a"), ("url", "http://h/a"), ("license_spdx", "MIT"), ("retrieved_at", "2026-01-01T00:00:00Z"), ("sha256", "0" * 64),
        ("n_docs", 3), ("allowed_uses", ["eval"]), ("pii_policy", "drop"), ("filters_applied", []), ("kept", 3), ("dropped", 0), ("notes", ""),
    ]  # fmt: skip


def test_a_server_that_ignores_range_restarts_the_file(server, tmp_path):
    url = server.on("/a.jsonl", cut(TINY, 20), ok(TINY))
    (entry,) = run(source(url), tmp_path).entries
    assert (entry.status, entry.requests, entry.bytes) == ("fetched", 2, 74)
    assert ranges(server) == [None, "bytes=20-"]


def test_cut_bodies_resume_until_whole(server, tmp_path):
    body, sleep = big(2000), FakeSleep()
    url = server.on("/a.jsonl", cut(body, 500), cut(body, 500), cut(body, 500), served(body))
    (entry,) = run(source(url, body), tmp_path, attempts=4, sleep=sleep).entries
    assert ranges(server) == [None, "bytes=500-", "bytes=1000-", "bytes=1500-"]
    assert (entry.requests, len(sleep.waits), entry.bytes) == (4, 3, len(body))


def test_a_checksum_mismatch_is_quarantined_not_retried(server, tmp_path):
    url = server.on("/a.jsonl", served(b"something else"))
    manifest = run(source(url), tmp_path)
    (entry,) = manifest.entries
    assert (entry.status, entry.raw_dir, entry.n_docs, entry.sha256) == ("quarantined", "", 0, sha(b"something else"))
    assert len(server.requests) == entry.requests == 1
    assert not manifest.ok
    assert (tmp_path / "quarantine/tiny/a.jsonl").read_bytes() == b"something else"
    assert not (tmp_path / "raw").exists()
    assert rows(tmp_path) == []
    assert not (tmp_path / "downloads/tiny/a.jsonl").exists()


def test_the_servers_checksum_header_is_not_trusted(server, tmp_path):
    lying = server.on("/a.jsonl", served(TINY, X_Content_Sha256="0" * 64))
    swapped = server.on("/b.jsonl", served(b"other", X_Content_Sha256=TINY_SHA256))
    manifest = run([source(lying), source(swapped, id="b")], tmp_path)
    assert [e.status for e in manifest.entries] == ["fetched", "quarantined"]


def test_a_rerun_downloads_nothing(server, tmp_path):
    s = source(server.on("/a.jsonl", served(TINY)))
    (first,) = run(s, tmp_path).entries
    before, asked = (tmp_path / "LEDGER.jsonl").read_bytes(), len(server.requests)
    (second,) = run(s, tmp_path, clock=FakeClock(1_800_000_000)).entries
    assert (second.status, second.requests, second.bytes) == ("cached", 0, 0)
    assert (second.raw_dir, second.n_docs, second.retrieved_at) == (first.raw_dir, 2, first.retrieved_at)
    assert len(server.requests) == asked
    assert (tmp_path / "LEDGER.jsonl").read_bytes() == before


def test_a_new_pinned_checksum_fetches_again(server, tmp_path):
    new = TINY + b'{"text": "A third."}\n'
    url = server.on("/a.jsonl", served(TINY), served(new))
    run(source(url), tmp_path)
    (entry,) = run(source(url, new), tmp_path, clock=FakeClock(1_767_225_600 + 86400)).entries
    assert (entry.status, entry.raw_dir, entry.n_docs) == ("fetched", str(tmp_path / "raw/tiny/20260102"), 3)
    assert (tmp_path / "raw/tiny/20260101").exists()
    assert [r["sha256"] for r in rows(tmp_path)] == [sha(TINY), sha(new)]


def test_a_whole_partial_file_gets_416_and_is_kept(server, tmp_path):
    plant(tmp_path, "tiny.jsonl.part", TINY)
    (entry,) = run(source(server.on("/tiny.jsonl", served(TINY))), tmp_path).entries
    assert (entry.status, entry.requests, entry.bytes) == ("fetched", 1, 0)
    assert ranges(server) == ["bytes=54-"]


def test_a_verified_download_left_by_a_crash_is_not_downloaded_again(server, tmp_path):
    plant(tmp_path, "tiny.jsonl", TINY)
    (entry,) = run(source(server.on("/tiny.jsonl", served(TINY))), tmp_path).entries
    assert (entry.status, entry.requests, entry.n_docs) == ("fetched", 0, 2)
    assert len(rows(tmp_path)) == 1
    assert server.requests == []


def test_5xx_is_retried_with_exponential_backoff(server, tmp_path):
    sleep = FakeSleep()
    url = server.on("/a.jsonl", reply(503), reply(503), served(TINY))
    (entry,) = run(source(url), tmp_path, sleep=sleep).entries
    assert (entry.status, sleep.waits) == ("fetched", [0.5, 1.0])


def test_a_404_is_not_retried(server, tmp_path):
    sleep = FakeSleep()
    with pytest.raises(FetchError, match="404") as failure:
        run(source(server.on("/a.jsonl", reply(404))), tmp_path, sleep=sleep)
    assert failure.value.retryable is False
    assert failure.value.source_id == "tiny"
    assert failure.value.exit_code == 65
    assert (len(server.requests), sleep.waits) == (1, [])


def test_exhausted_retries_raise_a_retryable_error(server, tmp_path):
    sleep = FakeSleep()
    with pytest.raises(FetchError) as failure:
        run(source(server.on("/a.jsonl", reply(503))), tmp_path, sleep=sleep, attempts=3, base_delay=0.1)
    assert failure.value.retryable is True
    assert failure.value.exit_code == 75
    assert (len(server.requests), sleep.waits) == (3, [0.1, 0.2])


def test_a_silent_server_times_out(server, tmp_path):
    with pytest.raises(FetchError) as failure:
        run(source(server.on("/a.jsonl", stall())), tmp_path, attempts=1, timeout=0.1)
    assert failure.value.retryable is True


def test_concurrency_is_bounded(server, tmp_path):
    three = threading.Barrier(3)

    def together(conn, request, stop):
        try:
            three.wait(2)  # passes only when three requests are in flight
            stop.wait(0.03)  # and a fourth would be seen
        finally:
            conn.sendall(head(200, {"Content-Length": len(TINY)}) + TINY)

    sources = [source(server.on(f"/{i}.jsonl", together if i < 6 else ok(TINY)), id=f"s{i}") for i in range(8)]
    manifest = run(sources, tmp_path, concurrency=3)
    assert manifest.ok
    assert server.most == 3


def test_ledger_rows_follow_the_input_order(server, tmp_path):
    def last(conn, request, stop):
        while not all((tmp_path / f"raw/s{i}").exists() for i in (1, 2)) and not stop.wait(0.002):
            pass
        stop.wait(0.05)
        conn.sendall(head(200, {"Content-Length": len(TINY)}) + TINY)

    sources = [source(server.on(f"/{i}", last if i == 0 else ok(TINY)), id=f"s{i}") for i in range(3)]
    manifest = run(sources, tmp_path)
    assert [r["source_id"] for r in rows(tmp_path)] == ["s0", "s1", "s2"]
    assert [e.source.id for e in manifest.entries] == ["s0", "s1", "s2"]


def test_a_failure_keeps_the_rows_of_finished_sources(server, tmp_path):
    finished = threading.Event()

    def late_404(conn, request, stop):
        while not (tmp_path / "raw/good").exists() and not stop.wait(0.002):
            pass
        finished.set()
        conn.sendall(head(404, {"Content-Length": 0}))

    good, bad = source(server.on("/good", served(TINY)), id="good"), source(server.on("/bad", late_404), id="bad")
    with pytest.raises(FetchError, match="bad: "):
        run([bad, good], tmp_path)
    assert finished.is_set()
    assert [r["source_id"] for r in rows(tmp_path)] == ["good"]


def test_redirects_are_followed(server, tmp_path):
    url = server.on("/a.jsonl", reply(302, Location="/cdn/x?sig=a%2Fb%20c"))
    server.on("/cdn/x?sig=a%2Fb%20c", served(TINY))
    (entry,) = run(source(url), tmp_path).entries
    assert (entry.status, entry.requests) == ("fetched", 2)
    assert rows(tmp_path)[0]["url"] == url
    assert (tmp_path / "downloads/tiny/a.jsonl").exists()


def test_text_sources_split_on_blank_lines(server, tmp_path):
    body = b"The cat sat.\nIt purred.\n\n  \nA dog ran.\n\n\nEnd\n"
    assert list(split_documents(body, "text")) == [(1, "The cat sat.\nIt purred."), (5, "A dog ran."), (8, "End")]
    url = server.on("/a.txt", served(body))
    (entry,) = run(source(url, body, format="text"), tmp_path).entries
    assert [(d["url"], d["text"]) for d in read_raw(entry.raw_dir)] == [
        (f"{url}#1", "The cat sat.\nIt purred."), (f"{url}#5", "A dog ran."), (f"{url}#8", "End"),
    ]  # fmt: skip


@pytest.mark.parametrize("line", [b"not json", b'{"text": 5}', b'{"body": "x"}', b"[1]", b'{"text": "\xff"}'])
def test_jsonl_errors_name_the_line(server, tmp_path, line):
    body = TINY + line + b"\n"
    with pytest.raises(ValueError, match="line 3"):
        list(split_documents(body, "jsonl"))
    with pytest.raises(FetchError, match="line 3") as failure:
        run(source(server.on("/a.jsonl", served(body)), body), tmp_path)
    assert failure.value.retryable is False
    assert rows(tmp_path) == []


def test_parts_hold_at_most_part_docs_documents(server, tmp_path):
    body = b"".join(b'{"text":"d%d"}\n' % i for i in range(5))
    (entry,) = run(source(server.on("/a.jsonl", served(body)), body), tmp_path, part_docs=2).entries
    assert sorted(p.name for p in Path(entry.raw_dir).glob("part-*")) == [f"part-0000{i}.jsonl.zst" for i in range(3)]
    assert [d["text"] for d in read_raw(entry.raw_dir)] == ["d0", "d1", "d2", "d3", "d4"]


def test_sources_from_config_fills_defaults_and_rejects_bad_entries():
    entry = {"id": "a", "url": "http://h/a", "sha256": "0" * 64, "license_spdx": "MIT"}
    assert sources_from_config({"sources": [entry]}) == [Source("a", "http://h/a", "0" * 64, "MIT", ("train", "eval"), "jsonl", "scrub")]
    for change in (
        {"sha256": "0" * 63},
        {"sha256": "A" * 64},
        {"format": "xml"},
        {"license_spdx": ""},
        {"id": "../a"},
        {"allowed_uses": ["sell"]},
    ):
        with pytest.raises(ValueError, match=re.escape(f"sources[0].{next(iter(change))}")):
            sources_from_config({"sources": [entry | change]})
    for name in entry:
        with pytest.raises(ValueError, match=f"{name}: missing"):
            sources_from_config({"sources": [{k: v for k, v in entry.items() if k != name}]})
    with pytest.raises(ValueError, match="duplicate"):
        sources_from_config({"sources": [entry, entry]})


# what the contract says besides


def plant(dest, name, data, id="tiny"):
    path = Path(dest) / "downloads" / id / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_a_file_under_its_final_name_is_not_believed(server, tmp_path):
    plant(tmp_path, "tiny.jsonl", TINY.replace(b"red", b"bad"))
    (entry,) = run(source(server.on("/tiny.jsonl", served(TINY))), tmp_path).entries
    assert (entry.status, entry.requests) == ("fetched", 1)
    assert (tmp_path / "downloads/tiny/tiny.jsonl").read_bytes() == TINY


@pytest.mark.parametrize("bad", [{"concurrency": 0}, {"attempts": 0}, {"part_docs": 0}])
def test_settings_below_one_are_refused(tmp_path, bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        run([], tmp_path, **bad)


def test_duplicate_ids_are_refused(tmp_path):
    with pytest.raises(ValueError, match="duplicate"):
        run([source("http://h/a"), source("http://h/b")], tmp_path)


@pytest.mark.parametrize("id", ["../x", "", "A", "a/b", ".hidden"])
def test_an_id_that_is_no_safe_name_is_refused(tmp_path, id):
    with pytest.raises(ValueError, match="id"):
        run([source("http://h/a", id=id)], tmp_path)


def test_a_cancel_ends_a_split_too(server, tmp_path, monkeypatch):
    splitting = threading.Event()

    def endless(*_, **__):
        splitting.set()
        for n in range(10**6):
            time.sleep(0.001)
            yield RawDocument(str(n), "text")

    monkeypatch.setattr(split, "documents", endless)
    s = source(server.on("/a.jsonl", served(TINY)))

    async def cancelled():
        task = asyncio.create_task(fetch([s], tmp_path, environment={}))
        await asyncio.to_thread(splitting.wait, 10)
        since = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - since

    assert asyncio.run(cancelled()) < 1
    assert not (tmp_path / "raw").exists()
    monkeypatch.undo()
    (entry,) = run(s, tmp_path).entries
    assert (entry.status, entry.requests, entry.n_docs) == ("fetched", 0, 2)


def test_a_quarantined_login_page_is_named_as_one(server, tmp_path):
    run(source(server.on("/a.jsonl", served(b"<!DOCTYPE html><title>Log in</title>"))), tmp_path)
    assert json.loads((tmp_path / "quarantine/tiny/a.jsonl.json").read_text())["looks_like"] == "a web page"


def test_the_raw_directory_is_a_link_into_the_store(server, tmp_path):
    s = source(server.on("/a.jsonl", served(TINY)))
    (entry,) = run(s, tmp_path).entries
    link = Path(entry.raw_dir)
    assert link.is_symlink()
    assert not link.readlink().is_absolute()
    assert link.resolve() == tmp_path / "store/fetch" / fetch_key(s)


def test_a_second_fetch_on_one_day_gets_a_name_of_its_own(server, tmp_path):
    url = server.on("/a.txt", served(b"a\n\nb\n"))
    run(source(url, b"a\n\nb\n", format="text"), tmp_path)
    again = source(url, b"a\n\nb\n", format="text", separator="\n\n")
    (entry,) = run(again, tmp_path).entries
    assert (entry.status, entry.requests) == ("fetched", 0)
    assert entry.raw_dir == str(tmp_path / f"raw/tiny/20260101-{fetch_key(again)[:8]}")
    (third,) = run(again, tmp_path).entries
    assert (third.status, third.raw_dir) == ("cached", entry.raw_dir)


def test_a_lost_ledger_is_written_again_from_the_receipt_without_a_request(server, tmp_path):
    s = source(server.on("/a.jsonl", served(TINY)))
    run(s, tmp_path)
    before = (tmp_path / "LEDGER.jsonl").read_bytes()
    (tmp_path / "LEDGER.jsonl").unlink()
    asked = len(server.requests)
    run(s, tmp_path, clock=FakeClock(1_800_000_000))
    assert len(server.requests) == asked
    assert (tmp_path / "LEDGER.jsonl").read_bytes() == before


def test_a_sixth_redirect_is_refused_and_five_are_followed(server, tmp_path):
    for i in range(6):
        server.on(f"/{i}", reply(302, Location=f"/{i + 1}"))
    server.on("/6", served(TINY))
    assert run(source(server.url("/1")), tmp_path).ok
    with pytest.raises(FetchError, match="more than 5 redirects") as failure:
        run(source(server.url("/0"), id="b"), tmp_path)
    assert not failure.value.retryable


def test_one_failing_source_ends_no_other_in_fetch_all(server, tmp_path):
    sources = [
        source(server.on("/a", reply(404)), id="a"),
        source(server.on("/b", served(TINY)), id="b"),
        source(server.on("/c", reply(503)), id="c"),
    ]
    outcomes = asyncio.run(fetch_all(sources, tmp_path, sleep=FakeSleep(), clock=FakeClock(), environment={}))
    assert [o.source.id for o in outcomes] == ["a", "b", "c"]
    assert [o.error and o.error.exit_code for o in outcomes] == [65, None, 75]
    assert outcomes[1].fetched.status == "fetched"
    assert [r["source_id"] for r in rows(tmp_path)] == ["b"]


def test_a_cancel_is_answered_within_a_second_and_keeps_what_arrived(server, tmp_path):
    body = big(5000)
    s = source(server.on("/a.jsonl", stall(head(200, {"Content-Length": len(body)}) + body[:3000])), body)

    async def cancelled():
        task = asyncio.create_task(fetch([s], tmp_path, environment={}))
        while not (tmp_path / "downloads/tiny/a.jsonl.partial.json").exists() and not task.done():
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.02)
        since = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - since

    assert asyncio.run(cancelled()) < 1
    assert (tmp_path / "downloads/tiny/a.jsonl.part").read_bytes() == body[:3000]
    server.on("/a.jsonl", served(body))
    (entry,) = run(s, tmp_path).entries
    assert entry.bytes == len(body) - 3000


def test_an_unpinned_source_is_refused(tmp_path):
    with pytest.raises(FetchError, match="pin"):
        run(Source("a", "http://127.0.0.1:1/a", "", "MIT"), tmp_path)
