"""The reader for training: every row once an epoch, shared by ranks, in an order that only the seed decides, and resumed where it stopped."""

import hashlib
import itertools
import json
import multiprocessing
import pickle
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from projects import doit, make_project

import corpusbuild
from corpusbuild import binfile
from corpusbuild.batches import IGNORED
from corpusbuild.errors import ConfigError, IntegrityError
from corpusbuild.permutation import shuffled


def write_manifest(folder, manifest):
    data = json.dumps(manifest).encode()
    (folder / "_MANIFEST.json").write_bytes(data)
    (folder / "_MANIFEST.json.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  _MANIFEST.json\n")


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_tokens(folder, files, vocab_size=256, packed=None):
    """A folder of tokens with one split. ``files`` holds the lists of documents, each a list of ids; packed: (sequence, how much of it is filled) lists."""
    folder.mkdir(parents=True, exist_ok=True)
    listed, index, sequences = [], [], []
    for i, documents in enumerate(files):
        name, start = f"train-{i:05d}.bin", 0
        ids = [id for document in documents for id in document]
        path = folder / name
        path.write_bytes(binfile.pack_header(len(ids), vocab_size) + np.array(ids, binfile.dtype_for(vocab_size)).tobytes())
        for document in documents:
            index.append({"file": name, "start": start, "length": len(document), "id": f"d{i}"})
            start += len(document)
        listed.append({"name": name, "split": "train", "n_tokens": len(ids), "n_docs": len(documents), "sha256": sha256(path)})
    pq.write_table(pa.Table.from_pylist(index, pa.schema([("file", "string"), ("start", "int64"), ("length", "int64"), ("id", "string")])), folder / "index.parquet")  # fmt: skip
    manifest = {"tokenizer_id": "t", "vocab_size": vocab_size, "dataset": "d", "version": "v1", "files": listed, "packing": None}
    if packed is not None:
        length, filled, runs = packed
        sequences = [{"file": file, "start": i * length, "length": n} for file, i, n in filled]
        pq.write_table(pa.Table.from_pylist(sequences), folder / "sequences.parquet")
        pq.write_table(
            pa.Table.from_pylist([{"file": f, "start": s, "length": n, "id": "d"} for f, s, n in runs]), folder / "index.parquet"
        )
        manifest |= {"packing": {"sequence_length": length}, "sequences": {"name": "sequences.parquet", "sha256": sha256(folder / "sequences.parquet")}}  # fmt: skip
    write_manifest(folder, manifest | {"index": {"name": "index.parquet", "sha256": sha256(folder / "index.parquet")}})
    return folder


def counted(lengths, files=1, vocab_size=2**17):
    """Documents of these lengths whose ids count from 0, in so many files, so that an id is its place."""
    numbers = itertools.count()
    documents = [[next(numbers) for _ in range(n)] for n in lengths]
    size = -(-len(documents) // files) or 1
    return [documents[i * size : (i + 1) * size] for i in range(files)]


def rows(batches, steps=None):
    return [row.tolist() for batch in itertools.islice(batches, steps) for row in batch.tokens]


corpora = st.tuples(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.integers(1, 4), st.sampled_from([256, 2**17])).filter(
    lambda c: sum(c[0]) > 5
)
sizes = st.integers(1, 4)


def drawn(corpus):
    """Tokens of a drawn corpus, read before its folder goes."""
    lengths, files, vocab_size = corpus
    with TemporaryDirectory() as folder:
        tokens = corpusbuild.tokens(write_tokens(Path(folder) / "t", counted(lengths, files), vocab_size))
        for i in tokens.files("train"):
            tokens.ids(i)
        tokens.starts("train")
    return tokens


@settings(deadline=None, max_examples=40)
@given(n=st.integers(1, 3000), key=st.lists(st.integers(0, 2**70), min_size=1, max_size=2))
def test_a_shuffle_has_every_number_once_and_any_place_of_it_is_found_alone(n, key):
    whole = shuffled(np.arange(n), n, *key)
    assert sorted(whole.tolist()) == list(range(n))
    some = np.array([n - 1, n // 2, 0])
    assert shuffled(some, n, *key).tolist() == whole[some].tolist()


def test_a_shuffle_is_the_same_on_every_machine_and_of_numbers_of_any_size():
    assert shuffled(np.arange(10), 10, 1, 2).tolist() == [1, 9, 3, 6, 4, 0, 7, 8, 2, 5]
    far = shuffled(np.array([0, 1, 2**40 - 1]), 2**40, 7)
    assert len(set(far.tolist())) == 3
    assert 0 <= far.min() <= far.max() < 2**40
    with pytest.raises(ValueError, match="not within"):
        shuffled(np.array([5]), 5, 1)


def test_every_number_comes_to_every_place_as_often():
    """Chi square with 19 x 19 degrees of freedom: 361 on average, 27 is its standard deviation."""
    n, seeds = 20, 2000
    found = np.zeros((n, n))
    for seed in range(seeds):
        found[np.arange(n), shuffled(np.arange(n), n, seed)] += 1
    chi = ((found - seeds / n) ** 2 / (seeds / n)).sum()
    assert abs(chi - 361) < 4 * 27


@settings(deadline=None, max_examples=40)
@given(corpus=corpora, batch_size=sizes, world_size=sizes, seed=st.integers(0, 9), length=st.integers(1, 5), shuffle=st.booleans())
def test_ranks_read_disjoint_rows_that_together_are_the_epoch(corpus, batch_size, world_size, seed, length, shuffle):
    tokens = drawn(corpus)
    n = sum(corpus[0])
    ranks = [
        list(
            tokens.batches(
                batch_size=batch_size, sequence_length=length, seed=seed, shuffle=shuffle, rank=r, world_size=world_size, epochs=1
            )
        )
        for r in range(world_size)
    ]
    assert len({len(batches) for batches in ranks}) == 1
    read = [row.tolist() for batches in ranks for batch in batches for row in batch.tokens]
    assert sorted(read) == [list(range(i, i + length)) for i in range(0, n - length, length)]
    for batch in itertools.chain(*ranks):
        assert (batch.targets == batch.tokens + 1).all()
        assert batch.tokens.shape == batch.targets.shape
        assert len(batch.tokens) <= batch_size


@settings(deadline=None, max_examples=40)
@given(corpus=corpora, sizes=st.tuples(sizes, sizes, sizes, sizes), seed=st.integers(0, 9), length=st.integers(1, 5))
def test_the_order_of_all_rows_is_the_same_for_any_ranks_and_batches(corpus, sizes, seed, length):
    tokens = drawn(corpus)

    def order(batch_size, world_size):
        ranks = [
            tokens.batches(batch_size=batch_size, sequence_length=length, seed=seed, rank=r, world_size=world_size, epochs=2)
            for r in range(world_size)
        ]
        return [row.tolist() for step in zip(*ranks, strict=True) for batch in step for row in batch.tokens]

    first, second = order(*sizes[:2]), order(*sizes[2:])
    assert first == second
    half = len(first) // 2
    assert sorted(first[:half]) == sorted(first[half:])


@settings(deadline=None, max_examples=40)
@given(corpus=corpora, batch_size=sizes, world_size=sizes, step=st.integers(0, 12), length=st.integers(1, 5), ahead=st.integers(0, 3))
def test_after_a_restart_the_same_batches_follow(corpus, batch_size, world_size, step, length, ahead):
    tokens = drawn(corpus)

    def begin(**more):
        how = {"batch_size": batch_size, "sequence_length": length, "seed": 3, "rank": world_size - 1, "world_size": world_size} | more
        return tokens.batches(**how)

    whole = begin()
    rows(whole, step)
    state = json.loads(json.dumps(whole.state_dict()))
    assert begin(start_step=step).state_dict() == state
    further = whole.state_dict(ahead)
    follow = rows(whole, 5 + ahead)
    again = begin()
    again.load_state_dict(state)
    assert rows(again, 5 + ahead) == follow
    again.load_state_dict(further)
    assert rows(again, 5) == follow[ahead * batch_size :]


def test_training_goes_on_with_other_ranks_where_it_stopped(tmp_path):
    tokens = corpusbuild.tokens(write_tokens(tmp_path / "t", counted([7] * 40, 3), 2**17))
    how = {"sequence_length": 4, "seed": 5, "epochs": 1}
    first = [tokens.batches(batch_size=3, rank=r, world_size=4, **how) for r in range(4)]
    before = [row for batches in first for row in rows(batches, 2)]
    after = []
    for rank in range(2):
        batches = tokens.batches(batch_size=5, rank=rank, world_size=2, **how)
        batches.load_state_dict(first[0].state_dict())
        after += rows(batches)
    assert len(before) == 24
    assert sorted(before + after) == [list(range(i, i + 4)) for i in range(0, 276, 4)]


def test_each_epoch_and_each_seed_has_an_order_of_its_own(tmp_path):
    tokens = corpusbuild.tokens(write_tokens(tmp_path / "t", counted([10] * 41), 2**17))
    how = {"batch_size": 1, "sequence_length": 4}
    orders = [rows(tokens.batches(seed=seed, start_step=epoch * 102, **how), 102) for seed in (0, 1) for epoch in (0, 1)]
    assert [tokens.batches(**how).rows, len({json.dumps(order) for order in orders})] == [102, 4]
    assert len({json.dumps(sorted(order)) for order in orders}) == 1
    plain = rows(tokens.batches(shuffle=False, **how), 102)
    assert plain == sorted(plain)


def test_the_last_step_is_shared_or_left_out(tmp_path):
    tokens = corpusbuild.tokens(write_tokens(tmp_path / "t", counted([23]), 256))
    how = {"batch_size": 2, "sequence_length": 2, "world_size": 4, "epochs": 1}  # 11 rows, 8 a step
    assert [[len(b.tokens) for b in tokens.batches(rank=r, **how)] for r in range(4)] == [[2, 0], [2, 1], [2, 1], [2, 1]]
    assert tokens.batches(**how).steps == 2
    assert [len(list(tokens.batches(rank=r, drop_last=True, **how))) for r in range(4)] == [1] * 4
    assert tokens.batches(drop_last=True, **how).steps == 1
    assert tokens.batches(**(how | {"epochs": None})).steps is None
    done = tokens.batches(**how)
    rows(done)
    assert done.state_dict()["taken"] == done.state_dict(3)["taken"] == 11


@pytest.mark.parametrize(("vocab_size", "most"), [(65536, 65535), (65537, 65536), (2**31 - 1, 2**31 - 2)])
def test_the_largest_ids_come_as_they_are(tmp_path, vocab_size, most):
    tokens = corpusbuild.tokens(write_tokens(tmp_path / "t", [[[most, 0]], [[most, most]]], vocab_size))
    batch = next(tokens.batches(batch_size=1, sequence_length=3, shuffle=False))
    assert (batch.tokens.tolist(), batch.targets.tolist()) == ([[most, 0, most]], [[0, most, most]])
    assert batch.tokens.dtype == batch.targets.dtype == np.int64


@settings(deadline=None, max_examples=40)
@given(corpus=corpora, length=st.integers(1, 5))
def test_positions_begin_anew_with_each_document_and_row(corpus, length):
    tokens = drawn(corpus)
    document = np.repeat(np.arange(len(corpus[0])), corpus[0])
    for batch in tokens.batches(batch_size=3, sequence_length=length, epochs=1, positions=True):
        for row, positions, segments in zip(batch.tokens, batch.positions, batch.segments, strict=True):
            of = document[row]
            assert segments.tolist() == [len(set(of[: i + 1].tolist())) - 1 for i in range(length)]
            assert positions.tolist() == [of[:i].tolist().count(of[i]) for i in range(length)]


def test_packed_sequences_come_whole_with_their_padding_masked(tmp_path):
    files = [[[1, 2, 3, 4, 5], [6, 7, 8, 0, 0]], [[9, 10, 0, 0, 0]]]
    names = ["train-00000.bin", "train-00001.bin"]
    filled = [(names[0], 0, 5), (names[0], 1, 3), (names[1], 0, 2)]
    runs = [(names[0], 0, 2), (names[0], 2, 3), (names[0], 5, 3), (names[1], 0, 1), (names[1], 1, 1)]
    tokens = corpusbuild.tokens(write_tokens(tmp_path / "t", files, packed=(5, filled, runs)))
    batch = next(tokens.batches(batch_size=3, shuffle=False, positions=True))
    assert batch.tokens.tolist() == [[1, 2, 3, 4], [6, 7, 8, 0], [9, 10, 0, 0]]
    assert batch.targets.tolist() == [[2, 3, 4, 5], [7, 8, IGNORED, IGNORED], [10, IGNORED, IGNORED, IGNORED]]
    assert batch.positions.tolist() == [[0, 1, 0, 1], [0, 1, 2, 0], [0, 0, 0, 0]]
    assert batch.segments.tolist() == [[0, 0, 1, 1], [0, 0, 0, -1], [0, 1, -1, -1]]
    assert sorted(rows(tokens.batches(batch_size=2, seed=1, epochs=1, sequence_length=4))) == batch.tokens.tolist()
    tokens.check()
    with pytest.raises(ConfigError, match="leave it out"):
        tokens.batches(batch_size=1, sequence_length=5)


def test_another_process_reads_the_same(tmp_path):
    tokens = corpusbuild.tokens(write_tokens(tmp_path / "t", counted([9] * 900, 2), 2**17))
    how = {"batch_size": 2, "sequence_length": 30, "epochs": 1, "positions": True}
    whole = rows(tokens.batches(**how))
    sent = pickle.dumps(tokens)
    assert len(sent) < 10_000
    assert rows(pickle.loads(sent).batches(**how)) == whole
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(rows, (tokens.batches(**how),)) == whole


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"batch_size": 0}, "batch_size: 0 is below 1"),
        ({"world_size": 0}, "world_size"),
        ({"rank": 2, "world_size": 2}, r"rank: 2 is not within \[0, 2\)"),
        ({"rank": -1}, "rank: -1"),
        ({"epochs": 0}, "epochs"),
        ({"start_step": -1}, "start_step"),
        ({"sequence_length": None}, "is not packed"),
        ({"sequence_length": 0}, "sequence_length: 0"),
        ({"sequence_length": 100}, "too few for one sequence of 100"),
        ({"split": "test"}, "no split 'test': train"),
    ],
)
def test_what_cannot_be_is_told(tmp_path, how, said):
    tokens = corpusbuild.tokens(write_tokens(tmp_path / "t", [[[1] * 100]]))
    with pytest.raises(ConfigError, match=said):
        tokens.batches(**{"batch_size": 1, "sequence_length": 4} | how)


def test_a_state_of_other_batches_is_refused(tmp_path):
    tokens = corpusbuild.tokens(write_tokens(tmp_path / "t", [[[1] * 100]]))
    other = corpusbuild.tokens(write_tokens(tmp_path / "u", [[[2] * 100]]))
    how = {"batch_size": 1, "sequence_length": 4}
    state = tokens.batches(**how).state_dict()
    for batches, name in [
        (tokens.batches(seed=1, **how), "seed was 0, and here it is 1"),
        (tokens.batches(shuffle=False, **how), "shuffle was True"),
        (tokens.batches(**how | {"sequence_length": 5}), "sequence_length was 4"),
        (other.batches(**how), "manifest_sha256"),
    ]:
        with pytest.raises(ConfigError, match=name):
            batches.load_state_dict(state)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens") / "project"
    make_project(folder, extra="[shard]\nshard_rows = 20\nval_permille = 300\n")
    assert doit(folder, "build:tiny").returncode == 0
    assert doit(folder, "lock", "tiny").returncode == 0
    return folder


@pytest.fixture
def copy(built, tmp_path):
    """A published folder of tokens, alone, as it would be carried to where the training is."""
    return Path(shutil.copytree(built / "cache" / "tokens" / "bytes" / "tiny", tmp_path / "tokens"))


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_build_opens_by_its_name_and_a_folder_by_its_path(built, copy, split):
    named = corpusbuild.tokens("build:tiny", cache=built / "cache", configs=built / "configs", deep=True)
    corpus = corpusbuild.open("tiny", cache=built / "cache", configs=built / "configs")
    ids = np.concatenate(list(corpus.tokens(split)))
    for tokens in (named, corpusbuild.tokens(copy, deep=True)):
        read = rows(tokens.batches(split, batch_size=4, sequence_length=16, shuffle=False, epochs=1))
        assert np.concatenate(read).tolist() == ids[: len(read) * 16].tolist()
        assert len(read) == (len(ids) - 1) // 16
        documents = [d["text"] for d in corpus.documents(split)]
        assert np.diff(tokens.starts(split)).tolist() == [len(text.encode()) for text in documents[:-1]]
    assert "tiny v1 as bytes" in repr(named)


@pytest.mark.parametrize("how", ['packing = "best-fit"\nsequence_length = 200', "sequence_length = 64\npad_id = 0"])
def test_what_a_build_packed_is_read_as_it_was_packed(built, tmp_path, how):
    """Every run of ids of the index comes once, in one row, as one segment; nothing else but padding comes."""
    folder = Path(shutil.copytree(built, tmp_path / "project", symlinks=True))
    config = (folder / "configs" / "tiny.toml").read_text()
    (folder / "configs" / "tiny.toml").write_text(config + how + "\n")
    (folder / "configs" / "tiny.lock").unlink()
    assert doit(folder, "build:tiny").returncode == 0
    tokens = corpusbuild.tokens("tiny", cache=folder / "cache", configs=folder / "configs", deep=True)
    texts = {
        d["id"]: d["text"].encode() for d in corpusbuild.open("tiny", cache=folder / "cache", configs=folder / "configs").documents("train")
    }
    runs = [r for r in pq.read_table(tokens.path / "index.parquet").to_pylist() if r["file"].startswith("train")]
    expected = sorted(texts[r["id"]][r["offset"] : r["offset"] + r["length"]] for r in runs)
    read = []
    for batch in tokens.batches(batch_size=3, epochs=1, positions=True):
        whole = np.hstack([batch.tokens, np.where(batch.targets[:, -1:] == IGNORED, 0, batch.targets[:, -1:])])
        for row, target, segments in zip(whole, batch.targets, batch.segments, strict=True):
            of = np.append(segments, segments[-1] if target[-1] != IGNORED else -1)
            read += [row[of == i].astype(np.uint8).tobytes() for i in range(of.max() + 1)]
    assert sum(map(len, expected)) == sum(map(len, texts.values()))
    assert sorted(read) == expected


def test_what_is_not_there_or_has_no_tokens_is_told(built, tmp_path):
    with pytest.raises(ConfigError, match="doit build:nothing"):
        corpusbuild.tokens("nothing", cache=built / "cache")
    with pytest.raises(ConfigError, match="holds a corpus and no tokens"):
        corpusbuild.tokens(built / "cache" / "corpus" / "tiny" / "v1")
    record = json.loads((built / "cache" / "builds" / "tiny.json").read_text())
    (tmp_path / "builds").mkdir()
    (tmp_path / "builds" / "tiny.json").write_text(json.dumps(record | {"tokenizer": None}))
    (tmp_path / "corpus").symlink_to(built / "cache" / "corpus")
    with pytest.raises(ConfigError, match="built without a tokenizer"):
        corpusbuild.tokens("tiny", cache=tmp_path)


def test_a_lock_is_held_against_the_tokens_of_a_build(built, tmp_path):
    lock = built / "configs" / "tiny.lock"
    digest = sha256(built / "cache" / "tokens" / "bytes" / "tiny" / "_MANIFEST.json")
    other = tmp_path / "other.lock"
    other.write_text(lock.read_text().replace(digest, "0" * 64))
    assert corpusbuild.tokens("tiny", cache=built / "cache", lock=lock).vocab_size == 256
    with pytest.raises(IntegrityError, match=r"other.lock says 000000"):
        corpusbuild.tokens("tiny", cache=built / "cache", lock=other)


def overwrite(path, at, data):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_what_the_manifest_does_not_vouch_for_is_refused_when_it_is_opened(copy):
    file, manifest = copy / "train-00000.bin", copy / "_MANIFEST.json"
    whole, said = file.read_bytes(), manifest.read_bytes()
    for data, tells in [
        (whole[:-2], "cut short"),
        (whole + b"\0\0", "cut short or damaged"),
        (b"x" + whole[1:], "no token file"),
        (binfile.pack_header(5, 256) + whole[1024:1034], "holds 5 ids"),
        (binfile.pack_header((len(whole) - 1024) // 2, 257) + whole[1024:], "vocabulary of 257"),
    ]:
        file.write_bytes(data)
        with pytest.raises(IntegrityError, match=f"train-00000.bin.*{tells}"):
            corpusbuild.tokens(copy)
    file.write_bytes(whole)
    shutil.copyfile(file, copy / "train-00001.bin")
    with pytest.raises(IntegrityError, match=r"train-00001.bin is not in"):
        corpusbuild.tokens(copy)
    (copy / "train-00001.bin").unlink()
    manifest.write_bytes(said.replace(b'"bytes"', b'"other"'))
    with pytest.raises(IntegrityError, match=r"is not what _MANIFEST.json.sha256 says"):
        corpusbuild.tokens(copy)
    manifest.write_bytes(said)
    file.unlink()
    with pytest.raises(IntegrityError, match=r"train-00000.bin is missing"):
        corpusbuild.tokens(copy)


def test_an_altered_id_is_found_by_a_deep_check_and_an_altered_index_before_it_is_used(copy):
    tokens = corpusbuild.tokens(copy)
    overwrite(copy / "train-00000.bin", 1024, b"\1")
    with pytest.raises(IntegrityError, match=r"train-00000.bin has the sha256"):
        corpusbuild.tokens(copy, deep=True)
    overwrite(copy / "index.parquet", 10, b"\1\2\3")
    batches = tokens.batches(batch_size=1, sequence_length=4, positions=True)
    with pytest.raises(IntegrityError, match=r"index.parquet has the sha256"):
        next(batches)
    (copy / "index.parquet").unlink()
    with pytest.raises(IntegrityError, match=r"index.parquet is missing"):
        next(batches)
