"""``doit verify [NAME ...] [--deep] [--rebuild]``: is what was built still what it was, and does building again give the same?"""

from typing import Any

from doit.cmd_base import DoitCmdBase

from corpusbuild import report
from corpusbuild.commands.base import OPTIONS, USAGE, Ours, build_names, fail
from corpusbuild.commands.run import cancelled_by_sigterm
from corpusbuild.commands.session import Session
from corpusbuild.drive import open_workshop
from corpusbuild.errors import DATA, ConfigError, IntegrityError
from corpusbuild.progress import size
from corpusbuild.publish import check_lock, read_record
from corpusbuild.verify import rebuild, verify

DEEP = {"name": "deep", "long": "deep", "type": bool, "default": False, "help": "read every byte: digests, and the rows of every table"}
REBUILD = {
    "name": "rebuild",
    "long": "rebuild",
    "type": bool,
    "default": False,
    "help": "build again aside, from the raw documents, and compare",
}


class Verify(Ours, DoitCmdBase):  # type: ignore[misc]  # doit has no types
    name = "verify"
    doc_purpose = "check that what was built is still what it was"
    doc_usage = "[NAME ...]"
    doc_description = (
        "Looks at every entry of the store, or at those of the builds that are named: files and sizes, contents pages, manifests, and counts that add up "
        "in every step and from one to the next. With --deep every digest is computed and every row counted. Names what is wrong, with the remedy; "
        "exit code 65 then."
    )
    cmd_options = (DEEP, REBUILD, *OPTIONS)

    def execute(self, params: Any, args: list[str]) -> int:
        with self.open(params) as session:
            names = build_names(session, args) if args else []
            store = session.project.store
            for name in names:
                if read_record(store, name) is None:
                    raise ConfigError(f"build:{name} was not built in {store.root}: run doit build:{name}")
            if params["rebuild"] and not names:
                return fail("--rebuild takes the names of builds: doit verify sample --rebuild", USAGE)
            seen = verify(store, names, params["deep"])
            problems = [*seen.problems, *_lock_problems(session, names)]
            how = "digests, sizes and counts" if params["deep"] else "sizes and counts"
            what = f"{seen.builds} {'build' if seen.builds == 1 else 'builds'}, {seen.entries:,} entries, {seen.files:,} files, {size(seen.bytes)}"
            session.say(f"verify: {what}: {how} {'are right' if not problems else f'looked at, {len(problems)} wrong'}")
            if not problems and not params["deep"]:
                session.say("        --deep reads every byte too")
            for name in names if params["rebuild"] and not problems else ():
                with cancelled_by_sigterm():
                    problems += _again(session, name)
            for problem in problems:
                fail(problem, DATA)
        return DATA if problems else 0


def _lock_problems(session: Session, names: list[str]) -> list[str]:
    """What the locks say against the builds as they stand. A build that is not whole is not held against its lock."""
    problems = []
    for build in session.project.builds.values():
        store = session.project.store
        if build.plan and (build.name in names or not names) and all(store.has(s.stage.name, s.key) for s in build.plan.steps):
            try:
                check_lock(build.plan, store)
            except IntegrityError as error:
                problems.append(str(error))
    return problems


def _again(session: Session, name: str) -> list[str]:
    build = session.project.builds[name]
    if build.plan is None or build.problem is not None:
        assert build.problem is not None
        raise build.problem
    plan = build.plan
    steps = [step for step in plan.steps if step.stage.name != "fetch"]
    problems = rebuild(
        plan,
        session.project.store,
        lambda store: open_workshop(plan.loaded.corpus.run, store, session.options, session.say),
        lambda label, contents: session.say(report.step_line(label, contents)),
    )
    if not problems:
        session.say(f"verify: {len(steps)} steps of build:{name} were built again and gave the same bytes")
    return problems
