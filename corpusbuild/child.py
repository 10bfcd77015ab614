"""A split in processes of its own with a memory limit, for readers that a stranger's file may crash and for work that one core is too slow for.

Run as ``python -m corpusbuild.child``. One child reads a source and tells where its segments are, others make the parts, and what they say goes as lines
of JSON through pipes: no text does.
"""

import os
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from corpusbuild.downloads import Stopped
from corpusbuild.errors import DiskError, SourceError
from corpusbuild.executors.worker import die_with
from corpusbuild.kernels import PLAIN, Kernels
from corpusbuild.parts import part_name
from corpusbuild.segments import FORMATS, Opened, Segment, segments
from corpusbuild.stages.fetch import (
    DIGESTS,
    SegmentDone,
    SplitSegment,
    SplitSource,
    identity,
    segment_task,
    split_segment,
    split_source,
    whole,
)
from corpusbuild.staging import Staging, perform

MEMORY = 8 << 30
"""Bytes of address space that a child may use."""

POLL = 0.05
LEAVE = b"\n"

AHEAD = 2
"""Segments that the reader may have made beyond those that are being split."""


class Order(msgspec.Struct):
    """What a child is to do next: exactly one of a source to split, one to read into ``spool``, and a segment to split."""

    home: str
    memory: int
    source: SplitSource | None = None
    spool: str = ""
    segment: SplitSegment | None = None
    kernels: Kernels = PLAIN


class Report(msgspec.Struct):
    """Exactly one of the four. ``value`` ends a split, ``opened`` ends the reading; ``error`` is (class name, message, retryable)."""

    value: dict[str, Any] | None = None
    segment: Segment | None = None
    opened: list[Opened] | None = None
    error: tuple[str, str, bool] | None = None


def split_apart(
    task: SplitSource, home: Path, stop: threading.Event, memory: int = MEMORY, *, workers: int = 1, kernels: Kernels = PLAIN
) -> dict[str, Any]:
    """As ``perform`` of ``split_source``, in children, ``workers`` of which make parts. What they make depends on no number of them.

    A child that dies over a format that is known to crash readers is a ``SourceError`` that blames the file, else one that running again may heal.
    """
    course = _Course(task, home, stop, memory, kernels)
    try:
        if task.source.format not in FORMATS or workers == 1:
            return course.alone()
        return course.together(workers)
    finally:
        course.end()


class _Child:
    """One process and the pipes to it. ``doing`` is the number of the segment that it splits."""

    def __init__(self) -> None:
        package = str(Path(__file__).parent.parent)
        path = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH", "")])])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "corpusbuild.child", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self._held = b""
        self.doing: int | None = None

    def tell(self, order: Order | None) -> None:
        """Give it an order, or the reader leave to make another segment."""
        try:
            self.stdin.write(LEAVE if order is None else msgspec.json.encode(order) + b"\n")
            self.stdin.flush()
        except BrokenPipeError:
            pass  # it is dead, which the end of its output says

    def hear(self) -> list[Report] | None:
        """What it has said, or None when it is dead."""
        data = os.read(self.stdout.fileno(), 1 << 20)
        if not data:
            return None
        *lines, self._held = (self._held + data).split(b"\n")
        return [msgspec.json.decode(line, type=Report) for line in lines]

    def death(self) -> str:
        code = self.process.wait()
        return signal.Signals(-code).name if code < 0 else f"exit {code}"

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        with suppress(BrokenPipeError):  # an order that it did not live to read
            self.stdin.close()
        self.stdout.close()


class _Course:
    """One split of one source by children."""

    def __init__(self, task: SplitSource, home: Path, stop: threading.Event, memory: int, kernels: Kernels):
        self.task, self.staging, self.stop, self.memory, self.kernels = task, Staging(home), stop, memory, kernels
        self.spool = self.staging.scratch / "spool"
        self.children: list[_Child] = []
        self.selector = selectors.DefaultSelector()

    def alone(self) -> dict[str, Any]:
        child = self.hire()
        child.tell(self.order(source=self.task))
        while True:
            for _, report in self.heard():
                if report is None:
                    raise self.blamed(child, self.task.files[0].name if self.task.files else self.task.source.id)
                if report.value is not None:
                    return report.value
                raise self.error(report)

    def together(self, workers: int) -> dict[str, Any]:
        """The parts of all segments, or the error of the first that has one: those behind it are given up, those before it are waited for."""
        shutil.rmtree(self.spool, ignore_errors=True)
        self.spool.mkdir()
        reader = self.hire()
        reader.tell(self.order(source=self.task, spool=str(self.spool)))
        for _ in range(workers + AHEAD):
            reader.tell(None)
        idle, waiting = [self.hire() for _ in range(workers)], list[SplitSegment]()
        done: dict[int, SegmentDone] = {}
        opened: list[Opened] | None = None
        known: dict[int, SplitSegment] = {}
        failed: tuple[int, Exception] | None = None
        while True:
            if failed is not None:
                waiting = [task for task in waiting if task.segment.number < failed[0]]
            while idle and waiting:
                task, child = waiting.pop(0), idle.pop()
                child.doing = task.segment.number
                child.tell(self.order(segment=task))
            busy = [child.doing for child in self.children if child.doing is not None]
            if failed is not None and not any(number < failed[0] for number in busy):
                raise failed[1]
            if opened is not None and not busy and not waiting:
                break
            for child, report in self.heard():
                number = len(known) if child.doing is None else child.doing
                if report is not None and report.segment is not None:
                    task = segment_task(self.task, report.segment)
                    known[number] = task
                    if (left := self.left(task)) is not None:
                        done[number] = left
                        self.free(task)
                        reader.tell(None)
                    else:
                        waiting.append(task)
                    continue
                if report is not None and report.opened is not None:
                    opened = report.opened
                    continue
                child.doing = None
                if report is not None and report.value is not None:
                    done[number] = msgspec.convert(report.value, SegmentDone)
                    self.free(known[number])
                    reader.tell(None)
                    idle.append(child)
                    continue
                error = self.blamed(child, self.names(known.get(number))) if report is None else self.error(report)
                if failed is None or number < failed[0]:
                    failed = (number, error)
        ordered = [done[number] for number in range(len(known))]
        rejected: dict[str, int] = {}
        for one in ordered:
            for reason, n in one.rejected.items():
                rejected[reason] = rejected.get(reason, 0) + n
        pages = [self.staging.scratch / f"{part_name(number)}{DIGESTS}" for number in range(len(known))]
        parts = [part for one in ordered for part in one.parts]
        return whole(self.task, parts, rejected, opened, [(page, one.counted) for page, one in zip(pages, ordered, strict=True)])

    def left(self, task: SplitSegment) -> SegmentDone | None:
        """What an earlier attempt made of the segment, if it is there and whole."""
        page = self.staging.finished(task.name)
        done = None if page is None else msgspec.convert(page.value, SegmentDone)
        return done if done is not None and done.identity == identity(task, self.kernels.form == "compiled") else None

    def free(self, task: SplitSegment) -> None:
        for path in task.segment.spooled:
            Path(path).unlink()

    def names(self, task: SplitSegment | None) -> str:
        files = list(task.files.values()) if task else list(self.task.files)
        return files[0].name if files else self.task.source.id

    def order(self, source: SplitSource | None = None, spool: str = "", segment: SplitSegment | None = None) -> Order:
        return Order(str(self.staging.home), self.memory, source, spool, segment, self.kernels)

    def hire(self) -> _Child:
        child = _Child()
        self.children.append(child)
        self.selector.register(child.stdout, selectors.EVENT_READ, child)
        return child

    def heard(self) -> Iterator[tuple[_Child, Report | None]]:
        """What children say within a moment; None for one that is dead. ``Stopped`` when nobody wants to know any more."""
        if self.stop.is_set():
            raise Stopped
        for key, _ in self.selector.select(POLL):
            reports = key.data.hear()
            if reports is None:
                self.selector.unregister(key.fileobj)
                yield key.data, None
            else:
                yield from ((key.data, report) for report in reports)

    def blamed(self, child: _Child, name: str) -> SourceError:
        source, how = self.task.source, child.death()
        if source.format == "parquet":
            return SourceError(source.id, f"{name}: reading it as parquet ended its process ({how}): the file is damaged or hostile")
        return SourceError(
            source.id,
            f"{name}: the process that split it ended ({how}): run again, with a lower run.workers if memory is short",
            retryable=True,
        )

    def error(self, report: Report) -> SourceError | DiskError:
        kind, message, retryable = report.error or ("", "", False)
        return DiskError(message) if kind == DiskError.__name__ else SourceError(self.task.source.id, message, retryable)

    def end(self) -> None:
        for child in self.children:
            child.end()
        self.selector.close()
        shutil.rmtree(self.spool, ignore_errors=True)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the parent's, which ends its children
    die_with(int(sys.argv[1]))
    while line := sys.stdin.buffer.readline():
        if line == LEAVE:  # nothing was left to read
            continue
        order = msgspec.json.decode(line, type=Order)
        resource.setrlimit(resource.RLIMIT_AS, (order.memory, order.memory))
        try:
            report = _obey(order)
        except SourceError as error:
            report = Report(error=("SourceError", error.message, error.retryable))
        except DiskError as error:
            report = Report(error=("DiskError", str(error), True))
        except MemoryError:
            report = Report(
                error=("SourceError", f"reading it took more than {order.memory} bytes of memory: the file is damaged or hostile", False)
            )
        _say(report)


def _obey(order: Order) -> Report:
    home = Path(order.home)
    if order.segment is not None:
        return Report(value=perform((split_segment, order.segment, home), order.kernels))
    assert order.source is not None
    if not order.spool:
        return Report(value=perform((split_source, order.source, home), order.kernels))
    opened: list[Opened] = []
    task = order.source
    for segment in segments(task.source, task.files, task.part_docs, Path(order.spool), opened):
        _say(Report(segment=segment))
        sys.stdin.buffer.readline()  # LEAVE
    return Report(opened=opened)


def _say(report: Report) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
