"""The journal: what each run of a build meant to do, did, and how long it took; ``runs/<build's id>/<n>.jsonl``, a line an event.

Nothing reads it to decide anything. It holds dates and durations, so nothing of it reaches a result.
"""

import os
import resource
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from corpusbuild.durable import disk
from corpusbuild.model import Contents, total
from corpusbuild.plan import Plan
from corpusbuild.store import Store
from corpusbuild.workshop import text_bytes


class Journal:
    """The journal of one build in this run. Each event is one write, so a kill tears at most the last line."""

    def __init__(self, plan: Plan, store: Store, options: dict[str, Any]):
        self._started = time.monotonic()
        folder = store.root / "runs" / plan.id
        with disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = _next(folder)
        self._steps, self._store = {step.label: step for step in plan.steps}, store
        stale = [step.label for step in plan.steps if not store.has(step.stage.name, step.key)]
        reused = [step.label for step in plan.steps if store.has(step.stage.name, step.key)]
        self._write("begin", build=plan.name, id=plan.id, at=_now(), pid=os.getpid(), options=options, to_build=stale, reused=reused)

    def built(self, label: str, contents: Contents, seconds: float, worked: float = 0.0) -> None:
        """``seconds`` from the step's beginning to its end, while others may have been under way; ``worked`` those of its tasks, all together."""
        tally = total(list(contents.counts.values()))
        self._write(
            "step",
            label=label,
            key=contents.key,
            seconds=round(seconds, 3),
            worked=round(worked, 3),
            text_bytes=text_bytes(self._steps[label], self._store),
            docs_in=tally.docs_in,
            kept=tally.kept,
            bytes=sum(f.size for f in contents.files),
            peak_worker_kb=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss,
            peak_driver_kb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        )

    def failed(self, label: str, message: str, code: int) -> None:
        self._write("failed", label=label, message=message, code=code)

    def undone(self, stages: tuple[str, ...], freed: int) -> None:
        self._write("undone", stages=list(stages), bytes=freed)

    def end(self, how: str) -> None:
        """``how`` is built, failed or cancelled."""
        self._write("end", how=how, at=_now(), seconds=round(time.monotonic() - self._started, 3))

    def _write(self, event: str, **fields: Any) -> None:
        with disk(self._file), self._file.open("ab") as file:
            file.write(msgspec.json.encode({"event": event, **fields}) + b"\n")


def runs(store: Store, build: str | None = None) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    """The runs of a build, or of all, newest first: (file, events). A torn last line is left out."""
    found = []
    for path in sorted((store.root / "runs").glob("corpus/*/*/*/*.jsonl")):
        events = [event for line in path.read_bytes().split(b"\n")[:-1] if (event := _decoded(line)) is not None]
        if events and events[0]["event"] == "begin" and build in (None, events[0]["build"]):
            found.append((events[0]["at"], path, events))
    for _, path, events in sorted(found, key=lambda item: (item[0], str(item[1])), reverse=True):
        yield path, events


def _next(folder: Path) -> Path:
    """A new file, also when another process begins at the same time."""
    n = len(list(folder.glob("*.jsonl"))) + 1
    while True:
        path = folder / f"{n:05d}.jsonl"
        try:
            path.open("xb").close()
        except FileExistsError:
            n += 1
        else:
            return path


def _decoded(line: bytes) -> dict[str, Any] | None:
    try:
        event: dict[str, Any] = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    return event


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
