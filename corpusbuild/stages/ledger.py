"""Ledger: the licence gate over what is in the shards, and the papers of the corpus: counts, attribution, datasheet.

Its entry is the corpus as a reader sees it: the shards (hard links) beside the papers. Nothing is published, and nothing tokenized, that did not pass here.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from corpusbuild import datasheet, licenses
from corpusbuild.errors import LicenseError
from corpusbuild.hashing import file_sha256, sums_line
from corpusbuild.model import Counts, Record, Tally, total
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
    revoked: bool = False


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
    held = _licences_in([Path(p) for p in shards.files(".parquet")])
    kept = {name: tally.kept for name, tally in shards.contents.counts.items()}
    problems = licenses.verify(params.policy, params.sources, held, params.use, kept)
    if problems:
        raise LicenseError(*problems)
    values = job.map(link_shard, [Link(name=p.name.removesuffix(".parquet"), path=str(p)) for p in shards.files(".parquet")])
    manifest = msgspec.json.decode((shards.path / MANIFEST).read_bytes())
    for shard, sha256 in zip(manifest["shards"], values, strict=True):
        if shard["sha256"] != sha256:
            raise LicenseError(f"{shard['name']} is not what its manifest says: delete {shards.path} and build again")
    rows = [_row(job, params, source, shards.contents.counts[source.id]) for source in params.sources]
    papers = {
        "ledger.jsonl": b"".join(msgspec.json.encode(row) + b"\n" for row in rows),
        "ATTRIBUTION.md": datasheet.attribution(params.dataset, params.version, _kept(rows), params.policy).encode(),
        "DATASHEET.md": datasheet.datasheet(params.dataset, params.version, manifest, rows, params.settings).encode(),
    }
    for name, data in papers.items():
        job.put(name, data)
    manifest["files"] = [{"name": name, "sha256": datasheet.sha256_hex(data), "bytes": len(data)} for name, data in sorted(papers.items())]
    manifest["key"] = job.key
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
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


def _licences_in(shards: list[Path]) -> dict[str, tuple[str, int]]:
    """Source -> (licence string, rows) over the shards. Several licences of one source are joined, so that the gate sees the difference."""
    counts: dict[str, dict[str, int]] = {}
    for path in shards:
        pairs = (
            pq.read_table(path, columns=["source_id", "license_spdx"])
            .group_by(["source_id", "license_spdx"])
            .aggregate([([], "count_all")])
        )
        for pair in pairs.to_pylist():
            of_source = counts.setdefault(pair["source_id"], {})
            of_source[pair["license_spdx"]] = of_source.get(pair["license_spdx"], 0) + pair["count_all"]
    return {source: (" | ".join(sorted(by)), sum(by.values())) for source, by in sorted(counts.items())}


def _row(job: Job, params: Params, source: LedgerSource, kept: Tally) -> dict[str, Any]:
    """The ledger row of a source in this corpus. It has no date: the acquisition's date stands in LEDGER.jsonl."""
    raw = total([e.contents.counts[source.id] for e in job.inputs["raw"] if e.source == source.id])
    return {
        "source_id": source.id,
        "url": source.urls[0],
        "license_spdx": source.license_spdx,
        "sha256": source.sha256[0] if len(source.sha256) == 1 else datasheet.sha256_hex("\n".join(source.sha256).encode()),
        "n_docs": raw.docs_in,
        "allowed_uses": list(source.allowed_uses),
        "pii_policy": source.pii_policy,
        "filters_applied": list(params.settings),
        "kept": kept.kept,
        "dropped": raw.docs_in - kept.kept,
        "dropped_by": _reasons(job, source.id, raw),
        "notes": "",
    }


def _reasons(job: Job, source: str, raw: Tally) -> dict[str, int]:
    """Why documents of a source are gone, by ``stage.rule``, in the order of the stages."""
    reasons = {f"fetch.{rule}": n for rule, n in raw.rejected.items()}
    for stage, role in [(s, s) for s in ("decontaminate", "scrub")] + [("exact_dedup", "exact"), ("near_dedup", "near")]:
        if stage == "decontaminate":
            for entry in job.inputs["documents"]:
                if entry.source == source:
                    reasons |= {f"filter.{rule}": n for rule, n in entry.contents.counts[source].dropped.items()}
        for entry in job.inputs.get(role, ()):
            if source in entry.contents.counts:
                reasons |= {f"{stage}.{rule}": n for rule, n in entry.contents.counts[source].dropped.items()}
    return reasons


def _kept(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["kept"]]


STAGE = Stage("ledger", version=2, build=build)
