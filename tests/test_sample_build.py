"""The sample as it is really built: what it decides and prints, against the oracle and the golden page."""

import collections
import json
import shutil
from pathlib import Path

import oracle
import polars as pl
import pyarrow.parquet as pq
import pytest
from projects import ROOT, doit

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def answer():
    return oracle.build(ROOT / "configs" / "sample.toml")


@pytest.fixture(scope="module")
def record(sample):
    return json.loads((sample[0] / "cache" / "builds" / "sample.json").read_text())


@pytest.fixture(scope="module")
def rows(sample):
    return pl.read_parquet(str(sample[0] / "cache" / "corpus" / "sample" / "v1" / "*.parquet"))


def removed(sample, stage):
    """Every removal row of a stage, over its entries."""
    paths = sorted((sample[0] / "cache" / "store" / stage).glob("*/*.removed.parquet"))
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def test_what_it_prints_is_golden(sample):
    said = sample[1]
    summary = said[said.index("sample v1") :]
    assert summary == (GOLDEN / "sample.txt").read_text(), (
        "to renew it after a change that was meant: doit info build:sample, and read the difference"
    )


def test_every_stage_ran(record):
    stages = ["fetch", "filter", "decontaminate", "scrub", "sign", "exact_dedup", "near_dedup", "rails", "shard", "ledger", "tokenize"]
    assert list(dict.fromkeys(step["stage"] for step in record["steps"])) == stages


def test_the_kept_documents_are_those_of_the_oracle_in_its_order(answer, rows):
    expected = answer.kept()
    assert rows.get_column("id").to_list() == [d.id for d in expected]
    assert rows.get_column("text").to_list() == [d.final for d in expected]
    assert rows.get_column("split").to_list() == [d.split for d in expected]
    assert rows.get_column("lang").to_list() == [d.lang for d in expected]
    assert rows.get_column("pii_redactions").to_list() == [sum(d.redacted.values()) for d in expected]


def test_every_other_document_has_one_row_that_says_why(answer, sample):
    told = collections.Counter()
    for stage in ("filter", "decontaminate", "scrub", "exact_dedup", "near_dedup"):
        for row in removed(sample, stage):
            told[row["id"], stage, row["rule"]] += 1
    assert told == collections.Counter((d.id, *d.removed) for d in answer.documents if d.removed)


def test_near_duplicates_name_the_survivor_and_the_true_similarity(answer, sample):
    found = {row["id"]: row for row in removed(sample, "near_dedup")}
    expected = {d.id: d for d in answer.documents if d.removed == ("near_dedup", "jaccard")}
    assert set(found) == set(expected)
    for id, document in expected.items():
        assert found[id]["similarity"] == pytest.approx(document.similarity, abs=1e-12)
        assert found[id]["survivor"] == document.survivor
        assert (found[id]["value"], found[id]["threshold"]) == (found[id]["similarity"], 0.8)


def test_the_counts_are_those_of_the_oracle(answer, record):
    for source in answer.sources:
        counts = {step["stage"]: step["counts"][source] for step in record["steps"] if source in step["counts"]}
        whole = answer.counts(source)
        assert counts["filter"]["docs_in"] == whole["docs_in"]
        assert counts["shard"]["kept"] == whole["kept"]
        by_stage = {stage: {rule: n for rule, n in counts[stage]["dropped"].items() if n} for stage in counts}
        assert {stage: rules for stage, rules in by_stage.items() if rules} == whole["removed"]


def test_what_was_not_compared_is_counted(answer, record):
    near = next(step for step in record["steps"] if step["stage"] == "near_dedup")
    assert sum(tally["also"]["not_compared"] for tally in near["counts"].values()) == answer.skipped_pairs > 0


def test_tokens_per_split_are_those_of_the_oracle(answer, sample):
    manifest = json.loads((sample[0] / "cache" / "tokens" / "bytes" / "sample" / "_MANIFEST.json").read_text())
    for split in ("train", "val"):
        assert sum(f["n_tokens"] for f in manifest["files"] if f["split"] == split) == answer.tokens(split)


def test_personal_data_is_counted_as_the_oracle_counts_it(answer, sample):
    manifest = json.loads((sample[0] / "cache" / "corpus" / "sample" / "v1" / "_MANIFEST.json").read_text())
    assert manifest["pii"] == {f"{kind}s": n for kind, n in answer.pii().items()}


def test_a_second_run_and_another_process_find_nothing_to_do(sample):
    assert doit(sample[0], "build:sample").stdout == "build:sample: nothing to be done\n"


def test_a_changed_threshold_reruns_only_what_stands_below(sample, tmp_path):
    folder = tmp_path / "project"
    shutil.copytree(sample[0], folder, symlinks=True)
    run = doit(folder, "build:sample", "--set", "dedup.jaccard_threshold=0.7")
    assert run.returncode == 0, run.stderr
    ran = [line.split()[0] for line in run.stdout.splitlines() if line.strip() and not line.startswith("... ")]
    assert ran[:6] == ["near_dedup", "rails", "shard", "ledger", "tokenize", "sample"]
