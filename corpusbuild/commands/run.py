"""``doit [TASK ...]``: build and fetch. Without a task it shows the list."""

import signal
from typing import Any

from doit.cmd_run import Run as DoitRun
from doit.exceptions import InvalidCommand

from corpusbuild.commands.base import OPTIONS, USAGE, Ours, fail, unknown
from corpusbuild.commands.list import show
from corpusbuild.commands.session import Session, finish_earlier
from corpusbuild.commands.view import choose
from corpusbuild.durable import disk
from corpusbuild.errors import CANCELLED, DiskError

BUG = 1
"""The exit code of a traceback."""

FETCHING: tuple[dict[str, Any], ...] = (
    {"name": "offline", "long": "offline", "type": bool, "default": False, "help": "make no request; say what is missing"},
    {"name": "resume_only", "long": "resume-only", "type": bool, "default": False, "help": "begin no download that has no checkpoint"},
    {"name": "retry_quarantined", "long": "retry-quarantined", "type": bool, "default": False, "help": "ask again for quarantined files"},
)


VIEW: tuple[dict[str, Any], ...] = (
    {"name": "json", "long": "json", "type": bool, "default": False, "help": "events for machines, one JSON object a line"},
    {"name": "quiet", "short": "q", "long": "quiet", "type": bool, "default": False, "help": "show failures only"},
    {"name": "verbose", "short": "v", "long": "verbose", "type": bool, "default": False, "help": "show each step, reused ones too"},
)

DOITS = tuple({**option, "short": ""} if option.get("short") == "v" else option for option in DoitRun.cmd_options)
"""doit's own options; -v means what it means elsewhere."""


class Run(Ours, DoitRun):  # type: ignore[misc]  # doit has no types
    doc_purpose = "build corpora and fetch sources"
    doc_usage = "[fetch[:SOURCE]] [build:NAME ...]"
    cmd_options = (*DOITS, *OPTIONS, *FETCHING, *VIEW)

    def execute(self, params: Any, args: list[str]) -> int:
        if params.get("num_process"):
            return fail("-n is doit's; workers are set by --workers N or run.workers", USAGE)
        with self.open(params) as session:
            if not args:
                show(session, list(session.project.builds))
                return 0
            refuse_unknown(session, args)
            root = session.project.store.root
            if root.exists() and not root.is_dir():
                raise DiskError(f"{root} is not a folder: move it away, or point --cache-dir elsewhere")
            with disk(root):
                root.mkdir(parents=True, exist_ok=True)
            session.view = choose(params["json"], params["quiet"], params["verbose"])
            params["continue"] = True  # a source that fails must not keep the others from telling their outcome
            finish_earlier(session)
            with cancelled_by_sigterm():
                try:
                    code: int = super().execute(params, args)
                except KeyboardInterrupt:
                    return cancel(session)
                session.finish()
            for error in session.failures:
                fail(str(error), error.exit_code)
            if not session.failures and code == 0 and not session.built:
                session.say(f"{' '.join(args)}: nothing to be done")
            return session.exit_code() or (BUG if code else 0)


def cancel(session: Session) -> int:
    """Stop the workers and undo. What has begun is finished: another Ctrl-C does not leave it half done."""
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    try:
        session.view.close()
        if session.running:
            session.say("cancelled: stopping the workers, and undoing what this run made from shard on")
        session.close()
        if session.running:
            session.finish(cancelled=True)
        else:
            session.say("cancelled; what had arrived is kept, and the next run goes on from there")
    finally:
        for number, handler in before:
            signal.signal(number, handler)
    return CANCELLED


def refuse_unknown(session: Session, args: list[str]) -> None:
    project = session.project
    known = {"fetch", "build", *(f"fetch:{s}" for s in project.sources), *(f"build:{b}" for b in project.builds)}
    known |= {f"build:{b.name}:{s.label}" for b in project.builds.values() if b.plan for s in b.plan.steps}
    for arg in args:
        if arg not in known and "*" not in arg:
            raise InvalidCommand(unknown(arg, project))


class cancelled_by_sigterm:
    """SIGTERM and a closed terminal mean the same as Ctrl-C: an orderly end."""

    def __enter__(self) -> None:
        def cancel(*_: object) -> None:
            raise KeyboardInterrupt

        self._before = [(s, signal.signal(s, cancel)) for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) != signal.SIG_IGN]

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)
