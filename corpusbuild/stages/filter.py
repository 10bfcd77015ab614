"""Filter: raw documents to normalised ones, and a decision for each one dropped."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from corpusbuild import language, quality, raw
from corpusbuild.errors import ConfigError
from corpusbuild.model import Counts, Record, Tally, add_counts
from corpusbuild.parts import DOCUMENTS, REMOVED, part_of, write_arrow, write_rows
from corpusbuild.quality import FilterParams
from corpusbuild.stage import Job, Out, Stage, Task
from corpusbuild.text import normalize


class Params(Record):
    """``rules`` is None where the stage is switched off: documents are normalised and all but the empty ones kept."""

    source: str
    rules: FilterParams | None
    unicode: str
    """The version of the Unicode tables, which decide what a letter is."""
    plugin_sha256: str | None = None
    """Digest of the file that ``ppl.model`` names, so that editing it reruns the stage."""
    limit: int | None = None
    """Take only the first documents of the source."""


class FilterPart(Task):
    path: str
    first: int
    """How many raw documents of the source come before this part."""
    take: int
    params: Params


def build(job: Job) -> Counts:
    params: Params = job.params
    tasks, first = [], 0
    for part in raw.parts(job.inputs["raw"][0].path):
        take = part.documents if params.limit is None else max(0, min(part.documents, params.limit - first))
        tasks.append(FilterPart(name=part_of(Path(part.path)), path=part.path, first=first, take=take, params=params))
        first += part.documents
    return add_counts([{params.source: _tally(value)} for value in job.map(filter_part, tasks)] or [{params.source: Tally()}])


def filter_part(task: FilterPart, out: Out) -> Any:
    source, rules = task.params.source, task.params.rules
    perplexity = _load(rules.ppl.model) if rules and rules.ppl else None
    kept: list[dict[str, Any]] = []
    removed: list[dict[str, Any]] = []
    dropped: dict[str, int] = {}
    bytes_in = bytes_out = 0
    for k, document in enumerate(raw.read_part(Path(task.path), task.take), start=task.first):
        text = normalize(document.text)
        lang, conf = language.detect(text)
        failures = quality.failures(text, lang, conf, rules, perplexity) if text and rules else []
        if not text:
            failures = [quality.Failure("empty", 0.0, 1.0)]
        id = f"{source}:{document.id if document.id is not None else k}"
        where = {"id": id, "place": document.place, "file": document.file}
        bytes_in += len(document.text.encode())
        if failures:
            rule, value, threshold = failures[0]
            dropped[rule] = dropped.get(rule, 0) + 1
            removed.append(
                where
                | {
                    "source": source,
                    "stage": "filter",
                    "rule": rule,
                    "value": value,
                    "threshold": threshold,
                    "rules": [f.rule for f in failures],
                }
            )
        else:
            bytes_out += len(text.encode())
            kept.append(where | {"text": text, "lang": lang, "lang_conf": conf, "meta": document.meta})
    write_arrow(out.path(".docs.arrow"), pa.Table.from_pylist(kept, schema=DOCUMENTS))
    write_rows(out.path(".removed.parquet"), removed, REMOVED)
    order = ["empty", *quality.RULES]
    return {
        "docs_in": task.take,
        "kept": len(kept),
        "dropped": {rule: dropped[rule] for rule in order if rule in dropped},
        "also": {"text_bytes_in": bytes_in, "text_bytes": bytes_out},
    }


def _tally(value: dict[str, Any]) -> Tally:
    return Tally(**value)


def _load(model: str) -> Callable[[str], float]:
    module, _, name = model.partition(":")
    try:
        function: Callable[[str], float] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"filters.ppl.model: {model} cannot be loaded ({error}); name an importable package.module:function") from None
    return function


STAGE = Stage("filter", version=1, build=build)
