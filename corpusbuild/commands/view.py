"""What a person, a file or a machine sees of a run while it runs. A session tells a view what happens; which view, the options and the terminal decide.

``Lines`` is for a file or a pipe: a line for what ended, and every few seconds one for what is under way. ``Live`` is for a terminal: the plan as a tree
whose branches are the sources. ``Events`` is for a machine: one JSON object a line. ``Quiet`` shows nothing; failures go to stderr whatever the view.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from corpusbuild.executors.base import Progress
from corpusbuild.model import Contents, total
from corpusbuild.progress import Event, Meter, duration, size

if TYPE_CHECKING:
    from rich.console import RenderableType

State = Literal["waiting", "running", "built", "reused", "failed"]

FETCH_SECONDS = 3.0
LINES_SECONDS = 10.0
"""How often a view without a terminal says what is under way: of downloads, and of steps."""
FRAMES = 2
"""Times a second that the live view is drawn anew."""


@dataclass
class Row:
    """One step as it stands. ``text_bytes`` is the text that it reads, 0 where that is not known; a rate is of those."""

    label: str
    source: str
    state: State
    text_bytes: int = 0
    since: float = 0.0
    seconds: float = 0.0
    done: int = 0
    tasks: int | None = None
    note: str = ""

    def rate(self, now: float) -> float:
        """Bytes of text a second, by the share of the tasks that are done."""
        passed = now - self.since
        return self.text_bytes * self.done / self.tasks / passed if self.tasks and passed > 0 else 0.0

    def left(self, now: float) -> float | None:
        """Seconds, if the rest goes as what is done did."""
        return (now - self.since) * (self.tasks - self.done) / self.done if self.tasks and self.done else None

    def progress(self, now: float) -> str:
        """
        >>> Row("sign:a", "a", "running", text_bytes=100_000_000, since=0.0, done=5, tasks=20).progress(10.0)
        '5 of 20 parts, 2.5 MB/s, 30 s left'
        """
        if self.tasks is None:
            return duration(now - self.since)
        text = f"{self.done:,} of {self.tasks:,} part{'s' if self.tasks != 1 else ''}"
        if rate := self.rate(now):
            text += f", {size(rate)}/s"
        left = self.left(now)
        return text + (f", {duration(left)} left" if left is not None and left >= 1 else "")


@dataclass
class View:
    """Holds how the run stands; the views below show it. ``clock`` gives seconds. Told from several threads; each tells of its own step."""

    write: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    rows: dict[str, Row] = field(default_factory=dict)
    meter: Meter = field(default_factory=Meter)
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    def plan(self, name: str, steps: Iterable[tuple[str, str, bool]]) -> None:
        """The steps of a build, (label, source, whether it is there already), in plan order."""
        for label, source, there in steps:
            self.rows.setdefault(label, Row(label, source, "reused" if there else "waiting"))

    def begin(self, label: str, text_bytes: int) -> None:
        row = self._row(label)
        row.state, row.since, row.text_bytes, row.done, row.tasks = "running", self.clock(), text_bytes, 0, None

    def progress(self, label: str, progress: Progress) -> None:
        row = self._row(label)
        row.done, row.tasks = progress.done, progress.total

    def ended(self, label: str, seconds: float, failed: bool) -> None:
        """A step's building ended; its outcome is told when its turn comes."""
        row = self._row(label)
        row.state, row.seconds = "failed" if failed else "built", seconds

    def built(self, label: str, contents: Contents, line: str) -> None:
        self._row(label).state = "built"
        self.say(line)

    def failed(self, label: str, message: str, code: int) -> None:
        row = self._row(label)
        row.state, row.note = "failed", message

    def fetching(self, event: Event) -> None:
        self.meter.take(event, self.clock())
        label = f"fetch:{event.source}"
        if label in self.rows and self.rows[label].state == "waiting":
            self.begin(label, 0)
        if event.kind in ("retry", "waiting"):
            self.say(f"{label}: {event.file} {event.note}".replace("  ", " "))

    def undone(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.say(line)

    def summary(self, text: str, facts: dict[str, Any]) -> None:
        self.say(text)

    def say(self, line: str) -> None:
        self.write(line)

    def close(self) -> None:
        """The run is over."""

    def counted(self) -> str:
        """
        >>> view = View(print, clock=lambda: 60.0)
        >>> view.plan("a", [("fetch:x", "x", True), ("filter:x", "x", False)])
        >>> view.counted()
        '0 of 1 steps built, 1 reused, 0 s'
        """
        states = [row.state for row in self.rows.values()]
        reused, bad = states.count("reused"), states.count("failed")
        text = f"{states.count('built')} of {len(states) - reused} steps built, {reused} reused"
        return text + (f", {bad} failed" if bad else "") + f", {duration(self.clock() - self.began)}"

    def _row(self, label: str) -> Row:
        return self.rows.setdefault(label, Row(label, "", "waiting"))


@dataclass
class Lines(View):
    """For a file or a pipe. ``verbose`` also names what is reused, and every step as it begins."""

    verbose: bool = False
    _said: float = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._said = self.began

    def plan(self, name: str, steps: Iterable[tuple[str, str, bool]]) -> None:
        known = list(steps)
        super().plan(name, known)
        if self.verbose:
            for label, _, there in known:
                self.say(f"{label:<28}  {'reused' if there else 'to be built'}")

    def begin(self, label: str, text_bytes: int) -> None:
        super().begin(label, text_bytes)
        if self.verbose:
            self.say(f"{label:<28}  begins")

    def progress(self, label: str, progress: Progress) -> None:
        super().progress(label, progress)
        now = self.clock()
        if now - self._said >= LINES_SECONDS:
            self._said = now
            running = [row for row in self.rows.values() if row.state == "running"]
            self.say(f"... {self.counted()}; " + "; ".join(f"{row.label} {row.progress(now)}" for row in running))

    def fetching(self, event: Event) -> None:
        super().fetching(event)
        now = self.clock()
        if now - self._said >= FETCH_SECONDS:
            self._said = now
            for line in self.meter.lines(now):
                self.say(line)


class Quiet(View):
    """Shows nothing."""

    def say(self, line: str) -> None:
        return


@dataclass
class Events(View):
    """For a machine: plan, begin, progress, built, failed, fetch, undone, summary and say, each a line of JSON with its ``event``."""

    _last: dict[str, float] = field(default_factory=dict)

    def plan(self, name: str, steps: Iterable[tuple[str, str, bool]]) -> None:
        known = list(steps)
        super().plan(name, known)
        self._emit("plan", build=name, steps=[{"step": label, "reused": there} for label, _, there in known])

    def begin(self, label: str, text_bytes: int) -> None:
        super().begin(label, text_bytes)
        self._emit("begin", step=label, text_bytes=text_bytes)

    def progress(self, label: str, progress: Progress) -> None:
        super().progress(label, progress)
        if self._is_due(label):
            self._emit("progress", step=label, parts_done=progress.done, parts=progress.total, retried=progress.retried)

    def built(self, label: str, contents: Contents, line: str) -> None:
        row = self._row(label)
        row.state, tally = "built", total(list(contents.counts.values()))
        counts = {"docs_in": tally.docs_in, "kept": tally.kept, "dropped": tally.dropped, "rejected": tally.rejected}
        self._emit(
            "built", step=label, key=contents.key, seconds=round(row.seconds, 3), bytes=sum(f.size for f in contents.files), **counts
        )

    def failed(self, label: str, message: str, code: int) -> None:
        super().failed(label, message, code)
        self._emit("failed", step=label, message=message, code=code)

    def fetching(self, event: Event) -> None:
        self.meter.take(event, self.clock())
        if event.kind != "bytes" or self._is_due(f"{event.source}/{event.file}"):
            state = self.meter.files[(event.source, event.file)]
            self._emit("fetch", kind=event.kind, source=event.source, file=event.file, have=state.have, total=state.total, note=event.note)

    def undone(self, lines: Sequence[str]) -> None:
        self._emit("undone", lines=list(lines))

    def summary(self, text: str, facts: dict[str, Any]) -> None:
        self._emit("summary", **facts)

    def say(self, line: str) -> None:
        self._emit("say", line=line)

    def _is_due(self, what: str) -> bool:
        now = self.clock()
        if now - self._last.get(what, -1.0) < 1.0:
            return False
        self._last[what] = now
        return True

    def _emit(self, event: str, **fields: Any) -> None:
        self.write(msgspec.json.encode({"event": event, **fields}).decode())


MARKS: dict[State, tuple[str, str]] = {
    "waiting": ("·", "dim"),
    "running": ("●", "cyan"),
    "built": ("✓", "green"),
    "reused": ("=", "dim"),
    "failed": ("✗", "bold red"),
}


class Live(View):
    """For a terminal. A source whose steps all wait or are done is one line, so that the tree fits; what failed stays to be seen."""

    def __init__(self, verbose: bool = False):
        from rich.console import Console
        from rich.live import Live as Screen

        self._console = Console(
            file=sys.stdout, highlight=False, emoji=False, soft_wrap=True
        )  # doit puts another in its place now and then
        super().__init__(write=self._print)
        self._verbose = verbose
        self._screen = Screen(
            console=self._console,
            refresh_per_second=FRAMES,
            get_renderable=self.draw,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._shown = False

    def plan(self, name: str, steps: Iterable[tuple[str, str, bool]]) -> None:
        super().plan(name, steps)
        if not self._shown and any(row.state == "waiting" for row in self.rows.values()):
            self._shown = True
            self._screen.start()

    def failed(self, label: str, message: str, code: int) -> None:
        super().failed(label, message, code)
        self._print(f"{label}: {message}", "red")

    def built(self, label: str, contents: Contents, line: str) -> None:
        self._row(label).state = "built"
        if self._verbose:
            self.say(line)

    def close(self) -> None:
        if self._shown:
            self._shown = False
            self._screen.stop()
            self._print(self.counted(), "dim")

    def _print(self, line: str, style: str = "") -> None:
        from rich.text import Text

        self._console.print(Text(line, style=style))

    def draw(self) -> "RenderableType":
        """The tree at this moment."""
        from rich.console import Group
        from rich.text import Text

        now, room = self.clock(), max(4, self._console.height - 4)
        lines = tree(list(self.rows.values()), self.meter, now, room)
        drawn = [Text(text, style=style, no_wrap=True, overflow="ellipsis") for text, style in lines]
        return Group(*drawn, Text(self.counted(), style="bold"))


def tree(rows: Sequence[Row], meter: Meter, now: float, room: int) -> list[tuple[str, str]]:
    """At most ``room`` lines, (text, style): a source's steps below it while one of them runs or failed, else the source in one line; then the
    steps of the whole build. When there are more, those that run or failed come first and the others are counted."""
    blocks: list[tuple[bool, list[tuple[str, str]]]] = []
    for source in dict.fromkeys(row.source for row in rows if row.source):
        mine = [row for row in rows if row.source == source]
        active = any(row.state in ("running", "failed") for row in mine)
        if active:
            blocks.append((True, [(source, "bold"), *(_line(row, meter, now, "  ") for row in mine)]))
        else:
            ended = sum(row.state in ("built", "reused") for row in mine)
            state: State = "waiting" if not ended else "built" if ended == len(mine) else "waiting"
            mark, style = MARKS[state]
            blocks.append((False, [(f"{mark} {source}  {ended} of {len(mine)} steps", style)]))
    blocks += [(row.state in ("running", "failed"), [_line(row, meter, now, "")]) for row in rows if not row.source]
    if sum(len(lines) for _, lines in blocks) > room:
        hidden = sum(len(lines) for active, lines in blocks if not active)
        lines = [line for active, block in blocks if active for line in block]
        more = len(lines) - (room - 1)
        lines = [*lines[: room - 1], (f"  and {hidden + max(0, more):,} more lines: doit list", "dim")]
        return lines
    return [line for _, block in blocks for line in block]


def _line(row: Row, meter: Meter, now: float, indent: str) -> tuple[str, str]:
    mark, style = MARKS[row.state]
    name = row.label.split(":", 1)[0] if row.source else row.label
    text = f"{indent}{mark} {name}".ljust(24 + len(indent))
    if row.state == "running" and row.label.startswith("fetch:"):
        files = [key for key, state in meter.files.items() if key[0] == row.source and state.state == "running"]
        text += "; ".join(meter.file_line(*key, now).split(": ", 1)[1] for key in files[:2])
    elif row.state == "running":
        text += row.progress(now)
    elif row.state == "failed":
        text += row.note.splitlines()[0] if row.note else "failed"
    elif row.state == "built" and row.seconds >= 0.1:
        text += duration(row.seconds)
    return text.rstrip(), style


def choose(json: bool, quiet: bool, verbose: bool) -> View:
    """The view for these options and this terminal."""
    if json:
        return Events(printed)
    if quiet:
        return Quiet(printed)
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return Live(verbose)
    return Lines(printed, verbose=verbose)


def printed(line: str) -> None:
    """Print a line. A reader that has seen enough (``doit list | head``) stops neither a build nor a list."""
    try:
        print(line, file=sys.stdout, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
