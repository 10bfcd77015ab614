"""The token file ``.bin``: a header of 256 little-endian int32, then the ids.

========  =====================================================
int32 0   20240520
int32 1   1 when ids are uint16 (vocabulary up to 65536), 2 when they are uint32
int32 2   number of ids
int32 3   size of the vocabulary
the rest  0
========  =====================================================

The file is exactly 1024 bytes and the ids, two or four bytes each, little-endian.
"""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

MAGIC = 20240520
HEADER_BYTES = 1024
_MOST = 2**31 - 1  # what an int32 holds
_HEADER = struct.Struct("<4i")

Ids = Sequence[int] | npt.NDArray[Any]


class Header(NamedTuple):
    version: int
    n_tokens: int
    vocab_size: int


def dtype_for(vocab_size: int) -> np.dtype[Any]:
    """The type of the ids on disk.

    >>> dtype_for(65536).itemsize, dtype_for(65537).itemsize
    (2, 4)
    """
    return np.dtype("<u2" if _version_for(vocab_size) == 1 else "<u4")


def pack_header(n_tokens: int, vocab_size: int) -> bytes:
    """The first 1024 bytes of a file. ``ValueError`` for a vocabulary below 1, and for numbers that an int32 does not hold.

    >>> pack_header(3, 256)[:16].hex(), len(pack_header(3, 256))
    ('88d83401010000000300000000010000', 1024)
    """
    if not 0 <= n_tokens <= _MOST:
        raise ValueError(f"a file holds 0 to {_MOST} ids, not {n_tokens}; write smaller files")
    return _HEADER.pack(MAGIC, _version_for(vocab_size), n_tokens, vocab_size).ljust(HEADER_BYTES, b"\0")


def parse_header(data: bytes, size: int) -> Header:
    """The header at the beginning of a file of ``size`` bytes. ``ValueError`` when magic, version or size are not those of a token file."""
    if size < HEADER_BYTES or len(data) < HEADER_BYTES:
        raise ValueError(f"{size} bytes are too few for the header of {HEADER_BYTES}")
    magic, version, n_tokens, vocab_size = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise ValueError(f"it begins with {magic}, not {MAGIC}: no token file")
    if version != _version_for(vocab_size):
        raise ValueError(f"version {version} does not belong to a vocabulary of {vocab_size}")
    expected = HEADER_BYTES + n_tokens * dtype_for(vocab_size).itemsize
    if size != expected:
        raise ValueError(
            f"{size} bytes, where {n_tokens} ids of {dtype_for(vocab_size).itemsize} bytes make {expected}: cut short or damaged"
        )
    return Header(version, n_tokens, vocab_size)


def check_ids(ids: Ids, vocab_size: int) -> None:
    """``ValueError`` when an id is not within [0, vocab_size)."""
    values = np.asarray(ids)
    if len(values) and (values.min() < 0 or values.max() >= vocab_size):
        raise ValueError(f"ids {values.min()} to {values.max()} leave the vocabulary of {vocab_size}; is it another tokenizer's?")


def read(path: Path) -> tuple[Header, npt.NDArray[Any]]:
    """The header and the ids, memory-mapped and read-only. ``ValueError`` as in :func:`parse_header`, with the path."""
    with path.open("rb") as f:
        try:
            header = parse_header(f.read(HEADER_BYTES), path.stat().st_size)
        except ValueError as e:
            raise ValueError(f"{path}: {e}") from None
    dtype = dtype_for(header.vocab_size)
    if header.n_tokens == 0:
        return header, np.empty(0, dtype)  # nothing cannot be mapped
    return header, np.memmap(path, dtype, mode="r", offset=HEADER_BYTES, shape=(header.n_tokens,))


def _version_for(vocab_size: int) -> int:
    if not 1 <= vocab_size <= _MOST:
        raise ValueError(f"a vocabulary has 1 to {_MOST} entries, not {vocab_size}")
    return 1 if vocab_size <= 2**16 else 2
