"""doit's reporter for a person: a line for each step that was built, nothing for what was up to date."""

from typing import Any

from doit.exceptions import UnmetDependency
from doit.reporter import ZeroReporter

from corpusbuild.commands.session import current


class Steps(ZeroReporter):  # type: ignore[misc]  # doit has no types
    desc = "one line a step that was built"

    def initialize(self, tasks: dict[str, Any], selected_tasks: list[str]) -> None:
        """Tell the session which builds the run works on, and which sources it needs, so that they are fetched together."""
        session = current()
        needed, waiting = set(), list(selected_tasks)
        while waiting:
            name = waiting.pop()
            if name not in needed:
                needed.add(name)
                waiting.extend(tasks[name].task_dep)
        for build in session.project.builds.values():
            mine = any(name == f"build:{build.name}" or name.startswith(f"build:{build.name}:") for name in needed)
            if mine and build.plan is not None and build.problem is None and not session.is_published(build):
                session.begin(build)
                session.stale |= {
                    step.key: step
                    for step in build.plan.steps
                    if f"build:{build.name}:{step.label}" in needed and not session.project.store.has(step.stage.name, step.key)
                }
        session.wanted[:] = [
            step
            for source, step in session.project.sources.items()
            if f"fetch:{source}" in needed and session.problem_of(step) is None and not session.is_fetched(step)
        ]

    def add_failure(self, task: Any, fail: Any) -> None:
        """Our own failures are told at the end in a line; anything else is a bug and shows its traceback."""
        if fail.report and not isinstance(fail, UnmetDependency):
            super().add_failure(task, fail)
            self.write(f"{task.name}: {fail.get_msg()}\n")
