"""One run of doit: its options, its project, its pool of workers, and what failed in it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from doit.exceptions import TaskFailed

from corpusbuild import preflight, report
from corpusbuild.ahead import Ahead
from corpusbuild.commands.view import Lines, View, printed
from corpusbuild.drive import open_workshop
from corpusbuild.durable import disk
from corpusbuild.errors import DATA, TEMPORARY, CorpusError, LockError, SourceError
from corpusbuild.fetching import fetch_steps, is_fetched
from corpusbuild.journal import Journal
from corpusbuild.model import Key, total
from corpusbuild.project import Build, Options, Project, open_project
from corpusbuild.publish import BuildRecord, is_published, publish
from corpusbuild.settings import Run
from corpusbuild.stage import Step
from corpusbuild.undo import Undo, finish_pending
from corpusbuild.workshop import text_bytes


@dataclass
class Running:
    """One build in this run."""

    undo: Undo
    journal: Journal
    codes: list[int] = field(default_factory=list)
    """Exit codes of what failed in it, fetching apart: that makes nothing of the build's own."""
    held: bool = False
    """Whether it is whole and waits for a lock that allows it, so that there is nothing to undo."""


@dataclass
class Session:
    """What lives as long as one command. ``failures`` decide its exit code."""

    options: Options
    view: View = field(default_factory=lambda: Lines(printed))
    failures: list[CorpusError] = field(default_factory=list)
    built: list[str] = field(default_factory=list)
    """Labels of the steps that this run built."""
    wanted: list[Step] = field(default_factory=list)
    """The stale fetch steps that the run needs, which are then fetched together."""
    stale: dict[Key, Step] = field(default_factory=dict)
    """The other steps that the run still has to build, in an order in which that can be done."""
    running: dict[str, "Running"] = field(default_factory=dict)
    """The builds that this run works on, by name."""
    _fetched: dict[str, SourceError | None] | None = None
    _ahead: Ahead | None = None

    @cached_property
    def project(self) -> Project:
        return open_project(self.options)

    def say(self, line: str) -> None:
        self.view.say(line)

    def fetch(self, step: Step) -> TaskFailed | None:
        """Fetch a source; the first call fetches all that the run needs, in one event loop, and each call tells its own outcome."""
        try:
            if (problem := self.problem_of(step)) is not None:
                raise problem
            if self._fetched is None:
                with disk(self.project.store.root):
                    self._fetched = self._fetch_together(self.wanted or [step])
        except CorpusError as error:
            return self._failed(error)
        failed = self._fetched.get(step.source)
        return self._failed(failed) if failed is not None else None

    def problem_of(self, step: Step) -> CorpusError | None:
        """Why no build that has the source may be built, so that nothing is asked of the network for it; None when one may."""
        having = [
            b for b in self.project.builds.values() if b.plan and any(s.key == step.key and s.source == step.source for s in b.plan.steps)
        ]
        return None if any(b.problem is None for b in having) else having[0].problem

    def is_fetched(self, step: Step) -> bool:
        return is_fetched(step, self.project.store)

    def is_built(self, step: Step) -> bool:
        """Whether a step was in the store before this run, or this run has told of it; it may have been built ahead of its turn."""
        return step.key not in self.stale and self.project.store.has(step.stage.name, step.key)

    def begin(self, build: Build) -> None:
        """Take up a build in this run: open its journal and the page that an undo would read."""
        assert build.plan is not None
        store = self.project.store
        if build.plan.loaded.corpus.run.check_space:
            preflight.check(build.plan, store)
        options = {k: v for k, v in vars(self.options).items() if v} | {"cache": str(store.root), "configs": str(self.options.configs)}
        self.view.plan(
            build.name, [(s.label, s.source, self.is_fetched(s) if s.stage.name == "fetch" else self.is_built(s)) for s in build.plan.steps]
        )
        self.running[build.name] = Running(Undo(build.plan, store), Journal(build.plan, store, options))

    def realise(self, build: Build, step: Step) -> TaskFailed | None:
        run = self.running[build.name]
        try:
            made = self._workshop(build).take(step)
        except CorpusError as error:
            return self._failed(error, run, step.label)
        self.stale.pop(step.key, None)
        run.journal.built(step.label, made.contents, made.seconds, made.worked)
        self._tell_built(step)
        return None

    def refuse(self, build: Build) -> TaskFailed | None:
        assert build.problem is not None
        return self._failed(build.problem)

    def publish(self, build: Build) -> TaskFailed | None:
        assert build.plan is not None
        run = self.running[build.name]
        try:
            run.undo.publishing()
            made = publish(build.plan, self.project.store)
        except CorpusError as error:
            run.held = isinstance(error, LockError)
            return self._failed(error, run, "publish")
        self.view.summary(report.summary(made, self.project.store.root), facts(made))
        return None

    def is_published(self, build: Build) -> bool:
        return build.problem is None and build.plan is not None and is_published(build.plan, self.project.store)

    def exit_code(self) -> int:
        """0, or what the failures say: 65 when any will not heal by itself, else 75."""
        codes = {error.exit_code for error in self.failures}
        return DATA if DATA in codes else TEMPORARY if codes else 0

    def finish(self, cancelled: bool = False) -> None:
        """End every build of this run: one that was cancelled, or failed for good, is undone from shard on; another is left as it is."""
        self.close()
        self.view.close()
        for run in self.running.values():
            if cancelled or (DATA in run.codes and not run.held):
                undone = run.undo.undo()
                run.journal.undone(undone.stages, undone.bytes)
                self.view.undone(report.undone_lines(undone, cancelled))
            else:
                run.undo.done()
            run.journal.end("cancelled" if cancelled else "failed" if run.codes else "built")
        self.running.clear()

    def close(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def _workshop(self, build: Build) -> Ahead:
        if self._ahead is None:
            assert build.plan is not None
            shop = open_workshop(build.plan.loaded.corpus.run, self.project.store, self.options, self.say, watch=self.view.progress)
            self._ahead = Ahead(shop, list(self.stale.values()), self._making, self._ended)
        return self._ahead

    def _making(self, step: Step) -> None:
        """Say, before a step is begun, of which build it is."""
        for name, run in self.running.items():
            plan = self.project.builds[name].plan
            if plan and any(s.key == step.key for s in plan.steps):
                run.undo.making(step.stage.name, step.key)
        self.view.begin(step.label, text_bytes(step, self.project.store))

    def _ended(self, step: Step, seconds: float, failed: bool) -> None:
        self.view.ended(step.label, seconds, failed)

    def _fetch_together(self, steps: list[Step]) -> dict[str, SourceError | None]:
        """Fetch sources in one event loop; source id -> why it failed, or None."""
        started = time.monotonic()
        failures = fetch_steps(steps, self.project.store, self._run_settings(steps[0]), self.options, self.view.fetching, self.say)
        seconds = time.monotonic() - started
        for step in steps:
            if failures[step.source] is None:
                self._tell_built(step)
                contents = self.project.store.contents(step.stage.name, step.key)
                for name, running in self.running.items():
                    plan = self.project.builds[name].plan
                    if plan and any(s.key == step.key for s in plan.steps):
                        running.journal.built(step.label, contents, seconds)
        return failures

    def _run_settings(self, step: Step) -> Run:
        for build in self.project.builds.values():
            if build.plan and any(s.key == step.key for s in build.plan.steps):
                return build.plan.loaded.corpus.run
        raise AssertionError(f"{step.label} is a step of no build")

    def _tell_built(self, step: Step) -> None:
        self.built.append(step.label)
        contents = self.project.store.contents(step.stage.name, step.key)
        self.view.built(step.label, contents, report.step_line(step.label, contents))

    def _failed(self, error: CorpusError, run: "Running | None" = None, label: str = "") -> TaskFailed:
        self.failures.append(error)
        self.view.failed(label or getattr(error, "source_id", "run"), str(error), error.exit_code)
        if run is not None:
            run.codes.append(error.exit_code)
            run.journal.failed(label, str(error), error.exit_code)
        return TaskFailed(str(error), report=False)


def facts(record: BuildRecord) -> dict[str, Any]:
    """What a machine wants to know of a build that is done."""
    counts = {step.label: total(list(step.counts.values())) for step in record.steps}
    filtered = [tally for label, tally in counts.items() if label.startswith("filter:")]
    tokens = counts.get("tokenize")
    return {
        "build": record.name,
        "id": record.id,
        "documents": sum(tally.docs_in for tally in filtered),
        "kept": counts["shard"].kept,
        "tokens": {split: tokens.also.get(f"{split}_tokens", 0) for split in ("train", "val")} if tokens else {},
    }


def finish_earlier(session: Session) -> None:
    """Finish what an undo that was itself interrupted left."""
    for undone in finish_pending(session.project.store):
        session.view.undone(report.undone_lines(undone, cancelled=True))


_current: Session | None = None


def current() -> Session:
    """The session of the running command, or a plain one where doit runs a command that is not ours."""
    global _current
    if _current is None:
        _current = Session(Options())
    return _current


@contextmanager
def opened(options: Options) -> Iterator[Session]:
    """A session for the length of a command. Its workers are gone at the end, whatever happened."""
    global _current
    _current = Session(options)
    try:
        yield _current
    finally:
        _current.close()
        _current.view.close()
        _current = None
