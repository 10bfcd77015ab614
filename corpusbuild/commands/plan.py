"""``doit plan NAME``: what a build would run and why, and what it would take, before anything runs."""

import os
import shutil
from typing import Any

from doit.cmd_base import DoitCmdBase

from corpusbuild import preflight
from corpusbuild.commands.base import OPTIONS, USAGE, Ours, build_names, fail
from corpusbuild.commands.session import Session
from corpusbuild.drive import workers_for
from corpusbuild.estimate import estimate
from corpusbuild.fetching import is_fetched
from corpusbuild.progress import duration, size
from corpusbuild.publish import read_record, state


class Plan(Ours, DoitCmdBase):  # type: ignore[misc]  # doit has no types
    name = "plan"
    doc_purpose = "show what a build would run, why, and what it would take"
    doc_usage = "NAME ..."
    doc_description = "Nothing runs and nothing is asked of the network. Times come from earlier runs in this cache."
    cmd_options = OPTIONS

    def execute(self, params: Any, args: list[str]) -> int:
        if not args:
            return fail("plan takes the names of builds: doit plan sample", USAGE)
        with self.open(params) as session:
            for name in build_names(session, args):
                _show(session, name)
        return 0


def _show(session: Session, name: str) -> None:
    build, store = session.project.builds[name], session.project.store
    if build.plan is None or build.problem is not None:
        assert build.problem is not None
        raise build.problem
    last, run = read_record(store, name), build.plan.loaded.corpus.run
    rows = []
    for step in build.plan.steps:
        of, why = state(step, store, last)
        there = is_fetched(step, store) if step.stage.name == "fetch" else of == "fresh"
        rows.append((step.label, "reuse" if there else "fetch" if step.stage.name == "fetch" else "build", why))
    width = max(len(label) for label, _, _ in rows)
    for label, what, why in rows:
        session.say(f"{label:<{width}}  {what:<6} {why}".rstrip())
    build_count = sum(what != "reuse" for _, what, _ in rows)
    session.say(f"\n{build_count} of {len(rows)} steps to run, {len(rows) - build_count} reused")
    workers = workers_for(run, session.options)
    found = estimate(build.plan, store, workers)
    free = shutil.disk_usage(preflight.existing(store)).free
    session.say(f"download  {size(found.download)}" + (" and files of unknown size" if preflight.has_unknown(build.plan, store) else ""))
    parts = ", ".join(f"{what} {size(n)}" for what, n in found.disk.items())
    whole = sum(found.disk.values())
    short = f"; {size(whole - free)} are missing: the build would be refused" if whole > free else ""
    session.say(f"disk      {size(whole)} in {store.root}" + (f" ({parts})" if parts else "") + f"; {size(free)} are free{short}")
    session.say(f"memory    {run.memory} at most, {workers} of {len(os.sched_getaffinity(0))} cores")
    if not build_count:
        session.say("time      nothing to do")
    elif found.seconds is None:
        session.say(
            f"time      unknown: no earlier run here tells what {', '.join(found.unknown)} take{'s' if len(found.unknown) == 1 else ''}"
        )
    else:
        session.say(f"time      about {duration(max(1.0, found.seconds))} after fetching, by what earlier runs took")
