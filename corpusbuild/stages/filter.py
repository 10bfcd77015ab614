"""Filter: raw documents to normalised ones, and a decision for each one dropped."""

from collections import Counter
from collections.abc import Callable
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from corpusbuild import kernels, language, plugins, quality, raw
from corpusbuild.measure import measures, normal_forms
from corpusbuild.model import Counts, Record, Tally, add_counts
from corpusbuild.parts import DOCUMENTS, REMOVED, part_of, write_arrow
from corpusbuild.quality import Failure, FilterParams, Measures
from corpusbuild.stage import Job, Out, Stage, Task
from corpusbuild.texts import Texts


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
    judge, kept, removed = _Judge(params), _Kept(), _Removed(params.source)
    first, bytes_in = task.first, 0
    for batch in map(_read, raw.read_batches(Path(task.path), task.take)):
        ids = [f"{params.source}:{k if id is None else id}" for k, id in enumerate(batch.ids, start=first)]
        langs, confs, failures = judge(ids, batch)
        stays = [not failed for failed in failures]
        kept.add(stays, ids, batch, langs, confs)
        removed.add([i for i, stay in enumerate(stays) if not stay], ids, batch, failures)
        first += len(ids)
        bytes_in += batch.bytes_before
        del batch
    write_arrow(out.path(".docs.arrow"), kept.table())
    pq.write_table(removed.table(), out.path(".removed.parquet"), compression="zstd")
    order = ["empty", *quality.RULES, *(limits.rules if limits else ())]
    dropped = Counter(removed.columns["rule"])
    return {
        "docs_in": task.take,
        "kept": len(kept.columns["id"]),
        "dropped": {rule: dropped[rule] for rule in order if rule in dropped},
        "also": {"text_bytes_in": bytes_in, "text_bytes": len(kept.text)},
    }


class _Batch(NamedTuple):
    """Documents as columns, with what their texts were in bytes before they were normalised."""

    ids: list[str | None]
    places: list[str]
    files: list[int]
    metas: list[str | None]
    texts: Texts
    bytes_before: int


def _read(batch: raw.Batch) -> _Batch:
    lines = batch.lines
    columns = [line.id for line in lines], [line.place() for line in lines], batch.files, [line.columns() for line in lines]
    texts = normal_forms([line.text for line in lines])
    lines.clear()  # a document of any size is then held but once
    return _Batch(*columns, *texts)


class _Judge:
    """Tells the language of documents and every rule that each fails. Loads what that takes."""

    def __init__(self, params: Params):
        self._source, self._limits = params.source, params.limits
        limits = params.limits
        self._by_vote = limits is None or limits.lang_model == "vote"
        self._identify = language.identifier(limits.lang_model if limits else "vote")
        self._model = plugins.load(limits.ppl.model, params.folder) if limits and limits.ppl else None
        self._rules = [(name, plugins.load(name, params.folder)) for name in (limits.rules if limits else ())]

    def __call__(self, ids: list[str], batch: _Batch) -> tuple[list[str], list[float], list[list[Failure]]]:
        """The language of each document, the confidence, and what it fails."""
        judged = self._by_counts(ids, batch.texts) if kernels.compiled() else self._one_by_one(ids, batch.texts)
        if self._rules:
            self._add_rules(ids, batch, *judged)
        return judged

    def _by_counts(self, ids: list[str], texts: Texts) -> tuple[list[str], list[float], list[list[Failure]]]:
        limits = self._limits
        measured = measures(texts, limits.repetition.n if limits else 1)
        if self._by_vote:
            langs, confs = language.elected(measured.votes)
        else:
            identified = list(map(self._identify, texts.strings()))
            langs, confs = [lang for lang, _ in identified], np.array([conf for _, conf in identified], np.float64)
        failures = [[Failure("empty", 0.0, 1.0)] if empty else [] for empty in np.equal(measured.points, 0).tolist()]
        if limits is not None:
            some = np.flatnonzero(measured.points)
            perplexities = None
            if limits.ppl and self._model:
                strings, name = texts.strings(), limits.ppl.model
                perplexities = np.array([plugins.measure(name, self._model, ids[i], strings[i]) for i in some.tolist()], np.float64)
            measured = Measures(*(column[..., some] for column in measured))
            found = quality.failures_of(measured, [langs[i] for i in some.tolist()], confs[some], limits, perplexities)
            for i, failed in zip(some.tolist(), found, strict=True):
                failures[i] = failed
        return langs, confs.tolist(), failures

    def _one_by_one(self, ids: list[str], texts: Texts) -> tuple[list[str], list[float], list[list[Failure]]]:
        """The same, by the references."""
        strings = texts.strings()
        identified = list(map(self._identify, strings))
        failures = [self._failures(id, text, *told) for id, text, told in zip(ids, strings, identified, strict=True)]
        return [lang for lang, _ in identified], [conf for _, conf in identified], failures

    def _failures(self, id: str, text: str, lang: str, conf: float) -> list[Failure]:
        if not text:
            return [Failure("empty", 0.0, 1.0)]
        if self._limits is None:
            return []
        return quality.failures(text, lang, conf, self._limits, self._perplexity(id))

    def _perplexity(self, id: str) -> Callable[[str], float] | None:
        if self._model is None or self._limits is None or self._limits.ppl is None:
            return None
        model, name = self._model, self._limits.ppl.model
        return lambda text: plugins.measure(name, model, id, text)

    def _add_rules(self, ids: list[str], batch: _Batch, langs: list[str], confs: list[float], failures: list[list[Failure]]) -> None:
        strings = batch.texts.strings()
        with_text = [i for i, text in enumerate(strings) if text]
        rows = [
            {
                "id": ids[i],
                "source_id": self._source,
                "text": strings[i],
                "lang": langs[i],
                "lang_conf": confs[i],
                "meta": batch.metas[i],
            }
            for i in with_text
        ]
        for name, rule in self._rules:
            for i, failure in zip(with_text, plugins.judge(name, rule, rows), strict=True):
                failures[i] += [failure] if failure else []


class _Kept:
    """The documents of a part that stay."""

    def __init__(self) -> None:
        self.columns: dict[str, list[Any]] = {field.name: [] for field in DOCUMENTS if field.name != "text"}
        self.text = bytearray()
        self._sizes: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]

    def add(self, stays: list[bool], ids: list[str], batch: _Batch, langs: list[str], confs: list[float]) -> None:
        told: dict[str, list[Any]] = {
            "id": ids,
            "file": batch.files,
            "place": batch.places,
            "lang": langs,
            "lang_conf": confs,
            "meta": batch.metas,
        }
        for name, column in self.columns.items():
            column += compress(told[name], stays)
        data, offsets = batch.texts
        edges = np.flatnonzero(np.diff(np.array([False, *stays, False]))).tolist()
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            self.text += data[offsets[start] : offsets[end]].data
        self._sizes.append(np.diff(offsets)[stays])

    def table(self) -> pa.Table:
        offsets = np.cumsum(np.concatenate(self._sizes))
        text = pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(self.text))
        return pa.table([text if f.name == "text" else pa.array(self.columns[f.name], f.type) for f in DOCUMENTS], schema=DOCUMENTS)


class _Removed:
    """The documents of a part that go, and why."""

    def __init__(self, source: str) -> None:
        self.columns: dict[str, list[Any]] = {name: [] for name in ("id", "rule", "value", "threshold", "rules", "place", "file")}
        self._source = source

    def add(self, rows: list[int], ids: list[str], batch: _Batch, failures: list[list[Failure]]) -> None:
        firsts = [failures[i][0] for i in rows]
        told: dict[str, list[Any]] = {
            "id": [ids[i] for i in rows],
            "rule": [failure.rule for failure in firsts],
            "value": [failure.value for failure in firsts],
            "threshold": [failure.threshold for failure in firsts],
            "rules": [[failure.rule for failure in failures[i]] for i in rows],
            "place": [batch.places[i] for i in rows],
            "file": [batch.files[i] for i in rows],
        }
        for name, column in self.columns.items():
            column += told[name]

    def table(self) -> pa.Table:
        n = len(self.columns["id"])
        known = self.columns | {"source": [self._source] * n, "stage": ["filter"] * n}
        columns = [pa.array(known[f.name], f.type) if f.name in known else pa.nulls(n, f.type) for f in REMOVED]
        return pa.table(columns, schema=REMOVED)


def _tally(value: dict[str, Any]) -> Tally:
    return Tally(**value)


def _names_output(params: Params) -> object:
    return {name: value for name, value in msgspec.to_builtins(params).items() if name != "folder"}


STAGE = Stage("filter", version=2, build=build, names_output=_names_output)
