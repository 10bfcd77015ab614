"""``doit list [BUILD ...]``: every source, stage and build with its state, its key and, when stale, why."""

from typing import Any

from doit.cmd_base import DoitCmdBase

from corpusbuild.commands.base import OPTIONS, Ours, build_names
from corpusbuild.commands.session import Session
from corpusbuild.publish import read_record, state


class List(Ours, DoitCmdBase):  # type: ignore[misc]  # doit has no types
    name = "list"
    doc_purpose = "show sources, stages and builds with their states"
    doc_usage = "[BUILD ...]"
    doc_description = "States: fresh, stale (with the field that changed), partial (an interrupted build left finished parts), missing."
    cmd_options = OPTIONS

    def execute(self, params: Any, args: list[str]) -> int:
        with self.open(params) as session:
            show(session, build_names(session, args))
        return 0


def show(session: Session, names: list[str]) -> None:
    """Print the table. A build is fresh when every step is and its names stand for them. One that policy refuses is stale when it was built before."""
    project = session.project
    rows: list[tuple[str, str, str, str]] = []
    for name in names:
        build = project.builds[name]
        if build.plan is None:
            rows.append((f"build:{name}", "broken", "", build.shown_problem()))
            continue
        last = read_record(project.store, name)
        steps = [(step, *state(step, project.store, last)) for step in build.plan.steps]
        states = {s for _, s, _ in steps}
        if build.problem is not None:
            whole, why = "stale" if last else "refused", build.shown_problem()
        elif states == {"fresh"}:
            published = session.is_published(build)
            whole, why = ("fresh", "") if published else ("stale" if last else "missing", "built, but its names stand for another build")
        else:
            whole = next(s for s in ("partial", "stale", "missing") if s in states)
            why = next((w for _, s, w in steps if s == "stale" and w and w != "what it takes changed"), "")
        rows.append((f"build:{name}", whole, build.plan.loaded.sha256[:12], why))
        for step, of_step, why in steps:
            label = step.label if step.stage.name == "fetch" else f"build:{name}:{step.label}"
            rows.append((f"  {label}", of_step, step.key[:12], (step is build.plan.corpus and build.shown_problem()) or why))
    width = max((len(row[0]) for row in rows), default=0)
    for label, of, key, why in rows:
        session.say(f"{label:<{width}}  {of:<8}{key:<12}  {why}".rstrip())
    if not rows:
        session.say("there is no configuration in configs/; write one or see the README")
