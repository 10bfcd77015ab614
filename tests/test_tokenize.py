"""The token stage over shards: whole documents in files of a limited size, separators before them, an index that leads back."""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import serial_job
import tokenizer_files
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild import encoding, kernels
from corpusbuild.binfile import read
from corpusbuild.errors import ConfigError, StageError
from corpusbuild.model import Contents, File, Key, Tally
from corpusbuild.stage import Input
from corpusbuild.stages import tokenize
from corpusbuild.stages.shard import MANIFEST
from corpusbuild.tokenizer import Bytes, Spec, open_quickest, reading, separator_beside
from corpusbuild.tokenizer.fast import Fast

DOCUMENT = st.tuples(st.text(max_size=8), st.sampled_from(["train", "val"]))


def run(folder, shards, said=None, **params):
    """The stage over shards of (text, split) documents; gives its directory and its counts."""
    corpus = folder / "corpus"
    corpus.mkdir(parents=True)
    files, n = [], 0
    for i, documents in enumerate(shards):
        name = f"shard-{i:05d}-of-{len(shards):05d}.parquet"
        rows = [{"id": f"s:{n + k}", "source_id": "s", "split": split, "text": text} for k, (text, split) in enumerate(documents)]
        n += len(rows)
        schema = pa.schema([(c, pa.string()) for c in ("id", "source_id", "split", "text")])
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), corpus / name, row_group_size=3)
        files.append(File(path=name, size=1, blake3=""))
    (corpus / MANIFEST).write_text("{}")
    contents = Contents(key=Key("0"), stage="ledger", version=1, label="ledger", files=tuple(files), counts={"s": Tally(docs_in=n, kept=n)})
    made = tokenize.Params(dataset="d", version="v", id="t", **{"tokenizer": Spec(), **params})
    entry = serial_job.run(tokenize.STAGE, made, {"corpus": [Input(corpus, "", contents)]}, folder, said=said)
    return entry.path, entry.contents.counts


def whole(out):
    """(file, ids) of every token file, in order."""
    return [(p.name, read(p)[1].tolist()) for p in sorted(out.glob("*.bin"))]


def test_the_worked_example_of_the_split(tmp_path):
    out, _ = run(tmp_path, [[("Hi", "train"), ("é", "val"), ("ok", "train")]])
    data = (out / "train-00000.bin").read_bytes()
    assert (len(data), data[1024:].hex()) == (1032, "480069006f006b00")
    assert dict(whole(out))["val-00000.bin"] == [195, 169]


def test_a_separator_goes_before_each_document(tmp_path):
    out, _ = run(tmp_path, [[("a", "train"), ("", "train"), ("bc", "train")]], doc_sep_id=10)
    assert dict(whole(out))["train-00000.bin"] == [10, 97, 10, 10, 98, 99]


def test_files_hold_whole_documents_and_a_longer_one_stands_alone(tmp_path):
    texts = ["aaaa", "bbbbbb", "cc", "d" * 15, "ee"]
    out, _ = run(tmp_path, [[(t, "train") for t in texts[:2]], [(t, "train") for t in texts[2:]]], max_file_tokens=10)
    manifest = json.loads((out / MANIFEST).read_text())
    assert [(f["name"], f["n_tokens"], f["n_docs"]) for f in manifest["files"]] == [
        ("train-00000.bin", 10, 2),
        ("train-00001.bin", 2, 1),
        ("train-00002.bin", 15, 1),
        ("train-00003.bin", 2, 1),
        ("val-00000.bin", 0, 0),
    ]


def test_both_splits_are_always_there(tmp_path):
    out, counts = run(tmp_path, [[]])
    assert whole(out) == [("train-00000.bin", []), ("val-00000.bin", [])]
    assert counts == {"s": Tally()}


def test_a_separator_outside_the_vocabulary_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="doc_sep_id: 256 is not below the vocabulary's size, 256"):
        run(tmp_path, [[("a", "train")]], doc_sep_id=256)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(DOCUMENT, max_size=7), min_size=1, max_size=3), st.none() | st.integers(0, 255), st.integers(1, 20))
def test_every_document_is_there_once_in_order_and_the_index_finds_it(tmp_path_factory, shards, separator, limit):
    folder = tmp_path_factory.mktemp("tokens")
    out, counts = run(folder, shards, doc_sep_id=separator, max_file_tokens=limit)
    documents = [d for shard in shards for d in shard]
    prefix = [] if separator is None else [separator]
    for split in ("train", "val"):
        mine = [[*prefix, *text.encode()] for text, s in documents if s == split]
        files = [ids for name, ids in whole(out) if name.startswith(split)]
        assert [i for ids in files for i in ids] == [i for ids in mine for i in ids]
    index = pq.read_table(out / "index.parquet").to_pylist()
    assert sorted(r["id"] for r in index) == sorted(f"s:{i}" for i in range(len(documents)))
    for row in index:
        text, split = documents[int(row["id"][2:])]
        assert row["file"].startswith(split)
        ids = dict(whole(out))[row["file"]][row["start"] : row["start"] + row["length"]]
        assert ids == [*prefix, *text.encode()]
    manifest = json.loads((out / MANIFEST).read_text())
    for file in manifest["files"]:
        data = (out / file["name"]).read_bytes()
        assert file["sha256"] == hashlib.sha256(data).hexdigest()
        assert file["n_docs"] == sum(r["file"] == file["name"] for r in index)
        assert file["n_tokens"] <= limit or sum(r["length"] > 0 for r in index if r["file"] == file["name"]) == 1
    assert counts["s"].kept == len(documents)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A small byte-level BPE, trained here, with an end-of-text token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator(["the cat sat on the mat and the dog sat on the log"] * 5, trainer)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    made.save(str(path))
    return path, made


def test_a_hugging_face_tokenizer_gives_the_librarys_ids_and_special_tokens_stay_text(tmp_path, tokenizer):
    path, library = tokenizer
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    texts = ["the cat sat", "the <|endoftext|> dog", "Ünï😀"]
    out, _ = run(tmp_path, [[(t, "train") for t in texts]], tokenizer=Spec(kind="huggingface", path=str(path), sha256=digest), doc_sep_id=0)
    ids = dict(whole(out))["train-00000.bin"]
    assert ids.count(0) == 3, "only the separators are control ids"
    pieces = [list(p) for p in _split(ids, 0)]
    assert library.decode(pieces[1]) == texts[1]
    assert library.decode(pieces[2]) == texts[2]
    assert pieces[0] == library.encode("the cat sat").ids
    assert json.loads((out / MANIFEST).read_text())["vocab_size"] == library.get_vocab_size()


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """A tokenizer of GPT-2's form and size with its ids for a few words: the merges that lead to them, and fillers for the rest."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    ids = {"Hello": 15496, "Ġworld": 995, "Hi": 17250, "<|endoftext|>": 50256}
    merges, steps = [], []
    for word in ("Hello", "Ġworld", "Hi"):
        for end in range(2, len(word) + 1):
            merges.append((word[: end - 1], word[end - 1]))
            steps.append(word[:end])
    taken = iter(i for i in range(50257) if i not in ids.values())
    vocab = ids | {name: next(taken) for name in [*pre_tokenizers.ByteLevel.alphabet(), *steps] if name not in ids}
    vocab |= {f"filler {i}": i for i in taken}
    made = Tokenizer(models.BPE(vocab, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    path = tmp_path_factory.mktemp("gpt2") / "tokenizer.json"
    made.save(str(path))
    return path


def test_the_worked_example_of_gpt2(tmp_path, gpt2):
    digest = hashlib.sha256(gpt2.read_bytes()).hexdigest()
    out, _ = run(
        tmp_path,
        [[("Hello world", "train"), ("Hi", "train")]],
        tokenizer=Spec(kind="huggingface", path=str(gpt2), sha256=digest),
        doc_sep_id=50256,
    )
    assert dict(whole(out))["train-00000.bin"] == [50256, 15496, 995, 50256, 17250]
    assert (out / "train-00000.bin").stat().st_size == 1024 + 5 * 2


@pytest.mark.parametrize(
    ("config", "separator"), [(None, None), ("{}", None), ('{"eos_token_id": 50256}', 50256), ('{"eos_token_id": [1, 2]}', None)]
)
def test_the_separator_is_the_end_of_text_that_stands_beside_the_tokenizer(tmp_path, config, separator):
    if config is not None:
        (tmp_path / "generation_config.json").write_text(config)
    assert separator_beside(tmp_path / "tokenizer.json") == separator


def _split(ids, separator):
    piece = None
    for i in ids:
        if i == separator:
            if piece is not None:
                yield piece
            piece = []
        else:
            piece.append(i)
    yield piece


@pytest.mark.parametrize("harm", [b"", b"{}", b"no json"])
def test_a_tokenizer_file_that_is_none_is_refused_by_name(tmp_path, harm):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(harm)
    with pytest.raises(ConfigError, match=r"tokenizer\.path: .*tokenizer\.json is not a tokenizer"):
        run(tmp_path, [[("a", "train")]], tokenizer=Spec(kind="huggingface", path=str(path), sha256=hashlib.sha256(harm).hexdigest()))


def test_numpy_reads_wide_ids(tmp_path):
    assert np.dtype("<u4") == tokenize.binfile.dtype_for(65537)


def test_bytes_per_token_are_told_by_source_and_split(tmp_path):
    out, _ = run(tmp_path, [[("Hi", "train"), ("ok", "val"), ("", "val")]], doc_sep_id=1)
    manifest = json.loads((out / MANIFEST).read_text())
    assert manifest["bytes_per_token"] == {"s": {"train": 1.0, "val": 1.0}}
    assert manifest["decoded"] == {"documents": 3, "equal": 3, "losses": [], "unknown": None}


def test_documents_with_a_control_token_are_left_out_where_they_are_refused(tmp_path, tokenizer):
    path, _ = tokenizer
    spec = tokenizer_files.spec(path, "huggingface")
    texts = [("the cat", "train"), ("the <|endoftext|> dog", "train"), ("<|endoftext|>", "val")]
    out, counts = run(tmp_path, [texts[:2], texts[2:]], tokenizer=spec, doc_sep_id=0, on_special="refuse")
    assert pq.read_table(out / "index.parquet").column("id").to_pylist() == ["s:0"]
    assert pq.read_table(out / "refused.parquet").to_pylist() == [{"id": "s:1", "source": "s"}, {"id": "s:2", "source": "s"}]
    assert (counts["s"].docs_in, counts["s"].kept, counts["s"].dropped) == (3, 1, {"special_token": 2})


def test_too_many_unknowns_stop_the_build_and_fewer_are_counted(tmp_path):
    spec, library = tokenizer_files.words(tmp_path)
    shards = [[("the cat sat", "train"), ("the dog sat", "val")]]
    with pytest.raises(
        StageError, match=r"s: 1 of 6 ids \(16\.67%\) stand for what the vocabulary lacks, and tokenizer\.max_unknown lets 16\.00%"
    ):
        run(tmp_path / "a", shards, tokenizer=spec, max_unknown=0.16)
    out, counts = run(tmp_path / "b", shards, tokenizer=spec, max_unknown=0.17)
    assert counts["s"].also["unknown_tokens"] == 1
    assert dict(whole(out))["val-00000.bin"] == library.encode("the dog sat").ids
    decoded = json.loads((out / MANIFEST).read_text())["decoded"]
    assert decoded == {
        "documents": 2,
        "equal": 1,
        "losses": ["WhitespaceSplit drops white space", "no decoder", "unknown tokens"],
        "unknown": 0.166667,
    }


class Forgetful(Bytes):
    """Its ids spell one byte fewer, or decode to another text."""

    def __init__(self, spelled):
        self.spelled = np.ones(256, np.uint32) if spelled else None

    def encode(self, texts):
        ids, offsets = super().encode(texts)
        return (ids[:-1], np.minimum(offsets, len(ids) - 1)) if len(ids) else (ids, offsets)


@pytest.mark.parametrize(("spelled", "told"), [(True, "its ids do not spell its text"), (False, "its ids do not decode to its text")])
def test_ids_that_lose_text_without_a_reason_stop_the_build(tmp_path, monkeypatch, spelled, told):
    monkeypatch.setattr(encoding, "open_tokenizer", lambda spec: Forgetful(spelled))
    with pytest.raises(StageError, match=f"tokenize: s:1: {told}"):
        run(tmp_path, [[("ab", "train"), ("cd", "train")]])


def test_a_document_that_no_file_holds_stops_the_build(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "too_long", lambda sizes: 1)
    with pytest.raises(StageError, match=r"s:1: 2 ids are more than the 2,147,483,647 that a token file holds: lower filters\.max_chars"):
        run(tmp_path, [[("ab", "train"), ("cd", "train")]])


@pytest.mark.parametrize("differs", [False, True])
def test_whatever_the_faster_library_does_the_ids_are_the_tokenizers_own(tmp_path, tokenizer, monkeypatch, differs):
    """With ``differs``, one document of one shard has other ids: every shard is encoded again, and somebody is told."""
    path, _ = tokenizer
    spec = tokenizer_files.spec(path, "huggingface")
    shards = [[("the cat sat", "train"), ("the log", "val")], [("on the mat", "train"), ("Ünï😀", "train")]]
    plain, counts = run(tmp_path / "plain", shards, tokenizer=spec, doc_sep_id=0)
    opened = []

    class Quick(Fast):
        def encode(self, texts):
            ids, offsets = super().encode(texts)
            return (ids + 1 if differs and "on the mat" in texts.to_pylist() else ids), offsets

    def quickest(spec):
        opened.append(spec)
        found = open_quickest(spec)
        assert isinstance(found, Fast)
        return Quick(found._plain, found._open)

    monkeypatch.setattr(encoding, "open_quickest", quickest)
    said = []
    with kernels.using(kernels.Kernels("compiled")):
        quick, again = run(tmp_path / "quick", shards, tokenizer=spec, doc_sep_id=0, said=said)
    assert len(opened) == len(shards)
    assert [p.read_bytes() for p in sorted(quick.iterdir())] == [p.read_bytes() for p in sorted(plain.iterdir())]
    assert counts == again
    assert [line.split(" for ")[1][:3] for line in said] == (["s:2"] if differs else [])
