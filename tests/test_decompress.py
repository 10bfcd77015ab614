"""Decompression, against the command-line tools and against files that lie."""

import bz2
import gzip
import lzma
import shutil
import subprocess
import zlib

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild.decompress import CHUNK, Caps, compression_of, decompress, disagreement

MAKERS = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
}
TOOLS = {"gzip": "gzip", "bz2": "bzip2", "xz": "xz", "zstd": "zstd"}
SKIPPABLE = (0x184D2A53).to_bytes(4, "little") + (5).to_bytes(4, "little") + b"abcde"
TEXT = b"".join(b"line %d of a text that is long enough\n" % i for i in range(400))


def plain(data, size=1 << 16, caps=Caps()):  # noqa: B008
    return b"".join(decompress((data[i : i + size] for i in range(0, len(data), size)), caps))


@given(st.sampled_from(sorted(MAKERS)), st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.integers(1, 50))
@settings(deadline=None, max_examples=80)
def test_members_join_wherever_the_chunks_are_cut(name, members, size):
    data = b"".join(map(MAKERS[name], members))
    assert plain(data, size) == b"".join(members)


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_the_command_line_tool_writes_it_and_reads_it_alike(name, tmp_path):
    tool = shutil.which(TOOLS[name])
    assert tool, f"{TOOLS[name]} is needed: apt-get install gzip bzip2 xz-utils zstd"
    made = [subprocess.run([tool, "-c"], input=part, capture_output=True, check=True).stdout for part in (TEXT, b"", TEXT[:77])]
    data = b"".join(made)
    theirs = subprocess.run([tool, "-dc"], input=data, capture_output=True, check=True).stdout
    assert plain(data) == theirs == TEXT + TEXT[:77]


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_what_the_command_line_tool_refuses_is_refused(name):
    """Every cut, every flipped byte of a two-member file: where the tool fails we fail, and we never give other bytes than the true ones."""
    tool = shutil.which(TOOLS[name])
    members = [TEXT[:500], b"second member"]
    data = b"".join(map(MAKERS[name], members))
    first = len(MAKERS[name](members[0]))
    for n in range(first + 1, len(data), max(1, (len(data) - first) // 8)):
        assert subprocess.run([tool, "-dc"], input=data[:n], capture_output=True, check=False).returncode != 0
        with pytest.raises(ValueError, match=r"cut short|follow the last member"):
            plain(data[:n])
    for n in range(12, len(data), max(1, len(data) // 60)):
        hurt = data[:n] + bytes([data[n] ^ 0x55]) + data[n + 1 :]
        run = subprocess.run([tool, "-dc"], input=hurt, capture_output=True, check=False)
        if run.returncode or run.stdout != b"".join(members):  # bzip2 drops a member whose magic is hurt and says that all is well
            with pytest.raises(ValueError, match=name):
                plain(hurt)
        else:
            assert plain(hurt) == b"".join(members)


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_every_cut_of_a_file_is_an_error(name):
    data = MAKERS[name](b"a short text, and another one")
    for n in range(6, len(data)):
        with pytest.raises(ValueError, match="cut short"):
            plain(data[:n])


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_a_damaged_second_member_is_not_dropped(name):
    second = MAKERS[name](TEXT)
    middle = len(second) // 2
    hurt = second[:middle] + bytes(b ^ 0xFF for b in second[middle : middle + 4]) + second[middle + 4 :]
    with pytest.raises(ValueError, match="member 2"):
        plain(MAKERS[name](b"first") + hurt)


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_bytes_behind_the_last_member_are_an_error(name):
    with pytest.raises(ValueError, match="follow the last member"):
        plain(MAKERS[name](b"text") + b"garbage!")


def test_padding():
    xz, gz = lzma.compress(b"one"), gzip.compress(b"one")
    assert plain(xz + b"\0" * 8 + lzma.compress(b" two") + b"\0" * 4) == b"one two"
    with pytest.raises(ValueError, match="multiple of four"):
        plain(xz + b"\0" * 3)
    assert plain(gz + b"\0" * 700) == b"one"
    with pytest.raises(ValueError, match="follow"):
        plain(bz2.compress(b"one") + b"\0")


def test_skippable_frames_are_skipped():
    one, two = (zstandard.compress(x) for x in (b"one", b" two"))
    assert plain(SKIPPABLE + one + SKIPPABLE + two + SKIPPABLE, 7) == b"one two"
    with pytest.raises(ValueError, match="cut short"):
        plain(one + SKIPPABLE[:-1])


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_the_caps(name):
    data = MAKERS[name](b"\0" * 3_000_000)
    assert max(map(len, decompress([data]))) <= CHUNK
    with pytest.raises(ValueError, match="more than 1000000 bytes"):
        plain(data, caps=Caps(output=1_000_000))
    with pytest.raises(ValueError, match="bomb"):
        plain(data, caps=Caps(ratio=100, free=1_000_000))
    with pytest.raises(ValueError, match="more than 2 members"):
        plain(MAKERS[name](b"a") * 3, caps=Caps(members=2))


def test_a_window_that_is_too_large_names_the_option():
    made = zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(window_log=22, enable_ldm=True)).compressobj()
    data = made.compress(TEXT) + made.flush()
    assert plain(data) == TEXT
    with pytest.raises(ValueError, match="window of 4194304 bytes"):
        plain(data, caps=Caps(window=1 << 21))


def test_magic_decides_and_a_lying_name_is_recorded():
    assert plain(b"plain text") == b"plain text"
    assert plain(b"") == b""
    assert compression_of(zlib.compress(b"x")) == "none"
    assert disagreement("a.txt.gz", "zstd") == "a.txt.gz is named as gzip, but its bytes are zstd"
    assert disagreement("a.txt", "zstd") is None
    assert disagreement("a.ZST", "zstd") is None
    with pytest.raises(ValueError, match="zip archive is not read"):
        plain(b"PK\x03\x04....")


def test_a_wide_file_takes_little_memory():
    import tracemalloc

    data = gzip.compress(b"\0" * 20_000_000)
    tracemalloc.start()
    for _ in decompress([data], Caps(ratio=10**6)):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000
