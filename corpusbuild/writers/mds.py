"""MosaicML's MDS shards with one column, ``tokens``: a one-dimensional array a sample. ``index.json`` lists the shards of a split.

A shard is, little-endian: uint32 n, the number of samples; n + 1 uint32, where each sample begins, in bytes, and where the last ends; a JSON object
that describes the columns; the samples. A sample is: uint32, the bytes that follow; a byte 6 (one dimension, its size a uint32); that size; the ids.
"""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from corpusbuild.writers import Ends, Ids, Out, Page, Shape, Sink, lengths

_SAMPLE = np.dtype([("bytes", "<u4"), ("kind", "u1"), ("ids", "<u4")])
_KIND = 1 << 2 | 2
_SIZE_LIMIT = 1 << 26  # what its own writer says when nobody says otherwise; readers ask for it and do nothing with it


def sink(shape: Shape, out: Out) -> Sink:
    return _Shard(shape, out)


def index(files: list[Page]) -> bytes | None:
    return msgspec.json.encode({"shards": files, "version": 2})


def _columns(dtype: np.dtype[Any]) -> dict[str, Any]:
    return {"column_encodings": [f"ndarray:{dtype.name}"], "column_names": ["tokens"], "column_sizes": [None]}


def _settings() -> dict[str, Any]:
    return {"compression": None, "format": "mds", "hashes": [], "size_limit": _SIZE_LIMIT, "version": 2}


class _Shard(Sink):
    """Samples without ids are left out: the format has none."""

    def __init__(self, shape: Shape, out: Out):
        self._width = shape.dtype.itemsize
        self._starts = _starts(shape.samples)
        self._held = np.empty((0, 2), np.int64)
        self._at = 0
        config = json.dumps(_settings() | _columns(shape.dtype), sort_keys=True).encode()
        samples = sum(int(np.count_nonzero(each)) for each in lengths(shape.samples))
        begin = 4 + 4 * (samples + 1) + len(config)
        size = begin + samples * _SAMPLE.itemsize + shape.n_tokens * self._width
        if size >= 2**32:
            raise ValueError(
                f"mds: {shape.name} has {shape.n_tokens:,} ids, more than a shard of 4 GiB holds: lower tokenizer.max_file_tokens"
            )
        self._file = out(".mds").open("wb")
        self._file.write(np.array([samples, begin], "<u4").tobytes())
        done = begin
        for each in lengths(shape.samples):
            ends = done + np.cumsum(each[each > 0] * self._width + _SAMPLE.itemsize)
            self._file.write(ends.astype("<u4").tobytes())
            done = int(ends[-1]) if len(ends) else done
        self._file.write(config)
        self._page = {
            **_settings(),
            **_columns(shape.dtype),
            "raw_data": {"basename": f"{shape.name}.mds", "bytes": size, "hashes": {}},
            "samples": samples,
            "zip_data": None,
        }

    def write(self, ids: Ids) -> None:
        begin = self._until(self._at + len(ids))
        heads = np.empty(len(begin), _SAMPLE)
        heads["bytes"] = 1 + 4 + begin[:, 1] * self._width
        heads["kind"], heads["ids"] = _KIND, begin[:, 1]
        out = np.empty(ids.nbytes + heads.nbytes, np.uint8)
        places = (begin[:, 0] - self._at) * self._width + _SAMPLE.itemsize * np.arange(len(begin))
        of_head = (places[:, None] + np.arange(_SAMPLE.itemsize)).ravel()
        is_id = np.ones(len(out), np.bool_)
        is_id[of_head] = False
        out[of_head] = np.frombuffer(heads.tobytes(), np.uint8)
        out[is_id] = np.ascontiguousarray(ids).view(np.uint8)
        self._file.write(out.data)
        self._at += len(ids)

    def close(self) -> Page:
        self._file.close()
        return self._page

    def _until(self, end: int) -> NDArray[np.int64]:
        """(start, length) of the samples that begin before id ``end`` and were not given yet."""
        held = [self._held]
        while not len(held[-1]) or held[-1][-1, 0] < end:
            more = next(self._starts, None)
            if more is None:
                break
            held.append(more)
        samples = np.concatenate(held)
        n = int(np.searchsorted(samples[:, 0], end))
        self._held = samples[n:]
        return samples[:n]


def _starts(ends: Ends) -> Iterator[NDArray[np.int64]]:
    """(start, length) of the samples that have ids, a chunk at a time."""
    start = 0
    for each in lengths(ends):
        starts = start + np.cumsum(each) - each
        start += int(each.sum())
        some = np.stack([starts, each], axis=1)[each > 0]
        if len(some):
            yield some
