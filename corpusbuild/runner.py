"""The engine's side of a subprocess activity: start it, pass its signs of life on, stop it when that is asked for, and say how it ended."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from corpusbuild.durable import write_atomic
from corpusbuild.errors import Cancelled

POLL = 0.05
GRACE = 30.0
"""Seconds that a cancelled activity has to end by itself."""
MESSAGE = 4096
"""Bytes of the end of stderr that are told of a failure."""
STARTING = 60.0
"""Seconds that a process has until its first sign of life, where the heartbeat is shorter."""


class ActivityFailed(Exception):
    """How an attempt failed. ``kind`` is ExitCode<n>, Signal<n>, MissingDone or Timeout; ``retryable`` says whether another may help."""

    def __init__(self, kind: str, message: str, retryable: bool):
        super().__init__(kind, message, retryable)
        self.kind, self.message, self.retryable = kind, message, retryable

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


def run_activity(
    arguments: Sequence[str],
    spec: Mapping[str, Any],
    key: str,
    root: Path,
    *,
    attempt: int = 1,
    heartbeat: float | None = None,
    start_to_close: float | None = None,
    alive: Callable[[str], None] = lambda line: None,
    cancelled: Callable[[], bool] = lambda: False,
    environ: Mapping[str, str] | None = None,
) -> list[str]:
    """One attempt of ``python -m corpusbuild <arguments>`` with ``spec``, keyed by ``key`` under ``root``; gives its outputs.

    ``alive`` gets every whole line of its progress. An attempt that is silent for ``heartbeat`` seconds, or takes more than ``start_to_close``, is
    killed. ``cancelled`` is asked all the time; when it says True the attempt is asked to end, and ``Cancelled`` is raised when it has.
    """
    work = root.joinpath("activities", *key.split("/"))
    work.mkdir(parents=True, exist_ok=True)
    write_atomic(work / "spec.json", msgspec.json.encode(spec))
    progress = work / "progress.jsonl"
    seen = progress.stat().st_size if progress.exists() else 0
    command = [sys.executable, "-m", "corpusbuild", *arguments, "--spec", str(work / "spec.json"), "--progress", str(progress)]
    env = {**os.environ, **(environ or {}), "TL_ARTIFACTS": str(root), "TL_IDEMPOTENCY_KEY": key, "TL_ATTEMPT": str(attempt)}
    started = last = time.monotonic()
    stop: float | None = None
    with tempfile.TemporaryFile() as errors, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=env) as process:
        try:
            while process.poll() is None:
                time.sleep(POLL)
                now = time.monotonic()
                lines, seen = _new_lines(progress, seen)
                for line in lines:
                    last = now
                    alive(line)
                if stop is None and cancelled():
                    process.send_signal(signal.SIGTERM)
                    stop = now + GRACE
                limit = None if heartbeat is None else heartbeat if last > started else max(heartbeat, STARTING)
                if (stop is not None and now > stop) or (limit is not None and now - last > limit):
                    process.kill()
                if start_to_close is not None and now - started > start_to_close:
                    process.kill()
        finally:
            process.kill()
        code = process.wait()
        if stop is not None or code == 130:
            raise Cancelled(f"{key}: cancelled")
        for line in _new_lines(progress, seen)[0]:
            alive(line)
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - MESSAGE))
        message = errors.read().decode(errors="replace").strip()
    if code != 0:
        kind = f"Signal{-code}" if code < 0 else f"ExitCode{code}"
        raise ActivityFailed(kind, message, retryable=code not in (2, 65))
    try:
        return list(msgspec.json.decode((work / "DONE.json").read_bytes(), type=dict[str, list[str]])["outputs"])
    except FileNotFoundError:
        raise ActivityFailed("MissingDone", f"{key} ended with 0 and left no DONE.json", retryable=True) from None


def _new_lines(path: Path, start: int) -> tuple[list[str], int]:
    """The whole lines behind ``start`` and where they end. A file that became shorter lost a torn line and is read from its end."""
    if not path.exists():
        return [], start
    with path.open("rb") as file:
        start = min(start, file.seek(0, os.SEEK_END))
        file.seek(start)
        data = file.read()
    end = data.rfind(b"\n") + 1
    return data[:end].decode(errors="replace").splitlines(), start + end
