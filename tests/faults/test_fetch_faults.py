"""Disks that refuse, processes that die, power that goes: after any of it a file under its final name is the pinned object or is not there, and
the next run ends well."""

import asyncio
import errno
import hashlib
import json
import multiprocessing
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from servers import cut, head, reply, rst, running, served

from corpusbuild import downloads, resume
from corpusbuild.errors import CorpusError, DiskError
from corpusbuild.fetch import How, Source, SourceFile, fetch, read_raw
from corpusbuild.ledger import read_rows

BODY = b"".join(b'{"text":"document %05d"}\n' % i for i in range(4000))
SHA256 = hashlib.sha256(BODY).hexdigest()
CALLS = ("open", "write", "pwrite", "fsync", "fdatasync", "replace", "rename", "unlink", "ftruncate", "symlink", "mkdir")


@pytest.fixture
def server():
    with running() as s:
        yield s


async def no_wait(seconds):
    await asyncio.sleep(0)


class Clock:
    def now(self):
        return 1_767_225_600


def run(url, dest, **more):
    more.setdefault("environment", {})
    return asyncio.run(fetch([Source("s", url, SHA256, "MIT")], dest, sleep=no_wait, clock=Clock(), **more)).entries[0]


def check_what_is_there(dest):
    """The invariant, whatever happened: a final name means the pinned object, a row of the ledger means its documents."""
    final = Path(dest) / "downloads/s/a.jsonl"
    assert not final.exists() or final.read_bytes() == BODY
    link = Path(dest) / "raw/s/20260101"
    if link.exists():
        assert sum(1 for _ in read_raw(link)) == 4000
    for row in read_rows(Path(dest) / "LEDGER.jsonl"):
        assert row["n_docs"] == 4000
        assert link.exists()


def check_a_run_ends_well(server, url, dest):
    server.on("/a.jsonl", served(BODY, ETag='"v"'))
    entry = run(url, dest)
    assert entry.status in ("fetched", "cached")
    check_what_is_there(dest)
    assert len(read_rows(Path(dest) / "LEDGER.jsonl")) == 1


class Failing:
    """Makes the ``n``-th call of the system fail that concerns a path under ``dest``, once or from then on."""

    def __init__(self, monkeypatch, dest, n, forever, act):
        self.dest, self.n, self.forever, self.act, self.count = str(dest), n, forever, act, 0
        self.lock = threading.Lock()
        for name in CALLS:
            monkeypatch.setattr(os, name, self.wrapped(name, getattr(os, name)))

    def wrapped(self, name, real):
        def call(first, *args, **kwargs):
            if self.concerns(first):
                with self.lock:
                    self.count += 1
                    now = self.count
                if now == self.n or (self.forever and now > self.n):
                    self.act(name)
            return real(first, *args, **kwargs)

        return call

    def concerns(self, first):
        if isinstance(first, int):
            try:
                first = os.readlink(f"/proc/self/fd/{first}")
            except OSError:
                return False
        return str(first).startswith(self.dest)


def no_space(name):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def failing_disk(name):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def calls_of_a_run(server, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        server.on("/a.jsonl", cut(BODY, 50_000), served(BODY))
        counting = Failing(patch, tmp_path / "count", 0, False, no_space)
        run(server.url("/a.jsonl"), tmp_path / "count")
    assert counting.count > 30
    return counting.count


@pytest.mark.parametrize("some", [pytest.param(3, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("act", "forever"), [(no_space, False), (no_space, True), (failing_disk, False)])
def test_every_call_of_the_system_may_fail(act, forever, some, server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "CHECKPOINT_BYTES", 20_000)
    monkeypatch.setattr(downloads, "CHECKPOINT_PAUSE", 0.0)
    outcomes = Counter()
    first = 1 + (forever + 2 * (act is failing_disk)) % some  # so that together they meet every call
    for n in range(first, calls_of_a_run(server, tmp_path) + 1, some):
        dest = tmp_path / str(n)
        url = server.on("/a.jsonl", cut(BODY, 50_000), served(BODY))
        with pytest.MonkeyPatch.context() as patch:
            Failing(patch, dest, n, forever, act)
            try:
                outcomes[run(url, dest).status] += 1
            except CorpusError as error:
                outcomes[type(error).__name__ + "\n" * str(error).count("\n")] += 1
        check_what_is_there(dest)
        check_a_run_ends_well(server, url, dest)
    assert outcomes["DiskError"] > sum(outcomes.values()) * 0.8, outcomes


# killed


def _run_and_die(url, dest, n):
    patch = pytest.MonkeyPatch()
    patch.setattr(downloads, "CHECKPOINT_BYTES", 20_000)
    patch.setattr(downloads, "CHECKPOINT_PAUSE", 0.0)
    Failing(patch, dest, n, False, lambda name: os.kill(os.getpid(), 9))
    run(url, dest)


def forking():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["corpusbuild.fetch", "corpusbuild.http", "pytest"])
    return context


@pytest.mark.parametrize("some", [pytest.param(7, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
def test_killed_at_any_call(some, server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "CHECKPOINT_BYTES", 20_000)
    monkeypatch.setattr(downloads, "CHECKPOINT_PAUSE", 0.0)
    context = forking()
    killed = 0
    for n in range(1, calls_of_a_run(server, tmp_path) + 1, some):
        dest = tmp_path / str(n)
        url = server.on("/a.jsonl", cut(BODY, 50_000), served(BODY))
        process = context.Process(target=_run_and_die, args=(url, dest, n))
        process.start()
        process.join(30)
        killed += process.exitcode == -9
        check_what_is_there(dest)
        check_a_run_ends_well(server, url, dest)
    assert killed


# the power goes: what may survive is more than what a kill leaves


class Recorder:
    """Follows the files of one folder through the calls of the system and knows, after each, what a power cut may leave of them."""

    def __init__(self, monkeypatch, folder, deaf=""):
        self.folder, self.deaf = str(folder), deaf
        self.names = {}  # path -> inode, as the process sees them
        self.kept_names = {}  # as they are after the folder was last synced
        self.data, self.kept_data = {}, {}  # inode -> bytes
        self.moments = []
        self.lock = threading.RLock()
        for name in ("pwrite", "write", "ftruncate", "fsync", "fdatasync", "replace", "unlink"):
            monkeypatch.setattr(os, name, self.wrapped(name, getattr(os, name)))

    def wrapped(self, name, real):
        def call(*args, **kwargs):
            with self.lock:
                where = self.where(args[0])
                result = real(*args, **kwargs)
                if where is not None:
                    self.note(name, where)
            return result

        return call

    def where(self, first):
        if isinstance(first, int):
            first = os.readlink(f"/proc/self/fd/{first}")
        return str(first) if str(first).startswith(self.folder) else None

    def note(self, name, where):
        look = {str(p): (p.stat().st_ino, p.read_bytes()) for p in Path(self.folder).iterdir() if p.is_file() and p.name != ".lock"}
        self.names = {path: inode for path, (inode, _) in look.items()}
        self.data.update(look.values())
        if name in ("fsync", "fdatasync") and name != self.deaf:
            if where == self.folder:
                self.kept_names = dict(self.names)
            elif where in self.names:
                self.kept_data[self.names[where]] = self.data[self.names[where]]
        self.moments.append((name, dict(self.names), dict(self.kept_names), dict(self.data), dict(self.kept_data)))

    def survivals(self):
        """Every folder that a power cut at any moment may leave: names old or new, and of unsynced data nothing, NULs, or all of it."""
        seen = set()
        for _, names, kept_names, data, kept_data in self.moments:
            for left in (names, kept_names):
                for kind in ("old", "nul", "new"):
                    state = {}
                    for path, inode in left.items():
                        old, new = kept_data.get(inode, b""), data.get(inode, b"")
                        state[Path(path).name] = {"old": old, "nul": old + b"\0" * max(0, len(new) - len(old)), "new": new}[kind]
                    key = tuple(sorted((name, hashlib.sha256(content).digest()) for name, content in state.items()))
                    if key not in seen:
                        seen.add(key)
                        yield state


def survivals_of(server, tmp_path, deaf="", name="run"):
    url = server.on("/a.jsonl", cut(BODY, 50_000, ETag='"v"'), cut(BODY, 30_000, ETag='"v"'), served(BODY, ETag='"v"'))
    folder = tmp_path / name / "downloads/s"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(downloads, "CHECKPOINT_BYTES", 20_000)
        patch.setattr(downloads, "CHECKPOINT_PAUSE", 0.0)
        patch.setattr("corpusbuild.transfer.BATCH", 8_000)
        patch.setattr("corpusbuild.fetch.boot_id", lambda: "first boot")
        recorder = Recorder(patch, folder, deaf)
        run(url, tmp_path / name)
    return list(recorder.survivals())


def bad_states(states):
    """States in which the final name is there without the pinned object, or a checkpoint vouches for bytes that are not there."""
    bad = []
    for state in states:
        final = state.get("a.jsonl")
        if final is not None and final != BODY:
            bad.append("final")
        page, part = state.get("a.jsonl.partial.json"), state.get("a.jsonl.part", b"")
        if page:
            known = json.loads(page)
            whole = part if "a.jsonl.part" in state else final or b""
            if hashlib.sha256(whole[: known["verified_bytes"]]).hexdigest() != known["sha256_prefix"] and "a.jsonl.part" in state:
                bad.append("checkpoint")
    return bad


def test_a_power_cut_at_any_moment(server, tmp_path):
    states = survivals_of(server, tmp_path)
    assert len(states) > 20
    assert bad_states(states) == []
    for n, state in enumerate(states):
        dest = tmp_path / str(n)
        folder = dest / "downloads/s"
        folder.mkdir(parents=True)
        for name, content in state.items():
            (folder / name).write_bytes(content)
        url = server.on("/a.jsonl", served(BODY, ETag='"v"'))
        assert run(url, dest).status == "fetched"  # under this machine's boot id, which is another
        check_what_is_there(dest)


def test_the_power_cut_model_sees_data_that_was_never_synced(server, tmp_path):
    """The model can fail."""
    assert "final" in bad_states(survivals_of(server, tmp_path, deaf="fdatasync"))


def test_the_power_cut_model_sees_a_checkpoint_that_comes_before_its_data(server, tmp_path, monkeypatch):
    real = downloads.Download._vouch

    def too_early(self):
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(os, "fdatasync", lambda fd: None)
            real(self)

    monkeypatch.setattr(downloads.Download, "_vouch", too_early)
    assert "checkpoint" in bad_states(survivals_of(server, tmp_path))


def test_after_another_boot_only_what_the_checkpoint_vouches_for_is_kept(server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "CHECKPOINT_BYTES", 20_000)
    monkeypatch.setattr(downloads, "CHECKPOINT_PAUSE", 0.0)
    monkeypatch.setattr("corpusbuild.transfer.BATCH", 8_000)
    url = server.on("/a.jsonl", cut(BODY, 50_000), reply(404))
    with pytest.raises(CorpusError):
        run(url, tmp_path)
    folder = tmp_path / "downloads/s"
    known = json.loads((folder / "a.jsonl.partial.json").read_text())
    assert 20_000 <= known["verified_bytes"] <= 50_000
    part = folder / "a.jsonl.part"
    part.write_bytes(part.read_bytes()[: known["verified_bytes"]] + b"\0" * 5000)
    (folder / "a.jsonl.partial.json").write_text(json.dumps(known | {"boot_id": "another"}))
    server.on("/a.jsonl", served(BODY))
    assert run(url, tmp_path).status == "fetched"
    assert [r.range for r in server.requests][2:] == [f"bytes={known['verified_bytes']}-"]


def test_a_prefix_that_the_checkpoint_does_not_know_is_dropped(server, tmp_path):
    url = server.on("/a.jsonl", cut(BODY, 50_000), reply(404))
    with pytest.raises(CorpusError):
        run(url, tmp_path)
    folder = tmp_path / "downloads/s"
    known = json.loads((folder / "a.jsonl.partial.json").read_text())
    assert set(known) == {"verified_bytes", "expected_size", "sha256_prefix", "url", "etag", "last_modified", "boot_id", "encoding"}
    (folder / "a.jsonl.partial.json").write_text(json.dumps(known | {"verified_bytes": 40_000, "sha256_prefix": "0" * 64}))
    server.on("/a.jsonl", served(BODY))
    assert run(url, tmp_path).status == "fetched"
    assert server.requests[-1].range is None


# things in the way


@pytest.mark.parametrize("what", ["link", "fifo", "folder"])
def test_what_stands_at_the_part_is_never_followed(what, server, tmp_path):
    folder = tmp_path / "c/downloads/s"
    folder.mkdir(parents=True)
    part, precious = folder / "a.jsonl.part", tmp_path / "precious"
    precious.write_bytes(b"precious")
    {"link": lambda: part.symlink_to(precious), "fifo": lambda: os.mkfifo(part), "folder": part.mkdir}[what]()
    with pytest.raises(DiskError, match="move it away"):
        run(server.on("/a.jsonl", served(BODY)), tmp_path / "c")
    assert precious.read_bytes() == b"precious"


def test_a_part_that_another_process_replaced_is_not_published(server, tmp_path, monkeypatch):
    real = downloads.Download.publish

    def publish(self):
        self.part.unlink()
        self.part.write_bytes(b"x" * self.size)
        real(self)

    monkeypatch.setattr(downloads.Download, "publish", publish)
    with pytest.raises(DiskError, match="another process"):
        run(server.on("/a.jsonl", served(BODY)), tmp_path)
    assert not (tmp_path / "downloads/s/a.jsonl").exists()


# two processes


def _fetch_it(url, dest, queue):
    entry = run(url, dest)
    queue.put((entry.status, entry.requests, entry.n_docs))


def test_two_processes_on_one_part(server, tmp_path):
    first = threading.Event()

    def slowly(conn, request, stop):
        conn.sendall(head(200, {"Content-Length": len(BODY)}) + BODY[:50_000])
        first.wait(0.3)
        conn.sendall(BODY[50_000:])

    url = server.on("/a.jsonl", slowly)
    context = forking()
    queue = context.Queue()
    processes = [context.Process(target=_fetch_it, args=(url, tmp_path, queue)) for _ in range(3)]
    for p in processes:
        p.start()
    results = [queue.get(timeout=30) for _ in processes]
    for p in processes:
        p.join(30)
    assert sorted(r[1] for r in results) == [0, 0, 1]
    assert {r[2] for r in results} == {4000}
    assert len(server.requests) == 1
    check_what_is_there(tmp_path)
    assert len(read_rows(tmp_path / "LEDGER.jsonl")) == 1


# a disk that is really full

ON_A_SMALL_DISK = """
import asyncio, json, os, subprocess, sys
from pathlib import Path
from corpusbuild.errors import CorpusError
from corpusbuild.fetch import Source, fetch
url, sha256, dest = sys.argv[1:]
source = Source("s", url, sha256, "MIT")
try:
    asyncio.run(fetch([source], dest, environment={}))
    print(json.dumps("no error"))
except CorpusError as error:
    part = Path(dest) / "downloads/s/a.jsonl.part"
    print(json.dumps([type(error).__name__, error.exit_code, str(error), part.stat().st_size]))
subprocess.run(["mount", "-o", "remount,size=30m", dest], check=True)
print(json.dumps(asyncio.run(fetch([source], dest, environment={})).entries[0].status))
"""


def test_a_full_disk(server, tmp_path):
    body = BODY * 30
    url = server.on("/a.jsonl", served(body))
    dest = tmp_path / "small"
    dest.mkdir()
    script = tmp_path / "on_a_small_disk.py"
    script.write_text(ON_A_SMALL_DISK)
    inside = 'mount -t tmpfs -o size=1m tmpfs "$3" && exec "$4" "$5" "$1" "$2" "$3"'
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", inside, "sh", url, hashlib.sha256(body).hexdigest(), str(dest), sys.executable, str(script)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.returncode == 0, f"needs unshare with user namespaces: {done.stderr}"
    (kind, code, message, part), status = map(json.loads, done.stdout.splitlines())
    assert (kind, code, part) == ("DiskError", 75, 0)
    assert "disk is full" in message
    assert status == "fetched"


# many files, some answers bad


def test_two_hundred_files_with_a_tenth_of_the_answers_bad(server, tmp_path):
    chance = random.Random(7)
    faults = [reply(503), rst(), cut(BODY, 30_000), reply(429), cut(BODY, 0), rst(head(200, {"Content-Length": len(BODY)}) + BODY[:9000])]
    expected = 0
    files = []
    for i in range(200):
        bad = [chance.choice(faults)] if chance.random() < 0.1 else []
        expected += 1 + len(bad)
        files.append(SourceFile(server.on(f"/{i}.jsonl", *bad, served(BODY)), SHA256, len(BODY)))
    source = Source("many", "", "", "MIT", files=tuple(files), format="text")
    before = len(os.listdir("/proc/self/fd"))
    most = []
    real = downloads.Download.publish

    def watching(self):
        most.append((len(os.listdir("/proc/self/fd")), resident()))
        real(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(downloads.Download, "publish", watching)
        entry = asyncio.run(fetch([source], tmp_path, sleep=no_wait, environment={})).entries[0]
    assert (entry.status, entry.n_docs, len(server.requests)) == ("fetched", 200, expected)
    assert expected > 210
    early, late = most[40:60], most[-20:]
    assert max(fds for fds, _ in most) < before + 60
    assert max(rss for _, rss in late) - max(rss for _, rss in early) < 8 << 20
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# every row of the table, carried out

N = 1000


def raw_answers():
    ranges = {None: None, "right": "bytes {s}-{l}/{n}", "from 0": "bytes 0-{l}/{n}", "late": "bytes {m}-{l}/{n}", "total": "bytes {s}-{l}/{o}",
              "star": "bytes {s}-{l}/*", "garbage": "bytes x", "empty": "bytes {s}-{b}/{n}"}  # fmt: skip
    for part in (0, 400, N, N + 5):
        for status in (200, 206, 416):
            for name, form in ranges.items():
                for length in (None, "rest", "all", "wrong"):
                    for etag in (None, '"v"', '"w"'):
                        yield part, status, name, form, length, etag


def test_the_table_carried_out(server, tmp_path):
    """A sample of the table as real answers: whatever the first is, the pinned object is there at the end or a clean error."""
    body = BODY[:N]
    digest = hashlib.sha256(body).hexdigest()
    cases = list(raw_answers())
    assert len(cases) > 1100
    statuses = Counter()
    sources = []
    for n, (part, status, _, form, length, etag) in enumerate(random.Random(3).sample(cases, 250)):
        headers = {"Connection": "close"}
        if form:
            values = {"s": part, "m": part + 1, "l": N - 1, "n": N, "o": N + 1, "b": part - 1}
            headers["Content-Range"] = form.format(**values) if status != 416 else f"bytes */{values['o' if 'o' in form else 'n']}"
        payload = body[part:] if status == 206 else body if status == 200 else b"<html>no</html>"
        if length:
            headers["Content-Length"] = {"rest": N - part, "all": N, "wrong": len(payload) + 3}[length]
        if etag:
            headers["ETag"] = etag
        odd = head(status, {k: v for k, v in headers.items() if v is not None}) + payload
        url = server.on(f"/{n}", lambda conn, request, stop, odd=odd: conn.sendall(odd), served(body))
        sources.append(Source(f"s{n}", url, digest, "MIT", format="text"))
        if part:
            folder = tmp_path / f"downloads/s{n}"
            folder.mkdir(parents=True)
            (folder / f"{n}.part").write_bytes((body + b"12345")[:part])
            known = resume.Checkpoint(0, None, hashlib.sha256().hexdigest(), url, etag='"v"', boot_id=downloads.boot_id())
            (folder / f"{n}.partial.json").write_text(json.dumps(known.__dict__))
    from corpusbuild.fetch import fetch_all

    for outcome in asyncio.run(fetch_all(sources, tmp_path, sleep=no_wait, environment={}, how=How(timeout=2.0))):
        final = tmp_path / "downloads" / outcome.source.id / outcome.source.id[1:]
        statuses[outcome.fetched.status if outcome.fetched else str(outcome.error)] += 1
        assert outcome.fetched is None or outcome.fetched.status == "fetched"
        assert final.exists() == (outcome.fetched is not None)
        assert not final.exists() or final.read_bytes() == body
    assert statuses["fetched"] > 220
    assert all("416" in status for status in statuses if status != "fetched")  # to a plain GET, which no second answer follows
