"""What every executor promises, and the driver's side of it: retry, order, window, time and blame are decided here, not by an engine.

A function runs at least once an item, so it must be idempotent: write under a temporary name, publish by a rename, return
what was made. Functions are importable, items and values small and picklable (at most ``LIMIT`` bytes): data moves through the store.

What can go wrong with an item has six kinds. ``error`` is what the function itself raised: never tried again. The others are tried
again, up to ``Policy.attempts``: ``crash`` (its process died), ``oom`` (it held more memory than it may), ``timeout`` (it ran too
long, or stood still), ``lost`` (its machine went away), ``retry`` (the function raised Retry). They cost the item its own attempts and no other.
After a ``crash`` or an ``oom`` more memory is set aside for the item, so it has fewer neighbours: the system kills without saying for what.
"""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

from corpusbuild.errors import Cancelled, CorpusError, WorkerLost
from corpusbuild.executors.call import Kind, Reply, pack
from corpusbuild.executors.call import Retry as Retry

T = TypeVar("T")
R = TypeVar("R")

REMEDIES: dict[Kind, str] = {
    "crash": "lower run.workers or raise run.memory if memory is short, then run again",
    "oom": "raise run.memory or lower run.workers, then run again",
    "timeout": "lower run.workers if the machine is overloaded or raise run.part_timeout or run.heartbeat, then run again",
    "lost": "run again, with other run.workers if that machine does not come back",
    "retry": "run again later",
}


@dataclass(frozen=True)
class Resources:
    """What one attempt may use. ``memory`` is in bytes: what is set aside for it, and beyond which it is killed."""

    cpus: float = 1.0
    memory: int = 2 << 30
    gpus: float = 0.0


@dataclass(frozen=True)
class Policy:
    """How a map goes about failure, order and back-pressure."""

    attempts: int = 3
    """Tries in all; an ``error`` has one."""
    timeout: float | None = None
    """Seconds one attempt may run."""
    heartbeat: float | None = None
    """Seconds one attempt may stand still (no processor time, nothing read or written), where the executor can see that."""
    on_error: Literal["raise", "yield"] = "raise"
    """Raise the first failure and cancel the rest, or hand failures out as outcomes and go on."""
    ordered: bool = False
    """Whether outcomes come in the order of the items."""
    window: int | None = None
    """How many items may be taken and not yet handed back; four a worker and at least eight unless said."""
    memory_growth: float = 2.0
    """By what an ``oom`` or a ``crash`` multiplies the memory asked for."""


class TaskFailed(Exception):
    """An item that could not be done. ``tb`` is the worker's traceback, ``cause`` the CorpusError that the function raised, if it did."""

    def __init__(self, key: str, kind: Kind, message: str, tb: str = "", cause: CorpusError | None = None):
        super().__init__(key, kind, message, tb, cause)
        self.key, self.kind, self.message, self.tb, self.cause = key, kind, message, tb, cause

    def __str__(self) -> str:
        return f"{self.key}: {self.kind}: {self.message}"


@dataclass(frozen=True)
class Outcome(Generic[R]):
    """What became of one item: a value, or the error that its last attempt ended with."""

    index: int
    key: str
    value: R | None = None
    error: TaskFailed | None = None
    attempts: int = 1
    seconds: float = 0.0
    """Run time of the last attempt."""
    where: str = ""
    """``host:pid`` of the last attempt."""

    @property
    def ok(self) -> bool:
        return self.error is None


@dataclass(frozen=True)
class Progress:
    """How far a map is, in items. ``total`` is None where the items cannot say how many they are."""

    done: int
    failed: int
    retried: int
    running: int
    """Submitted and not finished."""
    total: int | None


@dataclass(frozen=True, eq=False)
class Attempt:
    """One try at one item. ``fn`` and ``item`` are pickled."""

    index: int
    key: str
    fn: bytes
    item: bytes
    resources: Resources
    timeout: float | None
    number: int = 1
    heartbeat: float | None = None


class Session(Protocol):
    """An engine's side of one map. Several maps may be under way at once, each in its own thread."""

    def submit(self, attempt: Attempt) -> None:
        """Accepts an attempt and returns at once."""
        ...

    def wait(self) -> list[tuple[Attempt, Reply]]:
        """Waits until an attempt has ended, and gives those that have; an empty list asks to be called again. Raises Cancelled if closed."""
        ...

    def cancel(self) -> None:
        """Kills every attempt of this session that has not ended, and returns when none runs any more."""
        ...


class Executor(ABC):
    """Maps functions over items. An engine gives ``slots``, ``session`` and ``close``; the rest is the same everywhere."""

    name: str
    memory: int | None = None
    """The most bytes it pays to ask for, where that is known."""

    @abstractmethod
    def slots(self) -> int:
        """How many attempts can run at a time; may change while a cluster grows and shrinks."""

    @abstractmethod
    def session(self) -> Session: ...

    @abstractmethod
    def close(self) -> None:
        """Kills what still runs and ends every worker. Closing twice is harmless."""

    def map(
        self,
        fn: Callable[[T], R],
        items: Iterable[T],
        *,
        key: Callable[[T], str],
        resources: Resources | None = None,
        policy: Policy | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Iterator[Outcome[R]]:
        """Gives one outcome an item, as they end. Items are taken as outcomes are asked for, never more than the window ahead.

        With ``on_error="raise"`` the first failure cancels the rest and is raised: a CorpusError of the function as itself,
        any other of its exceptions as TaskFailed with the worker's traceback, a worker lost for good as WorkerLost.
        Closing the iterator, or an exception thrown through it, kills what runs. Raises TypeError if ``fn`` cannot be sent.
        """
        total = len(items) if isinstance(items, Sized) else None
        course = _Map[T, R](self, pack_function(fn), iter(items), key, resources or Resources(), policy or Policy(), progress, total)
        return _outcomes(course)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _outcomes(course: "_Map[T, R]") -> Iterator[Outcome[R]]:
    try:
        while True:
            course.fill()
            course.report()
            outcome = course.take()
            if outcome is not None:
                if outcome.error is not None:
                    _raise_if_due(outcome.error, outcome.attempts, course.policy)
                yield outcome
            elif course.running:
                course.collect()
            else:
                return
    finally:
        course.session.cancel()


@dataclass
class _Map(Generic[T, R]):
    """The state of one map: items taken and not yet handed back are either ``running`` or ``ready``."""

    executor: Executor
    fn: bytes
    items: Iterator[T]
    key: Callable[[T], str]
    resources: Resources
    policy: Policy
    progress: Callable[[Progress], None] | None
    total: int | None
    ready: dict[int, Outcome[R]] = field(default_factory=dict)
    exhausted: bool = False
    taken: int = 0
    handed: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    retried: int = 0
    reported: tuple[int, int, int] = (0, 0, 0)

    def __post_init__(self) -> None:
        self.session = self.executor.session()

    def report(self) -> None:
        """Tells the progress, if there was any since it was last told."""
        now = (self.done, self.failed, self.retried)
        if self.progress is not None and now != self.reported:
            self.reported = now
            self.progress(Progress(*now, self.running, self.total))

    def fill(self) -> None:
        """Takes and submits items until the window is full."""
        window = max(1, self.policy.window or max(4 * self.executor.slots(), 8))
        while not self.exhausted and self.running + len(self.ready) < window:
            try:
                item = next(self.items)
            except StopIteration:
                self.exhausted = True
                return
            self._start(self.taken, item)
            self.taken += 1

    def _start(self, index: int, item: T) -> None:
        key = self.key(item)
        try:
            packed = pack(item)
        except Exception as error:  # noqa: BLE001 - pickling runs the item's own code; whatever it raises is this item's failure
            self._settle(Outcome(index, key, error=TaskFailed(key, "error", f"cannot be sent: {error}")))
            return
        self.session.submit(Attempt(index, key, self.fn, packed, self.resources, self.policy.timeout, heartbeat=self.policy.heartbeat))
        self.running += 1

    def collect(self) -> None:
        """Waits for attempts to end; settles their items or tries them again."""
        for attempt, reply in self.session.wait():
            if reply.kind not in ("ok", "error") and attempt.number < self.policy.attempts:
                self.retried += 1
                self.session.submit(replace(attempt, number=attempt.number + 1, resources=self._next_resources(attempt, reply)))
            else:
                self.running -= 1
                self._settle(_outcome(attempt, reply))

    def _next_resources(self, attempt: Attempt, reply: Reply) -> Resources:
        if reply.kind not in ("oom", "crash"):
            return attempt.resources
        asked, most = attempt.resources.memory, self.executor.memory
        more = int(asked * self.policy.memory_growth)
        return replace(attempt.resources, memory=more if most is None else max(asked, min(more, most)))

    def _settle(self, outcome: Outcome[R]) -> None:
        self.done += outcome.ok
        self.failed += not outcome.ok
        self.ready[outcome.index] = outcome

    def take(self) -> Outcome[R] | None:
        """The next outcome to hand out, or None while there is none."""
        index = self.handed if self.policy.ordered else next(iter(self.ready), -1)
        outcome = self.ready.pop(index, None)
        self.handed += outcome is not None
        return outcome


def _outcome(attempt: Attempt, reply: Reply) -> Outcome[Any]:
    made = partial(Outcome, attempt.index, attempt.key, attempts=attempt.number, seconds=reply.seconds, where=reply.where)
    if reply.kind == "ok":
        try:
            return made(value=pickle.loads(reply.payload))
        except Exception as error:  # noqa: BLE001 - unpickling runs the value's own code; whatever it raises is this item's failure
            return made(error=TaskFailed(attempt.key, "error", f"its value cannot be read back: {error}"))
    cause = pickle.loads(reply.payload) if reply.payload else None
    message = reply.message
    if reply.kind == "crash":
        message += f" with {attempt.resources.memory / 1e6:,.0f} MB of memory set aside for it"
    return made(error=TaskFailed(attempt.key, reply.kind, message, reply.tb, cause))


def _raise_if_due(failed: TaskFailed, attempts: int, policy: Policy) -> None:
    """Raises what a failed item means for the caller, unless the policy says to hand it out. A cancel always goes up."""
    if isinstance(failed.cause, Cancelled):
        raise failed.cause from failed
    if policy.on_error == "yield":
        return
    if failed.tb:
        failed.add_note(failed.tb)
    if failed.cause is not None:
        raise failed.cause from failed
    if failed.kind == "error":
        raise failed
    tried = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    what = " ".join(failed.message.split())
    raise WorkerLost(f"{failed.key}: {what} ({failed.kind}, {tried}): {REMEDIES[failed.kind]}") from failed


def pack_function(fn: Callable[..., Any]) -> bytes:
    """Pickles a function that any process can import: one at the top of a module, or a partial of it. Raises TypeError otherwise."""
    inner: Any = fn
    while isinstance(inner, partial):
        inner = inner.func
    if getattr(inner, "__module__", None) == "__main__":
        raise TypeError(f"{inner!r} is defined in the main program, which workers cannot import: move it to a module")
    try:
        return pack(fn)
    except (pickle.PicklingError, AttributeError, TypeError, ValueError) as error:
        raise TypeError(f"{inner!r} cannot be sent to a worker: use a function at the top of a module ({error})") from error
