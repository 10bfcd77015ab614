"""What a build wrote, read by others: Parquet by four readers, token files by numpy and the published header alone."""

import hashlib
import json

import datasets
import duckdb
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from projects import doit, jsonl, make_project, story

COLUMNS = {
    "id": "string",
    "text": "string",
    "source_id": "string",
    "url": "string",
    "license_spdx": "string",
    "lang": "string",
    "n_chars": "int32",
    "sha256": "binary",
    "minhash_cluster": "int64",
    "pii_redactions": "int32",
    "split": "string",
    "title": "string",
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readers")
    lines = [json.dumps({"text": story(i), "title": f"title {i}"}) for i in range(25)] + [
        json.dumps({"text": story(25) + " Mail ana@example.com."})
    ]
    sources = {
        "tales": ("tales.jsonl", "\n".join(lines).encode(), 'keep = ["title"]'),
        "more": ("more.jsonl", jsonl([story(i) for i in range(40, 60)]), ""),
    }
    make_project(folder, sources, extra="[shard]\nshard_rows = 20\nval_permille = 200\nrow_group_bytes = 3000")
    run = doit(folder, "build:tiny")
    assert run.returncode == 0, run.stderr
    return folder / "cache"


@pytest.fixture(scope="module")
def corpus(cache):
    return cache / "corpus" / "tiny" / "v1"


def test_pyarrow_reads_the_documented_schema(corpus):
    for path in sorted(corpus.glob("*.parquet")):
        schema = pq.read_schema(path)
        assert {field.name: str(field.type) for field in schema} == COLUMNS
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            texts = file.read_row_group(group, columns=["text"]).column("text").to_pylist()
            assert sum(len(t.encode()) for t in texts) <= 3000 or len(texts) == 1


def test_every_reader_sees_the_same_rows(corpus):
    pattern = str(corpus / "*.parquet")
    ids = pl.read_parquet(pattern).get_column("id").to_list()
    assert ids == [f"tales:{i}" for i in range(26)] + [f"more:{i}" for i in range(20)]
    assert [
        row[0]
        for row in duckdb.sql(
            f"select id from read_parquet('{pattern}', file_row_number = true) order by filename, file_row_number"
        ).fetchall()
    ] == ids
    loaded = datasets.load_dataset("parquet", data_files=pattern, split="train", cache_dir=str(corpus.resolve().parents[3] / "hf"))
    assert loaded["id"][:] == ids
    assert loaded[25]["text"].endswith("Mail <EMAIL>.")


def test_rows_say_what_they_are(corpus):
    for row in pl.read_parquet(str(corpus / "*.parquet")).to_dicts():
        assert row["sha256"] == hashlib.sha256(row["text"].encode()).digest()
        assert row["n_chars"] == len(row["text"])
        assert row["split"] == ("val" if int.from_bytes(row["sha256"][:8], "big") % 1000 < 200 else "train")
        assert row["url"] == f"{row['source_id']}.jsonl#{int(row['id'].split(':')[1]) + 1}"
        assert row["license_spdx"] == "CC0-1.0"
        assert row["title"] == (f"title {row['id'].split(':')[1]}" if row["source_id"] == "tales" and row["id"] != "tales:25" else None)
        assert row["pii_redactions"] == (1 if row["id"] == "tales:25" else 0)


def test_the_manifest_lists_every_file_with_its_digest(corpus):
    manifest = json.loads((corpus / "_MANIFEST.json").read_text())
    listed = {f["name"]: f["sha256"] for f in [*manifest["shards"], *manifest["files"]]}
    present = {p.name for p in corpus.iterdir()} - {"_MANIFEST.json", "_MANIFEST.json.sha256", "contents.json"}
    assert set(listed) == present
    for name, digest in listed.items():
        assert hashlib.sha256((corpus / name).read_bytes()).hexdigest() == digest
    assert manifest["n_docs"] == sum(s["rows"] for s in manifest["shards"]) == 46
    assert manifest["n_shards"] == len(manifest["shards"]) == 3
    assert [s["name"] for s in manifest["shards"]] == [f"shard-{i:05d}-of-00003.parquet" for i in range(3)]
    assert manifest["pii"] == {"emails": 1, "phones": 0, "cards": 0, "ips": 0, "keys": 0}
    assert (manifest["dataset"], manifest["version"], len(manifest["key"])) == ("tiny", "v1", 64)


def test_token_files_read_back_with_numpy_and_the_published_header_alone(cache, corpus):
    tokens = cache / "tokens" / "bytes" / "tiny"
    manifest = json.loads((tokens / "_MANIFEST.json").read_text())
    assert [f["name"] for f in manifest["files"]] == sorted(f["name"] for f in manifest["files"])
    assert manifest["corpus_manifest_sha256"] == hashlib.sha256((corpus / "_MANIFEST.json").read_bytes()).hexdigest()
    rows = pl.read_parquet(str(corpus / "*.parquet"))
    for split in ("train", "val"):
        [file] = [f for f in manifest["files"] if f["split"] == split]
        data = (tokens / file["name"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == file["sha256"]
        header = np.frombuffer(data[:1024], "<i4")
        assert list(header[:4]) == [20240520, 1, file["n_tokens"], 256]
        assert not header[4:].any()
        ids = np.frombuffer(data[1024:], "<u2")
        texts = rows.filter(pl.col("split") == split).get_column("text").to_list()
        assert bytes(ids.astype(np.uint8)).decode() == "".join(texts)
        assert (file["n_tokens"], file["n_docs"]) == (len(ids), len(texts))


def test_the_index_leads_from_tokens_to_documents(cache, corpus):
    tokens = cache / "tokens" / "bytes" / "tiny"
    index = pl.read_parquet(tokens / "index.parquet")
    texts = dict(pl.read_parquet(str(corpus / "*.parquet")).select("id", "text").iter_rows())
    assert sorted(index.get_column("id")) == sorted(texts)
    for row in index.to_dicts():
        ids = np.memmap(tokens / row["file"], np.uint16, offset=1024)
        assert bytes(ids[row["start"] : row["start"] + row["length"]].astype(np.uint8)).decode() == texts[row["id"]]


def test_the_papers_say_what_is_in_the_corpus(corpus):
    attribution, sheet = (corpus / "ATTRIBUTION.md").read_text(), (corpus / "DATASHEET.md").read_text()
    assert "tales.jsonl" in attribution
    assert "CC0-1.0" in attribution
    for heading in ("Motivation", "Composition", "Collection", "Preprocessing", "Uses", "Distribution and maintenance"):
        assert f"\n## {heading}\n" in sheet
    assert "46 documents" in sheet
    assert "email" in sheet
    rows = [json.loads(line) for line in (corpus / "ledger.jsonl").read_text().splitlines()]
    assert [(r["source_id"], r["n_docs"], r["kept"], r["dropped"]) for r in rows] == [("tales", 26, 26, 0), ("more", 20, 20, 0)]
    assert all("retrieved_at" not in r for r in rows)
