"""The least that a path from text to tokens does to each byte, with nothing between: decompress, parse, normalise, hash, compress, encode, write.

    python floor.py CORPUS.jsonl.zst FOLDER TOKENIZER.json

One process decompresses, two others parse JSON, put text in NFC, take SHA-256 and BLAKE3 of it, compress it at level 3 and encode it with the fastest
library known. Prints ``{"seconds", "ids"}``.
"""

import json
import os
import sys
import time
import unicodedata
from hashlib import sha256
from multiprocessing import Pool
from pathlib import Path

import encode
import msgspec
import numpy as np
import pyarrow as pa
import zstandard
from blake3 import blake3

CHUNK = 8_000_000


class Row(msgspec.Struct):
    text: str


def chunks(corpus):
    """Whole lines, some megabytes at a time."""
    rest = b""
    with open(corpus, "rb") as raw:
        reader = zstandard.ZstdDecompressor().stream_reader(raw)
        while data := reader.read(CHUNK):
            end = data.rfind(b"\n") + 1
            yield rest + data[:end]
            rest = data[end:]
    if rest:
        yield rest


def begin(tokenizer):
    os.environ["RAYON_NUM_THREADS"] = "1"
    encode.open_library("fastokens", tokenizer)


def work(task):
    number, lines, folder = task
    texts = [unicodedata.normalize("NFC", row.text) for row in msgspec.json.Decoder(Row).decode_lines(lines)]
    flat = "".join(texts).encode()
    digests = sha256(flat).digest() + blake3(flat).digest()
    Path(folder, f"{number:05d}.zst").write_bytes(zstandard.ZstdCompressor(3).compress(flat) + digests)
    ids = encode.ids_of("fastokens", pa.array(texts, pa.large_string()))
    Path(folder, f"{number:05d}.bin").write_bytes(np.asarray(ids).tobytes())
    return len(ids)


if __name__ == "__main__":
    corpus, folder, tokenizer = sys.argv[1:]
    with Pool(2, begin, (tokenizer,)) as pool:
        pool.map(len, [""] * 4, 1)
        began = time.perf_counter()
        ids = sum(pool.imap(work, ((i, lines, folder) for i, lines in enumerate(chunks(corpus)))))
        took = time.perf_counter() - began
    print(json.dumps({"seconds": took, "ids": ids}))
