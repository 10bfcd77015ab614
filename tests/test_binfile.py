import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild.binfile import Header, check_ids, dtype_for, pack_header, parse_header, read

law = settings(deadline=None, max_examples=60)


def write(folder, ids, vocab_size=256):
    (folder / "train-00000.bin").write_bytes(pack_header(len(ids), vocab_size) + np.asarray(ids, dtype_for(vocab_size)).tobytes())
    return folder / "train-00000.bin"


def independent(path):
    """What a reader with numpy and the published header alone makes of a file."""
    header = np.fromfile(path, "<i4", 256)
    assert header[0] == 20240520
    assert not header[4:].any()
    return header[1:4].tolist(), np.fromfile(path, {1: "<u2", 2: "<u4"}[int(header[1])], offset=1024).tolist()


@law
@given(st.integers(1, 70_000), st.data())
def test_what_is_written_is_read_by_us_and_by_others(tmp_path_factory, vocab_size, data):
    ids = data.draw(st.lists(st.integers(0, vocab_size - 1), max_size=6))
    path = write(tmp_path_factory.mktemp("bin"), ids, vocab_size)
    header, found = read(path)
    assert found.tolist() == ids
    assert independent(path) == ([header.version, header.n_tokens, header.vocab_size], ids)
    assert (header.vocab_size, header.n_tokens) == (vocab_size, len(ids))
    assert path.stat().st_size == 1024 + len(ids) * found.itemsize


def test_the_bytes_of_the_worked_example(tmp_path):
    data = write(tmp_path, [1, 2, 3]).read_bytes()
    assert len(data) == 1030
    assert data[:16].hex() == "88d83401010000000300000000010000"
    assert data[16:1024] == bytes(1008)
    assert data[1024:].hex() == "010002000300"


@pytest.mark.parametrize(("vocab_size", "version", "width"), [(1, 1, 2), (65536, 1, 2), (65537, 2, 4)])
def test_width_follows_the_vocabulary(vocab_size, version, width):
    assert dtype_for(vocab_size).itemsize == width
    assert parse_header(pack_header(7, vocab_size), 1024 + 7 * width) == Header(version, 7, vocab_size)


def test_reading_maps_and_cannot_write(tmp_path):
    write(tmp_path, [1, 2])
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
        lambda folder: check_ids([256], 256),
        lambda folder: check_ids([-1], 256),
        lambda folder: check_ids(np.array([0, 300]), 300),
    ],
)
def test_what_the_format_cannot_hold_is_refused(tmp_path, call):
    with pytest.raises(ValueError, match=r"vocabulary|ids"):
        call(tmp_path)
