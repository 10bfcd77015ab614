"""``doit diff A B``: what one version of a corpus has otherwise than another."""

from collections.abc import Iterator
from typing import Any

import msgspec
from doit.cmd_base import DoitCmdBase

from corpusbuild.commands.base import OPTIONS, USAGE, Ours, fail
from corpusbuild.compare import Change, Difference, compare, version
from corpusbuild.report import table
from corpusbuild.store import Store


class Diff(Ours, DoitCmdBase):  # type: ignore[misc]  # doit has no types
    name = "diff"
    doc_purpose = "compare two versions of a corpus"
    doc_usage = "A B"
    doc_description = (
        "A and B are builds (what was last built under the name), folders of corpora, locks or configurations. Of builds it says which documents came, went "
        "or changed, by source and reason, and the tokens; of the others what they tell."
    )
    cmd_options = OPTIONS

    def execute(self, params: Any, args: list[str]) -> int:
        if len(args) != 2:
            return fail("diff takes two versions: doit diff A B, each a build, a corpus's folder, a lock or a configuration", USAGE)
        with self.open(params) as session:
            store = Store(session.options.cache)
            a, b = (version(what, store) for what in args)
            session.say(f"A  {a.name}\nB  {b.name}")
            for line in lines(compare(a, b)):
                session.say(line)
        return 0


def lines(found: Difference) -> Iterator[str]:
    """A difference as a person wants to read it."""
    if found.fields:
        yield "\nconfiguration"
        yield from (f"  {name}  {_shown(old)} -> {_shown(new)}" for name, old, new in found.fields)
    if found.steps:
        yield f"\n{len(found.steps)} steps differ: {', '.join(label for label, _, _ in found.steps[:12])}" + (
            " ..." if len(found.steps) > 12 else ""
        )
    if found.comparable:
        rows: list[tuple[str, ...]] = [("source", "documents", "added", "removed", "changed", "tokens")]
        rows += [_row(source, change) for source, change in found.sources.items()]
        yield ""
        yield from table(rows, right=(1, 2, 3, 4, 5))
    for title, reasons in (("why documents of A are not in B", found.gone), ("why documents of B were not in A", found.come)):
        if reasons:
            yield f"\n{title}"
            for reason, by in sorted(reasons.items(), key=lambda item: (-sum(item[1].values()), item[0])):
                yield f"  {reason:<28}  " + ", ".join(f"{source} {n:,}" for source, n in by.items())
    if not (found.fields or found.steps or any(c.added or c.removed or c.changed for c in found.sources.values())):
        yield "\nthe same"


def _row(source: str, c: Change) -> tuple[str, ...]:
    documents = f"{c.before:,}" if c.before == c.after else f"{c.before:,} -> {c.after:,}"
    tokens = ""
    if c.tokens_before is not None or c.tokens_after is not None:
        a, b = c.tokens_before or 0, c.tokens_after or 0
        tokens = f"{a:,}" if a == b else f"{a:,} -> {b:,} ({b - a:+,})"
    return source, documents, f"{c.added:,}", f"{c.removed:,}", f"{c.changed:,}", tokens


def _shown(value: Any) -> str:
    text = "absent" if value is None else msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."
