"""Ledger: the licence gate over what is in the shards, and the papers of the corpus: counts, attribution, datasheet, and a page for catalogues.

Its entry is the corpus as a reader sees it: the shards (hard links) beside the papers. Nothing is published, and nothing tokenized, that did not pass here.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from corpusbuild import licenses, pii, raw
from corpusbuild.arrow import read_table
from corpusbuild.croissant import croissant
from corpusbuild.datasheet import SourceFile, SourceSheet, attribution, datasheet, sha256_hex
from corpusbuild.errors import IntegrityError, LicenseError
from corpusbuild.hashing import file_sha256, sums_line
from corpusbuild.model import Counts, Record, Tally
from corpusbuild.stage import Job, Out, Stage, Task
from corpusbuild.stages.shard import MANIFEST, MANIFEST_SHA256


class LedgerSource(Record):
    """What a person declared about a source, and what may be done with it."""

    id: str
    urls: tuple[str, ...]
    sha256: tuple[str, ...]
    license_spdx: str
    allowed_uses: tuple[str, ...]
    pii_policy: str
    credit: str = ""
    notice: str = ""
    revoked: bool = False
    notes: str = ""
    """Of a revoked source, why."""


class Params(Record):
    dataset: str
    version: str
    use: str
    sources: tuple[LedgerSource, ...]
    policy: licenses.Policy
    settings: dict[str, Any]
    """What the datasheet says of the processing: the stages' settings by name."""


class Link(Task):
    path: str


def build(job: Job) -> Counts:
    params: Params = job.params
    shards = job.inputs["shard"][0]
    paths = shards.files(".parquet")
    held = _held(paths)
    sheets = [_sheet(job, params, source, shards.contents.counts[source.id]) for source in params.sources]
    ledger = [msgspec.json.encode(sheet.row) for sheet in sheets]
    problems = licenses.verify_ledger(params.policy, map(msgspec.json.decode, ledger), _licences(held), params.use, licenses.CorpusRow)
    if problems:
        raise LicenseError(*problems)
    values = job.map(link_shard, [Link(name=p.name.removesuffix(".parquet"), path=str(p)) for p in paths])
    manifest = msgspec.json.decode((shards.path / MANIFEST).read_bytes())
    for shard, sha256 in zip(manifest["shards"], values, strict=True):
        if shard["sha256"] != sha256:
            raise IntegrityError(f"{shard['name']} is not what its manifest says: delete {shards.path} and build again")
    papers = _papers(params, manifest, sheets, held, paths)
    papers["ledger.jsonl"] = b"".join(line + b"\n" for line in ledger)
    for name, data in papers.items():
        job.put(name, data)
    manifest["sources"] = [file for sheet in sheets for file in sheet.files]
    manifest["files"] = [{"name": name, "sha256": sha256_hex(data), "bytes": len(data)} for name, data in sorted(papers.items())]
    manifest["key"] = job.key
    data = _json(manifest)
    job.put(MANIFEST, data)
    job.put(MANIFEST_SHA256, sums_line(data, MANIFEST))
    return {name: Tally(docs_in=t.kept, kept=t.kept, also=t.also) for name, t in shards.contents.counts.items()}


def link_shard(task: Link, out: Out) -> Any:
    """Give the shard a second name in this entry, and its digest. Copied where the file system has no hard links."""
    target = out.path(".parquet")
    try:
        os.link(task.path, target)
    except OSError:
        shutil.copyfile(task.path, target)
    return file_sha256(target)


Held = dict[tuple[str, str, str], int]
"""(source, licence string, language) -> rows of the shards."""


def _held(shards: list[Path]) -> Held:
    held: Held = {}
    columns = ["source_id", "license_spdx", "lang"]
    for path in shards:
        for row in read_table(path, columns=columns).group_by(columns).aggregate([([], "count_all")]).to_pylist():
            key = (row["source_id"], row["license_spdx"], row["lang"])
            held[key] = held.get(key, 0) + row["count_all"]
    return dict(sorted(held.items()))


def licences_in(shards: list[Path]) -> dict[str, tuple[str, int]]:
    """Source -> (licence string, rows) over the shards."""
    return _licences(_held(shards))


def _licences(held: Held) -> dict[str, tuple[str, int]]:
    """Source -> (licence string, rows). Several licences of one source are joined, so that the gate sees the difference."""
    of: dict[str, dict[str, int]] = {}
    for (source, licence, _), n in held.items():
        of.setdefault(source, {})[licence] = of.get(source, {}).get(licence, 0) + n
    return {source: (" | ".join(by), sum(by.values())) for source, by in of.items()}


def _papers(params: Params, manifest: Any, sheets: list[SourceSheet], held: Held, shards: list[Path]) -> dict[str, bytes]:
    langs: dict[str, int] = {}
    for (_, _, lang), n in held.items():
        langs[lang] = langs.get(lang, 0) + n
    by_count = dict(sorted(langs.items(), key=lambda item: (-item[1], item[0])))
    licences = dict.fromkeys(spdx for sheet in sheets if sheet.row.kept for spdx in params.policy.listed(sheet.row.license_spdx))
    links = [link for spdx in licences for link in licenses.links(spdx) or (spdx,)]
    sizes = {path.name: path.stat().st_size for path in shards}
    of = (params.dataset, params.version)
    return {
        "ATTRIBUTION.md": attribution(*of, sheets, params.policy).encode(),
        "DATASHEET.md": datasheet(*of, manifest, sheets, params.settings, by_count, params.policy).encode(),
        "croissant.json": _json(croissant(*of, manifest, pq.read_schema(shards[0]), sizes, links)),
        "ledger.schema.json": _json(licenses.row_schema(licenses.CorpusRow)),
    }


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _sheet(job: Job, params: Params, source: LedgerSource, kept: Tally) -> SourceSheet:
    """What became of a source. It has no date: the acquisition's date stands in LEDGER.jsonl."""
    (entry,) = (e for e in job.inputs["raw"] if e.source == source.id)
    came = entry.contents.counts[source.id]
    row = licenses.CorpusRow(
        source_id=source.id,
        url=source.urls[0],
        license_spdx=source.license_spdx,
        sha256=source.sha256[0] if len(source.sha256) == 1 else sha256_hex("\n".join(source.sha256).encode()),
        n_docs=came.docs_in,
        allowed_uses=source.allowed_uses,  # type: ignore[arg-type]  # checked by the configuration
        pii_policy=source.pii_policy,  # type: ignore[arg-type]  # likewise
        filters_applied=tuple(stage for stage in params.settings if stage != "tokenize"),
        kept=kept.kept,
        dropped=came.docs_in - kept.kept,
        dropped_by=_reasons(job, source.id, came),
        notes=source.notes,
        revoked=source.revoked,
    )
    cut = sum(_count(job, "exact", source.id, lambda tally: tally.also.get("duplicate_paragraphs", 0)))
    return SourceSheet(
        row=row,
        credit=source.credit,
        notice=source.notice,
        files=_files(source, raw.receipt(entry.path)),
        text_bytes=kept.also.get("text_bytes", 0),
        cut=cut,
        replaced=sum(kept.also.get(kind, 0) for kind in pii.KINDS),
    )


def _files(source: LedgerSource, receipt: raw.Receipt) -> tuple[SourceFile, ...]:
    """The files of a source. Their addresses are those of this configuration: another may have fetched the same bytes from elsewhere."""
    ours = len(source.urls) == len(receipt.files) and not any(file.name for file in receipt.files)
    return tuple(
        SourceFile(
            source_id=source.id,
            url=source.urls[i] if ours else f"{source.urls[0]}#{file.name}",
            sha256=file.sha256,
            bytes=file.size,
            decompressed_bytes=file.decompressed,
            documents=file.documents,
            unique_documents=file.unique,
        )
        for i, file in enumerate(receipt.files)
    )


def _count(job: Job, role: str, source: str, of: Callable[[Tally], int]) -> list[int]:
    return [of(e.contents.counts[source]) for e in job.inputs.get(role, ()) if source in e.contents.counts]


def _reasons(job: Job, source: str, came: Tally) -> dict[str, int]:
    """Why documents of a source are gone, by ``stage.rule``, in the order of the stages."""
    reasons = {f"fetch.{rule}": n for rule, n in came.rejected.items()}
    taken = sum(_count(job, "documents", source, lambda tally: tally.docs_in))
    if taken != came.kept:
        reasons["limit.rest"] = came.kept - taken  # documents behind the first N, where a run was limited to those
    for stage, role in (
        ("filter", "documents"),
        ("decontaminate", "decontaminate"),
        ("scrub", "scrub"),
        ("exact_dedup", "exact"),
        ("near_dedup", "near"),
    ):
        for entry in job.inputs.get(role, ()):
            if source in entry.contents.counts:
                reasons |= {f"{stage}.{rule}": n for rule, n in entry.contents.counts[source].dropped.items()}
    return {reason: n for reason, n in reasons.items() if n}


STAGE = Stage("ledger", version=2, build=build)
