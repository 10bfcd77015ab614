"""Other near-deduplicators on the same text, each run in an environment that holds only it. Which, and how each is set, is all that stands here.

    python peers.py TOOL BANDS ROWS CORPUS.jsonl KEPT.txt FOLDER

reads ``{"id", "text"}`` lines and writes the ids of the documents that TOOL keeps, and those documents to FOLDER. Imports nothing of corpusbuild.
"""

import json
import re
import sys
from pathlib import Path

THRESHOLD, SHINGLE, WORKERS = 0.8, 5, 2

TOOLS = ("datatrove", "text-dedup", "datasketch", "rensa", "gaoya", "daft")
WRITES = {"datatrove", "text-dedup"}
"""Those that write the documents that they keep by themselves."""
FORK_SERVER = {"datatrove"}
"""Whose workers are children of a server process, so that their CPU time is not told to who waits for the tool."""


def read(corpus):
    with open(corpus, encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def shingles(text):
    words = re.findall(r"\w+", text.lower())
    return {" ".join(words[i : i + SHINGLE]) for i in range(max(1, len(words) - SHINGLE + 1))} if words else set()


def datasketch(bands, rows, corpus, folder):
    """A document stays unless the index has a candidate for it; only what stays is put in."""
    import xxhash
    from datasketch import MinHash, MinHashLSH

    index = MinHashLSH(num_perm=bands * rows, params=(bands, rows))
    for row in read(corpus):
        signature = MinHash(num_perm=bands * rows, hashfunc=xxhash.xxh32_intdigest)
        signature.update_batch([shingle.encode() for shingle in shingles(row["text"])])
        if not index.query(signature):
            index.insert(row["id"], signature)
            yield row["id"]


def rensa(bands, rows, corpus, folder):
    """As its documentation says: the deduplicator with an index, which compares estimates."""
    from rensa import RMinHash, RMinHashDeduplicator

    deduplicator = RMinHashDeduplicator(threshold=THRESHOLD, num_perm=bands * rows, use_lsh=True, num_bands=bands, seed=42)
    for row in read(corpus):
        signature = RMinHash(num_perm=bands * rows, seed=42)
        signature.update(sorted(shingles(row["text"])))
        if deduplicator.add(row["id"], signature):
            yield row["id"]


def gaoya(bands, rows, corpus, folder):
    """All documents go into the index, then each asks it; one stays unless an earlier one that stays is among the answers."""
    from gaoya.minhash import MinHashStringIndex

    documents = list(read(corpus))
    index = MinHashStringIndex(
        hash_size=32, jaccard_threshold=THRESHOLD, num_bands=bands, band_size=rows, analyzer="word", lowercase=True, ngram_range=(SHINGLE, SHINGLE),
        id_container="vec",
    )  # fmt: skip
    found = [row["text"] for row in documents]
    index.par_bulk_insert_docs(list(range(len(found))), found)
    stays = [True] * len(found)
    for i, alike in enumerate(index.par_bulk_query(found)):
        stays[i] = not any(j < i and stays[j] for j in alike)
        if stays[i]:
            yield documents[i]["id"]


def daft(bands, rows, corpus, folder):
    """Its column of signatures; buckets by sorting with numpy, where of each bucket the first stays (its own join of buckets takes far longer)."""
    import daft
    import numpy as np

    table = daft.read_json(corpus)
    text = daft.col("text").normalize(lowercase=True, remove_punct=True, white_space=True)
    table = table.with_column("signature", text.minhash(num_hashes=bands * rows, ngram_size=SHINGLE, seed=42, hash_function="xxhash"))
    table = table.select("id", "signature").to_arrow()
    ids = table.column("id").to_pylist()
    signatures = np.asarray(table.column("signature").combine_chunks().flatten()).reshape(len(ids), bands * rows)
    stays = np.ones(len(ids), bool)
    for b in range(bands):
        band = np.ascontiguousarray(signatures[:, b * rows : (b + 1) * rows]).view(f"V{4 * rows}").ravel()
        _, first, which = np.unique(band, return_index=True, return_inverse=True)
        stays &= first[which] == np.arange(len(ids))
    for i in np.flatnonzero(stays).tolist():
        yield ids[i]


def text_dedup(bands, rows, corpus, folder):
    from datasets import load_from_disk
    from text_dedup.minhash import main

    options = {
        "path": "json", "data_files": corpus, "split": "train", "cache_dir": f"{folder}/cache", "output": f"{folder}/out", "column": "text",
        "num_proc": WORKERS, "ngram": SHINGLE, "num_perm": bands * rows, "threshold": THRESHOLD, "b": bands, "r": rows, "hash_func": "xxh3",
    }  # fmt: skip
    main([word for name, value in options.items() for word in (f"--{name}", str(value))], standalone_mode=False)
    yield from load_from_disk(f"{folder}/out")["id"]


def datatrove(bands, rows, corpus, folder):
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter

    config = MinhashConfig(n_grams=SHINGLE, num_buckets=bands, hashes_per_bucket=rows)
    halves = Path(folder, "in")
    halves.mkdir()
    lines = Path(corpus).read_text(encoding="utf-8").splitlines(keepends=True)
    for i in range(WORKERS):  # it works on a file a task
        (halves / f"{i}.jsonl").write_text("".join(lines[i * len(lines) // WORKERS : (i + 1) * len(lines) // WORKERS]), encoding="utf-8")

    def run(name, tasks, *steps):
        LocalPipelineExecutor(pipeline=list(steps), tasks=tasks, workers=WORKERS, logging_dir=f"{folder}/logs/{name}").run()

    run("sign", WORKERS, JsonlReader(str(halves)), MinhashDedupSignature(f"{folder}/signatures", config=config))
    run("buckets", bands, MinhashDedupBuckets(f"{folder}/signatures", f"{folder}/buckets", config=config))
    run("cluster", 1, MinhashDedupCluster(f"{folder}/buckets", f"{folder}/remove", config=config))
    keep = JsonlWriter(f"{folder}/out", compression=None)
    run("filter", WORKERS, JsonlReader(str(halves)), MinhashDedupFilter(f"{folder}/remove"), keep)
    for path in sorted(Path(folder, "out").glob("*.jsonl")):
        yield from (row["id"] for row in read(path))


def write_kept(corpus, kept, folder):
    """The lines of the documents that stay, as they came."""
    names = {name.encode() for name in kept}
    with open(corpus, "rb") as lines, open(f"{folder}/kept.jsonl", "wb") as file:
        file.writelines(line for line in lines if re.search(rb'"id": ?"([^"]*)"', line)[1] in names)


if __name__ == "__main__":
    tool, bands, rows, corpus, kept, folder = sys.argv[1:]
    run = {"datatrove": datatrove, "text-dedup": text_dedup, "rensa": rensa, "datasketch": datasketch, "gaoya": gaoya, "daft": daft}[tool]
    found = list(run(int(bands), int(rows), corpus, folder))
    if tool not in WRITES:
        write_kept(corpus, found, folder)
    with open(kept, "w", encoding="utf-8") as file:
        file.writelines(f"{id}\n" for id in found)
    print(json.dumps({"kept": len(found)}))
