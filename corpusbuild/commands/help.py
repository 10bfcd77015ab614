"""``doit help``, ``doit help VERB`` and ``doit VERB --help``: what there is to type, by what a person wants to do. doit's own commands are not told of."""

import textwrap
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from doit.cmd_base import Command, DoitCmdBase
from doit.cmd_run import Run as DoitRun

from corpusbuild.commands.base import USAGE, Ours, fail
from corpusbuild.commands.view import printed

WIDTH = 100

OVERVIEW: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Build",
        (
            ("fetch[:SOURCE]", "download sources: resumed, verified, and nothing asked for twice"),
            ("build:NAME", "build what configs/NAME.toml describes; only what is not there yet runs"),
            ("plan", "see what a build would run, why, and what it would take"),
            ("pin", "find the digest of sources that have none"),
        ),
    ),
    (
        "Look",
        (
            ("list", "every source, step and build: fresh, stale (and why), partial or missing"),
            ("info", "one build, step or source"),
            ("log", "the last runs: what ran, what was reused, how long, what failed"),
            ("show", "read documents, kept or dropped"),
            ("explain", "what became of a document, a line, a text or a token"),
            ("why", "why a step is fresh or stale, field by field"),
            ("diff", "two versions of a corpus, document by document"),
        ),
    ),
    (
        "Answer for it",
        (
            ("verify", "is every byte, row and count what it was"),
            ("lock", "write for git what a build must give from now on"),
            ("export", "plain files to hand on or upload"),
        ),
    ),
    (
        "Tidy",
        (
            ("clean", "remove what interrupted builds left"),
            ("gc", "remove what no configuration, lock or published corpus reaches"),
        ),
    ),
)

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        "doit build:sample",
        "doit build:sample --set dedup.jaccard_threshold=0.7",
        "doit fetch:speeches --offline",
        "doit build:sample --json",
    ),
    "plan": ("doit plan sample", "doit plan sample --set dedup.shingle=4"),
    "pin": ("doit pin sample", "doit pin sample --source pages"),
    "list": ("doit list", "doit list sample"),
    "info": ("doit info build:sample", "doit info build:sample:near_dedup"),
    "log": ("doit log sample -n 3",),
    "show": ("doit show sample --source edits -n 5", "doit show sample --dropped near_dedup --sample 7"),
    "explain": (
        "doit explain edits:100",
        "doit explain sample/book.txt#141",
        "doit explain train-00000.bin@123456",
        "doit explain some.txt",
    ),
    "why": ("doit why build:sample", "doit why build:sample:near_dedup --set dedup.bands=32"),
    "diff": ("doit diff sample other", "doit diff configs/sample.lock sample"),
    "verify": ("doit verify sample --deep", "doit verify sample --rebuild"),
    "lock": ("doit lock sample",),
    "export": ("doit export sample /where/to",),
    "clean": ("doit clean --dry-run", "doit clean build:sample"),
    "gc": ("doit gc --dry-run --keep 2",),
}


class Help(Ours, DoitCmdBase):  # type: ignore[misc]  # doit has no types
    name = "help"
    doc_purpose = "show what there is to type"
    doc_usage = "[VERB]"
    doc_description = None
    cmd_options = ()

    def __init__(self, cmds: Any = None, **kwargs: Any):
        super().__init__(cmds=cmds, **kwargs)
        self._verbs: dict[str, type[Command]] = cmds.to_dict() if cmds is not None else {}

    def execute(self, params: Any, args: list[str]) -> int:
        if not args:
            printed("\n".join(overview()))
            return 0
        verb = "run" if args[0] in ("build", "fetch") or args[0].startswith(("build:", "fetch:")) else args[0]
        if verb not in EXAMPLES:
            return fail(f"there is no verb {verb!r}; doit help shows them", USAGE)
        printed("\n".join(of_verb(self._verbs[verb])))
        return 0


def options_of(verb: str) -> list[str]:
    """The long names of a verb's own options."""
    from corpusbuild.scaffold import PLUGINS

    module, _, name = PLUGINS["command"][verb].partition(":")
    doits = {option["name"] for option in DoitRun.cmd_options}
    command = getattr(import_module(module), name)
    return [option["long"] for option in command.cmd_options if option["name"] not in doits]


def overview() -> Iterator[str]:
    yield "doit builds corpora for language-model training from configs/NAME.toml, each step once."
    for title, verbs in OVERVIEW:
        yield f"\n{title}"
        yield from (f"  doit {verb:<18}{what}" for verb, what in verbs)
    yield "\nWithout a project: corpusbuild init DIR makes one, corpusbuild add URL adds a source, corpusbuild verify DIR checks an export."
    yield "doit help VERB, or doit VERB --help, says more of each. doit alone is doit list."


def of_verb(command: Any) -> Iterator[str]:
    """What one verb does, takes and is told by, with examples."""
    doits = {option["name"] for option in DoitRun.cmd_options}
    verb = command.get_name()
    name = "" if verb == "run" else f"{verb} "
    yield f"doit {name}{command.doc_usage or ''} [OPTIONS]".replace("  ", " ")
    yield f"  {command.doc_purpose}"
    if command.doc_description:
        yield ""
        yield from textwrap.wrap(command.doc_description, WIDTH)
    options = [option for option in command.cmd_options if option["name"] not in doits]
    if options:
        yield "\nOptions"
    for option in options:
        value = "" if option["type"] is bool else " " + {"most": "N", "keep": "N"}.get(option["name"], option["name"].upper())
        short = f"-{option['short']}, " if option.get("short") else "    "
        flag = f"  {short}--{option['long']}{value}"
        text = option["help"].replace("%(default)s", str(option["default"]))
        lines = textwrap.wrap(text, WIDTH - 30)
        if len(flag) > 29:
            yield flag
        else:
            lines[0] = f"{flag:<30}{lines[0]}"
        yield from (line if i == 0 and len(flag) <= 29 else " " * 30 + line for i, line in enumerate(lines))
    yield "\nExamples"
    yield from (f"  {example}" for example in EXAMPLES[verb])
    yield "\nExit codes: 0, 2 usage, 65 will not heal by itself, 75 may when run again, 130 cancelled."
