"""A tokenizer that is trained on the corpus: the train split only, the same file however the corpus is cut and ordered, and used for its tokens."""

import hashlib
import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import serial_job
from hypothesis import given
from hypothesis import strategies as st
from projects import ROOT, story
from tokenizers import Tokenizer

from corpusbuild.binfile import read
from corpusbuild.errors import ConfigError, StageError
from corpusbuild.model import Contents, File, Key, Tally
from corpusbuild.stage import Input
from corpusbuild.stages import tokenize, train_tokenizer
from corpusbuild.stages.shard import MANIFEST
from corpusbuild.tokenizer import Spec

TEXTS = [story(i, sentences=3) for i in range(40)]


def corpus(folder, shards):
    """An entry of shards of (text, split) documents."""
    folder.mkdir(parents=True)
    files, n = [], 0
    columns = {c: pa.string() for c in ("id", "source_id", "split", "text")} | {"sha256": pa.binary()}
    for i, documents in enumerate(shards):
        name = f"shard-{i:05d}-of-{len(shards):05d}.parquet"
        rows = [
            {"id": f"s:{n + k}", "source_id": "s", "split": split, "text": text, "sha256": hashlib.sha256(text.encode()).digest()}
            for k, (text, split) in enumerate(documents)
        ]
        n += len(rows)
        pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(list(columns.items()))), folder / name, row_group_size=7)
        files.append(File(path=name, size=1, blake3=""))
    (folder / MANIFEST).write_text("{}")
    tally = Tally(docs_in=n, kept=n)
    return Input(folder, "", Contents(key=Key("0"), stage="ledger", version=1, label="ledger", files=tuple(files), counts={"s": tally}))


def trained(folder, shards, vocab_size=320, sample_bytes=10**9, backwards=False):
    made = train_tokenizer.Params(vocab_size=vocab_size, sample_bytes=sample_bytes)
    return serial_job.run(train_tokenizer.STAGE, made, {"corpus": [corpus(folder / "corpus", shards)]}, folder, backwards=backwards)


def test_the_same_documents_give_the_same_file_however_they_are_cut(tmp_path):
    train = [(t, "train") for t in TEXTS]
    one = trained(tmp_path / "one", [train]).path / "tokenizer.json"
    many = trained(tmp_path / "many", [train[30:], train[:11], train[11:30]], backwards=True).path / "tokenizer.json"
    assert one.read_bytes() == many.read_bytes()


def test_every_process_trains_the_same(tmp_path):
    code = (
        "import sys, hashlib, pathlib, json; from corpusbuild.tokenizer.huggingface import train; "
        "print(hashlib.sha256(train(json.loads(pathlib.Path(sys.argv[1]).read_text()), 400)).hexdigest())"
    )
    (tmp_path / "texts.json").write_text(json.dumps(TEXTS))
    digests = set()
    for seed, threads in (("1", "1"), ("2", "4")):
        env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHONHASHSEED": seed,
            "RAYON_NUM_THREADS": threads,
            "TOKENIZERS_PARALLELISM": "true",
        }
        command = [sys.executable, "-c", code, str(tmp_path / "texts.json")]
        digests.add(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)
    assert len(digests) == 1


def test_only_the_train_split_is_learned(tmp_path):
    secret = "zqzqzqzqzqzq " * 200
    entry = trained(tmp_path, [[*((t, "train") for t in TEXTS), (secret, "val")]])
    library = Tokenizer.from_file(str(entry.path / "tokenizer.json"))
    assert not [token for token in library.get_vocab() if "zq" in token]
    assert library.get_vocab_size() == 320
    assert library.token_to_id("<|endoftext|>") == 0
    assert entry.contents.counts["s"].kept == len(TEXTS)


def test_a_sample_is_drawn_by_digest_and_counted(tmp_path):
    whole = sum(len(t.encode()) for t in TEXTS)
    entry = trained(tmp_path, [[(t, "train") for t in TEXTS]], sample_bytes=whole // 2)
    tally = entry.contents.counts["s"]
    limit = 2**63
    expected = [t for t in TEXTS if int.from_bytes(hashlib.sha256(t.encode()).digest()[:8], "big") < limit]
    told = json.loads((entry.path / "train.json").read_text())
    assert tally.kept == told["documents"] == len(expected)
    assert tally.dropped == {"not_drawn": len(TEXTS) - len(expected)}
    assert tally.also["trained_bytes"] == told["text_bytes"] == sum(len(t.encode()) for t in expected)


@given(st.integers(1, 10**15), st.integers(0, 10**15))
def test_the_share_drawn_is_the_share_wanted(sample, size):
    up_to = train_tokenizer.threshold(sample, size)
    assert 0 <= up_to < 2**64
    assert size <= sample or abs((up_to + 1) * size - 2**64 * sample) <= size


def test_no_document_to_train_on_is_told(tmp_path):
    with pytest.raises(StageError, match=r"no document is in it: lower shard\.val_permille"):
        trained(tmp_path, [[("a", "val")]])


def test_a_size_without_room_for_the_bytes_is_told(tmp_path):
    with pytest.raises(ConfigError, match="256 has no room for the 256 bytes"):
        trained(tmp_path, [[("a", "train")]], vocab_size=256)


def test_the_tokens_are_those_of_the_trained_file_which_stands_beside_them(tmp_path):
    shards = [[(t, "train") for t in TEXTS], [("a <|endoftext|> b", "val")]]
    entry = trained(tmp_path / "train", shards)
    params = tokenize.Params(dataset="d", version="v", id="t", tokenizer=Spec(), doc_sep_id=0)
    inputs = {"corpus": [corpus(tmp_path / "corpus", shards)], "tokenizer": [entry]}
    out = serial_job.run(tokenize.STAGE, params, inputs, tmp_path / "tokens").path
    library = Tokenizer.from_file(str(out / "tokenizer.json"))
    library.encode_special_tokens = True
    assert read(out / "train-00000.bin")[1].tolist() == [i for t in TEXTS for i in [0, *library.encode(t).ids]]
    assert read(out / "val-00000.bin")[1].tolist() == [0, *library.encode("a <|endoftext|> b").ids]
    manifest = json.loads((out / MANIFEST).read_text())
    assert manifest["tokenizer_sha256"] == hashlib.sha256((entry.path / "tokenizer.json").read_bytes()).hexdigest()
    assert manifest["vocab_size"] == 320
