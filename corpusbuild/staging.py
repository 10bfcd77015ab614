"""Staging: where an entry is made, a task at a time, so that an interrupted build goes on where it stopped.

``<owner>/out`` becomes the entry, ``<owner>/scratch`` does not, and ``<owner>/done/<task>.json`` vouches for the files of a finished task: it is
written last and names each file's size and digest. A file that no such page vouches for is made again.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from corpusbuild import kernels
from corpusbuild.durable import TEMPORARY_PREFIX, disk, fsync_dir, fsync_file, write_atomic
from corpusbuild.hashing import file_blake3
from corpusbuild.kernels import PLAIN, Kernels
from corpusbuild.model import File, Record
from corpusbuild.stage import Out, Task

CONTENTS = "contents.json"
"""The contents page of an entry, written last."""


class Done(Record):
    """What a finished task left: its value and its files, relative to the owner's directory."""

    value: Any
    files: tuple[File, ...]


@dataclass(frozen=True)
class Staging:
    """One owner's directory for one key."""

    home: Path

    @property
    def out(self) -> Path:
        return self.home / "out"

    @property
    def scratch(self) -> Path:
        return self.home / "scratch"

    @property
    def done(self) -> Path:
        return self.home / "done"

    def create(self) -> None:
        for directory in (self.out, self.scratch, self.done):
            directory.mkdir(parents=True, exist_ok=True)
        for left in [*self.home.rglob("*.tmp"), *self.home.rglob(f"{TEMPORARY_PREFIX}*")]:
            left.unlink()

    def finished(self, task: str) -> Done | None:
        """What ``task`` left, if it is finished and every file is still what its page says."""
        page = self.done / f"{task}.json"
        if not page.exists():
            return None
        done = msgspec.json.decode(page.read_bytes(), type=Done)
        if all(_stands(self.home / file.path, file) for file in done.files):
            return done
        page.unlink()
        return None

    def put(self, name: str, data: bytes) -> None:
        """Write a small file of the entry, whole and durable."""
        with disk(self.out / name):
            self.make_folder((self.out / name).parent)
            write_atomic(self.out / name, data)

    def make_folder(self, folder: Path) -> None:
        """Make a folder of ``out`` that may not be there yet, durably."""
        if folder.is_dir():
            return
        self.make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        fsync_dir(folder.parent)

    def sweep(self) -> None:
        """Remove what attempts that died within this run left unfinished in the entry."""
        for left in self.out.rglob("*.tmp"):
            left.unlink()

    def inventory(self) -> list[File]:
        """Every file of ``out`` but the contents page, by name. Digests that tasks took when they wrote are not taken again."""
        known = {file.path: file for page in self.done.glob("*.json") for file in msgspec.json.decode(page.read_bytes(), type=Done).files}
        files = []
        for path in sorted(
            p for p in self.out.rglob("*") if p.is_file() and p != self.out / CONTENTS
        ):  # a killed commit may have left its page
            name = path.relative_to(self.out).as_posix()
            file = known.get(f"out/{name}") or File(path=name, size=path.stat().st_size, blake3=file_blake3(path))
            files.append(File(path=name, size=file.size, blake3=file.blake3))
        return files


class TaskOut(Out):
    """Where one task writes: under temporary names, until ``finish``."""

    def __init__(self, staging: Staging, task: str):
        self._staging, self._task = staging, task
        self._files: dict[Path, Path] = {}

    def path(self, suffix: str, folder: str = "") -> Path:
        self._staging.make_folder(self._staging.out / folder)
        return self._open(self._staging.out / folder / f"{self._task}{suffix}")

    def scratch(self, suffix: str) -> Path:
        return self._open(self._staging.scratch / f"{self._task}{suffix}")

    def finish(self, value: Any) -> None:
        """Make the files durable, give them their names, and vouch for them."""
        files = []
        for final, temporary in self._files.items():
            if final.is_relative_to(self._staging.out):  # of the others the digest tells, after a power cut, whether they are whole
                fsync_file(temporary)
            files.append(
                File(path=str(final.relative_to(self._staging.home)), size=temporary.stat().st_size, blake3=file_blake3(temporary))
            )
            final.unlink(missing_ok=True)  # a rename onto another name of the same file would do nothing, and leave both
            os.replace(temporary, final)
        for directory in sorted({final.parent for final in self._files}):
            fsync_dir(directory)
        write_atomic(self._staging.done / f"{self._task}.json", msgspec.json.encode(Done(value=value, files=tuple(files))))

    def _open(self, final: Path) -> Path:
        self._files[final] = final.with_name(f"{final.name}.{os.getpid()}.tmp")
        return self._files[final]


def perform(work: tuple[Callable[[Any, Out], Any], Task, Path], form: Kernels = PLAIN) -> Any:
    """Run one task in its staging directory and give its value. What executors map."""
    fn, task, home = work
    out = TaskOut(Staging(home), task.name)
    with disk(home), kernels.using(form):
        value = fn(task, out)
        out.finish(value)
    return value


def adopt(other: Path, staging: Staging) -> None:
    """Take over the finished tasks of another owner of the same key, by hard link, after comparing every file with its page."""
    left = Staging(other)
    for page in sorted(left.done.glob("*.json")) if left.done.exists() else []:
        done = left.finished(page.stem)
        if done is None or (staging.done / page.name).exists():
            continue
        for file in done.files:
            target = staging.home / file.path
            staging.make_folder(target.parent)
            target.unlink(missing_ok=True)
            try:
                os.link(other / file.path, target)
            except OSError:  # a file system without hard links
                shutil.copyfile(other / file.path, target)
                fsync_file(target)
        for directory in sorted({staging.out, staging.scratch, *((staging.home / file.path).parent for file in done.files)}):
            fsync_dir(directory)
        write_atomic(staging.done / page.name, page.read_bytes())


def owner_token() -> str:
    """A name for this process that no other process of this machine's boot has: boot, process id, start time."""
    return f"{_boot_id()}-{os.getpid()}-{_start_time(os.getpid())}"


def owner_is_alive(token: str) -> bool:
    """Whether the process that ``token`` names still runs. On another machine that cannot be seen, and it counts as alive."""
    boot, pid, started = token.rsplit("-", 2)
    if boot != _boot_id():
        return _machine(boot) != _machine(_boot_id())
    return _start_time(int(pid)) == started


def _machine(boot: str) -> str:
    return boot.split("_", 1)[0]


def _boot_id() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    identity = boot.read_text().strip().replace("-", "")[:12] if boot.exists() else "boot"
    return f"{os.uname().nodename.replace('-', '.')}_{identity}"


def _start_time(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except FileNotFoundError:
        try:
            os.kill(pid, 0)
        except OSError:
            return "dead"
        return "0"  # no /proc: alive is all that can be told


def _stands(path: Path, file: File) -> bool:
    return path.is_file() and path.stat().st_size == file.size and file_blake3(path) == file.blake3
