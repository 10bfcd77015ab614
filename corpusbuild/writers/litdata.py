"""Chunks for litdata's ``TokensLoader``: a chunk is a token file with one item, all its ids; ``index.json`` lists the chunks of a split.

A chunk is little-endian uint32: 1, the number of items; where the item begins, in bytes; where it ends. Then the ids.
"""

import struct

import msgspec
import numpy as np

from corpusbuild.writers import Out, Page, Plain, Shape, Sink

_TYPES = {np.dtype("<u2"): 5, np.dtype("<u4"): 6}
_HEADER = struct.Struct("<III")
_ONE_LEAF = '[1, {"type": null, "context": null, "children_spec": []}]'  # an item is an array, not a tree of arrays


def sink(shape: Shape, out: Out) -> Sink:
    size = _HEADER.size + shape.n_tokens * shape.dtype.itemsize
    if size >= 2**32:
        raise ValueError(
            f"litdata: {shape.name} has {shape.n_tokens:,} ids, more than a chunk of 4 GiB holds: lower tokenizer.max_file_tokens"
        )
    page = {"chunk_bytes": size, "chunk_size": 1, "dim": shape.n_tokens, "filename": f"{shape.name}.bin"}
    return Plain(out(".bin"), _HEADER.pack(1, _HEADER.size, size), page | {"type": _TYPES[shape.dtype]})


def index(files: list[Page]) -> bytes | None:
    config = {
        "chunk_bytes": max((file["chunk_bytes"] for file in files), default=0),
        "chunk_size": None,
        "compression": None,
        "data_format": [f"no_header_numpy:{file['type']}" for file in files[:1]],
        "data_spec": _ONE_LEAF,
        "encryption": None,
        "item_loader": "TokensLoader",
    }
    chunks = [{name: value for name, value in file.items() if name != "type"} for file in files]
    return msgspec.json.encode({"chunks": chunks, "config": config, "updated_at": "0"})
