"""``doit show NAME``: documents as a person wants to read them: kept ones, or those that a rule dropped, a duplicate beside the one that stays."""

import difflib
import re
import sys
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from doit.cmd_base import DoitCmdBase

from corpusbuild.commands.base import OPTIONS, USAGE, Ours, build_names, fail
from corpusbuild.commands.explain import measured
from corpusbuild.errors import ConfigError
from corpusbuild.explain import recorded
from corpusbuild.selection import Shown, dropped, kept

if TYPE_CHECKING:
    from rich.text import Text

SHOWING: tuple[dict[str, Any], ...] = (
    {
        "name": "dropped",
        "long": "dropped",
        "type": str,
        "default": "",
        "help": "those that this rule dropped: lang, filter.lang, near_dedup",
    },
    {"name": "source", "long": "source", "type": str, "default": "", "help": "of this source only"},
    {"name": "most", "short": "n", "long": "most", "type": int, "default": 20, "help": "how many at most [default: %(default)s]"},
    {"name": "sample", "long": "sample", "type": str, "default": "", "help": "draw them by this seed, a number, instead of the first"},
    {"name": "chars", "long": "chars", "type": int, "default": 1500, "help": "characters of each [default: %(default)s]; 0 for all"},
)
WIDTH = 100
"""Columns where there is no terminal."""
TURNING = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Marks that turn the direction of reading, so that a line may look like another."""
MOST_WORDS = 4000
"""Words of each of two texts that are compared; what is behind them stands unmarked."""


class Show(Ours, DoitCmdBase):  # type: ignore[misc]  # doit has no types
    name = "show"
    doc_purpose = "read documents of a build, kept or dropped"
    doc_usage = "NAME"
    doc_description = "Without options the first documents of the shards. Of a near duplicate the document that stays is shown beside it, with what differs marked."
    cmd_options = (*SHOWING, *OPTIONS)

    def execute(self, params: Any, args: list[str]) -> int:
        if len(args) != 1:
            return fail("show takes one build: doit show sample", USAGE)
        if params["most"] < 1 or params["chars"] < 0:
            return fail("-n takes a number of at least 1, --chars one of at least 0", USAGE)
        if params["sample"] and not params["sample"].isdecimal():
            return fail(f"--sample takes a number, not {params['sample']!r}", USAGE)
        with self.open(params) as session:
            (name,) = build_names(session, args)
            (built,) = recorded(session.project.store, name)
            source = params["source"] or None
            if source and built.index(source) is None:
                raise ConfigError(f"build:{name} has no source {source}: it has {', '.join(s['id'] for s in built.sources)}")
            seed = int(params["sample"]) if params["sample"] else None
            if params["dropped"]:
                found = dropped(built, params["dropped"], source, params["most"], seed)
            else:
                found = kept(built, source, params["most"], seed)
            write(found, params["chars"])
        return 0


def write(documents: Sequence[Shown], chars: int) -> None:
    """Print documents, one below the other."""
    from rich.console import Console
    from rich.rule import Rule
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False, emoji=False, width=None if sys.stdout.isatty() else WIDTH)
    for document in documents:
        console.print(Rule(Text(document.id, style="bold"), align="left", characters="-"))
        for line in facts(document):
            console.print(Text(line, style="dim"))
        if document.rival is None:
            console.print(Text(cut(visible(document.text), chars)))
            continue
        here, there = marked(visible(document.text), visible(document.rival))
        table = Table(box=None, expand=True, padding=(0, 1))
        table.add_column(f"{document.id}, removed", ratio=1)
        table.add_column(f"{document.values['survivor']}, stays", ratio=1)
        table.add_row(_shortened(here, chars), _shortened(there, chars))
        console.print(table)
    if not documents:
        console.print("no document")


def facts(document: Shown) -> list[str]:
    """What is known of a document, in lines."""
    v = document.values
    if "rule" in v:
        rules = f"; fails {', '.join(v['rules'])}" if len(v["rules"] or ()) > 1 else ""
        return [document.url, f"dropped by {v['stage']}.{v['rule']}: {measured(v['rule'], v['value'], v['threshold'])}{rules}"]
    return [document.url, f"{v['split']}, {v['lang']}, {v['n_chars']:,} characters, {v['license_spdx']}"]


def visible(text: str) -> str:
    """Text that a terminal shows and does not obey: controls, and marks that turn the direction of reading, are written as escapes.

    >>> visible("a" + chr(27) + "[31m" + chr(0x202e) + "b")
    'a\\\\x1b[31m\\\\u202eb'
    """
    return "".join(
        ch
        if ch in "\n\t" or (ch not in TURNING and unicodedata.category(ch) not in ("Cc", "Cs", "Zl", "Zp"))
        else ch.encode("unicode_escape", "surrogatepass").decode()
        for ch in text
    )


def cut(text: str, chars: int) -> str:
    """
    >>> cut("abcdef", 4)
    'abcd ... 2 more characters'
    """
    return text if not chars or len(text) <= chars else f"{text[:chars]} ... {len(text) - chars:,} more characters"


def marked(a: str, b: str) -> tuple["Text", "Text"]:
    """Two texts, each with the words that the other has not in brackets and colour.

    >>> [text.plain for text in marked("the cat sat", "the dog sat")]
    ['the [-cat-] sat', 'the {+dog+} sat']
    """
    from rich.text import Text

    words_a, words_b = (re.findall(r"\s+|\S+", text)[: 2 * MOST_WORDS] for text in (a, b))
    left, right = Text(), Text()
    for op, a1, a2, b1, b2 in difflib.SequenceMatcher(None, words_a, words_b, autojunk=False).get_opcodes():
        mine, theirs = "".join(words_a[a1:a2]), "".join(words_b[b1:b2])
        if op == "equal":
            left.append(mine)
            right.append(theirs)
            continue
        if mine:
            left.append(f"[-{mine}-]" if mine.strip() else mine, "red")
        if theirs:
            right.append("{+" + theirs + "+}" if theirs.strip() else theirs, "green")
    left.append(a[sum(map(len, words_a)) :])
    right.append(b[sum(map(len, words_b)) :])
    return left, right


def _shortened(text: "Text", chars: int) -> "Text":
    if not chars or len(text) <= chars:
        return text
    more = len(text) - chars
    return text[:chars].append(f" ... {more:,} more characters")
