"""Filter: raw documents to normalised ones, and a decision for each one dropped."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from corpusbuild import language, plugins, quality, raw
from corpusbuild.model import Counts, Record, Tally, add_counts
from corpusbuild.parts import DOCUMENTS, REMOVED, part_of, write_arrow, write_rows
from corpusbuild.quality import FilterParams
from corpusbuild.stage import Job, Out, Stage, Task
from corpusbuild.text import normalize

BATCH_DOCS, BATCH_CHARS = 1000, 1 << 22
"""How many documents, and code points of them, are judged at once; one that is longer is judged alone."""


class Params(Record):
    """``limits`` is None where the stage is switched off: documents are normalised and all but the empty ones kept."""

    source: str
    limits: FilterParams | None
    unicode: str
    """The version of the Unicode tables, which decide what a letter is."""
    plugins: dict[str, str]
    """Functions that ``limits`` names -> digest of their source, so that editing one reruns the stage."""
    lid: str | None = None
    """The trained identifier that tells the language, with its version."""
    folder: str = ""
    """The project's folder, where plug-ins are looked for first."""
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
    params, limits = task.params, task.params.limits
    judge = _Judge(params)
    kept: list[dict[str, Any]] = []
    removed: list[dict[str, Any]] = []
    dropped: dict[str, int] = {}
    bytes_in = bytes_out = 0
    for documents in _batches(task):
        bytes_in += sum(len(document.text.encode()) for _, document in documents)
        for row, failures in judge([_row(params.source, k, document) for k, document in documents]):
            where = {name: row[name] for name in ("id", "place", "file")}
            if failures:
                first = failures[0]
                dropped[first.rule] = dropped.get(first.rule, 0) + 1
                why = {"rule": first.rule, "value": first.value, "threshold": first.threshold, "rules": [f.rule for f in failures]}
                removed.append(where | {"source": params.source, "stage": "filter"} | why)
            else:
                bytes_out += len(row["text"].encode())
                kept.append(where | {name: row[name] for name in ("text", "lang", "lang_conf", "meta")})
    write_arrow(out.path(".docs.arrow"), pa.Table.from_pylist(kept, schema=DOCUMENTS))
    write_rows(out.path(".removed.parquet"), removed, REMOVED)
    order = ["empty", *quality.RULES, *(limits.rules if limits else ())]
    return {
        "docs_in": task.take,
        "kept": len(kept),
        "dropped": {rule: dropped[rule] for rule in order if rule in dropped},
        "also": {"text_bytes_in": bytes_in, "text_bytes": bytes_out},
    }


class _Judge:
    """Tells the language of documents and every rule that each fails. Loads what that takes."""

    def __init__(self, params: Params):
        self._limits = limits = params.limits
        self._identify = language.identifier(limits.lang_model if limits else "vote")
        self._model = plugins.load(limits.ppl.model, params.folder) if limits and limits.ppl else None
        self._rules = [(name, plugins.load(name, params.folder)) for name in (limits.rules if limits else ())]

    def __call__(self, rows: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], list[quality.Failure]]]:
        failures = [self._failures(row) for row in rows]
        with_text = [i for i, row in enumerate(rows) if row["text"]]
        for name, rule in self._rules:
            for i, failure in zip(with_text, plugins.judge(name, rule, [rows[i] for i in with_text]), strict=True):
                failures[i] += [failure] if failure else []
        return zip(rows, failures, strict=True)

    def _failures(self, row: dict[str, Any]) -> list[quality.Failure]:
        text = row["text"]
        row["lang"], row["lang_conf"] = self._identify(text)
        if not text:
            return [quality.Failure("empty", 0.0, 1.0)]
        if self._limits is None:
            return []
        return quality.failures(text, row["lang"], row["lang_conf"], self._limits, self._perplexity(row["id"]))

    def _perplexity(self, id: str) -> Callable[[str], float] | None:
        if self._model is None or self._limits is None or self._limits.ppl is None:
            return None
        model, name = self._model, self._limits.ppl.model
        return lambda text: plugins.measure(name, model, id, text)


def _batches(task: FilterPart) -> Iterator[list[tuple[int, raw.RawRow]]]:
    """The documents of a part with their numbers in the source, some at a time."""
    held: list[tuple[int, raw.RawRow]] = []
    chars = 0
    for numbered in enumerate(raw.read_part(Path(task.path), task.take), start=task.first):
        size = len(numbered[1].text)
        if held and (len(held) == BATCH_DOCS or chars + size > BATCH_CHARS):
            yield held
            held, chars = [], 0
        held.append(numbered)
        chars += size
    if held:
        yield held


def _row(source: str, k: int, document: raw.RawRow) -> dict[str, Any]:
    return {
        "id": f"{source}:{document.id if document.id is not None else k}",
        "source_id": source,
        "text": normalize(document.text),
        "place": document.place,
        "file": document.file,
        "meta": document.meta,
    }


def _tally(value: dict[str, Any]) -> Tally:
    return Tally(**value)


def _names_output(params: Params) -> object:
    return {name: value for name, value in msgspec.to_builtins(params).items() if name != "folder"}


STAGE = Stage("filter", version=1, build=build, names_output=_names_output)
