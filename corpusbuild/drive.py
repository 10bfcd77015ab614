"""Drive: the steps of one plan in their order, without doit. The command line of a build and the activities of a workflow come through here."""

import os
import time
from collections.abc import Callable
from contextlib import closing

from corpusbuild import preflight, report
from corpusbuild.ahead import Ahead
from corpusbuild.durable import disk
from corpusbuild.errors import SourceError
from corpusbuild.executors.base import Policy, Progress
from corpusbuild.fetching import fetch_steps, in_lines, is_fetched
from corpusbuild.journal import Journal
from corpusbuild.plan import ORIGIN, Plan
from corpusbuild.project import Options
from corpusbuild.publish import is_published, publish, publish_corpus, stands
from corpusbuild.settings import Run
from corpusbuild.stage import Step
from corpusbuild.store import Store
from corpusbuild.undo import Undo
from corpusbuild.workshop import Workshop

STAGES = tuple(ORIGIN)
"""Every stage, in the order it runs."""

DRIVER_BYTES = 200_000_000
"""What the process that drives may hold, of ``run.memory``."""

WORKER_BYTES = 500_000_000
"""Less memory for a worker than this is spent on hauling; a core without it is better left alone."""

UNTIL = {stage: stage for stage in STAGES} | {"dedup_exact": "exact_dedup", "dedup_near": "near_dedup", "pii": "scrub", "shard": "ledger"}
"""What a person may name as the last stage -> that stage. The shards are a corpus when the licence gate has passed them."""


def drive(
    plan: Plan,
    store: Store,
    options: Options,
    until: str,
    undo: Undo | None,
    journal: Journal,
    say: Callable[[str], None],
    beat: Callable[[], None] = lambda: None,
    built: Callable[[Step], None] = lambda step: None,
) -> None:
    """Make every step of ``plan`` up to the stage ``until`` exist, and give names to what may be named by then.

    ``beat`` is told of every part and every chunk that arrived, ``built`` of every step that this run built. The first failure is raised; of several
    sources that failed, one that will not heal by itself. ``undo`` is None where nothing is made that could be undone.
    """
    wanted = [step for step in plan.steps if STAGES.index(step.stage.name) <= STAGES.index(until)]
    run = plan.loaded.corpus.run

    def tell(step: Step, seconds: float, worked: float = 0.0) -> None:
        contents = store.contents(step.stage.name, step.key)
        journal.built(step.label, contents, seconds, worked)
        say(report.step_line(step.label, contents))
        built(step)

    if run.check_space:
        preflight.check(plan, store)
    sources = [step for step in wanted if step.stage.name == "fetch" and not is_fetched(step, store)]
    if sources:
        started = time.monotonic()
        with disk(store.root):
            outcomes = fetch_steps(sources, store, run, options, in_lines(say, beat), say)
        for step in sources:
            if outcomes[step.source] is None:
                tell(step, time.monotonic() - started)
        _raise_worst([error for error in outcomes.values() if error is not None], journal)
    stale = [step for step in wanted if not store.has(step.stage.name, step.key)]

    def making(step: Step) -> None:
        if undo is not None:
            undo.making(step.stage.name, step.key)

    with closing(Ahead(open_workshop(run, store, options, say, lambda label, progress: beat()), stale, making)) as ahead:
        for step in stale:
            try:
                made = ahead.take(step)
            except Exception as error:
                journal.failed(step.label, str(error), getattr(error, "exit_code", 1))
                raise
            tell(step, made.seconds, made.worked)
    if wanted == list(plan.steps):
        if not is_published(plan, store):
            _publishing(undo)
            publish(plan, store)
    elif plan.corpus in wanted:
        _publishing(undo)
        publish_corpus(plan, store)


def finished(plan: Plan, store: Store, until: str) -> bool:
    """Whether everything up to the stage ``until`` is there, under its names."""
    steps = [step for step in plan.steps if STAGES.index(step.stage.name) <= STAGES.index(until)]
    if not all(is_fetched(s, store) if s.stage.name == "fetch" else store.has(s.stage.name, s.key) for s in steps):
        return False
    if steps == list(plan.steps):
        return is_published(plan, store)
    corpus = plan.loaded.corpus
    name = store.root / "corpus" / corpus.dataset / corpus.version
    return plan.corpus not in steps or stands(name, store.path("ledger", plan.corpus.key))


def open_workshop(
    run: Run,
    store: Store,
    options: Options,
    say: Callable[[str], None],
    watch: Callable[[str, Progress], None] = lambda label, progress: None,
) -> Workshop:
    """Where steps are built, as a configuration's ``[run]`` and the options of a run say."""
    memory, cores, workers = _for_workers(run), len(os.sched_getaffinity(0)), workers_for(run, options)
    if not (options.workers or run.workers) and workers < cores:
        say(f"run.memory of {run.memory} is enough for {workers} of {cores} cores; raise it to use more")
    policy = Policy(attempts=run.part_attempts, timeout=run.part_timeout, heartbeat=run.heartbeat)
    return Workshop(store, options.executor or run.executor, workers, memory, say, policy, watch, run.kernels)


def workers_for(run: Run, options: Options) -> int:
    """How many workers a run has: as many as it says, else as many as there are cores, and memory for."""
    return options.workers or run.workers or min(len(os.sched_getaffinity(0)), max(1, _for_workers(run) // WORKER_BYTES))


def _for_workers(run: Run) -> int:
    return max(1, run.memory_bytes() - DRIVER_BYTES)


def _publishing(undo: Undo | None) -> None:
    if undo is not None:
        undo.publishing()


def _raise_worst(errors: list[SourceError], journal: Journal) -> None:
    for error in errors:
        journal.failed(f"fetch:{error.source_id}", str(error), error.exit_code)
    if errors:
        raise next((error for error in errors if not error.retryable), errors[0])
