"""LEDGER.jsonl: who gave what, when and under which licence; appended to, never edited."""

import fcntl
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from corpusbuild.durable import disk, fsync_dir
from corpusbuild.errors import IntegrityError

LEDGER_NAME = "LEDGER.jsonl"
TORN_NAME = "LEDGER.torn"


def encode_row(row: dict[str, Any]) -> bytes:
    """One row as its line: compact JSON, keys in the order given, non-ASCII kept."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Every row, oldest first. Blank lines are allowed, and so is a last line that a crash tore (it has no end); another bad line is
    ``IntegrityError``, by its number."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    *lines, tail = data.split(b"\n")
    rows = [_row(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if (last := _parsed(tail)) is not None:
        rows.append(last)
    return rows


def append_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Append ``rows`` durably, a write each, but for those that are there already, as after two processes fetched one source together. A torn last line is first moved to ``LEDGER.torn`` beside it, so that it swallows no good row."""
    lines = [encode_row(row) for row in rows]
    if not lines:
        return
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
        try:
            _lock(descriptor)
            end = _heal(path, descriptor)
            there = set(path.read_bytes().splitlines(keepends=True))
            lines = [line for line in lines if line not in there]
            try:
                for line in lines:
                    _write(descriptor, line)
                os.fsync(descriptor)
            except BaseException:
                os.ftruncate(descriptor, end)  # half a batch would look like a whole one
                raise
        finally:
            os.close(descriptor)
        fsync_dir(path.parent)


def _heal(path: Path, descriptor: int) -> int:
    """Make the file end in a whole line and give its size."""
    size = os.fstat(descriptor).st_size
    start = size
    tail = b""
    while start and b"\n" not in tail:
        step = min(65536, start)
        start -= step
        tail = os.pread(descriptor, step, start) + tail
    fragment = tail[tail.rfind(b"\n") + 1 :]
    if not fragment:
        return size
    if _parsed(fragment) is not None:  # whole but for its end
        _write(descriptor, b"\n")
        return size + 1
    aside = os.open(path.with_name(TORN_NAME), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666)
    try:
        _write(aside, fragment + b"\n")
        os.fsync(aside)
    finally:
        os.close(aside)
    os.ftruncate(descriptor, size - len(fragment))
    return size - len(fragment)


def _row(path: Path, number: int, line: bytes) -> dict[str, Any]:
    row = _parsed(line)
    if row is None:
        raise IntegrityError(
            f"{path}: line {number} is not a row of the ledger: restore the file, or remove that line and fetch its source again"
        )
    return row


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        return  # a file system without locks; every row is one append, which does not interleave
