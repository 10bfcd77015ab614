"""What our commands share: the options of a run, usage errors in one line with exit code 2, and our own errors with theirs."""

import difflib
import getopt
import os
import sys
from pathlib import Path
from typing import Any

from doit import doit_cmd
from doit.cmdparse import CmdParseError
from doit.exceptions import InvalidCommand, InvalidDodoFile, InvalidTask

from corpusbuild.commands.session import Session, opened
from corpusbuild.durable import REMEDIES
from corpusbuild.errors import CANCELLED, TEMPORARY, ConfigError, CorpusError
from corpusbuild.project import Options, Project

USAGE = 2

OPTIONS: tuple[dict[str, Any], ...] = (
    {
        "name": "cache_dir",
        "long": "cache-dir",
        "type": str,
        "default": "",
        "help": "folder for everything built [default: $CORPUSBUILD_CACHE or cache]",
    },
    {
        "name": "set",
        "long": "set",
        "type": list,
        "default": [],
        "help": "KEY.PATH=VALUE, a value of the configuration for this run; may be repeated",
    },
    {"name": "limit", "long": "limit", "type": int, "default": 0, "help": "take only the first N documents of each source"},
    {"name": "workers", "long": "workers", "type": int, "default": 0, "help": "worker processes [default: run.workers, or the cores]"},
    {"name": "executor", "long": "executor", "type": str, "default": "", "help": "serial or local [default: run.executor]"},
)


class Ours:
    """Mixed into doit's commands before doit's own class."""

    def parse_execute(self, in_args: list[str]) -> int:
        """Parse and run, turning every expected failure into one line on stderr and its exit code."""
        try:
            # doit takes every KEY=VALUE for a variable of its own before a command sees it, so these are the values of --set
            args = [arg for arg in in_args if arg != "--set"]
            if {"-h", "--help"} & set(args):
                from corpusbuild.commands.help import of_verb
                from corpusbuild.commands.view import printed

                printed("\n".join(of_verb(type(self))))
                return 0
            return int(super().parse_execute(self._options_first(args)) or 0)  # type: ignore[misc]  # the other base is a doit command
        except (getopt.GetoptError, CmdParseError, InvalidCommand, InvalidDodoFile, InvalidTask) as error:
            return fail(str(error).strip(), USAGE)
        except CorpusError as error:
            return fail(str(error), error.exit_code)
        except OSError as error:
            if error.errno not in REMEDIES:
                raise
            return fail(f"{error.filename or 'the cache'}: {REMEDIES[error.errno]}", TEMPORARY)
        except KeyboardInterrupt:
            return fail("cancelled; what was finished is kept, and the next run goes on from there", CANCELLED)

    def _options_first(self, args: list[str]) -> list[str]:
        """doit stops at the first argument that is no option; a person writes options where they come to mind."""
        parser: Any = self.cmdparser  # type: ignore[attr-defined]  # of the other base
        options, rest = getopt.gnu_getopt(args, parser.get_short(), parser.get_long())
        joined = [
            f"{name}={value}" if name.startswith("--") and f"{name[2:]}=" in parser.get_long() else name + value for name, value in options
        ]
        return [*joined, *rest]

    def open(self, params: Any) -> Any:
        return opened(options(params))


def options(params: Any) -> Options:
    """The options of a run from parsed parameters, doit's variables and the environment."""
    variables: dict[str, str] = dict(doit_cmd._CMDLINE_VARS or {})
    overrides = [*params["set"], *(f"{name}={value}" for name, value in variables.items())]
    if params["limit"] < 0 or params["workers"] < 0:
        raise ConfigError("--limit and --workers take a number of at least 1")
    flags = {name: bool(params.get(name)) for name in ("offline", "resume_only", "retry_quarantined")}
    return Options(
        cache=Path(params["cache_dir"] or os.environ.get("CORPUSBUILD_CACHE") or "cache"),
        configs=Path("configs"),
        overrides=tuple(overrides),
        limit=params["limit"] or None,
        workers=params["workers"] or None,
        executor=params["executor"] or None,
        **flags,
    )


def build_names(session: Session, args: list[str]) -> list[str]:
    """The builds that a person named, with or without ``build:``; all of them when none was. ``InvalidCommand`` for an unknown one."""
    names = [arg.removeprefix("build:") for arg in args]
    for name in names:
        if name not in session.project.builds:
            raise InvalidCommand(unknown(name, session.project))
    return names or list(session.project.builds)


def unknown(name: str, project: Project) -> str:
    known = [f"build:{n}" for n in project.builds] + [f"fetch:{s}" for s in project.sources]
    near = difflib.get_close_matches(name, [*known, *project.builds], n=1)
    return f"{name!r} is not a build, source or step" + (f"; did you mean {near[0]!r}?" if near else "; doit list shows them")


def fail(message: str, code: int) -> int:
    for line in message.splitlines():
        print(f"corpusbuild: {line}", file=sys.stderr)
    return code
