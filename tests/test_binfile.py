import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild.binfile import HEADER_BYTES, Header, SplitWriter, TokenFile, check_ids, dtype_for, pack_header, parse_header, read
from corpusbuild.text import split_of

law = settings(deadline=None, max_examples=60)


def write(folder, documents, vocab_size=256, **options):
    with SplitWriter(folder, "train", vocab_size, **options) as writer:
        for ids in documents:
            writer.add(ids)
    return writer.files


def independent(path):
    """What a reader with numpy and the published header alone makes of a file."""
    header = np.fromfile(path, "<i4", 256)
    assert header[0] == 20240520
    assert not header[4:].any()
    return header[1:4].tolist(), np.fromfile(path, {1: "<u2", 2: "<u4"}[int(header[1])], offset=1024).tolist()


@law
@given(st.integers(1, 70_000), st.data())
def test_what_is_written_is_read_by_us_and_by_others(tmp_path_factory, vocab_size, data):
    documents = data.draw(st.lists(st.lists(st.integers(0, vocab_size - 1), max_size=6), max_size=6))
    separator = data.draw(st.none() | st.integers(0, vocab_size - 1))
    limit = data.draw(st.integers(1, 12))
    folder = tmp_path_factory.mktemp("bin")
    files = write(folder, documents, vocab_size, doc_sep_id=separator, max_file_tokens=limit)
    whole = [[*([] if separator is None else [separator]), *ids] for ids in documents]
    assert sorted(p.name for p in folder.iterdir()) == [f.name for f in files] == [f"train-{i:05d}.bin" for i in range(len(files))]
    found = []
    for file in files:
        header, ids = read(folder / file.name)
        assert independent(folder / file.name) == ([header.version, header.n_tokens, header.vocab_size], ids.tolist())
        assert (header.vocab_size, header.n_tokens, len(ids)) == (vocab_size, file.n_tokens, file.n_tokens)
        assert (folder / file.name).stat().st_size == 1024 + file.n_tokens * ids.itemsize
        own = whole[len(found) : len(found) + file.n_docs]
        assert ids.tolist() == [i for ids in own for i in ids]
        assert file.n_tokens <= limit or sum(map(bool, own)) == 1
        found += own
    assert found == whole


def test_the_bytes_of_the_worked_example(tmp_path):
    assert write(tmp_path, [[1, 2, 3]]) == [TokenFile("train-00000.bin", 3, 1)]
    data = (tmp_path / "train-00000.bin").read_bytes()
    assert len(data) == 1030
    assert data[:16].hex() == "88d83401010000000300000000010000"
    assert data[16:1024] == bytes(1008)
    assert data[1024:].hex() == "010002000300"


def test_the_split_of_the_worked_example(tmp_path):
    texts = {"train": [], "val": []}
    for text in ("Hi", "é", "ok"):
        texts[split_of(text, 100)].append(text.encode())
    with SplitWriter(tmp_path, "train", 256) as train, SplitWriter(tmp_path, "val", 256) as val:
        train.add_all(map(list, texts["train"]))
        val.add_all(map(list, texts["val"]))
    data = (tmp_path / "train-00000.bin").read_bytes()
    assert (len(data), data[1024:].hex(), train.files[0].n_tokens) == (1032, "480069006f006b00", 4)
    assert read(tmp_path / "val-00000.bin")[1].tolist() == [195, 169]


def test_a_separator_goes_before_each_document(tmp_path):
    assert write(tmp_path, [[15496, 995], [17250]], 50257, doc_sep_id=50256) == [TokenFile("train-00000.bin", 5, 2)]
    assert read(tmp_path / "train-00000.bin")[1].tolist() == [50256, 15496, 995, 50256, 17250]


def test_files_hold_whole_documents(tmp_path):
    files = write(tmp_path, [list(t) for t in (b"aaaa", b"bbbbbb", b"cc", b"d" * 15, b"ee")], max_file_tokens=10)
    assert [(f.n_tokens, f.n_docs) for f in files] == [(10, 2), (2, 1), (15, 1), (2, 1)]
    assert write(tmp_path, [[1] * 15], max_file_tokens=10) == [TokenFile("train-00000.bin", 15, 1)]


def test_there_is_always_a_first_file(tmp_path):
    assert write(tmp_path, []) == [TokenFile("train-00000.bin", 0, 0)]
    header, ids = read(tmp_path / "train-00000.bin")
    assert (header, len(ids), ids.dtype) == (Header(1, 0, 256), 0, np.dtype("<u2"))


@pytest.mark.parametrize(("vocab_size", "version", "width"), [(1, 1, 2), (65536, 1, 2), (65537, 2, 4)])
def test_width_follows_the_vocabulary(vocab_size, version, width):
    assert dtype_for(vocab_size).itemsize == width
    assert parse_header(pack_header(7, vocab_size), 1024 + 7 * width) == Header(version, 7, vocab_size)


def test_reading_maps_and_cannot_write(tmp_path):
    write(tmp_path, [[1, 2]])
    _, ids = read(tmp_path / "train-00000.bin")
    assert isinstance(ids, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        ids[0] = 5


@pytest.mark.parametrize(
    ("header", "size", "message"),
    [
        (struct.pack("<4i", 20240521, 1, 3, 256), 1030, "no token file"),
        (struct.pack(">4i", 20240520, 1, 3, 256), 1030, "no token file"),
        (struct.pack("<4i", 20240520, 2, 3, 256), 1036, "version 2"),
        (struct.pack("<4i", 20240520, 1, 3, 65537), 1030, "version 1"),
        (struct.pack("<4i", 20240520, 3, 3, 256), 1030, "version 3"),
        (struct.pack("<4i", 20240520, 1, 3, 0), 1030, "vocabulary"),
        (struct.pack("<4i", 20240520, 1, 3, 256), 1029, "cut short"),
        (struct.pack("<4i", 20240520, 1, 3, 256), 1032, "cut short"),
        (struct.pack("<4i", 20240520, 1, -3, 256), 1018, "too few"),
        (struct.pack("<4i", 20240520, 1, -1, 256), 1024, "cut short"),
    ],
)
def test_a_file_that_is_none_is_refused_by_name(tmp_path, header, size, message):
    path = tmp_path / "x.bin"
    path.write_bytes((header + bytes(2000))[:size])
    with pytest.raises(ValueError, match=rf"x\.bin: .*{message}"):
        read(path)


@pytest.mark.parametrize(
    "call",
    [
        lambda folder: dtype_for(0),
        lambda folder: pack_header(1, 0),
        lambda folder: pack_header(1, 2**31),
        lambda folder: pack_header(-1, 256),
        lambda folder: pack_header(2**31, 256),
        lambda folder: SplitWriter(folder, "train", 0),
        lambda folder: SplitWriter(folder, "train", 256, doc_sep_id=256),
        lambda folder: SplitWriter(folder, "train", 256, doc_sep_id=-1),
        lambda folder: SplitWriter(folder, "train", 256, max_file_tokens=0),
        lambda folder: write(folder, [[256]]),
        lambda folder: write(folder, [[-1]]),
        lambda folder: check_ids(np.array([0, 300]), 300),
    ],
)
def test_what_the_format_cannot_hold_is_refused(tmp_path, call):
    with pytest.raises(ValueError, match=r"vocabulary|ids|max_file_tokens"):
        call(tmp_path)


def test_a_file_left_by_an_error_is_no_token_file(tmp_path):
    with pytest.raises(ValueError, match="ids 999"):
        write(tmp_path, [[1, 2, 3], [999]])
    assert (tmp_path / "train-00000.bin").stat().st_size == HEADER_BYTES + 6
    with pytest.raises(ValueError, match="cut short"):
        read(tmp_path / "train-00000.bin")
