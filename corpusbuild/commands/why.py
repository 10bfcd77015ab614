"""``doit why TASK``: whether a step is fresh, against what, and if not, every field that changed, down to where it began."""

from collections.abc import Iterator
from typing import Any

from doit.cmd_base import DoitCmdBase
from doit.exceptions import InvalidCommand

from corpusbuild.commands.base import OPTIONS, USAGE, Ours, fail, unknown
from corpusbuild.commands.session import Session
from corpusbuild.plan import Plan
from corpusbuild.publish import BuildRecord, changed_fields, read_record, state
from corpusbuild.stage import Step
from corpusbuild.store import Store


class Why(Ours, DoitCmdBase):  # type: ignore[misc]  # doit has no types
    name = "why"
    doc_purpose = "say why a step is fresh or stale, field by field"
    doc_usage = "TASK"
    doc_description = "TASK is build:NAME (every step that is not fresh), or a step as doit list names it. Compared with what the name was last built from."
    cmd_options = OPTIONS

    def execute(self, params: Any, args: list[str]) -> int:
        if len(args) != 1:
            return fail("why takes one task: doit why build:NAME, or build:NAME:STEP", USAGE)
        with self.open(params) as session:
            for line in _answer(session, args[0]):
                session.say(line)
        return 0


def _answer(session: Session, task: str) -> Iterator[str]:
    project = session.project
    name, _, label = task.removeprefix("build:").partition(":")
    if task.startswith("fetch:"):
        label = task
        name = next((n for n, b in project.builds.items() if b.plan and any(s.label == task for s in b.plan.steps)), "")
    build = project.builds.get(name)
    if build is None or (build.plan and label and all(step.label != label for step in build.plan.steps)):
        raise InvalidCommand(unknown(task, project))
    if build.plan is None:
        assert build.problem is not None
        raise build.problem
    last = read_record(project.store, name)
    if label:
        yield from explain(build.plan.step(label), build.plan, project.store, last)
        return
    stale = [step for step in build.plan.steps if not project.store.has(step.stage.name, step.key)]
    if not stale:
        yield f"build:{name} is {'fresh' if session.is_published(build) else 'built, but its names stand for another build'}: every step is in the store"
    for step in stale:
        yield from explain(step, build.plan, project.store, last)


def explain(step: Step, plan: Plan, store: Store, last: BuildRecord | None) -> Iterator[str]:
    """A step's state and what it rests on, in lines."""
    of, why = state(step, store, last)
    before = last.step(step.label) if last else None
    yield f"{step.label}: {of}" + (f", {why}" if of == "partial" else "")
    yield f"  now         {step.key[:12]}" + ("" if of != "fresh" else f"  in the store: {store.path(step.stage.name, step.key)}")
    if before is None:
        yield f"  last built  never under the name {plan.name}"
        return
    yield f"  last built  {before.key[:12]}" + ("  the same" if before.key == step.key else "")
    if before.key == step.key:
        if of != "fresh":
            yield "  its entry is gone from the store"
        return
    fields = changed_fields(step, before)
    width = max((len(name) for name, _, _ in fields), default=0)
    for name, old, new in fields:
        yield f"  {name:<{width}}  {old} -> {new}"
    keys = {s.label: s.key for s in last.steps} if last else {}
    for role, by in step.inputs.items():
        for s in by:
            if keys.get(s.label) != s.key:
                yield f"  takes {s.label} ({role}), which {'changed' if s.label in keys else 'is new'}" + _origin_of(s, last)
        for label in before.inputs.get(role, ()):
            if label not in {s.label for s in by}:
                yield f"  takes {label} ({role}) no more"


def _origin_of(step: Step, last: BuildRecord | None) -> str:
    """What changed in an input itself, in a few words; nothing when that lies deeper."""
    before = last.step(step.label) if last else None
    fields = changed_fields(step, before) if before else []
    return ": " + "; ".join(f"{name} {old} -> {new}" for name, old, new in fields[:3]) if fields else ""
