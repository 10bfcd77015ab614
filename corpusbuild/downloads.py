"""One file on its way to disk: the part, the checkpoint before the bytes, the running digest, the name at the end.

``<name>.part`` grows; ``<name>.partial.json`` vouches for its first bytes and is durable before a byte behind them is written; ``<name>`` appears by
one rename and only with the pinned digest. Everything here blocks and belongs in a thread.
"""

import ctypes
import errno
import fcntl
import hashlib
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from corpusbuild.durable import disk, fsync_dir, write_atomic
from corpusbuild.errors import DiskError
from corpusbuild.model import Record
from corpusbuild.resume import Checkpoint, trusted
from corpusbuild.staging import owner_is_alive, owner_token

CHECKPOINT_BYTES = 64 << 20
CHECKPOINT_SECONDS = 30.0
CHECKPOINT_PAUSE = 2.0
"""A checkpoint is written every 64 MB or 30 s, but on a fast link not more often than this many seconds: three syncs cost more than what they save."""
WRITEBACK_BYTES = 8 << 20
"""After so many bytes the disk is asked to begin writing, so that the sync before a checkpoint finds little to wait for."""
BLOCK = 1 << 20

PART = ".part"
CHECKPOINT = ".partial.json"
SEGMENTS = ".segments"


class Note(Record):
    """Beside a quarantined file: which digest was pinned, which came, how many bytes, which places sent them, and what the file looks like where that
    tells something (a login page, say)."""

    pinned: str
    received: str
    size: int
    urls: tuple[str, ...]
    looks_like: str = ""


class Stopped(Exception):
    """The work was asked to stop."""


class Download:
    """One file. ``size`` bytes of it are in the part and ``digest()`` is theirs; ``whole`` says that one answer brought them all."""

    def __init__(
        self,
        folder: Path,
        name: str,
        boot_id: str,
        stop: threading.Event | None = None,
        owner: "Ownership | None" = None,
        monotonic: Callable[[], float] = time.monotonic,
    ):
        self._owner = owner
        self.folder, self.name, self._boot_id, self._monotonic = folder, name, boot_id, monotonic
        self._stop = stop or threading.Event()
        self.final, self.part, self.page = folder / name, folder / (name + PART), folder / (name + CHECKPOINT)
        self._segments = folder / (name + SEGMENTS)
        self.size = 0
        self.whole = True
        self.checkpoint: Checkpoint | None = None
        self._hash = hashlib.sha256()
        self._fd = -1
        self._durable, self._since = 0, 0.0
        self._started = 0

    def open(self) -> None:
        """Take up what an earlier run left, as far as it can be trusted, hashing it once."""
        with disk(self.part):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._fd = _open_regular(self.part)
            self.checkpoint = _read_checkpoint(self.page)
            keep = trusted(os.fstat(self._fd).st_size, self.checkpoint, self._boot_id)
            if self.checkpoint is None or self.checkpoint.boot_id != self._boot_id:
                self._drop_segments()  # nothing says how much of them survived
            if not self._take_up(keep):
                self._forget()
        self.whole = self.size == 0

    def begin(self, checkpoint: Checkpoint) -> None:
        """Empty the part for an answer that brings the file from its first byte. The checkpoint is durable before that byte."""
        with disk(self.part):
            self._drop_segments()
            self._truncate(0)
            self._record(checkpoint)
        self.whole = True

    def go_on(self, checkpoint: Checkpoint) -> None:
        """More bytes come, from another answer than those that are there. What is there is made durable first where nothing vouches for it."""
        self.whole = False
        if self.checkpoint is None or self.checkpoint.url != checkpoint.url:
            with self._cutting_back():
                self.checkpoint = checkpoint
                self._vouch()

    def append(self, chunks: list[bytes]) -> None:
        """Write and hash bytes behind those that are there. When the disk refuses, the part is cut back to what is durable."""
        _ask(self._stop)
        self._must_be_ours()  # not within: what another process has begun must not be cut back
        with self._cutting_back():
            for chunk in chunks:
                _write_all(self._fd, chunk, self.size)
                self._hash.update(chunk)
                self.size += len(chunk)
            if self.size - self._started >= WRITEBACK_BYTES:
                _start_writing(self._fd, self._started, self.size - self._started)
                self._started = self.size
            passed = self._monotonic() - self._since
            if passed >= CHECKPOINT_SECONDS or (self.size - self._durable >= CHECKPOINT_BYTES and passed >= CHECKPOINT_PAUSE):
                self._vouch()

    def segment(self, start: int) -> Path:
        """Where the bytes from ``start`` on wait that came over a connection of their own."""
        return self._segments / str(start)

    def held(self) -> dict[int, int]:
        """The segments that are there: where each starts and how many bytes it has."""
        with disk(self._segments):
            if not self._segments.is_dir():
                return {}
            return {int(path.name): path.lstat().st_size for path in self._segments.iterdir() if path.name.isdigit()}

    def absorb(self) -> None:
        """Append what the segments have directly behind the part, and remove those that are used up."""
        for start in sorted(self.held()):
            if start > self.size:
                return
            self.whole = False
            path = self.segment(start)
            with disk(path):
                fd = _open_regular(path)
                try:
                    while block := os.pread(fd, BLOCK, self.size - start):
                        self.append([block])
                finally:
                    os.close(fd)
                os.unlink(path)

    def digest(self) -> str:
        return self._hash.hexdigest()

    def discard(self) -> None:
        """Forget every byte."""
        with disk(self.part):
            self._forget()
        self.whole = True

    def publish(self) -> None:
        """Give the verified part its name: bytes first, then the name, then what was known about the part."""
        self._must_be_ours()
        with self._cutting_back():
            os.fdatasync(self._fd)
        with disk(self.final):
            ours, named = os.fstat(self._fd), os.lstat(self.part)
            if (ours.st_dev, ours.st_ino, ours.st_size) != (named.st_dev, named.st_ino, self.size):
                raise DiskError(f"{self.part}: another process changed the file while it was downloaded: run again")
            if self._owner is not None and self._owner.doubtful and file_digest(self.part, self._stop) != self.digest():
                raise DiskError(f"{self.part}: the file is not what was downloaded, another process may have written to it: run again")
            self._must_be_ours()
            os.replace(self.part, self.final)
            fsync_dir(self.folder)
            self._drop_segments()
            with suppress(FileNotFoundError):
                os.unlink(self.page)
        self.close()

    def quarantine(self, folder: Path, note: Note) -> Path:
        """Move the part, whose digest is wrong, out of the way for a person to look at, with a note of what was expected."""
        target = folder / self.name
        note = msgspec.structs.replace(note, looks_like=looks_like(os.pread(self._fd, 512, 0)))
        with disk(target):
            folder.mkdir(parents=True, exist_ok=True)
            os.fdatasync(self._fd)
            write_atomic(folder / (self.name + ".json"), msgspec.json.format(msgspec.json.encode(note)) + b"\n")
            os.replace(self.part, target)
            fsync_dir(folder)
            with suppress(FileNotFoundError):
                os.unlink(self.page)
            fsync_dir(self.folder)
        self.close()
        return target

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _take_up(self, keep: int) -> bool:
        """Hash the first ``keep`` bytes; False when they are not what the checkpoint vouches for."""
        checkpoint = self.checkpoint
        if checkpoint is not None and keep < checkpoint.verified_bytes:
            return False
        border = checkpoint.verified_bytes if checkpoint is not None else 0
        self._truncate_to_hash()
        for stop in (border, keep):
            while self.size < stop:
                _ask(self._stop)
                block = os.pread(self._fd, min(BLOCK, stop - self.size), self.size)
                if not block:
                    return False
                self._hash.update(block)
                self.size += len(block)
            if stop == border and checkpoint is not None and self._hash.hexdigest() != checkpoint.sha256_prefix:
                return False
        os.ftruncate(self._fd, keep)
        self._durable, self._since = border, self._monotonic()
        return True

    def _must_be_ours(self) -> None:
        if self._owner is not None:
            self._owner.check()

    def _truncate_to_hash(self) -> None:
        self._hash, self.size, self._started = hashlib.sha256(), 0, 0

    def _truncate(self, size: int) -> None:
        assert size == 0, "a digest cannot go back"
        self._must_be_ours()
        os.ftruncate(self._fd, 0)
        self._truncate_to_hash()
        self._durable = 0

    def _drop_segments(self) -> None:
        for start in self.held():
            os.unlink(self.segment(start))
        with suppress(FileNotFoundError):
            self._segments.rmdir()

    def _forget(self) -> None:
        self._drop_segments()
        self._truncate(0)
        self.checkpoint = None
        with suppress(FileNotFoundError):
            os.unlink(self.page)

    def _vouch(self) -> None:
        """Make the bytes durable, then the page that says so."""
        if self.checkpoint is None:
            return
        os.fdatasync(self._fd)
        self._record(replace(self.checkpoint, verified_bytes=self.size, sha256_prefix=self.digest(), boot_id=self._boot_id))

    def _record(self, checkpoint: Checkpoint) -> None:
        write_atomic(self.page, msgspec.json.format(msgspec.json.encode(checkpoint)) + b"\n")
        self.checkpoint = checkpoint
        self._durable, self._since = checkpoint.verified_bytes, self._monotonic()

    @contextmanager
    def _cutting_back(self) -> Iterator[None]:
        try:
            with disk(self.part):
                yield
        except DiskError:
            with suppress(OSError):  # a disk that refuses may refuse this too; the checkpoint says what is good
                os.ftruncate(self._fd, self._durable)
            raise


class SegmentFile:
    """One segment of a file. Its size says how much is there; the digest of the whole file judges it."""

    def __init__(self, path: Path):
        self.path = path
        with disk(path):
            path.parent.mkdir(exist_ok=True)
            self._fd = _open_regular(path)
            self.size = os.fstat(self._fd).st_size

    def append(self, chunks: list[bytes]) -> None:
        with disk(self.path):
            for chunk in chunks:
                _write_all(self._fd, chunk, self.size)
                self.size += len(chunk)

    def close(self) -> None:
        os.close(self._fd)


def boot_id() -> str:
    """The boot of this machine, or "" where it has no name; then the pin alone judges a part."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def file_digest(path: Path, stop: threading.Event | None = None) -> str:
    """The SHA-256 of a regular file, in hex. Links, pipes and devices are refused. ``stop`` ends it with ``Stopped``."""
    with disk(path):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as f:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise DiskError(f"{path}: is no regular file: move it away and run again")
            digest = hashlib.sha256()
            while block := f.read(BLOCK):
                _ask(stop)
                digest.update(block)
            return digest.hexdigest()


def _ask(stop: threading.Event | None) -> None:
    if stop is not None and stop.is_set():
        raise Stopped


def remove(path: Path) -> None:
    """Remove a file that stands under a final name without its digest."""
    with disk(path):
        path.unlink(missing_ok=True)
        fsync_dir(path.parent)


def looks_like(head: bytes) -> str:
    """What the first bytes of a file say of it, where it is not what was promised.

    >>> looks_like(b"\\n<!DOCTYPE html><title>Log in</title>"), looks_like(b"version https://git-lfs.github.com/spec/v1")
    ('a web page', 'a pointer to a large file (Git LFS), not the file')
    """
    start = head.lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "a web page"
    if start.startswith(b"version https://git-lfs"):
        return "a pointer to a large file (Git LFS), not the file"
    return "an error message of an object store" if start.startswith(b"<?xml") and b"<error>" in start else ""


def quarantined(folder: Path, name: str, pinned: str) -> Note | None:
    """What is remembered of a file that had not the digest ``pinned``; None when nothing is, or when another digest was pinned then."""
    try:
        note = msgspec.json.decode((folder / (name + ".json")).read_bytes(), type=Note)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return note if note.pinned == pinned else None


def forget_quarantined(folder: Path, name: str) -> None:
    with disk(folder):
        (folder / (name + ".json")).unlink(missing_ok=True)


@dataclass
class Ownership:
    """A download folder that is ours. ``doubtful`` when the lock cannot be relied on: then bytes are read back before they get their name."""

    folder: Path
    fd: int
    token: str
    doubtful: bool

    def check(self) -> None:
        """``DiskError`` when another process has taken the folder over, as it may where locks do not work."""
        if os.pread(self.fd, 1024, 0).decode(errors="replace") != self.token:
            raise DiskError(f"{self.folder}: another process took the download over: let it end, then run again")


@contextmanager
def owned(folder: Path) -> Iterator[Ownership | None]:
    """Hold a download folder against other processes. Gives None when another process holds it.

    The lock decides where locks work. On a file system without them the name of the owner in the lock file does: a living owner of this machine is
    waited for, any other is taken over from, and notices it before its next write.
    """
    with disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        locked = _locked(fd)
        before = os.pread(fd, 1024, 0).decode(errors="replace")
        if locked is False or (before and _lives_here(before)):
            yield None
            return
        token = f"{owner_token()}-{secrets.token_hex(4)}"
        with disk(folder):
            os.ftruncate(fd, 0)
            _write_all(fd, token.encode(), 0)
        try:
            yield Ownership(folder, fd, token, doubtful=locked is None or _is_foreign(before))
        finally:
            with disk(folder):
                if os.pread(fd, 1024, 0).decode(errors="replace") == token:
                    os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def _locked(fd: int) -> bool | None:
    """Whether the lock is ours; None where there are no locks."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL):
            raise
        return None
    return True


def _is_foreign(token: str) -> bool:
    """Whether a token is another machine's, which may live: its lock and ours do not meet."""
    return bool(token) and token.partition("_")[0] != owner_token().partition("_")[0]


def _lives_here(token: str) -> bool:
    """Whether a token is that of another process of this machine that runs. Our own, left behind, holds nothing."""
    owner, ours = token.rpartition("-")[0], owner_token()
    return owner != ours and owner.count("-") >= 2 and owner.rsplit("-", 2)[0] == ours.rsplit("-", 2)[0] and owner_is_alive(owner)


def _open_regular(path: Path) -> int:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise DiskError(f"{path}: is a link, a pipe or a device: move it away and run again") from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise DiskError(f"{path}: is no regular file: move it away and run again")
    return fd


def _read_checkpoint(page: Path) -> Checkpoint | None:
    try:
        fd = os.open(page, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    with os.fdopen(fd, "rb") as f:
        try:
            return msgspec.json.decode(f.read(1 << 16), type=Checkpoint)
        except msgspec.DecodeError:
            return None  # written in one step, so this is another program's; the pin judges the part


def _start_writing(fd: int, offset: int, size: int) -> None:
    """Begin writing a range to disk and do not wait. A hint: where the system knows no such call, or refuses it, nothing is lost."""
    if _sync_file_range is not None:
        _sync_file_range(fd, ctypes.c_int64(offset), ctypes.c_int64(size), ctypes.c_uint(_SYNC_FILE_RANGE_WRITE))


_SYNC_FILE_RANGE_WRITE = 2
_sync_file_range = getattr(ctypes.CDLL(None), "sync_file_range", None)


def _write_all(fd: int, data: bytes, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        n = os.pwrite(fd, rest, offset)
        rest, offset = rest[n:], offset + n
