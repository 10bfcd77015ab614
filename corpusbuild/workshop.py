"""Build one step: the single place where a stage meets the store."""

from collections.abc import Callable, Iterable, Sized
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any

import msgspec

from corpusbuild.errors import Cancelled, StageError
from corpusbuild.executors import open_executor
from corpusbuild.executors.base import Executor, Policy, Progress, Resources
from corpusbuild.kernels import PLAIN, Choice, Kernels
from corpusbuild.machinecode import make_ready
from corpusbuild.model import Contents, Counts, total
from corpusbuild.stage import Input, Job, Mapper, Out, Step, Task
from corpusbuild.staging import Staging, perform
from corpusbuild.store import Store

LITTLE_TEXT = 6_000_000
"""Bytes of text below which a step is done sooner by the plain forms: every worker takes some 0.7 s to load the compiled ones."""


@dataclass
class Workshop(AbstractContextManager["Workshop"]):
    """Where steps are built in one run, by several threads maybe: the store and one pool of workers, opened when the first task needs it."""

    store: Store
    executor: str
    workers: int
    memory: int
    """Bytes that all workers together may hold."""
    say: Callable[[str], None]
    policy: Policy = field(default_factory=Policy)
    tell: Callable[[str, Progress], None] = lambda label, progress: None
    """Told of every part of a step that ended: the step's label, and how far its map is."""
    kernels: Choice = "reference"
    worked: dict[str, float] = field(default_factory=dict)
    """Label of a step -> seconds that its tasks took in this run, all together."""
    _pool: Executor | None = field(default=None, init=False)
    _form: Kernels = field(default=PLAIN, init=False)
    _closed: bool = field(default=False, init=False)
    _opening: Lock = field(default_factory=Lock, init=False)

    def pool(self) -> Executor:
        with self._opening:
            self.refuse_closed()
            if self._pool is None:
                self._pool = open_executor(self.executor, self.workers, self.memory)
            return self._pool

    def form(self, text_bytes: int) -> Kernels:
        """The kernels that the tasks of a step run with that reads so much text, made ready when the first such step needs them."""
        if self.kernels == "reference" or (self.kernels == "auto" and text_bytes < LITTLE_TEXT):
            return PLAIN
        with self._opening:
            if self._form is PLAIN:
                self._form = make_ready(self.say)
            return self._form

    def refuse_closed(self) -> None:
        """``Cancelled`` when the workshop is closed, which whoever waits asks for now and then."""
        if self._closed:
            raise Cancelled("the build was stopped")

    def close(self) -> None:
        """Kill what runs. Whoever is building here gets ``Cancelled``; nothing is built here any more."""
        self._closed = True
        if self._pool is not None:
            self._pool.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def realise(step: Step, shop: Workshop) -> Contents:
    """Make ``step.key`` exist in the store and give its contents page. Builds nothing that is already there."""
    store, stage = shop.store, step.stage
    if store.has(stage.name, step.key):
        return store.contents(stage.name, step.key)
    with store.lock(step.key, waiting=_told_once(step.label, shop)) as staging:
        if store.has(stage.name, step.key):
            store.discard_staged(step.key, staging.home.name)
            return store.contents(stage.name, step.key)
        memory = max(1, shop.memory // shop.workers)
        job = Job(
            params=step.params,
            key=step.key,
            inputs={role: tuple(_input(store, s) for s in by) for role, by in step.inputs.items()},
            map=_mapper(step, staging, shop, memory),
            scratch=staging.scratch,
            put=staging.put,
            memory=memory,
            say=shop.say,
        )
        counts = stage.build(job)
        check_counts(step.label, counts, [store.contents(s.stage.name, s.key).counts for s in step.follows])
        return store.commit(staging, stage.name, step.key, stage.version, step.label, counts)


def text_bytes(step: Step, store: Store) -> int:
    """Bytes of text that a step reads, as far as its inputs say."""
    by_role = [
        sum(total(list(store.contents(s.stage.name, s.key).counts.values())).also.get("text_bytes", 0) for s in by)
        for by in step.inputs.values()
    ]
    return max(by_role, default=0)


def _told_once(label: str, shop: Workshop) -> Callable[[str], None]:
    told: list[str] = []

    def waiting(who: str) -> None:
        shop.refuse_closed()
        if not told:
            told.append(who)
            shop.say(f"{label}: waiting for {who}, which is building it")

    return waiting


def check_counts(label: str, counts: Counts, earlier: list[Counts]) -> None:
    """Refuse counts that do not add up, by source, or that are not what the earlier steps kept. ``StageError`` says which and by how much."""
    for source, tally in counts.items():
        if not tally.adds_up():
            raise StageError(
                label, source, f"{tally.docs_in} documents came in, but {_sum(tally)}; nothing was published, please report this"
            )
    kept = {source: tally.kept for counts in earlier for source, tally in counts.items()}
    for source in [*kept, *(s for s in counts if s not in kept)] if earlier else []:
        here = counts[source].docs_in if source in counts else 0
        if here != kept.get(source, 0):
            raise StageError(
                label,
                source,
                f"{kept.get(source, 0)} documents were kept before it, but {here} came in; nothing was published, please report this",
            )


def _sum(tally: Any) -> str:
    return f"{tally.kept} kept + {sum(tally.dropped.values())} dropped + {sum(tally.rejected.values())} rejected is another number"


def _input(store: Store, step: Step) -> Input:
    return Input(store.path(step.stage.name, step.key), step.source, store.check(step.stage.name, step.key))


def _mapper(step: Step, staging: Staging, shop: Workshop, memory: int) -> Mapper:
    def map(fn: Callable[[Any, Out], Any], tasks: Iterable[Task]) -> list[Any]:
        values: dict[str, Any] = {}
        names: list[str] = []
        reused = 0

        def unfinished() -> Iterable[Task]:
            nonlocal reused
            for task in tasks:
                names.append(task.name)
                done = staging.finished(task.name)
                if done is None:
                    yield task
                else:
                    reused += 1
                    values[task.name] = done.value

        pool, form = shop.pool(), shop.form(text_bytes(step, shop.store))
        known = len(tasks) if isinstance(tasks, Sized) else None

        def tell(progress: Progress) -> None:
            shop.tell(step.label, replace(progress, done=progress.done + reused, total=known))

        work = ((fn, task, staging.home) for task in unfinished())
        for outcome in pool.map(
            partial(perform, form=form),
            work,
            key=lambda w: f"{step.label}/{w[1].name}",
            resources=Resources(memory=memory),
            policy=shop.policy,
            progress=tell,
        ):
            values[outcome.key.rsplit("/", 1)[1]] = msgspec.to_builtins(outcome.value)
            shop.worked[step.label] = shop.worked.get(step.label, 0.0) + outcome.seconds
        if len(values) != len(names):
            raise StageError(step.label, "map", f"{len(names)} tasks gave {len(values)} values; two have one name")
        return [values[name] for name in names]

    return map
