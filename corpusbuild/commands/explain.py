"""``doit explain WHAT``: is it in a corpus, and where; if not, why; and whose token is that."""

import os
import re
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

from doit import doit_cmd
from doit.cmd_base import DoitCmdBase
from doit.exceptions import InvalidCommand

from corpusbuild import explain
from corpusbuild.commands.base import OPTIONS, USAGE, Ours, fail
from corpusbuild.commands.session import current
from corpusbuild.errors import ConfigError
from corpusbuild.explain import Built, Document, Fate, Row, Tokens
from corpusbuild.likeness import Likeness, likeness
from corpusbuild.minhash import candidate_probability
from corpusbuild.pii import PLACEHOLDERS
from corpusbuild.removals import AGAINST
from corpusbuild.store import Store

FORMS = """  book:12                      a document, by its id
  sample/book.txt#41           the document that begins at a line of a source's file
  some/page.txt, or -          a text: is it in, if not why, and what is nearest
  train-00000.bin@123456       an id of a token file: whose it is, and where that came from"""
FAVOURED_SHOWN = 5
PARTS_SHOWN = 6


class Explain(Ours, DoitCmdBase):  # type: ignore[misc]  # doit has no types
    name = "explain"
    doc_purpose = "say what became of a document, and where a token came from"
    doc_usage = "[build:NAME] WHAT"
    doc_description = f"WHAT is one of\n\n{FORMS}\n\nEvery build that knows it answers, as it was last built; build:NAME asks one."
    cmd_options = tuple(option for option in OPTIONS if option["name"] == "cache_dir")

    def execute(self, params: Any, args: list[str]) -> int:
        sys.meta_path.insert(0, _Without("pandas"))  # pyarrow imports it with the first array that becomes numpy; nothing here uses it
        # doit keeps every KEY=VALUE to itself, and an address may hold an equals sign
        args = [*args, *(f"{name}={value}" for name, value in (doit_cmd._CMDLINE_VARS or {}).items())]
        builds, whats = [a for a in args if a.startswith("build:")], [a for a in args if not a.startswith("build:")]
        if len(whats) != 1 or len(builds) > 1:
            return fail(f"explain takes one thing to explain, and at most one build:\n{FORMS}", USAGE)
        store = Store(Path(params["cache_dir"] or os.environ.get("CORPUSBUILD_CACHE") or "cache"))
        built = explain.recorded(store, builds[0].removeprefix("build:") if builds else None)
        answers = ["\n".join(lines) for each in built if (lines := list(answer(each, whats[0])))]
        if not answers:
            raise InvalidCommand(_unknown(built, whats[0]))
        current().say("\n\n".join(answers))
        return 0


class _Without(MetaPathFinder):
    """Makes a package as good as not installed, for one that takes a third of a second to import and is of no use."""

    def __init__(self, name: str):
        self._name = name

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname == self._name:
            raise ModuleNotFoundError(f"{fullname} is not wanted here")


def answer(built: Built, what: str) -> Iterator[str]:
    """What a build says of one thing, line by line; nothing where it does not know it."""
    token = re.fullmatch(r"(?:.*/)?([^/@]+\.bin)@(\d+)", what)
    if token:
        found = explain.by_token(built, token[1], int(token[2])) if _is_of(built, what.rpartition("@")[0]) else None
        if found:
            yield from _of_token(built, token[1], int(token[2]), *found)
    elif built.index(what.partition(":")[0]) is not None:
        document = explain.by_id(built, what)
        if document:
            yield from of_document(built, document)
    elif what == "-" or Path(what).is_file():
        yield from _of_text(built, what)
    else:
        documents = explain.by_place(built, what)
        for i, document in enumerate(documents):
            yield from ([""] if i else [])
            yield from of_document(built, document)
        for document in explain.before(built, what) if not documents else ():
            yield f"no document begins at {what}; the last that begins before it, and may hold it, is {document.id}:"
            yield ""
            yield from of_document(built, document)


def of_document(built: Built, document: Document) -> Iterator[str]:
    yield from _of_fate(built, explain.fate(built, document))


def _of_fate(built: Built, fate: Fate) -> Iterator[str]:
    """A headline, what is known of the document, and the same of the document that it went in favour of."""
    name, build = fate.document.id or _place(built, fate.document), f"build:{built.record.name}"
    if fate.where is not None:
        yield f"{name} is in {build}"
    else:
        yield f"{name} is not in {build}: {_stage(fate)} removed it"
    yield ""
    yield from _table(_facts(built, fate))
    chain = fate.survivor
    if chain is not None:
        yield ""
        yield from _of_fate(built, chain)


def _facts(built: Built, fate: Fate) -> Iterator[tuple[str, str]]:
    if fate.removed is not None:
        yield from _why(fate.removed)
    if fate.survivor is not None:
        yield "in favour of", _favour(fate)
    elif fate.removed is not None and fate.removed["rule"] == AGAINST:
        corpus, _, id = str(fate.removed["survivor"]).partition("/")
        yield "in favour of", f"{id} of the earlier corpus {corpus.replace('@', ' ')}"
    document, source = fate.document, built.sources[fate.document.source]
    yield "from", f"{_place(built, document)}, source {source['id']}"
    yield "source file", f"sha256 {_pin(built, document)}"
    yield "licence", source["license_spdx"]
    if fate.where is None:
        return
    where, values = fate.where, fate.where.values
    yield "text", f"{values['n_chars']:,} characters, {values['lang']}, sha256 {values['sha256'].hex()}"
    yield "shard", f"{where.path}, row {where.row} of {where.rows}, row {where.corpus_row} of the corpus (from 0)"
    yield "split", values["split"]
    for text in _some([_run(tokens) for tokens in where.tokens], "places"):
        yield "tokens", text
    if not where.tokens and built.mixed:
        yield "tokens", f"none: [mix] draws fewer documents of {source['id']}"
    for text in _some([f"paragraph {c['paragraph'] + 1} is left out: it stands first in {c['survivor']}" for c in fate.cuts]):
        yield "changed", text
    for text in _some(
        [f"characters {s['start']} to {s['end']} are replaced by {PLACEHOLDERS.get(s['kind'], s['kind'])}" for s in fate.spans]
    ):
        yield "changed", text
    if where.favoured:
        shown = [f"{row['id']} ({_favoured_why(row)})" for row in where.favoured[:FAVOURED_SHOWN]]
        more = f" and {len(where.favoured) - FAVOURED_SHOWN:,} more" if len(where.favoured) > FAVOURED_SHOWN else ""
        yield "in its favour", f"{', '.join(shown)}{more} went"


def _run(tokens: Tokens) -> str:
    since = f", from its id {tokens.offset:,} on" if tokens.offset else ""
    return f"{tokens.path}@{tokens.start}, {tokens.length:,} ids{since}"


def _why(removed: Row) -> Iterator[tuple[str, str]]:
    rule, value, threshold = removed["rule"], removed["value"], removed["threshold"]
    if rule == "paragraphs":
        yield "why", f"every paragraph of it, {_number(value)}, stands in an earlier document"
    elif rule == "jaccard":
        yield "why", f"jaccard {_number(value)}, verified, with an earlier document; from {_number(threshold)} on the later one goes"
    elif rule == AGAINST and threshold is not None:
        yield "why", f"jaccard {_number(value)}, verified, with a document of an earlier corpus; from {_number(threshold)} on it goes"
    elif rule == AGAINST:
        yield "why", f"every paragraph of it, {_number(value)}, stands in an earlier document, the first of them in an earlier corpus"
    elif removed["stage"] == "fetch":
        yield "why", f"it could not be read: {rule}"
    else:
        yield "why", measured(rule, value, threshold)
    others = [other for other in removed["rules"] or [] if other != rule]
    if others:
        yield "it failed too", ", ".join(others)


def _favour(fate: Fate) -> str:
    """``a, which went in favour of b, which is in the shards``."""
    assert fate.survivor is not None
    at, words = fate.survivor, f"{fate.survivor.document.id}"
    while at.survivor is not None:
        at = at.survivor
        words += f", which went in favour of {at.document.id}"
    return words + (", which is in the shards" if at.where else "")


def _of_token(built: Built, file: str, offset: int, document: Document, tokens: Tokens) -> Iterator[str]:
    separator = built.record.step("tokenize").params.get("doc_sep_id")  # type: ignore[union-attr]  # it has tokens
    at = offset - tokens.start + tokens.offset
    what = ", the separator before it" if at == 0 and separator is not None else ""
    whose = document.id if not tokens.offset else f"{document.id} that stand there, from its id {tokens.offset:,} on"
    yield f"{file}@{offset} is id {at:,} {'of' if not tokens.offset else 'and one of'} the {tokens.length:,} of {whose}{what}"
    yield ""
    yield from of_document(built, document)


def _of_text(built: Built, name: str) -> Iterator[str]:
    data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    try:
        like = likeness(built, data.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: is not UTF-8 (byte {error.start}), so it is no text to look for") from None
    shown, build = ("the text" if name == "-" else name), f"build:{built.record.name}"
    same = [near.document for near in like.near if near.same_text]
    documents = same or [d for id in like.sharded if (d := explain.by_id(built, id)) is not None] or list(like.dropped)
    if documents:
        yield f"{shown} is {', '.join(str(d.id) for d in documents)}"
        yield ""
        yield from of_document(built, documents[0])
        return
    yield f"{shown} is not in {build}{', and no source of it has this text' if like.signed and not like.uncompared else ''}"
    yield ""
    rows: list[tuple[str, str]] = []
    for sources, failures in like.judged:
        of = "every source" if len(like.judged) == 1 else ", ".join(sources)
        failed = ", ".join(measured(f.rule, f.value, f.threshold) for f in failures)
        rows.append(("filters", f"of {of} would drop it: {failed}" if failures else f"of {of} would keep it"))
    if like.uncompared:
        rows.append(
            ("filters", f"{like.uncompared:,} documents were dropped with the same measure; whether one is this text was not looked up")
        )
    rows += _nearest(built, like)
    for number, document in like.repeated[:PARTS_SHOWN]:
        rows.append(("repeats", f"paragraph {number} of {like.n_paragraphs} stands in {document.id}"))
    yield from _table(iter(rows))


def _nearest(built: Built, like: Likeness) -> Iterator[tuple[str, str]]:
    if like.signed is None:
        yield "nearest", "unknown: the build signs no documents (stages.exact_dedup and near_dedup are off)"
        return
    if not like.shingles:
        yield "nearest", "nothing: the text has no words"
        return
    near_dedup = built.record.step("near_dedup")
    threshold = near_dedup.params["jaccard_threshold"] if near_dedup else None
    for near in like.near:
        fate = explain.fate(built, near.document)
        state = "which is in the shards" if fate.where else f"which {_stage(fate)} removed"
        measured = f"similarity {_number(near.similarity)}" if near.similarity is not None else "similarity not computed"
        enough = ", enough to go in its favour" if threshold and near.similarity and near.similarity >= threshold and fate.where else ""
        yield "nearest", f"{near.document.id}, {state}: {measured}{enough}; {near.bands} of {like.signed.bands} bands agree"
    if not like.near:
        chance = candidate_probability(0.8, like.signed.bands, like.signed.num_perm // like.signed.bands)
        yield "nearest", f"nothing: no document agrees with it in one of {like.signed.bands} bands ({chance:.0%} of those 0.8 alike would)"
    elif like.candidates > len(like.near):
        yield "nearest", f"of {like.candidates:,} that agree in a band"


def _stage(fate: Fate) -> str:
    return str(fate.removed["stage"]) if fate.removed else "an earlier build"


def _favoured_why(row: Row) -> str:
    return f"{row['rule']} {_number(row['similarity'])}" if row["rule"] == "jaccard" else str(row["rule"])


def _place(built: Built, document: Document) -> str:
    urls = built.sources[document.source]["urls"]
    return f"{urls[document.file] if document.file < len(urls) else urls[0]}#{document.place}"


def _pin(built: Built, document: Document) -> str:
    ledger = built.record.step("ledger")
    pins = ledger.params["sources"][document.source]["sha256"] if ledger else [""]
    return str(pins[document.file] if document.file < len(pins) else pins[0])


def _is_of(built: Built, path: str) -> bool:
    """Whether a token file, where it was named with its folder, is one of this build."""
    if "/" not in path:
        return True
    entry = built.entry("tokenize")
    return entry is not None and Path(path).parent.resolve() == entry.resolve()


def _number(value: float) -> str:
    """
    >>> _number(3.0), _number(0.87654321)
    ('3', '0.8765')
    """
    return f"{value:,.0f}" if value == int(value) else f"{value:.4g}"


def measured(rule: str, value: float | None, threshold: float | None) -> str:
    """A rule with what was measured for it, as far as that is known.

    >>> measured("length", 12.0, 50.0), measured("lang", None, None)
    ('length 12 (limit 50)', 'lang')
    """
    return rule + (f" {_number(value)}" if value is not None else "") + (f" (limit {_number(threshold)})" if threshold is not None else "")


def _some(lines: list[str], what: str = "such changes") -> list[str]:
    return lines if len(lines) <= PARTS_SHOWN else [*lines[:PARTS_SHOWN], f"and {len(lines) - PARTS_SHOWN:,} more {what}"]


def _table(rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    """Rows with their names in a column; a name that repeats is written once."""
    last = ""
    for name, value in rows:
        yield f"  {'' if name == last else name:<14}{value}"
        last = name


def _unknown(built: list[Built], what: str) -> str:
    """Why nothing was found, as far as the form of the question tells."""
    source, colon, _ = what.partition(":")
    for each in built:
        if colon and each.index(source) is not None:
            step = each.record.step(f"filter:{source}")
            n = step.counts[source].docs_in if step else 0
            first = f", {source}:0 to {source}:{n - 1}" if n and not each.sources[each.index(source) or 0]["named"] else ""
            return f"{what}: {source} has no such document; it has {n:,} in build:{each.record.name}{first}"
    if "@" in what and ".bin" in what:
        return f"{what}: no build has this token file; doit info build:NAME says where its tokens lie"
    sources = sorted({s["id"] for each in built for s in each.sources})
    return f"{what!r} is no document, no line of a source, no file and no place in a token file; sources are {', '.join(sources)}"
