"""What a download says while it runs, and the line that a person reads. Pure: events in, text out."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Event:
    """Something that happened to one file of a source.

    ``kind`` is ``begin`` (a request starts; ``bytes`` are there already), ``bytes`` (``bytes`` more arrived), ``lost`` (``bytes`` were thrown away),
    ``retry`` (``note`` says why; the next attempt comes in ``seconds``), ``waiting`` (``note`` says for whom), ``done``, ``failed`` (``note`` says why).
    ``total`` is the size of the file in bytes, None while unknown.
    """

    kind: str
    source: str
    file: str
    bytes: int = 0
    total: int | None = None
    note: str = ""
    seconds: float = 0.0


@dataclass
class FileState:
    have: int = 0
    total: int | None = None
    retries: int = 0
    state: str = "running"
    since: float = 0.0
    """When its first request began, and what arrived from then on."""
    arrived: int = 0


@dataclass
class Meter:
    """Adds events up. ``rate`` is bytes a second over the last ``span`` seconds."""

    span: float = 10.0
    files: dict[tuple[str, str], FileState] = field(default_factory=dict)
    received: int = 0
    _marks: list[tuple[float, int]] = field(default_factory=list)

    def take(self, event: Event, now: float) -> None:
        state = self.files.setdefault((event.source, event.file), FileState())
        state.total = event.total if event.total is not None else state.total
        match event.kind:
            case "begin":
                state.have, state.state = event.bytes, "running"
                state.since = state.since or now
            case "bytes":
                state.have += event.bytes
                state.arrived += event.bytes
                self.received += event.bytes
            case "lost":
                state.have -= event.bytes
            case "retry":
                state.retries += 1
            case "done" | "failed":
                state.state = event.kind
        if not self._marks or now - self._marks[-1][0] >= self.span / 20:
            self._marks.append((now, self.received))
            while len(self._marks) > 2 and now - self._marks[0][0] > self.span:
                self._marks.pop(0)

    def rate(self, now: float) -> float:
        if not self._marks or now <= self._marks[0][0]:
            return 0.0
        return (self.received - self._marks[0][1]) / (now - self._marks[0][0])

    def line(self, now: float) -> str:
        """Everything in one line."""
        running = [s for s in self.files.values() if s.state == "running"]
        done = sum(s.state == "done" for s in self.files.values())
        have = sum(s.have for s in self.files.values())
        retries = sum(s.retries for s in self.files.values())
        left = [s.total - s.have for s in running if s.total is not None]
        rate = self.rate(now)
        text = f"{done} of {len(self.files)} files, {size(have)}, {size(rate)}/s"
        if rate > 0 and len(left) == len(running) and left:
            text += f", {duration(sum(left) / rate)} left"
        return text + (f", {retries} retries" if retries else "")

    def file_line(self, source: str, file: str, now: float) -> str:
        """One file in one line.

        >>> m = Meter()
        >>> m.take(Event("begin", "tales", "a.txt", 0, 2_000_000), 10.0)
        >>> m.take(Event("bytes", "tales", "a.txt", 500_000), 11.0)
        >>> m.file_line("tales", "a.txt", 12.0)
        'tales/a.txt: 500.0 kB of 2.0 MB (25 %), 250.0 kB/s, 6 s left'
        """
        s = self.files[(source, file)]
        share = f" of {size(s.total)} ({100 * s.have // s.total if s.total else 100} %)" if s.total is not None else ""
        rate = s.arrived / (now - s.since) if now > s.since else 0.0
        left = f", {duration((s.total - s.have) / rate)} left" if s.total is not None and rate > 0 and s.state == "running" else ""
        retries = f", {s.retries} retries" if s.retries else ""
        return f"{source}/{file}: {size(s.have)}{share}, {size(rate)}/s{left}{retries}"

    def lines(self, now: float, most: int = 8) -> list[str]:
        """The total, then a line for each file that is running, at most ``most``."""
        running = [name for name, state in self.files.items() if state.state == "running" and state.since]
        more = [f"and {len(running) - most} more files"] if len(running) > most else []
        return [self.line(now), *(self.file_line(*name, now) for name in running[:most]), *more]


def size(n: float) -> str:
    """
    >>> size(999), size(1_500_000)
    ('999 B', '1.5 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if abs(n) < 1000:
            return f"{n:.0f} B" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} TB"


def duration(seconds: float) -> str:
    """
    >>> duration(75), duration(7300)
    ('1 min 15 s', '2 h 1 min')
    """
    s = round(seconds)
    if s < 60:
        return f"{s} s"
    return f"{s // 60} min {s % 60} s" if s < 3600 else f"{s // 3600} h {s % 3600 // 60} min"
