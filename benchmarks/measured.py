"""Run a command and tell how long it took, what its processes spent and held together, and what it printed last."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Ran:
    """``seconds`` by the clock for the whole process, ``cpu`` of it and all its children that it waited for, ``peak`` the most bytes that all held."""

    seconds: float
    cpu: float
    peak: int
    told: dict[str, Any] = field(default_factory=dict)
    """The last line of output, where that is a JSON object."""


def run(command: Sequence[str | Path], log: Path, cwd: Path | None = None, env: dict[str, str] | None = None, exact: bool = False) -> Ran:
    """``SystemExit`` with the end of the output when the command fails.

    Memory is private and shared-anonymous pages, ten times a second. ``exact`` divides what processes share among them (Pss), which costs the kernel
    some milliseconds a gigabyte; else what a fork shares with its parent counts twice.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        began = time.perf_counter()
        process = subprocess.Popen(
            list(map(str, command)), stdout=out, stderr=subprocess.STDOUT, cwd=cwd, env={**os.environ, **(env or {})}
        )
        watch = _Watch(process.pid, exact)
        watch.start()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        watch.stop()
    said = log.read_text(errors="replace")
    if status:
        raise SystemExit(f"{' '.join(map(str, command[:6]))} ... failed: {said[-2000:]}")
    return Ran(seconds, usage.ru_utime + usage.ru_stime, watch.peak, _last_object(said))


def rounds(times: int, tools: dict[str, tuple[int, Callable[[], Ran]]]) -> dict[str, list[Ran]]:
    """Run each tool ``times`` times but no more than its own number, by turns, so that a machine that slows down is fair to all."""
    found: dict[str, list[Ran]] = {name: [] for name in tools}
    for i in range(times):
        for name, (most, tool) in tools.items():
            if i < most:
                found[name].append(tool())
                print(f"  {name}: {found[name][-1].seconds:.2f} s", flush=True)
    return found


def middle(runs: Sequence[Ran], what: Callable[[Ran], float] = lambda ran: ran.seconds) -> float:
    return median(what(ran) for ran in runs)


class _Watch:
    """Samples what a process and all below it hold."""

    def __init__(self, pid: int, exact: bool):
        self.peak = 0
        self._pid, self._held, self._over = pid, _pss if exact else _resident, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self.peak = max(self.peak, sum(map(self._held, family(self._pid))))


def family(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for one in found:
        try:
            for task in os.listdir(f"/proc/{one}/task"):
                found += map(int, Path(f"/proc/{one}/task/{task}/children").read_text().split())
        except OSError:  # it has ended
            continue
    return found


def _resident(pid: int) -> int:
    try:
        _, resident, shared, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
    except OSError:
        return 0
    return (resident - shared) * PAGE


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))


def _last_object(said: str) -> dict[str, Any]:
    for line in reversed(said.splitlines()[-5:]):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return {}
