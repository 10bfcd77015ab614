"""Runs every item in this process, one after the other: for debuggers and small corpora. It cannot kill: no timeout, no memory limit."""

from collections import deque

from corpusbuild.executors.base import Attempt, Executor
from corpusbuild.executors.call import Reply, call


class Serial(Executor):
    name = "serial"

    def slots(self) -> int:
        return 1

    def session(self) -> "_Queue":
        return _Queue()

    def close(self) -> None:
        """Nothing outlives a map here."""


class _Queue:
    def __init__(self) -> None:
        self._attempts: deque[Attempt] = deque()

    def submit(self, attempt: Attempt) -> None:
        self._attempts.append(attempt)

    def wait(self) -> list[tuple[Attempt, Reply]]:
        attempt = self._attempts.popleft()
        return [(attempt, call(attempt.fn, attempt.item))]

    def cancel(self) -> None:
        """Nothing runs between two waits."""
