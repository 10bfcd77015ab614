"""The content-addressed store: ``store/<stage>/<key>/``, written once, never edited.

An entry is built in ``staging/<key>/<owner>/`` under a lock and published by one rename, so a directory under its key is complete. Where locks do
not work (some network file systems) two owners build aside and the rename decides; both made the same bytes.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from corpusbuild.durable import disk, fsync_dir, write_atomic
from corpusbuild.errors import IntegrityError
from corpusbuild.hashing import file_blake3
from corpusbuild.model import Contents, Counts, Key
from corpusbuild.staging import CONTENTS, Staging, adopt, owner_is_alive, owner_token

POLL_SECONDS = 0.05


class Store:
    """A cache folder: ``store/`` for what is finished and ``staging/`` for what is not."""

    def __init__(self, root: Path):
        self.root = root
        self._checked: set[Path] = set()

    def path(self, stage: str, key: Key) -> Path:
        return self.root / "store" / stage / key

    def has(self, stage: str, key: Key) -> bool:
        return (self.path(stage, key) / CONTENTS).exists()

    def contents(self, stage: str, key: Key) -> Contents:
        """The contents page of an entry. ``IntegrityError`` when it is missing, torn or speaks of another key."""
        path = self.path(stage, key) / CONTENTS
        try:
            contents = msgspec.json.decode(path.read_bytes(), type=Contents)
        except FileNotFoundError:
            raise IntegrityError(f"{path} is missing: delete {path.parent} and build again") from None
        except msgspec.DecodeError as error:
            raise IntegrityError(f"{path} cannot be read ({error}): delete {path.parent} and build again") from None
        if contents.key != key:
            raise IntegrityError(f"{path} speaks of {contents.key[:12]}, not {key[:12]}: delete {path.parent} and build again")
        return contents

    def check(self, stage: str, key: Key) -> Contents:
        """The contents of an entry after every file of it was compared with its size and, once a run, its digest.

        ``IntegrityError`` names the first file that is missing or altered, and the remedy.
        """
        contents, directory = self.contents(stage, key), self.path(stage, key)
        remedy = f"delete {directory} and build again"
        for file in contents.files:
            path = directory / file.path
            if not path.is_file():
                raise IntegrityError(f"{path} is missing: {remedy}")
            if path.stat().st_size != file.size:
                raise IntegrityError(f"{path} has {path.stat().st_size} bytes, not {file.size}: {remedy}")
            if directory not in self._checked and file_blake3(path) != file.blake3:
                raise IntegrityError(f"{path} changed since it was committed: {remedy}")
        self._checked.add(directory)
        return contents

    def is_partial(self, key: Key) -> bool:
        """Whether finished parts of an interrupted build of ``key`` wait to be taken up."""
        return any((self.root / "staging" / key).glob("*/done/*.json"))

    @contextmanager
    def lock(self, key: Key, waiting: Callable[[str], None] | None = None) -> Iterator[Staging]:
        """Hold ``key`` against other processes and give its staging directory, with what dead owners had finished.

        While another process holds it ``waiting`` is told again and again by whom; what it raises ends the waiting.
        """
        home = self.root / "staging" / key
        with disk(home):
            home.mkdir(parents=True, exist_ok=True)
            handle = (self.root / "staging" / f"{key}.lock").open("a+")
        with handle:
            _flock(handle.fileno(), lambda: waiting(_holder(home)) if waiting else None)
            staging = Staging(home / owner_token())
            with disk(home):
                staging.create()
                for other in sorted(p for p in home.iterdir() if p.is_dir() and p != staging.home):
                    adopt(other, staging)
                    if not owner_is_alive(other.name):
                        shutil.rmtree(other)
            try:
                yield staging
            finally:
                if staging.home.exists() and not any(staging.home.glob("done/*.json")):  # nothing that a later attempt could take up
                    self.discard_staged(key, staging.home.name)

    def commit(self, staging: Staging, stage: str, key: Key, version: int, label: str, counts: Counts) -> Contents:
        """Publish what was staged under its key, all or nothing. If somebody else has published the key meanwhile, theirs stands."""
        with disk(staging.out):
            staging.sweep()
        contents = Contents(key=key, stage=stage, version=version, label=label, files=tuple(staging.inventory()), counts=counts)
        target = self.path(stage, key)
        with disk(target):
            write_atomic(staging.out / CONTENTS, msgspec.json.format(msgspec.json.encode(contents), indent=1) + b"\n")
            fsync_dir(staging.out)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.rename(staging.out, target)
            except OSError:
                if not self.has(stage, key):
                    raise
            fsync_dir(target.parent)
            shutil.rmtree(staging.home, ignore_errors=True)
            with suppress(OSError):  # another owner's directory may still stand in it
                staging.home.parent.rmdir()
        return contents

    def discard(self, stage: str, key: Key) -> int:
        """Remove an entry and give the bytes freed. It is gone from its key in one step; hard links elsewhere stay."""
        entry = self.path(stage, key)
        trash = self.root / "staging" / f"trash-{key}-{owner_token()}"
        with disk(entry):
            trash.parent.mkdir(parents=True, exist_ok=True)
            os.rename(entry, trash)
            fsync_dir(entry.parent)
            return _remove(trash)

    @contextmanager
    def try_lock(self, key: Key) -> Iterator[bool]:
        """Hold ``key`` if nobody else does, and say whether that is so."""
        path = self.root / "staging" / f"{key}.lock"
        with disk(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = path.open("a+")
        with handle:
            try:
                fcntl.flock(handle.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def discard_folder(self, folder: Path) -> int:
        """Remove a folder of the cache that is no entry, and give the bytes freed."""
        with disk(folder):
            return _remove(folder)

    def discard_staged(self, key: Key, owner: str) -> int:
        """Remove what one owner has staged for a key and give the bytes freed."""
        home = self.root / "staging" / key / owner
        with disk(home):
            freed = _remove(home) if home.exists() else 0
            with suppress(OSError):  # other owners' directories may stand beside it
                home.parent.rmdir()
        return freed


def _remove(directory: Path) -> int:
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    shutil.rmtree(directory)
    return size


def _flock(fd: int, waiting: Callable[[], None]) -> None:
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            time.sleep(POLL_SECONDS)  # rather than wait in the kernel, where a thread hears of no cancel
        except OSError:
            return  # no locks on this file system: the rename decides


def _holder(home: Path) -> str:
    alive = [p.name for p in sorted(home.iterdir()) if p.is_dir() and owner_is_alive(p.name)] if home.exists() else []
    return f"process {alive[0].split('-')[1]}" if alive else "another process"
