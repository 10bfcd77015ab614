"""Whether a licence allows what a corpus is for: the policy, SPDX expressions over it, and the gate."""

import datetime
import difflib
import re
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Annotated, Any, Literal, Protocol, TypeVar

import msgspec
from msgspec import Meta

from corpusbuild import strict
from corpusbuild.errors import ConfigError
from corpusbuild.model import Record

Use = Literal["train", "eval"]
Obligation = Literal["attribution", "share-alike", "notice", "no-endorsement"]
OBLIGATIONS: tuple[Obligation, ...] = ("attribution", "share-alike", "notice", "no-endorsement")
DUTIES: dict[str, str] = {
    "attribution": "Name the authors and the licence, link to it, and say what was changed; passing on this page with the corpus does.",
    "share-alike": "What is derived from this text, the corpus included, is passed on under the same licence only.",
    "notice": "Every copy keeps the copyright notice and the text of the licence.",
    "no-endorsement": "The authors' names are not used to advertise, nor to suggest that they approve.",
}
"""What each obligation asks of whoever passes the text on."""
MIN_WHY_WORDS = 6

# "$" alone would let a line end follow
Spdx = Annotated[str, Meta(pattern=r"^[A-Za-z0-9.-]+\+?( WITH [A-Za-z0-9.-]+)?$(?!\n)")]
Text = Annotated[str, Meta(min_length=1)]


class Allowed(Record):
    """A licence that permits ``uses``, what its use obliges to, and why it was judged so."""

    spdx: Spdx
    uses: Annotated[tuple[Use, ...], Meta(min_length=1)]
    obligations: tuple[Obligation, ...]
    why: Text


class Refused(Record):
    """A licence that was judged to permit nothing, and why."""

    spdx: Spdx
    why: Text


Entry = TypeVar("Entry", Allowed, Refused)


class Policy(Record):
    """Which licences may be used for what. A licence that is not listed is unknown: nobody has judged it."""

    version: Literal[1]
    owner: Text
    reviewed: datetime.date
    allow: tuple[Allowed, ...] = ()
    refuse: tuple[Refused, ...] = ()

    def uses(self, expression: str) -> frozenset[str] | None:
        """The uses that an SPDX expression permits, or ``None`` when any part of it is unknown or it is no expression.

        ``OR`` permits what either side permits, ``AND`` what both do, and binds tighter; operators are upper case. A refused licence permits
        nothing. ``X WITH Y`` is what the policy says of it as a whole, else what it says of ``X``, for an SPDX exception only adds permissions;
        an exception that SPDX does not list is unknown.
        """
        known = {entry.spdx: frozenset[str](entry.uses) for entry in self.allow} | {entry.spdx: frozenset[str]() for entry in self.refuse}
        tree = _parse(expression, known)
        return None if tree is None else _permitted(tree, known)

    def obligations(self, expression: str) -> tuple[str, ...]:
        """What the use of text under an SPDX expression obliges to, in the order of ``OBLIGATIONS``: the duties of every licence in it, for
        which side of an ``OR`` was taken is not recorded. Empty when part of it is unknown."""
        known = {entry.spdx: entry.obligations for entry in self.allow}
        owed = {duty for spdx in self.listed(expression) for duty in known.get(spdx, ())}
        return tuple(duty for duty in OBLIGATIONS if duty in owed)

    def listed(self, expression: str) -> tuple[str, ...]:
        """The entries of the policy that an SPDX expression is made of, in their order in it. Empty when part of it is unknown."""
        known = dict.fromkeys([*(entry.spdx for entry in self.allow), *(entry.spdx for entry in self.refuse)])
        tree = _parse(expression, known)
        return () if tree is None else tuple(dict.fromkeys(_leaves(tree)))

    def refusal(self, expression: str) -> str:
        """Why an expression permits nothing, in words; empty when the policy allows it something."""
        permitted = self.uses(expression)
        if permitted:
            return ""
        if permitted is None:
            listed = [*(entry.spdx for entry in self.allow), *(entry.spdx for entry in self.refuse)]
            near = difflib.get_close_matches(expression, listed, n=1, cutoff=0.8)
            return "is not in the policy" + (f'; did you mean "{near[0]}"?' if near else "; have it judged, or leave the source out")
        return " ".join(["is refused", *(f"({entry.spdx}: {entry.why})" for entry in self.refuse if entry.spdx in expression)])


def policy_from(raw: Mapping[str, Any]) -> Policy:
    """The policy in a parsed ``licenses.toml``. ``ConfigError`` has every problem, a line each."""
    policy, problems = strict.convert(dict(raw), Policy)
    allow, refuse = _readable(raw.get("allow"), Allowed), _readable(raw.get("refuse"), Refused)
    problems += [f"allow ({entry.spdx}): {problem}" for entry in allow for problem in _allow_problems(entry)]
    problems += [f"refuse ({entry.spdx}): {problem}" for entry in refuse for problem in _why_problems(entry.why)]
    listed = [*(entry.spdx for entry in allow), *(entry.spdx for entry in refuse)]
    problems += [f"{spdx}: listed more than once; one entry decides" for spdx in dict.fromkeys(listed) if listed.count(spdx) > 1]
    if "NOASSERTION" not in listed:
        problems.append("NOASSERTION: must be refused, with the reason in the words of the policy")
    if policy is None or problems:
        raise ConfigError(*problems)
    return policy


def links(spdx: str) -> tuple[str, ...]:
    """Where SPDX keeps the text of a listed licence, and of its exception; nothing for a licence that is not on SPDX's list.

    >>> links("Apache-2.0 WITH LLVM-exception")
    ('https://spdx.org/licenses/Apache-2.0.html', 'https://spdx.org/licenses/LLVM-exception.html')
    """
    names = [name.removesuffix("+") for name in spdx.split(" WITH ")]
    return tuple(f"https://spdx.org/licenses/{name}.html" for name in names if not name.startswith("LicenseRef-"))


class Declared(Protocol):
    """What a configuration, or a row of a ledger, declares about a source."""

    @property
    def id(self) -> str: ...
    @property
    def license_spdx(self) -> str: ...
    @property
    def allowed_uses(self) -> tuple[str, ...]: ...
    @property
    def revoked(self) -> bool: ...
    @property
    def notes(self) -> str:
        """Of a revoked source, why."""
        ...


def verify(
    policy: Policy,
    sources: Iterable[Declared],
    rows: Mapping[str, tuple[str, int]],
    use: str = "train",
    kept: Mapping[str, int] | None = None,
) -> list[str]:
    """What policy says against a corpus for ``use``, one line a problem, in the order of ``sources``; empty when it may pass.

    ``rows`` has, of each source in the shards, its licence as the shards have it and how many rows; ``kept`` how many rows its ledger promises.
    A source may be declared without being in the shards: then only its licence and its declared uses are judged.
    """
    problems = []
    declared = {source.id: source for source in sources}
    for source in declared.values():
        held = rows.get(source.id)
        found = _source_problems(policy, source, held, use)
        if kept is not None and source.id in kept and kept[source.id] != (held[1] if held else 0):
            found.append(f"the ledger promises {kept[source.id]} rows, the shards hold {held[1] if held else 0}")
        problems += [f"source {source.id}: {problem}" for problem in found]
    problems += [f"source {id}: is in the shards, and nothing is declared of it" for id in sorted(rows.keys() - declared.keys())]
    return problems


SourceId = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]*$(?!\n)")]
Moment = Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z$(?!\n)")]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", max_length=64)]
Documents = Annotated[int, Meta(ge=0)]
PiiPolicy = Literal["scrub", "drop", "none"]


class LedgerRow(Record):
    """One acquisition of a source, as a line of LEDGER.jsonl, in this order of keys."""

    source_id: SourceId
    url: Text
    license_spdx: Text
    retrieved_at: Moment
    sha256: Sha256
    n_docs: Documents
    allowed_uses: tuple[Use, ...]
    pii_policy: PiiPolicy
    filters_applied: tuple[str, ...]
    kept: Documents
    dropped: Documents
    notes: str
    revoked: bool = False

    @property
    def id(self) -> str:
        return self.source_id


class CorpusRow(Record):
    """What became of a source in one corpus, as a line of the ledger.jsonl beside its shards: a row of the ledger without a date."""

    source_id: SourceId
    url: Text
    license_spdx: Text
    sha256: Sha256
    n_docs: Documents
    allowed_uses: tuple[Use, ...]
    pii_policy: PiiPolicy
    filters_applied: tuple[str, ...]
    kept: Documents
    dropped: Documents
    dropped_by: dict[str, Documents]
    """``stage.rule`` -> documents; their sum is ``dropped``."""
    notes: str
    revoked: bool = False

    @property
    def id(self) -> str:
        return self.source_id


def row_problems(row: Mapping[str, Any]) -> list[str]:
    """What is wrong with a parsed ledger row, one line a problem; the caller says which row. Empty when it is a :class:`LedgerRow`."""
    return strict.convert(dict(row), LedgerRow)[1]


def verify_ledger(
    policy: Policy,
    lines: Iterable[Mapping[str, Any]],
    rows: Mapping[str, tuple[str, int]],
    use: str = "train",
    row_type: type[LedgerRow] | type[CorpusRow] = LedgerRow,
) -> list[str]:
    """What policy says against a corpus, by its ledger: :func:`verify` over the last row of each source.

    A row that is none is a problem by its number, and so is one whose counts do not add up; a source whose last row is none has no row. What any
    row took back stays so.
    """
    lines = list(lines)
    revoked = revoked_by(lines)
    problems: list[str] = []
    last: dict[str, LedgerRow | CorpusRow] = {}
    for number, line in enumerate(lines, 1):
        row, wrong = strict.convert(dict(line), row_type)
        if row is not None and row.kept + row.dropped != row.n_docs:
            wrong = [f"kept {row.kept} and dropped {row.dropped} are not the {row.n_docs} of n_docs"]
        elif isinstance(row, CorpusRow) and (told := sum(row.dropped_by.values())) != row.dropped:
            wrong = [f"dropped_by tells of {told} documents, dropped of {row.dropped}"]
        problems += [f"ledger row {number}: {problem}" for problem in wrong]
        if row is None or wrong:
            last.pop(str(line.get("source_id")), None)
        else:
            why = revoked.get(row.source_id) or revoked.get(row.sha256)
            last[row.source_id] = msgspec.structs.replace(row, revoked=True, notes=why) if why else row
    return problems + verify(policy, last.values(), rows, use, {row.source_id: row.kept for row in last.values()})


def revoked_by(lines: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Ids and digests that rows of a ledger take back, and why. A later row that takes nothing back does not undo it.

    >>> revoked_by([{"source_id": "a", "sha256": "0" * 64, "revoked": True, "notes": "asked for"}, {"source_id": "a"}])["a"]
    'asked for'
    """
    return {
        str(line[key]): str(line.get("notes") or "its row in the ledger says so")
        for line in lines
        for key in ("source_id", "sha256")
        if line.get("revoked") is True and key in line
    }


def row_schema(row_type: type[LedgerRow] | type[CorpusRow]) -> dict[str, Any]:
    """The JSON Schema of a line of a ledger, from the type."""
    schema = msgspec.json.schema(row_type, ref_template="#/$defs/{name}")
    definition: dict[str, Any] = schema["$defs"][row_type.__name__]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | definition


# --- rules of a policy ---


def _allow_problems(entry: Allowed) -> list[str]:
    problems = _why_problems(entry.why)
    parts = entry.spdx.split(" ")[0].split("-")
    if entry.spdx in ("NONE", "NOASSERTION"):
        problems.append("says that there is no licence to speak of, and cannot be allowed")
    if "train" in entry.uses and {"NC", "ND"} & set(parts):
        problems.append("forbids commerce or derived works, and cannot be allowed for train")
    if entry.spdx.startswith(("CC-BY-", "ODC-By-")) and "attribution" not in entry.obligations:
        problems.append('obliges to name the authors: add "attribution" to obligations')
    if ("SA" in parts or entry.spdx.startswith("CDLA-Sharing-")) and "share-alike" not in entry.obligations:
        problems.append('obliges to share alike: add "share-alike" to obligations')
    return problems


def _why_problems(why: str) -> list[str]:
    words = len(why.split())
    return [] if words >= MIN_WHY_WORDS else [f"why has {words} words; give the reason in at least {MIN_WHY_WORDS}"]


def _readable(entries: Any, type_: type[Entry]) -> list[Entry]:
    """The entries that can be read, so that rules speak of them though others are wrong."""
    found = (strict.convert(entry, type_)[0] for entry in (entries if isinstance(entries, list) else []))
    return [entry for entry in found if entry is not None]


def _source_problems(policy: Policy, source: Declared, held: tuple[str, int] | None, use: str) -> list[str]:
    permitted = policy.uses(source.license_spdx)
    if permitted is None:
        return [f"licence {source.license_spdx!r} {policy.refusal(source.license_spdx)}"]
    problems = []
    beyond = [u for u in source.allowed_uses if u not in permitted]
    if beyond:
        why = policy.refusal(source.license_spdx) or f"allows {', '.join(sorted(permitted))} only"
        problems.append(f"allowed_uses has {', '.join(beyond)}, but licence {source.license_spdx} {why}")
    if held is None:
        return problems
    if source.revoked:
        problems.append(f"was revoked: {source.notes or 'no reason is given'}; take it out of the configuration")
    if use not in source.allowed_uses:
        problems.append(f"is not declared for {use}; its allowed_uses are {', '.join(source.allowed_uses) or 'none'}")
    if held[0] != source.license_spdx:
        problems.append(f"the shards say licence {held[0]!r}, the configuration {source.license_spdx!r}; build again")
    return problems


# --- expressions ---

_PLAIN = re.compile(r"[A-Za-z0-9.-]+\+?")
_OPERATORS = re.compile(r"(?<![\w.+-])(?:and|or|with)(?![\w.+-])", re.IGNORECASE)
_NOTHING_OPENED = re.compile(r"\(\s*(?:\)|(?:and|or|with)(?![\w.+-]))", re.IGNORECASE)  # what the library takes for a fault of its own
_LONGEST = 2000  # characters; deeper than that can be nested, nobody reads


def _parse(expression: str, known: Mapping[str, Any]) -> Any:
    """The expression as a listed id, or as ("AND" or "OR", parts); ``None`` when a part is not in ``known`` or it is no expression."""
    if expression in known:
        return expression
    if _PLAIN.fullmatch(expression) or len(expression) > _LONGEST or _NOTHING_OPENED.search(expression):
        return None
    if any(word != word.upper() for word in _OPERATORS.findall(expression)):
        return None
    from license_expression import ExpressionError, Licensing

    try:
        tree = Licensing().parse(expression)
    except ExpressionError:
        return None
    return None if tree is None else _listed(tree, known)


def _listed(tree: Any, known: Mapping[str, Any]) -> Any:
    from license_expression import AND, OR, LicenseWithExceptionSymbol

    if isinstance(tree, AND | OR):
        parts = [_listed(part, known) for part in tree.args]
        return None if None in parts else ("AND" if isinstance(tree, AND) else "OR", parts)
    if str(tree) in known:
        return str(tree)
    if isinstance(tree, LicenseWithExceptionSymbol) and tree.license_symbol.key in known and _is_exception(tree.exception_symbol.key):
        return tree.license_symbol.key
    return None


def _is_exception(name: str) -> bool:
    from license_expression import get_spdx_licensing

    symbol = get_spdx_licensing().known_symbols.get(name)
    return symbol is not None and symbol.is_exception


def _permitted(tree: Any, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    if isinstance(tree, str):
        return known[tree]
    operator, parts = tree
    return reduce(frozenset.__and__ if operator == "AND" else frozenset.__or__, [_permitted(part, known) for part in parts])


def _leaves(tree: Any) -> list[str]:
    return [tree] if isinstance(tree, str) else [leaf for part in tree[1] for leaf in _leaves(part)]
