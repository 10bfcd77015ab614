"""A split in a process of its own with a memory limit, for formats whose readers a stranger's file may crash.

Run as ``python -m corpusbuild.child``: the task comes as JSON on standard input, the value or the error goes as JSON to standard output.
"""

import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from corpusbuild.downloads import Stopped
from corpusbuild.errors import DiskError, SourceError
from corpusbuild.stages.fetch import SplitSource, split_source
from corpusbuild.staging import perform

MEMORY = 8 << 30
"""Bytes of address space that the child may use."""

POLL = 0.05


class Order(msgspec.Struct):
    task: SplitSource
    home: str
    memory: int


class Report(msgspec.Struct):
    """Exactly one of the two. ``error`` is (class name, message, retryable)."""

    value: dict[str, Any] | None = None
    error: tuple[str, str, bool] | None = None


def split_apart(task: SplitSource, home: Path, stop: threading.Event, memory: int = MEMORY) -> dict[str, Any]:
    """As ``perform`` of ``split_source``, in a child. A child that dies is a ``SourceError``: the file is to blame."""
    order = msgspec.json.encode(Order(task, str(home), memory))
    package = str(Path(__file__).parent.parent)
    path = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH", "")])])
    with subprocess.Popen(
        [sys.executable, "-m", "corpusbuild.child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    ) as process:
        try:
            out: bytes | None = None
            data: bytes | None = order
            while out is None:
                if stop.is_set():
                    raise Stopped
                try:
                    out, _ = process.communicate(data, timeout=POLL)
                except subprocess.TimeoutExpired:
                    data = None
        finally:
            if process.poll() is None:
                process.kill()
    name = task.files[0].name if task.files else task.source.id
    if process.returncode != 0:
        how = signal.Signals(-process.returncode).name if process.returncode < 0 else f"exit {process.returncode}"
        raise SourceError(
            task.source.id, f"{name}: reading it as {task.source.format} ended its process ({how}): the file is damaged or hostile"
        )
    report = msgspec.json.decode(out, type=Report)
    if report.value is not None:
        return report.value
    kind, message, retryable = report.error or ("", "", False)
    if kind == DiskError.__name__:
        raise DiskError(message)
    raise SourceError(task.source.id, message, retryable)


def main() -> None:
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    resource.setrlimit(resource.RLIMIT_AS, (order.memory, order.memory))
    try:
        report = Report(value=perform((split_source, order.task, Path(order.home))))
    except SourceError as error:
        report = Report(error=("SourceError", error.message, error.retryable))
    except DiskError as error:
        report = Report(error=("DiskError", str(error), True))
    except MemoryError:
        report = Report(
            error=("SourceError", f"reading it took more than {order.memory} bytes of memory: the file is damaged or hostile", False)
        )
    sys.stdout.buffer.write(msgspec.json.encode(report))


if __name__ == "__main__":
    main()
