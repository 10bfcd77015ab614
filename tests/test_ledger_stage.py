"""The gate and the papers: nothing passes that the policy does not permit, every problem is told, and what is written beside the shards is true."""

import datetime
import hashlib
import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pyarrow.parquet as pq
import pytest
import test_shard as shards
from serial_job import run

from corpusbuild import licenses, raw
from corpusbuild.errors import IntegrityError, LicenseError
from corpusbuild.model import Tally
from corpusbuild.stage import Input
from corpusbuild.stages import ledger
from corpusbuild.stages.ledger import LedgerSource, Params

WHY = "six words are enough for this"
POLICY = licenses.policy_from(
    {
        "version": 1,
        "owner": "somebody",
        "reviewed": datetime.date(2026, 1, 2),
        "allow": [
            {"spdx": "CC0-1.0", "uses": ["train", "eval"], "obligations": [], "why": WHY},
            {"spdx": "MIT", "uses": ["train", "eval"], "obligations": ["notice"], "why": WHY},
            {"spdx": "CC-BY-SA-4.0", "uses": ["train", "eval"], "obligations": ["attribution", "share-alike"], "why": WHY},
            {"spdx": "CC-BY-NC-4.0", "uses": ["eval"], "obligations": ["attribution"], "why": WHY},
        ],
        "refuse": [{"spdx": "NOASSERTION", "why": WHY}],
    }
)
DIGEST = "e9d5b783f9fbf6ec94f8144919e20e8fea345376df3ad331cc01df785a7bd42b"


def source(id: str, **changes: Any) -> LedgerSource:
    base = LedgerSource(
        id=id, urls=(f"files/{id}.jsonl",), sha256=(DIGEST,), license_spdx="CC0-1.0", allowed_uses=("train", "eval"), pii_policy="scrub"
    )
    return msgspec.structs.replace(base, **changes)


def fetched(home: Path, source: LedgerSource, tally: Tally, files: int = 1, name: str = "") -> Input:
    """An entry of fetch without its parts."""
    home.mkdir(parents=True)
    receipts = tuple(
        raw.FileReceipt(
            url="elsewhere", sha256=DIGEST, size=20, decompressed=54, compression="gzip", documents=tally.kept, unique=1, rejected=0,
            name=f"{name}{i}" if name else "",
        )
        for i in range(files)
    )  # fmt: skip
    receipt = raw.Receipt(
        source_id=source.id, url="elsewhere", license_spdx=source.license_spdx, sha256=DIGEST, retrieved_at="2026-01-01T00:00:00Z", bytes=20,
        files=receipts, parts=(), rejected=tally.rejected,
    )  # fmt: skip
    (home / raw.RECEIPT).write_bytes(msgspec.json.encode(receipt))
    return shards.entry(home, "fetch", source.id, {source.id: tally})


def gate(
    home: Path, texts: list[list[str]], declared: list[LedgerSource] | None = None, use: str = "train", raws: dict[int, Tally] | None = None,
    corpus: Input | None = None, settings: Any = None, **decided: list[Input]
) -> Input:  # fmt: skip
    """Build shards of ``texts``, a list a source, and take them through the gate."""
    declared = declared or [source(f"s{i}") for i in range(len(texts))]
    made = corpus or shards.build(home / "made", [[part] for part in texts], **decided)
    documents = [shards.documents(home / f"documents-{i}", f"s{i}", [part]) for i, part in enumerate(texts)]
    tallies = {i: Tally(docs_in=len(part), kept=len(part)) for i, part in enumerate(texts)} | (raws or {})
    raw_entries = [fetched(home / f"raw-{i}", s, tallies[i]) for i, s in enumerate(declared) if i < len(texts)]
    params = Params(dataset="d", version="v", use=use, sources=tuple(declared), policy=POLICY, settings=settings or {})
    inputs = {"raw": raw_entries, "documents": documents, "shard": [made], **decided}
    return run(ledger.STAGE, params, inputs, home / "ledger")


def lines(corpus: Input) -> list[Any]:
    return [json.loads(line) for line in (corpus.path / "ledger.jsonl").read_text().splitlines()]


def problems(raised: pytest.ExceptionInfo[LicenseError]) -> list[str]:
    return list(raised.value.args)


# --- the gate ---


def test_a_sound_corpus_passes_with_its_shards_and_papers(tmp_path: Path) -> None:
    corpus = gate(tmp_path, [["one", "two"], ["three"]])
    names = {path.name for path in corpus.path.iterdir()}
    assert names == {
        "shard-00000-of-00001.parquet", "_MANIFEST.json", "_MANIFEST.json.sha256", "ledger.jsonl", "ledger.schema.json", "ATTRIBUTION.md",
        "DATASHEET.md", "croissant.json",
    }  # fmt: skip
    manifest = json.loads((corpus.path / "_MANIFEST.json").read_bytes())
    assert {f["name"] for f in [*manifest["shards"], *manifest["files"]]} == names - {"_MANIFEST.json", "_MANIFEST.json.sha256"}
    for file in [*manifest["shards"], *manifest["files"]]:
        assert hashlib.sha256((corpus.path / file["name"]).read_bytes()).hexdigest() == file["sha256"]
    assert corpus.contents.counts["s0"].kept == 2


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"license_spdx": "GPL-3.0-only"},
            "source s1: licence 'GPL-3.0-only' is not in the policy; have it judged, or leave the source out",
        ),
        (
            {"license_spdx": "NOASSERTION"},
            f"source s1: allowed_uses has train, eval, but licence NOASSERTION is refused (NOASSERTION: {WHY})",
        ),
        ({"revoked": True, "notes": "its author asked"}, "source s1: was revoked: its author asked; take it out of the configuration"),
        ({"allowed_uses": ("eval",)}, "source s1: is not declared for train; its allowed_uses are eval"),
        ({"license_spdx": "MIT"}, "source s1: the shards say licence 'CC0-1.0', the configuration 'MIT'; build again"),
    ],
)
def test_what_the_policy_does_not_permit_is_refused_and_nothing_is_written(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(LicenseError) as raised:
        gate(tmp_path, [["one"], ["two"]], [source("s0"), source("s1", **changes)])
    assert problem in problems(raised)
    assert raised.value.exit_code == 65
    assert list((tmp_path / "ledger" / "out").iterdir()) == []


def test_every_problem_of_every_source_is_told_at_once(tmp_path: Path) -> None:
    bad = [source("s0", license_spdx="X"), source("s1", revoked=True, allowed_uses=("eval",)), source("s2", sha256=("0" * 64,))]
    with pytest.raises(LicenseError) as raised:
        gate(tmp_path, [["one"], ["two"], ["three"]], bad)
    assert [p.split(":")[0] for p in problems(raised)] == ["source s0", "source s1", "source s1"]


def test_a_source_in_the_shards_that_nobody_declared_is_refused(tmp_path: Path) -> None:
    made = shards.build(tmp_path / "two", [[["one"]], [["two"]]])
    with pytest.raises(LicenseError, match=r"^source s1: is in the shards, and nothing is declared of it$"):
        gate(tmp_path, [["one"]], [source("s0")], corpus=made)


def test_rows_that_are_missing_from_the_shards_are_seen(tmp_path: Path) -> None:
    made = shards.build(tmp_path / "made", [[["one", "two"]]])
    path = made.files(".parquet")[0]
    pq.write_table(pq.read_table(path).slice(1), path)
    with pytest.raises(LicenseError, match="source s0: the ledger promises 2 rows, the shards hold 1"):
        gate(tmp_path, [["one", "two"]], corpus=made)


def test_a_shard_that_is_not_what_its_manifest_says_does_not_pass(tmp_path: Path) -> None:
    made = shards.build(tmp_path / "made", [[["one", "two"]]])
    path = made.files(".parquet")[0]
    pq.write_table(pq.read_table(path), path, compression="none")
    with pytest.raises(IntegrityError, match=r"shard-00000-of-00001.parquet is not what its manifest says"):
        gate(tmp_path, [["one", "two"]], corpus=made)


def test_two_licences_of_one_source_in_the_shards_are_seen(tmp_path: Path) -> None:
    made = shards.build(tmp_path / "made", [[["one", "two"]]])
    path = made.files(".parquet")[0]
    table = pq.read_table(path)
    at = table.schema.get_field_index("license_spdx")
    pq.write_table(table.set_column(at, table.schema.field(at), [["CC0-1.0", "MIT"]]), path)
    with pytest.raises(LicenseError, match=r"source s0: the shards say licence 'CC0-1.0 \| MIT'"):
        gate(tmp_path, [["one", "two"]], corpus=made)


def test_text_for_tests_alone_passes_for_tests_alone(tmp_path: Path) -> None:
    made = shards.build(tmp_path / "made", [[["one"]]], license_params("CC-BY-NC-4.0"))
    only = [source("s0", license_spdx="CC-BY-NC-4.0", allowed_uses=("eval",))]
    assert gate(tmp_path / "a", [["one"]], only, use="eval", corpus=made)
    with pytest.raises(LicenseError, match="source s0: is not declared for train"):
        gate(tmp_path / "b", [["one"]], only, use="train", corpus=made)


def license_params(*spdx: str) -> Any:
    params = shards.params(len(spdx))
    named = [msgspec.structs.replace(s, license_spdx=licence) for s, licence in zip(params.sources, spdx, strict=True)]
    return msgspec.structs.replace(params, sources=tuple(named))


# --- the ledger of the corpus ---


def test_rows_count_what_was_kept_and_why_the_rest_is_gone(tmp_path: Path) -> None:
    name = shards.part_name_of(0, shards.part_name(0))
    counts = {"s0": Tally(docs_in=3, kept=2, dropped={"paragraphs": 1})}
    exact = shards.decisions(tmp_path / "exact", "exact_dedup", [name], counts=counts, removed={name: [{"row": 1}]}, cuts={})
    came = Tally(docs_in=6, kept=5, rejected={"not_json": 1})  # two more documents than the run was limited to
    corpus = gate(tmp_path, [["one", "two", "three"]], raws={0: came}, exact=[exact], settings={"exact_dedup": "x", "tokenize": {}})
    [row] = lines(corpus)
    assert (row["n_docs"], row["kept"], row["dropped"]) == (6, 2, 4)
    assert row["dropped_by"] == {"fetch.not_json": 1, "limit.rest": 2, "exact_dedup.paragraphs": 1}
    assert row["filters_applied"] == ["exact_dedup"]
    assert list(row)[:4] == ["source_id", "url", "license_spdx", "sha256"]
    assert "retrieved_at" not in row


def test_a_row_whose_reasons_do_not_add_up_does_not_pass(tmp_path: Path) -> None:
    name = shards.part_name_of(0, shards.part_name(0))
    counts = {"s0": Tally(docs_in=2, kept=0, dropped={"paragraphs": 2})}
    exact = shards.decisions(tmp_path / "exact", "exact_dedup", [name], counts=counts, removed={name: [{"row": 1}]}, cuts={})
    made = shards.build(tmp_path / "made", [[["one"]]])
    with pytest.raises(LicenseError, match=r"^ledger row 1: dropped_by tells of 2 documents, dropped of 1\n"):
        gate(tmp_path, [["one", "two"]], corpus=made, exact=[exact])


def test_rows_are_as_their_schema_says(tmp_path: Path) -> None:
    corpus = gate(tmp_path, [["one"], ["two"]])
    schema = json.loads((corpus.path / "ledger.schema.json").read_bytes())
    assert len(lines(corpus)) == 2
    for row in lines(corpus):
        jsonschema.Draft202012Validator(schema).validate(row)
        assert list(jsonschema.Draft202012Validator(schema).iter_errors(row | {"kept": -1}))


# --- the manifest ---


def test_the_manifest_lists_every_source_file(tmp_path: Path) -> None:
    corpus = gate(tmp_path, [["one", "one"]])
    assert json.loads((corpus.path / "_MANIFEST.json").read_bytes())["sources"] == [
        {
            "source_id": "s0", "url": "files/s0.jsonl", "sha256": DIGEST, "bytes": 20, "decompressed_bytes": 54, "documents": 2,
            "unique_documents": 1,
        }
    ]  # fmt: skip


def test_files_that_a_source_names_itself_are_told_apart(tmp_path: Path) -> None:
    one = source("s0", urls=("files/SHA256SUMS",))
    receipt = raw.receipt(fetched(tmp_path / "raw", one, Tally(docs_in=1, kept=1), files=2, name="part-").path)
    assert [file.url for file in ledger._files(one, receipt)] == ["files/SHA256SUMS#part-0", "files/SHA256SUMS#part-1"]


# --- the papers ---


def test_attribution_holds_every_obligation(tmp_path: Path) -> None:
    licences = ["MIT", "CC-BY-SA-4.0 OR MIT", "CC0-1.0", "CC-BY-SA-4.0"]
    made = shards.build(tmp_path / "made", [[["one"]], [["two"]], [["three"]], [[]]], license_params(*licences))
    declared = [source(f"s{i}", license_spdx=licence) for i, licence in enumerate(licences)]
    declared[0] = msgspec.structs.replace(declared[0], notice="Copyright (c) Ann\n\nPermission is granted\n", credit="Ann, 2020")
    page = (gate(tmp_path, [["one"], ["two"], ["three"], []], declared, corpus=made).path / "ATTRIBUTION.md").read_text()
    for spdx, duties in (("MIT", ["notice"]), ("CC-BY-SA-4.0", ["attribution", "share-alike"]), ("CC0-1.0", [])):
        section = page.split(f"\n### {spdx}\n")[1].split("\n#")[0]
        assert f"<https://spdx.org/licenses/{spdx}.html>" in section
        assert all(f"- {duty}: {licenses.DUTIES[duty]}" in section for duty in duties)
        assert bool(duties) != ("nothing is owed" in section)
    first, second = page.split("\n## s0\n")[1].split("\n## ")[0], page.split("\n## s1\n")[1].split("\n## ")[0]
    assert "- authors: Ann, 2020" in first
    assert "      Copyright (c) Ann\n\n      Permission is granted\n" in first
    assert "- authors: those whom files/s1.jsonl names" in second
    assert "- obligations: attribution, share-alike, notice" in second
    assert "notice: <not recorded; copy the copyright notice" in second
    assert f"- from: files/s1.jsonl (sha256 {DIGEST})" in second
    assert "- changes: 1 of 1 document selected" in second
    assert "## s3" not in page  # nothing of it is in the corpus


def test_the_datasheet_takes_its_numbers_from_the_files(tmp_path: Path) -> None:
    texts = ["Tom has a red ball.", "my mail", "gone", "Mia naps."]
    name = shards.part_name_of(0, shards.part_name(0))
    part = shards.part_name(0)
    near = shards.decisions(
        tmp_path / "near", "near_dedup", [name], removed={name: [{"row": 2}]}, clusters={},
        counts={"s0": Tally(docs_in=4, kept=3, dropped={"jaccard": 1})},
    )  # fmt: skip
    spans = {part: [{"row": 1, "kind": "email", "start": 3, "end": 7}]}
    scrub = shards.decisions(tmp_path / "scrub", "scrub", [part], source="s0", spans=spans, counts={"s0": Tally(docs_in=4, kept=4)})
    settings = {
        "filter": {"min_chars": 50}, "decontaminate": "13-gram overlap with protected files (1)", "near_dedup": {"jaccard_threshold": 0.8},
        "tokenize": {"tokenizer": "gpt2"},
    }  # fmt: skip
    made = shards.build(tmp_path / "made", [[texts]], shards.params(1, val_permille=300), scrub=[scrub], near=[near])
    corpus = gate(tmp_path, [texts], corpus=made, scrub=[scrub], near=[near], settings=settings)
    sheet = (corpus.path / "DATASHEET.md").read_text()
    assert sheet.startswith("# Datasheet: d v\n")
    sections = {block.split("\n", 1)[0]: block for block in sheet.split("\n## ")[1:]}
    assert list(sections) == ["Motivation", "Composition", "Collection", "Preprocessing", "Uses", "Distribution and maintenance"]
    expected = {
        "Motivation": ["<"],
        "Composition": ["3 documents", "2 train", "1 val", "emails 1", "en 3", json.loads((corpus.path / "_MANIFEST.json").read_bytes())["rows_blake3"]],
        "Collection": ["s0", "files/s0.jsonl", "CC0-1.0", DIGEST],
        "Preprocessing": ["dropped 1 (jaccard 1)", "jaccard_threshold 0.8", "dropped 0", "13-gram", "gpt2", "near_dedup.jaccard 1"],
        "Uses": ["train, eval"],
        "Distribution and maintenance": ["ATTRIBUTION.md", "<"],
    }  # fmt: skip
    for section, words in expected.items():
        assert [word for word in words if word not in sections[section]] == []


def test_a_table_stays_one_whatever_an_address_holds(tmp_path: Path) -> None:
    corpus = gate(tmp_path, [["one"]], [source("s0", urls=("a|b\nc.jsonl",), credit="Ann\nand Bo")])
    assert "| s0 | a\\|b c.jsonl | CC0-1.0 |" in (corpus.path / "DATASHEET.md").read_text()
    assert "- authors: Ann and Bo\n" in (corpus.path / "ATTRIBUTION.md").read_text()
