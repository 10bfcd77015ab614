"""One file on its way to disk."""

import fcntl
import hashlib
import json
import os
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild import downloads
from corpusbuild.downloads import Download, Note, Stopped, file_digest, forget_quarantined, owned, quarantined
from corpusbuild.errors import DiskError
from corpusbuild.resume import Checkpoint

URL = "http://h/a"


def known(**more):
    return Checkpoint(0, None, hashlib.sha256().hexdigest(), URL, boot_id="boot", **more)


def opened(folder, name="a", boot="boot", **more):
    download = Download(folder, name, boot, **more)
    download.open()
    return download


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(downloads, "CHECKPOINT_PAUSE", 0.0)


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(0, 8), max_size=3))
@settings(deadline=None, max_examples=40)
def test_whatever_is_closed_and_opened_again_the_digest_is_of_the_bytes(tmp_path_factory, chunks, breaks):
    folder = tmp_path_factory.mktemp("d")
    download = opened(folder)
    download.begin(known())
    for n, chunk in enumerate(chunks):
        if n in breaks:
            download.close()
            download = opened(folder)
            assert download.whole == (download.size == 0)
        download.append([chunk])
    data = b"".join(chunks)
    assert (download.size, download.digest()) == (len(data), hashlib.sha256(data).hexdigest())
    download.publish()
    assert (folder / "a").read_bytes() == data
    assert [p.name for p in folder.iterdir()] == ["a"]


def test_the_checkpoint_is_there_before_the_first_byte_and_covers_what_is_durable(tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "CHECKPOINT_BYTES", 10)
    order = []
    for name in ("pwrite", "fdatasync", "fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, real=real, name=name: order.append(name) or real(*a))
    download = opened(tmp_path)
    download.begin(known(etag='"v"'))
    assert order[-3:] == ["fsync", "replace", "fsync"]
    order.clear()
    download.append([b"123456"])
    assert order == ["pwrite"]
    download.append([b"789012"])
    assert order == ["pwrite", "pwrite", "fdatasync", "fsync", "replace", "fsync"]
    page = json.loads((tmp_path / "a.partial.json").read_text())
    assert page == {
        "verified_bytes": 12, "expected_size": None, "sha256_prefix": hashlib.sha256(b"123456789012").hexdigest(), "url": URL,
        "etag": '"v"', "last_modified": None, "boot_id": "boot", "encoding": "",
    }  # fmt: skip


def test_a_checkpoint_comes_after_a_while_too(tmp_path):
    now = [0.0]
    download = opened(tmp_path, monotonic=lambda: now[0])
    download.begin(known())
    download.append([b"123"])
    assert download.checkpoint.verified_bytes == 0
    now[0] = 31.0
    download.append([b"456"])
    assert download.checkpoint.verified_bytes == 6


@pytest.mark.parametrize(
    ("part", "verified", "boot", "kept"),
    [(b"x" * 9, 5, "boot", 9), (b"x" * 9, 5, "other", 5), (b"x" * 4, 5, "boot", 0), (b"x" * 4, 5, "other", 0), (b"y" * 9, 5, "boot", 0)],
)
def test_what_is_kept_of_a_part(tmp_path, part, verified, boot, kept):
    (tmp_path / "a.part").write_bytes(part)
    page = known().__dict__ | {"verified_bytes": verified, "sha256_prefix": hashlib.sha256(b"x" * verified).hexdigest()}
    (tmp_path / "a.partial.json").write_text(json.dumps(page))
    download = opened(tmp_path, boot=boot)
    assert (download.size, (tmp_path / "a.part").stat().st_size) == (kept, kept)
    assert (download.checkpoint is None) == (kept == 0)


def test_a_checkpoint_that_cannot_be_read_is_none(tmp_path):
    (tmp_path / "a.part").write_bytes(b"123")
    for page in (b"", b"{", b"[]", b'{"verified_bytes": "x"}'):
        (tmp_path / "a.partial.json").write_bytes(page)
        download = opened(tmp_path)
        assert (download.size, download.checkpoint) == (3, None)
        download.close()


def test_a_full_disk_cuts_the_part_back_to_what_is_durable(tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "CHECKPOINT_BYTES", 5)
    download = opened(tmp_path)
    download.begin(known())
    download.append([b"12345"])
    real = os.pwrite

    def half(fd, data, offset):
        if offset >= 8:
            raise OSError(28, "No space left on device")
        return real(fd, bytes(data)[:3], offset)

    monkeypatch.setattr(os, "pwrite", half)
    with pytest.raises(DiskError, match="disk is full"):
        download.append([b"67890123"])
    assert (tmp_path / "a.part").read_bytes() == b"12345"


def test_a_segment_is_absorbed_once_it_is_in_line(tmp_path):
    download = opened(tmp_path)
    download.begin(known())
    for start, data in ((4, b"4567"), (8, b"89"), (12, b"ab")):
        segment = downloads.SegmentFile(download.segment(start))
        segment.append([data])
        segment.close()
    download.append([b"0123"])
    assert download.held() == {4: 4, 8: 2, 12: 2}
    download.absorb()
    assert (download.size, download.held(), download.whole) == (10, {12: 2}, False)
    assert download.digest() == hashlib.sha256(b"0123456789").hexdigest()
    download.discard()
    assert download.held() == {}


def test_segments_of_another_boot_are_dropped(tmp_path):
    download = opened(tmp_path)
    download.begin(known())
    downloads.SegmentFile(download.segment(9)).close()
    download.close()
    assert opened(tmp_path).held() == {9: 0}
    assert opened(tmp_path, boot="other").held() == {}


def test_quarantine_is_remembered_for_its_pin(tmp_path):
    download = opened(tmp_path / "d")
    download.begin(known())
    download.append([b"lies"])
    note = Note(pinned="1" * 64, received=download.digest(), size=4, urls=(URL,))
    assert download.quarantine(tmp_path / "q", note).read_bytes() == b"lies"
    assert list((tmp_path / "d").iterdir()) == []
    assert quarantined(tmp_path / "q", "a", "1" * 64) == note
    assert quarantined(tmp_path / "q", "a", "2" * 64) is None
    forget_quarantined(tmp_path / "q", "a")
    assert quarantined(tmp_path / "q", "a", "1" * 64) is None


def test_a_stop_ends_long_work(tmp_path):
    stop = threading.Event()
    (tmp_path / "a.part").write_bytes(b"123")
    download = opened(tmp_path, stop=stop)
    stop.set()
    for work in (lambda: download.append([b"4"]), lambda: file_digest(tmp_path / "a.part", stop), lambda: opened(tmp_path, stop=stop)):
        with pytest.raises(Stopped):
            work()


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_only_regular_files_are_digested(tmp_path, kind):
    path = tmp_path / "x"
    (tmp_path / "y").write_bytes(b"")
    {"link": lambda: path.symlink_to("y"), "fifo": lambda: os.mkfifo(path)}[kind]()
    with pytest.raises((DiskError, OSError)):
        file_digest(path)


# who owns the folder


def test_a_held_folder_is_held(tmp_path):
    with owned(tmp_path) as first, owned(tmp_path) as second:
        assert first is not None
        assert second is None
    with owned(tmp_path) as third:
        assert third is not None
        assert not third.doubtful


def test_where_locks_do_nothing_a_living_owner_is_still_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", lambda *a: None)
    with pytest.MonkeyPatch.context() as parent:
        parent.setattr(os, "getpid", os.getppid)
        first = owned(tmp_path)
        first.__enter__()
    with owned(tmp_path) as second:
        assert second is None
    first.__exit__(None, None, None)
    with owned(tmp_path) as third:
        assert third is not None


def test_where_locks_do_nothing_the_one_who_is_taken_over_from_notices(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", lambda *a: None)
    monkeypatch.setattr(downloads, "_lives_here", lambda token: False)  # as another machine's
    with owned(tmp_path) as first:
        slow = opened(tmp_path, owner=first)
        slow.begin(known())
        slow.append([b"one "])
        with owned(tmp_path) as second:
            fast = opened(tmp_path, owner=second)
            fast.begin(known())
            fast.append([b"two"])
            for late in (lambda: slow.append([b"more"]), lambda: slow.begin(known()), slow.publish, slow.discard):
                with pytest.raises(DiskError, match="another process"):
                    late()
            fast.publish()
            assert (tmp_path / "a").read_bytes() == b"two"


def test_where_the_lock_is_in_doubt_bytes_are_read_back(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with owned(tmp_path) as owner:
        assert owner.doubtful
        download = opened(tmp_path, owner=owner)
        download.begin(known())
        download.append([b"one"])
        (tmp_path / "a.part").write_bytes(b"two")
        with pytest.raises(DiskError, match="not what was downloaded"):
            download.publish()
    assert not (tmp_path / "a").exists()
