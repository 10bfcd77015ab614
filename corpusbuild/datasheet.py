"""The papers of a corpus, as text: its attribution and its datasheet (after Gebru et al. 2021). Numbers come from the files; why is left to a person."""

import hashlib
from typing import Any

from corpusbuild.licenses import Policy


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def attribution(dataset: str, version: str, rows: list[dict[str, Any]], policy: Policy) -> str:
    """What must be passed on with the corpus: each source that is in it, its licence and the obligations of that licence."""
    lines = [f"# Attribution: {dataset} {version}", "", "This corpus holds text from the sources below, under the licences named.", ""]
    for row in rows:
        duties = ", ".join(policy.obligations(row["license_spdx"])) or "none"
        lines += [
            f"## {row['source_id']}",
            "",
            f"- from: {row['url']}",
            f"- licence: {row['license_spdx']}",
            f"- obligations: {duties}",
            f"- documents: {row['kept']}; changes: selected, deduplicated, personal data policy `{row['pii_policy']}`",
            "",
        ]
    return "\n".join(lines)


def datasheet(dataset: str, version: str, manifest: dict[str, Any], rows: list[dict[str, Any]], settings: dict[str, Any]) -> str:
    """The datasheet as Markdown. ``rows`` are ledger rows with ``dropped_by``; ``settings`` are the stages' settings by stage."""
    splits: dict[str, int] = manifest["splits"]
    pii = ", ".join(f"{kind} {n}" for kind, n in manifest["pii"].items())
    lines = [
        f"# Datasheet: {dataset} {version}",
        "",
        "## Motivation",
        "",
        "<Why was this corpus made, by whom, for what?>",
        "",
        "## Composition",
        "",
        f"- {manifest['n_docs']} documents in {manifest['n_shards']} shards: {splits['train']} train, {splits['val']} val",
        f"- personal data replaced by placeholders: {pii}",
        "",
        "## Collection",
        "",
        "| source | from | licence | sha256 | documents in | kept |",
        "|---|---|---|---|---|---|",
        *(f"| {r['source_id']} | {r['url']} | {r['license_spdx']} | {r['sha256']} | {r['n_docs']} | {r['kept']} |" for r in rows),
        "",
        "## Preprocessing",
        "",
        *(f"- {stage}: {_settings(values)}" for stage, values in settings.items()),
        "",
        "| source | dropped by | documents |",
        "|---|---|---|",
        *(f"| {r['source_id']} | {reason} | {n} |" for r in rows for reason, n in r["dropped_by"].items()),
        "",
        "## Uses",
        "",
        *(f"- {r['source_id']}: {', '.join(r['allowed_uses'])}" for r in rows),
        "",
        "## Distribution and maintenance",
        "",
        "Ship ATTRIBUTION.md with every copy. <Who maintains this corpus, and how is a document taken out?>",
        "",
    ]
    return "\n".join(lines)


def _settings(values: Any) -> str:
    if not isinstance(values, dict):
        return str(values)
    return ", ".join(f"{name} {value}" for name, value in values.items())
