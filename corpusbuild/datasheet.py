"""The papers of a corpus, as text: its attribution and its datasheet (after Gebru et al. 2021). Numbers come from the files; why is left to a person."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from corpusbuild.licenses import DUTIES, CorpusRow, Policy, links
from corpusbuild.model import Record


class SourceFile(Record):
    """One file of a source, as it came. ``unique_documents`` are those of different text, by digest, before anything was changed."""

    source_id: str
    url: str
    sha256: str
    bytes: int
    decompressed_bytes: int
    documents: int
    unique_documents: int


class SourceSheet(Record):
    """A source in a corpus: its row of the ledger, and what was done to its documents."""

    row: CorpusRow
    credit: str
    """Whom to name, where the configuration says so."""
    notice: str
    """What every copy must keep, where the configuration names it."""
    files: tuple[SourceFile, ...]
    text_bytes: int
    """Of the documents kept, in UTF-8."""
    cut: int
    """Paragraphs removed that repeat an earlier one."""
    replaced: int
    """Placeholders in the documents kept."""


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def attribution(dataset: str, version: str, sheets: Sequence[SourceSheet], policy: Policy) -> str:
    """What must be passed on with the corpus: of every source with a document in it the authors, the licence, what that obliges to, and what was
    changed."""
    held = [sheet for sheet in sheets if sheet.row.kept]
    listed = list(dict.fromkeys(spdx for sheet in held for spdx in policy.listed(sheet.row.license_spdx)))
    duties = {spdx: policy.obligations(spdx) for spdx in listed}
    documents = sum(sheet.row.kept for sheet in held)
    lines = [
        f"# Attribution: {dataset} {version}",
        "",
        f"This corpus holds {_n(documents, 'document')} from {_n(len(held), 'source')}. Each source remains under its own licence. "
        "Ship this page with every copy of the corpus.",
        "",
    ]
    if listed:
        lines += ["## Licences and what they oblige to", ""]
    for spdx in listed:
        lines += [f"### {spdx}", "", *(f"<{link}>" for link in links(spdx)), *([""] if links(spdx) else [])]
        lines += [*(f"- {duty}: {DUTIES[duty]}" for duty in duties[spdx]), *([] if duties[spdx] else ["- nothing is owed"]), ""]
    for sheet in held:
        row = sheet.row
        lines += [
            f"## {row.source_id}",
            "",
            f"- authors: {_line(sheet.credit) or f'those whom {row.url} names'}",
            *(f"- from: {file.url} (sha256 {file.sha256})" for file in sheet.files),
            f"- licence: {row.license_spdx}",
            f"- obligations: {', '.join(policy.obligations(row.license_spdx)) or 'none'}",
            f"- changes: {changes(sheet)}",
            *_notice(sheet, policy),
            "",
        ]
    return "\n".join(lines)


def _notice(sheet: SourceSheet, policy: Policy) -> list[str]:
    if sheet.notice:
        return ["- notice:", "", *(f"      {line}".rstrip() for line in sheet.notice.strip("\n").splitlines())]
    if "notice" in policy.obligations(sheet.row.license_spdx):
        return [f"- notice: <not recorded; copy the copyright notice and the licence from {sheet.row.url} to here>"]
    return []


def changes(sheet: SourceSheet) -> str:
    """What was done to the text of a source, in a line."""
    row = sheet.row
    done = [f"{row.kept} of {_n(row.n_docs, 'document')} selected", "Unicode, line ends and white space normalised"]
    if sheet.cut:
        done.append(f"{_n(sheet.cut, 'paragraph')} removed that repeat earlier ones")
    if sheet.replaced:
        done.append(f"{_n(sheet.replaced, 'item')} of personal data replaced by placeholders")
    return ", ".join(done)


def datasheet(
    dataset: str,
    version: str,
    manifest: Mapping[str, Any],
    sheets: Sequence[SourceSheet],
    settings: Mapping[str, Any],
    langs: Mapping[str, int],
    policy: Policy,
) -> str:
    """The datasheet as Markdown. ``settings`` are the stages' settings by stage, ``langs`` the documents in each language."""
    splits: dict[str, int] = manifest["splits"]
    lines = [
        f"# Datasheet: {dataset} {version}",
        "",
        "## Motivation",
        "",
        "<Why was this corpus made, by whom, for what?>",
        "",
        "## Composition",
        "",
        f"- {_n(manifest['n_docs'], 'document')}, {_n(sum(s.text_bytes for s in sheets), 'byte')} of text, in {_n(manifest['n_shards'], 'shard')}: "
        f"{splits['train']} train, {splits['val']} val",
        f"- languages by their stop words: {_counts(langs) or 'none'}",
        f"- personal data replaced by placeholders: {_counts(manifest['pii'])}",
        f"- the rows' digest, whatever file holds them: {manifest['rows_blake3']}",
        "",
        *_table(("source", "documents", "bytes of text", "licence"), [(s.row.source_id, s.row.kept, s.text_bytes, s.row.license_spdx) for s in sheets]),
        "",
        "<What does a document stand for, what is missing, what may offend or endanger somebody?>",
        "",
        "## Collection",
        "",
        "Every file was pinned by its digest before it was fetched.",
        "",
        *_table(
            ("source", "from", "licence", "sha256", "bytes", "decompressed", "documents", "of different text"),
            [
                (s.row.source_id, f.url, s.row.license_spdx, f.sha256, f.bytes, f.decompressed_bytes, f.documents, f.unique_documents)
                for s in sheets
                for f in s.files
            ],
        ),
        "",
        "<Who wrote the texts, and did they know of this use?>",
        "",
        "## Preprocessing",
        "",
        "In this order; each document that is gone stands, with the rule and what was measured, in a table of the stage that removed it.",
        "",
        *(f"- {stage}: {_stage(stage, values, sheets)}" for stage, values in settings.items()),
        "",
        *_table(
            ("source", "documents in", "kept", "dropped", "by"),
            [(s.row.source_id, s.row.n_docs, s.row.kept, s.row.dropped, _counts(s.row.dropped_by) or "-") for s in sheets],
        ),
        "",
        "## Uses",
        "",
        *(f"- {s.row.source_id}: {', '.join(s.row.allowed_uses)}" for s in sheets),
        "",
        "<What should nobody use it for?>",
        "",
        "## Distribution and maintenance",
        "",
        *(
            f"- {s.row.source_id}: {s.row.license_spdx}, which obliges to {', '.join(policy.obligations(s.row.license_spdx)) or 'nothing'}"
            for s in sheets
        ),
        "",
        "Ship ATTRIBUTION.md with every copy. <Who maintains this corpus, and whom does one ask to take a document out?>",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def _stage(stage: str, values: Any, sheets: Sequence[SourceSheet]) -> str:
    """How a stage was set, and what it dropped: ``dropped 3 (lang 2, length 1); min_chars 50, ...``."""
    rules: dict[str, int] = {}
    for sheet in sheets:
        for reason, n in sheet.row.dropped_by.items():
            of, rule = reason.split(".", 1)
            if of == stage and n:
                rules[rule] = rules.get(rule, 0) + n
    most = dict(sorted(rules.items(), key=lambda rule: (-rule[1], rule[0])))
    dropped = f"dropped {sum(rules.values())}" + (f" ({_counts(most)})" if most else "")
    said = ", ".join(f"{name} {value}" for name, value in values.items()) if isinstance(values, dict) else str(values)
    return said if stage == "tokenize" else f"{dropped}; {said}"


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    return [_row(head), f"|{'---|' * len(head)}", *map(_row, rows)]


def _row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(_line(str(cell)).replace('|', chr(92) + '|') for cell in cells)} |"


def _line(text: str) -> str:
    return " ".join(text.split())


def _counts(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in numbers.items())


def _n(n: int, thing: str) -> str:
    """
    >>> _n(1, "shard"), _n(2, "shard")
    ('1 shard', '2 shards')
    """
    return f"{n} {thing}" + ("" if n == 1 else "s")
