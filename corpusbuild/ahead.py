"""Ahead: steps whose inputs are there are built at once, several at a time, while whoever drives them asks for each in its order.

A step leaves workers idle while its last tasks run and while it is committed; another step's tasks fill them. Steps begin only when somebody asks,
so ``before`` and everything that speaks to the person is done by one thread.
"""

import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

from corpusbuild.durable import disk
from corpusbuild.model import Contents, Key
from corpusbuild.stage import Step
from corpusbuild.workshop import Workshop, realise

CLOSING_SECONDS = 5.0
"""How long the steps under way may take to end when their workers are gone."""


class Made(NamedTuple):
    """A step that exists now, the seconds from its beginning to its end, and those that its tasks took, all together."""

    contents: Contents
    seconds: float
    worked: float


class Ahead:
    """``take`` builds one step and begins others of ``steps`` (in an order in which they may be built) meanwhile.

    ``before`` is told of a step before it begins, ``after`` when it ended: how long it took and whether it failed.
    """

    def __init__(
        self,
        shop: Workshop,
        steps: Sequence[Step],
        before: Callable[[Step], None] = lambda step: None,
        after: Callable[[Step, float, bool], None] = lambda step, seconds, failed: None,
    ):
        self._shop, self._before, self._after = shop, before, after
        self._steps = {step.key: step for step in steps}
        self._width = 1 if shop.executor == "serial" else shop.workers + 1
        self._waiting = dict(self._steps)
        self._running: dict[Key, Thread] = {}
        self._made: dict[Key, Made | BaseException] = {}
        self._ended: SimpleQueue[tuple[Key, Made | BaseException]] = SimpleQueue()

    def take(self, step: Step) -> Made:
        """The step, built; raises what its building raised."""
        if self._width == 1:
            self._before(step)
            made = self._build(step)
            self._after(step, made.seconds, False)
            return made
        while step.key not in self._made:
            if step.key not in self._running:
                self._begin(step)
            for other in [s for s in self._waiting.values() if len(self._running) < self._width and self._is_ready(s)]:
                if len(self._running) < self._width:
                    self._begin(other)
            key, result = self._ended.get()
            self._made[key] = result
            self._after(self._steps[key], result.seconds if isinstance(result, Made) else 0.0, not isinstance(result, Made))
            self._running.pop(key).join()
        outcome = self._made.pop(step.key)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def close(self) -> None:
        """Close the workshop, so that what is under way ends, and wait for that."""
        self._shop.close()
        until = time.monotonic() + CLOSING_SECONDS
        for thread in self._running.values():
            thread.join(max(0.0, until - time.monotonic()))

    def _is_ready(self, step: Step) -> bool:
        below = [*(s for by in step.inputs.values() for s in by), *step.follows]
        return all(self._shop.store.has(s.stage.name, s.key) for s in below)

    def _begin(self, step: Step) -> None:
        self._steps[step.key] = step
        self._waiting.pop(step.key, None)
        self._before(step)
        thread = Thread(target=self._run, args=[step], name=step.label, daemon=True)
        self._running[step.key] = thread
        thread.start()

    def _run(self, step: Step) -> None:
        try:
            made: Made | BaseException = self._build(step)
        except BaseException as error:  # noqa: BLE001 - raised where the step is asked for
            made = error
        self._ended.put((step.key, made))

    def _build(self, step: Step) -> Made:
        started = time.monotonic()
        with disk(self._shop.store.root):
            contents = realise(step, self._shop)
        return Made(contents, time.monotonic() - started, self._shop.worked.get(step.label, 0.0))
