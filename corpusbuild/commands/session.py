"""One run of doit: its options, its project, its pool of workers, and what failed in it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from doit.exceptions import TaskFailed

from corpusbuild import report
from corpusbuild.build import Workshop, realise
from corpusbuild.errors import DATA, TEMPORARY, CorpusError, SourceError
from corpusbuild.project import Build, Options, Project, open_project
from corpusbuild.publish import is_published, publish
from corpusbuild.stage import Step


@dataclass
class Session:
    """What lives as long as one command. ``failures`` decide its exit code."""

    options: Options
    failures: list[CorpusError] = field(default_factory=list)
    built: list[str] = field(default_factory=list)
    """Labels of the steps that this run built."""
    wanted: list[Step] = field(default_factory=list)
    """The stale fetch steps that the run needs, which are then fetched together."""
    _fetched: dict[str, SourceError | None] | None = None
    _shop: Workshop | None = None

    @cached_property
    def project(self) -> Project:
        return open_project(self.options)

    def say(self, line: str) -> None:
        print(line, file=sys.stdout, flush=True)

    def fetch(self, step: Step) -> TaskFailed | None:
        """Fetch a source; the first call fetches all that the run needs, in one event loop, and each call tells its own outcome."""
        try:
            if self._fetched is None:
                from corpusbuild.fetch import fetch_all

                run = self._run_settings(step)
                self._fetched = fetch_all(
                    [s.params for s in self.wanted or [step]],
                    self.project.store.root,
                    concurrency=run.concurrency,
                    attempts=run.attempts,
                    timeout=run.timeout,
                    say=self.say,
                )
            failed = self._fetched.get(step.source)
        except CorpusError as error:
            return self._failed(error)
        return self._failed(failed) if failed else self._done(step)

    def realise(self, build: Build, step: Step) -> TaskFailed | None:
        try:
            if build.problem is not None:
                raise build.problem
            realise(step, self._workshop(build))
        except CorpusError as error:
            return self._failed(error)
        return self._done(step)

    def refuse(self, build: Build) -> TaskFailed | None:
        assert build.problem is not None
        return self._failed(build.problem)

    def publish(self, build: Build) -> TaskFailed | None:
        assert build.plan is not None
        try:
            if build.problem is not None:
                raise build.problem
            made = publish(build.plan, self.project.store)
        except CorpusError as error:
            return self._failed(error)
        self.say(report.summary(made, self.project.store.root))
        return None

    def is_published(self, build: Build) -> bool:
        return build.problem is None and build.plan is not None and is_published(build.plan, self.project.store)

    def exit_code(self) -> int:
        """0, or what the failures say: 65 when any will not heal by itself, else 75."""
        codes = {error.exit_code for error in self.failures}
        return DATA if DATA in codes else TEMPORARY if codes else 0

    def close(self) -> None:
        if self._shop is not None:
            self._shop.__exit__(None, None, None)
            self._shop = None

    def _workshop(self, build: Build) -> Workshop:
        if self._shop is None:
            assert build.plan is not None
            run = build.plan.loaded.corpus.run
            executor = self.options.executor or run.executor
            workers = self.options.workers or run.workers or len(os.sched_getaffinity(0))
            self._shop = Workshop(self.project.store, executor, workers, run.memory_bytes(), self.say)
        return self._shop

    def _run_settings(self, step: Step) -> Any:
        for build in self.project.builds.values():
            if build.plan and any(s.key == step.key for s in build.plan.steps):
                return build.plan.loaded.corpus.run
        raise AssertionError(f"{step.label} is a step of no build")

    def _done(self, step: Step) -> None:
        self.built.append(step.label)
        self.say(report.step_line(step.label, self.project.store.contents(step.stage.name, step.key)))

    def _failed(self, error: CorpusError) -> TaskFailed:
        self.failures.append(error)
        return TaskFailed(str(error), report=False)


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
        _current = None
