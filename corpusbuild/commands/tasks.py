"""doit's view of the project: one task a step, up to date when its key is in the store. Nothing else is decided here.

No task has targets: builds share the steps that they have in common, and doit lets a target belong to one task only.
"""

from collections.abc import Callable, Iterator
from typing import Any

from corpusbuild.commands.session import current
from corpusbuild.project import Build
from corpusbuild.stage import Step

Tasks = Callable[[], Iterator[dict[str, Any]]]


def load() -> tuple[dict[str, Any], Tasks, Tasks]:
    """What a ``dodo.py`` holds: doit's settings, the tasks that fetch and those that build, for the running command."""
    session = current()
    project = session.project
    config = {"backend": "atomic_json", "dep_file": str(project.store.root / ".doit.json"), "verbosity": 2, "reporter": "steps"}

    def task_fetch() -> Iterator[dict[str, Any]]:
        """fetch a source"""
        yield {"basename": "fetch", "name": None, "doc": "fetch every source of every configuration"}
        for source, step in project.sources.items():
            yield {
                "name": source,
                "doc": step.params.url or step.params.files[0].url,
                "actions": [(session.fetch, [step])],
                "uptodate": [(session.is_fetched, [step])],
            }

    def task_build() -> Iterator[dict[str, Any]]:
        """build a corpus"""
        yield {"basename": "build", "name": None, "doc": "build every configuration"}
        for name, build in project.builds.items():
            yield from _tasks_of(name, build)

    def _tasks_of(name: str, build: Build) -> Iterator[dict[str, Any]]:
        if build.plan is None or build.problem is not None:
            yield {"name": name, "doc": f"{build.path} cannot be used", "actions": [(session.refuse, [build])]}
            return
        for step in build.plan.steps:
            if step.stage.name != "fetch":
                yield {
                    "name": f"{name}:{step.label}",
                    "doc": f"a step of {build.path}",
                    "actions": [(session.realise, [build, step])],
                    "task_dep": [_task(name, below) for by in (*step.inputs.values(), step.follows) for below in by],
                    "uptodate": [(session.is_built, [step])],
                }
        yield {
            "name": name,
            "doc": f"build what {build.path} describes",
            "actions": [(session.publish, [build])],
            "task_dep": [_task(name, step) for step in build.plan.steps],
            "uptodate": [(session.is_published, [build])],
        }

    return config, task_fetch, task_build


def _task(build: str, step: Step) -> str:
    return step.label if step.stage.name == "fetch" else f"build:{build}:{step.label}"
