"""``doit info TASK``: one source, step or build: its state, key, parameters, what it takes, where it lies."""

from typing import Any

import msgspec
from doit.cmd_base import DoitCmdBase
from doit.exceptions import InvalidCommand

from corpusbuild import report
from corpusbuild.commands.base import OPTIONS, USAGE, Ours, fail, unknown
from corpusbuild.commands.session import Session
from corpusbuild.plan import Plan
from corpusbuild.publish import decides, links, read_record, state
from corpusbuild.stage import Step


class Info(Ours, DoitCmdBase):  # type: ignore[misc]  # doit has no types
    name = "info"
    doc_purpose = "show one source, step or build"
    doc_usage = "TASK"
    doc_description = "TASK is build:NAME, NAME, fetch:SOURCE or a step as doit list names it."
    cmd_options = OPTIONS

    def execute(self, params: Any, args: list[str]) -> int:
        if len(args) != 1:
            return fail("info takes one task: doit info build:NAME", USAGE)
        with self.open(params) as session:
            _show(session, args[0])
        return 0


def _show(session: Session, task: str) -> None:
    project, name = session.project, task.removeprefix("build:")
    if name in project.builds:
        _show_build(session, name)
    elif task.startswith("fetch:") and task.removeprefix("fetch:") in project.sources:
        _show_step(session, project.sources[task.removeprefix("fetch:")], None)
    else:
        build, _, label = name.partition(":")
        plan = project.builds[build].plan if build in project.builds else None
        step = next((s for s in plan.steps if s.label == label), None) if plan else None
        if step is None:
            raise InvalidCommand(unknown(task, project))
        _show_step(session, step, plan)


def _show_build(session: Session, name: str) -> None:
    build, store = session.project.builds[name], session.project.store
    if build.plan is None:
        assert build.problem is not None
        raise build.problem
    rows = [("build", name), ("configuration", str(build.path)), ("id", build.plan.id), ("config_sha256", build.plan.loaded.sha256)]
    rows += [("problem", line) for line in str(build.problem).splitlines() if build.problem]
    rows += [("corpus" if "corpus" in link.parts else "tokens", f"{link} -> {entry}") for link, entry in links(build.plan, store).items()]
    _print(session, rows)
    last = read_record(store, name)
    if last is not None:
        session.say("\nlast built:\n\n" + report.summary(last, store.root))


def _show_step(session: Session, step: Step, plan: Plan | None) -> None:
    store = session.project.store
    of_step, why = state(step, store, read_record(store, plan.name) if plan else None)
    rows = [
        ("step", step.label),
        ("state", f"{of_step}{': ' + why if why else ''}"),
        *([("id", plan.step_id(step))] if plan else []),
        ("key", step.key),
        ("version", str(step.stage.version)),
        ("entry", str(store.path(step.stage.name, step.key))),
        *((f"takes {role}", ", ".join(s.label for s in by)) for role, by in step.inputs.items() if by),
        ("parameters", msgspec.json.encode(decides(step)).decode()),
    ]
    _print(session, rows)
    if of_step == "fresh":
        session.say("\n" + report.step_line(step.label, store.contents(step.stage.name, step.key)))


def _print(session: Session, rows: list[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        session.say(f"{name:<{width}}  {value}")
