"""datatrove's pipelines for the work of a stage or of the whole path, with two workers, each on half of the documents.

    python datatrove_pipelines.py filter|lines|sentences|tokens|path CORPUS.jsonl FOLDER [TOKENIZER.json]

Prints ``{"seconds", "start"}``: the seconds of the work, and those that the same pipelines take on one document a worker, which is what starting them
costs. Thresholds of filters are set so that every document passes, or what follows would have it easier.
"""

import json
import sys
import time
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import (
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
    SentenceDedupFilter,
    SentenceDedupSignature,
    SentenceFindDedups,
)  # fmt: skip
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.dedup.sentence_dedup import SentDedupConfig
from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter
from datatrove.pipeline.formatters import PIIFormatter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
from datatrove.pipeline.writers import JsonlWriter

WORKERS = 2
SHINGLE, BANDS, ROWS = 5, 14, 8


class Pipelines:
    def __init__(self, lines, folder, tokenizer):
        self.folder, self.tokenizer = folder, tokenizer
        for i in range(WORKERS):  # it works on a file a task
            path = folder / "in" / f"{i}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(lines[i * len(lines) // WORKERS : (i + 1) * len(lines) // WORKERS]), encoding="utf-8")

    def run(self, name, tasks, *steps):
        LocalPipelineExecutor(pipeline=list(steps), tasks=tasks, workers=WORKERS, logging_dir=f"{self.folder}/logs/{name}").run()

    def read(self, name="in"):
        return JsonlReader(f"{self.folder}/{name}")

    def write(self, name):
        return JsonlWriter(f"{self.folder}/{name}", compression=None)

    def filter(self, into="out"):
        quality = GopherQualityFilter(
            min_doc_words=0, max_doc_words=10**9, min_avg_word_length=0, max_avg_word_length=10**9, max_symbol_word_ratio=10**9, max_bullet_lines_ratio=1,
            max_ellipsis_lines_ratio=1, max_non_alpha_words_ratio=0, min_stop_words=0,
        )  # fmt: skip
        repetition = GopherRepetitionFilter(
            dup_line_frac=1, dup_para_frac=1, dup_line_char_frac=1, dup_para_char_frac=1, top_n_grams=((2, 9), (3, 9), (4, 9)),
            dup_n_grams=tuple((n, 9) for n in range(5, 11)),
        )  # fmt: skip
        self.run("filter", WORKERS, self.read(), quality, repetition, self.write(into))

    def exact(self, split, source="in", into="out"):
        config = SentDedupConfig(n_sentences=3 if split else 1, split_sentences=split, min_doc_words=0, min_num_sentences=0)
        signatures, duplicates = f"{self.folder}/spans/signatures", f"{self.folder}/spans/duplicates"
        self.run("exact-sign", WORKERS, self.read(source), SentenceDedupSignature(signatures, finder_workers=WORKERS, config=config))
        self.run("exact-find", WORKERS, SentenceFindDedups(signatures, duplicates, config=config))
        self.run("exact-filter", WORKERS, self.read(source), SentenceDedupFilter(duplicates, config=config), self.write(into))

    def near(self, source, into):
        config = MinhashConfig(n_grams=SHINGLE, num_buckets=BANDS, hashes_per_bucket=ROWS)
        at = f"{self.folder}/minhash"
        self.run("near-sign", WORKERS, self.read(source), MinhashDedupSignature(f"{at}/signatures", config=config))
        self.run("near-buckets", BANDS, MinhashDedupBuckets(f"{at}/signatures", f"{at}/buckets", config=config))
        self.run("near-cluster", 1, MinhashDedupCluster(f"{at}/buckets", f"{at}/remove", config=config))
        self.run("near-filter", WORKERS, self.read(source), MinhashDedupFilter(f"{at}/remove"), self.write(into))

    def tokens(self, source="in", *before):
        work = DocumentTokenizer(f"{self.folder}/tokens", self.tokenizer, eos_token="<|endoftext|>", shuffle_documents=False)
        self.run("tokens", WORKERS, self.read(source), *before, work)

    def path(self):
        self.filter("filtered")
        self.exact(False, "filtered", "exact")
        self.near("exact", "near")
        self.tokens("near", PIIFormatter())


def seconds(what, pipelines):
    began = time.perf_counter()
    {"lines": lambda: pipelines.exact(False), "sentences": lambda: pipelines.exact(True)}.get(what, lambda: getattr(pipelines, what)())()
    return time.perf_counter() - began


if __name__ == "__main__":
    what, corpus, folder, *tokenizer = sys.argv[1:]
    with open(corpus, encoding="utf-8") as file:
        lines = file.readlines()
    start = seconds(what, Pipelines(lines[:WORKERS], Path(folder, "start"), *tokenizer or [None]))
    took = seconds(what, Pipelines(lines, Path(folder, "work"), *tokenizer or [None]))
    print(json.dumps({"seconds": took, "start": start}))
