"""Exact duplicates of paragraphs, end to end, against datatrove's exact dedup of lines and of sentences."""

from functools import partial

import environments
import ours
from harness import Bench, Section
from measured import middle, rounds

LEAST = 20
SLICES = {"lines": 16, "sentences": 4}


def measure(bench: Bench) -> Section:
    corpus = bench.jsonl(times=2 * bench.size)
    parts = {what: bench.jsonl(megabytes) for what, megabytes in SLICES.items()}
    project = ours.Project(bench.folder("exact"), {"text": corpus}, {**ours.OFF, "stages.exact_dedup": True})
    project.run("fetch")
    tools = {"corpusbuild": (bench.rounds, lambda: project.again("shard", ["fetch"]))}
    for what, part in parts.items():
        tools[what] = (1, partial(_datatrove, bench, what, part.path))
    found = rounds(bench.rounds, tools)
    mine = corpus.megabytes / middle(found["corpusbuild"])
    section = Section("Exact duplicates of paragraphs", chart={"corpusbuild": mine})
    section.say(
        "JSON Lines in, documents without the paragraphs that came before out. Ours is the whole command up to the Parquet shards. datatrove's is SentenceDedup "
        "with single lines (`split_sentences=False`, the nearest to paragraphs) and with three sentences (its default), on slices, less the seconds that its "
        "pipelines take on one document a worker."
    )
    rows = [("corpusbuild", corpus.megabytes, middle(found["corpusbuild"]), mine, "")]
    for what, part in parts.items():
        took = max(0.01, found[what][0].told["seconds"] - found[what][0].told["start"])
        section.chart[f"datatrove, {what}"] = part.megabytes / took
        rows.append(
            (
                f"datatrove {environments.version('datatrove', 'datatrove')}, {what}",
                part.megabytes,
                took,
                part.megabytes / took,
                f"{mine * took / part.megabytes:.0f} x",
            )
        )
        section.claim(f"exact paragraphs, against datatrove's {what}", mine * took / part.megabytes, LEAST)
    section.table(("tool", "MB of text", "s", "MB/s", "we are"), rows)
    project.destroy()
    return section


def _datatrove(bench, what, path):
    return bench.rival("datatrove", "rivals/datatrove_pipelines.py", what, path, bench.folder("datatrove"))
