"""The durable write, as a checklist: write all, fsync the file, rename it into place, fsync its folder."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from corpusbuild.errors import DiskError

TEMPORARY_PREFIX = ".tmp-"
"""Files so named are unfinished writes of this module: nobody reads them, and whoever cleans a folder may remove them."""

REMEDIES = {
    errno.ENOSPC: "the disk is full: free some space or point --cache-dir at another disk, then run again",
    errno.EDQUOT: "the disk quota is used up: free some space or point --cache-dir elsewhere, then run again",
    errno.EIO: "the disk reports a failure: look at the system's log, move the cache to a sound disk, then run again",
    errno.EROFS: "the file system is read-only: mount it for writing or point --cache-dir elsewhere, then run again",
    errno.EACCES: "no permission: make the folder writable or point --cache-dir elsewhere, then run again",
    errno.EPERM: "not permitted: make the folder writable or point --cache-dir elsewhere, then run again",
    errno.EISDIR: "a folder stands where a file or link should go: move it away, then run again",
    errno.ENOTDIR: "a file stands where a folder should be: move it away, then run again",
    errno.ENOTEMPTY: "a folder that is not empty stands in the way: move it away, then run again",
}


@contextmanager
def disk(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns what the disk refuses inside the block into a DiskError that names ``path``; any other error passes."""
    try:
        yield
    except OSError as error:
        remedy = REMEDIES.get(error.errno or 0)
        if remedy is None:
            raise
        raise DiskError(f"{os.fspath(path)}: {remedy}") from error


def fsync_file(path: str | os.PathLike[str]) -> None:
    """Makes a finished file's bytes durable."""
    with disk(path), _opened(path, os.O_RDONLY) as descriptor:
        # Never again after a failure: the kernel has then dropped the pages, and a second call would lie.
        os.fsync(descriptor)


def fsync_dir(path: str | os.PathLike[str]) -> None:
    """Makes the names in a folder durable: call it after a create, a rename or an unlink in it."""
    with disk(path), _opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno != errno.EINVAL:  # some network file systems know no fsync of a folder and need none
                raise


def write_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Puts ``data`` at ``path`` in one step, durably: a reader, also after a crash, sees the old bytes or the new, never a mixture."""
    with disk(path), _replacing(Path(path)) as temporary, _opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)


def replace_link(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Points the symlink ``path`` at ``target`` in one step, durably; the link holds a relative path, so the tree may be moved whole."""
    folder, aim = os.path.realpath(Path(path).parent), Path(target)
    relative = os.path.relpath(Path(os.path.realpath(aim.parent), aim.name), folder)
    with disk(path), _replacing(Path(path)) as temporary:
        os.symlink(relative, temporary)


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Gives a new name beside ``path`` to be created in the block; renames it over ``path``, or removes it after a failure."""
    temporary = path.with_name(TEMPORARY_PREFIX + secrets.token_hex(8))
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):  # the first failure is the one to tell; a left-over is known by its prefix
            os.unlink(temporary)
        raise
    fsync_dir(path.parent)


@contextmanager
def _opened(path: str | os.PathLike[str], flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
