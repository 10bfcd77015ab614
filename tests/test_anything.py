"""What must hold on anything: whatever the text, the parts and the order of workers, the whole chain of stages decides the same, and counts add up."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
import serial_job
from hypothesis import example, given, settings
from hypothesis import strategies as st
from projects import jsonl, make_project, story

from corpusbuild import raw
from corpusbuild.config import load
from corpusbuild.model import Counts, Tally
from corpusbuild.parts import read_rows
from corpusbuild.plan import Plan, plan
from corpusbuild.stage import Input, Job, Stage, Step
from corpusbuild.stages import fetch
from corpusbuild.stages.shard import MANIFEST
from corpusbuild.workshop import check_counts

ALL = [
    "email",
    "phone",
    "card",
    "ip",
    "key",
    "iban",
    "mac",
    "us_ssn",
    "gb_nino",
    "de_idnr",
    "fr_nir",
    "es_dni",
    "it_cf",
    "nl_bsn",
    "pt_nif",
]
OPEN = f"""
[pii]
kinds = {ALL}
[stages]
filter = false
[decontam]
protected = ["protected.txt"]
ngram = 3
[dedup]
shingle = 2
max_bucket = 2
[shard]
shard_rows = 3
val_permille = 300
row_group_bytes = 64
[tokenizer]
id = "bytes"
doc_sep_id = 0
max_file_tokens = 200
"""
"""Nothing is filtered, so that everything reaches the last stage."""
STRICT = (
    OPEN.replace("filter = false", "filter = true")
    + '[filters]\nmin_chars = 5\nlang_min_conf = 0.2\ngopher = { min_words = 3 }\nlangs = ["en", "de"]\n'
)


@dataclass
class Result:
    """What a chain gave, without what may differ: which part a document was in."""

    rows: list[dict[str, Any]]
    removed: list[tuple[Any, ...]]
    spans: list[tuple[Any, ...]]
    tokens: dict[str, bytes]
    counts: dict[str, Counts]
    digest: str
    rejected: int


def build(made: Plan, folder: Path, part_docs: int = 1000, backwards: bool = False, memory: int = 1 << 30) -> Result:
    """Build a plan, a step after the other, each in a folder of its own; ``check_counts`` is what a real build asks of each step."""
    entries: dict[str, Input] = {}
    for step in made.steps:
        inputs = {role: [entries[s.label] for s in by] for role, by in step.inputs.items()}
        stage = _split(step, made.loaded.path.parent, part_docs) if step.stage.name == "fetch" else step.stage
        home = folder / step.label.replace(":", "-")
        entry = serial_job.run(stage, step.params, inputs, home, source=step.source, backwards=backwards, memory=memory)
        check_counts(step.label, entry.contents.counts, [entries[s.label].contents.counts for s in step.follows])
        entries[step.label] = entry
    return _result(made, entries)


def _split(step: Step, folder: Path, part_docs: int) -> Stage:
    """The fetch of a local source, without a store: it is split, and its receipt written."""
    source = step.params
    path = folder / source.url
    data = path.read_bytes()
    file = fetch.Verified(str(path), source.url, path.name, hashlib.sha256(data).hexdigest(), len(data))

    def split(job: Job) -> Counts:
        task = fetch.SplitSource(name="part", source=source, files=(file,), fetched_at="2026-01-01T00:00:00Z", part_docs=part_docs)
        (value,) = job.map(fetch.split_source, [task])
        tally = msgspec.convert(value["tally"], Tally)
        receipt = raw.Receipt(
            source_id=source.id,
            url=source.url,
            license_spdx=source.license_spdx,
            sha256=file.sha256,
            retrieved_at=task.fetched_at,
            bytes=len(data),
            files=msgspec.convert(value["files"], tuple[raw.FileReceipt, ...]),
            parts=msgspec.convert(value["parts"], tuple[raw.RawPart, ...]),
            rejected=tally.rejected,
        )
        job.put(raw.RECEIPT, msgspec.json.encode(receipt))
        return {source.id: tally}

    return Stage("fetch", version=1, build=split)


def _result(made: Plan, entries: dict[str, Input]) -> Result:
    corpus = entries["ledger"]
    manifest = json.loads((corpus.path / MANIFEST).read_bytes())
    rows = [row for path in corpus.files(".parquet") for row in pq.read_table(path).to_pylist()]
    removed, spans = [], []
    for entry in entries.values():
        for path in entry.files(".removed.parquet"):
            for r in read_rows(path):
                columns = ("source", "place", "id", "stage", "rule", "value", "threshold", "survivor", "similarity", "cluster")
                removed.append((*(r[column] for column in columns), tuple(r["rules"])))
        for path in entry.files(".spans.parquet"):
            spans += [(r["id"], r["kind"], r["start"], r["end"]) for r in read_rows(path)]
    tokens = {p.name: p.read_bytes() for p in entries["tokenize"].files(".bin")}
    counts = {label: entry.contents.counts for label, entry in entries.items()}
    rejected = sum(sum(t.rejected.values()) for label in counts if label.startswith("fetch") for t in counts[label].values())
    return Result(rows, sorted(removed, key=str), sorted(spans), tokens, counts, manifest["rows_blake3"], rejected)


def check(result: Result, documents: int) -> None:
    """What holds of any one corpus."""
    kept = [row["id"] for row in result.rows]
    gone = [r[2] for r in result.removed if r[2] is not None]
    assert len(set(kept)) == len(kept)
    assert len(set(gone)) == len(gone), "each removal is told once"
    assert not set(kept) & set(gone)
    assert len(kept) + len(gone) + result.rejected == documents, "and none is untold"
    for r in result.removed:
        if r[3] == "near_dedup":
            assert r[7] in kept, "a survivor survives"
    assert sum(t.kept for t in result.counts["tokenize"].values()) == len(kept)
    header = 1024
    ids = sum((len(data) - header) // 2 for data in result.tokens.values())
    assert ids == sum(len(row["text"].encode()) + 1 for row in result.rows), (
        "every byte of the corpus is a token, and each document has a separator"
    )


PIECES = st.sampled_from(
    [
        *("", "a", "\n\n", "\n", " ", "\t", "\r\n", "\r", "\u2028", "\u2029", "\u0085", "\x00", "\x1b[0m", "\ufeff", "\u200d", "\u202e", "\u00ad"),
        *("e\u0301", "\u0344", "ﬁ", "İ", "ß", "ǆ", "ﷺ", "נִ", "क्षि", "ไทย", "日本語の文。", "한국어", "العربية", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0010ffff", "\ue000"),
        *("the cat sat on the mat ", "the dog and the bird ", "one two three four ", "der und die ", "The cat sat.\n\nThe dog ran.\n\n"),
        *("ana@example.com", "+1 212 555 0123", "4111 1111 1111 1111", "192.0.2.1", "DE89 3704 0044 0532 0130 00", "BSN 111222333"),
        *("<EMAIL>", "#", "...", "…", "- ", "\\", '"', "{}", "\u0301\u0301\u0301", "x" * 300, "1 " * 40),
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=7).map("".join) | st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
LINES = st.lists(TEXTS | st.sampled_from([story(1), story(2), f"{story(1)} {story(2)}"]), max_size=9)
"""Documents of one source."""
POLICY = {"one": '"scrub"', "two": '"drop"'}
BAD = ['{"text": "\\ud800 alone"}', '{"text": "\\udc00\\ud800"}', "no json", '{"text": 5}', '{"text": NaN}']
"""Lines that are no document: halves of surrogate pairs in escapes, and others."""


def project(folder: Path, sources: dict[str, list[str]], extra: str, bad: list[str] = []) -> Plan:  # noqa: B006  # never changed
    lines = {
        s: "".join(json.dumps({"text": t}, ensure_ascii=bool(i % 2)) + "\n" for i, t in enumerate(texts)) for s, texts in sources.items()
    }
    files = {
        s: (
            f"{s}.jsonl",
            (text + "".join(f"{line}\n" for line in bad)).encode(),
            'on_bad = "reject"\nmax_bad = 1\nallow_empty = true\npii_policy = ' + POLICY[s],
        )
        for s, text in lines.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = make_project(folder, files, extra)
    (path.parent / "protected.txt").write_text("one two three four")
    return plan(load(path))


ANYTHING = {
    "one": LINES,
    "two": LINES,
    "bad": st.lists(st.sampled_from(BAD), max_size=2),
    "extra": st.sampled_from([OPEN, STRICT]),
    "part_docs": st.integers(1, 4),
    "backwards": st.booleans(),
}


def _holds(one: list[str], two: list[str], bad: list[str], extra: str, part_docs: int, backwards: bool) -> None:
    with TemporaryDirectory() as home:
        made = project(Path(home) / "p", {"one": one, "two": two}, extra, bad)
        whole = build(made, Path(home) / "whole")
        check(whole, len(one) + len(two) + 2 * len(bad))
        assert whole.rejected == 2 * len(bad)
        other = build(made, Path(home) / "other", part_docs, backwards, memory=1 << 16)
        assert other.rows == whole.rows
        assert other.digest == whole.digest
        assert other.removed == whole.removed
        assert other.spans == whole.spans
        assert other.tokens == whole.tokens
        assert {label: _sums(counts) for label, counts in other.counts.items()} == {
            label: _sums(counts) for label, counts in whole.counts.items()
        }


@settings(deadline=None, max_examples=3)
@given(**ANYTHING)
@example([], ["", " ", "\x00"], BAD, STRICT, 2, True)
@example(["a"], ["a", "b", "A"], [], OPEN, 1, True)
def test_any_text_in_any_parts_by_any_order_of_workers(one, two, bad, extra, part_docs, backwards):
    _holds(one, two, bad, extra, part_docs, backwards)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(**ANYTHING)
def test_much_more_text(one, two, bad, extra, part_docs, backwards):
    _holds(one, two, bad, extra, part_docs, backwards)


def _sums(counts: Counts) -> dict[str, tuple[Any, ...]]:
    return {source: (t.docs_in, t.kept, {k: n for k, n in t.dropped.items() if n}, t.rejected) for source, t in counts.items()}


ONE_LINE = {
    "a letter": "a",
    "blanks": " \t",
    "no blank": "\u0301",
    "digits": "1 ",
    "addresses": "a@b.cc ",
    "colons": "::",
    "emoji": "\U0001f600",
    "words": "the cat and ",
    "separators": "\u2028the ",
}


def _one_line(unit: str, size: int, tmp_path: Path) -> None:
    text = unit * (size // len(unit)) + "."
    made = project(tmp_path / "p", {"one": [text, story(1), "."]}, OPEN)
    result = build(made, tmp_path / "whole")
    check(result, 3)


@pytest.mark.parametrize("unit", ONE_LINE.values(), ids=ONE_LINE)
def test_a_long_line(unit, tmp_path):
    _one_line(unit, 50_000, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ONE_LINE.values(), ids=ONE_LINE)
def test_a_line_of_ten_megabytes(unit, tmp_path):
    _one_line(unit, 10_000_000 // len(unit.encode()) * len(unit), tmp_path)


def test_a_source_of_nothing_is_a_corpus_of_nothing(tmp_path):
    made = plan(load(make_project(tmp_path / "p", {"one": ("one.jsonl", jsonl([]), "allow_empty = true")})))
    result = build(made, tmp_path / "whole")
    assert result.rows == []
    assert result.tokens.keys() == {"train-00000.bin", "val-00000.bin"}
