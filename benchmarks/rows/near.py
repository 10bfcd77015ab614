"""Near duplicates, end to end: JSON Lines in, the documents that stay out."""

import hashlib
import json
from functools import partial
from pathlib import Path

import environments
import numpy as np
import ours
import peers
import pyarrow.parquet as pq
import similarity_join
from corpora import Text, texts
from harness import Bench, Section
from measured import Ran, middle, rounds
from similarity_join import Pairs

from corpusbuild.hashing import file_sha256

TOOLS = {"datatrove": (60, 14, 16), "text-dedup": (20, 16, 40), "datasketch": (5, 16, None), "rensa": (3.5, 16, None), "gaoya": (2.5, 16, None), "daft": (1.8, 16, None)}  # fmt: skip
"""Tool -> how much faster we are at least, its bands of 8 rows, and the megabytes that it gets where all of them would take too long."""
ROWS, THRESHOLD = 8, peers.THRESHOLD
ONCE = {"datatrove", "text-dedup", "datasketch"}


def measure(bench: Bench) -> Section:
    corpus = bench.jsonl()
    project = ours.Project(bench.folder("near"), {"text": corpus}, {**ours.OFF, "stages.near_dedup": True, **ours.BANDS})
    project.run("fetch")
    slices = {tool: corpus if megabytes is None else bench.jsonl(megabytes) for tool, (_, _, megabytes) in TOOLS.items()}
    tools = {"corpusbuild": (bench.rounds, lambda: project.again("shard", ["fetch"]))}
    for tool in TOOLS:
        tools[tool] = (1 if tool in ONCE else bench.rounds, partial(_peer, bench, tool, slices[tool]))
    starts = {tool: _peer(bench, tool, bench.few()).seconds for tool, (_, _, megabytes) in TOOLS.items() if megabytes is not None}
    found = rounds(bench.rounds, tools)
    to_shards, to_decisions = (
        min(project.again(until, ["fetch", "filter"]).seconds for _ in range(bench.rounds)) for until in ("shard", "near_dedup")
    )

    pairs = true_pairs(corpus, bench.work)
    section = Section("Near duplicates, end to end")
    section.say(
        f"{corpus.documents:,} documents, {corpus.megabytes:.0f} MB of text. Ours reads the raw parts of its store, normalises, signs, compares, "
        f"counts out the true similarity of every candidate ({ours.BANDS['dedup.bands']} bands of 5), and writes Parquet shards with every decision on record; the others "
        f"read JSON Lines and write those that stay, and none verifies. *Recall* is of the pairs with a true Jaccard similarity of at least {THRESHOLD} "
        "(`similarity_join.py`), of which not both may stay; *true* the share of the removed that have such a partner among the kept. A tool with fewer "
        "documents got the first ones, and the ratio is of its MB/s on them, less the seconds that it takes on twenty documents."
    )
    mine = corpus.megabytes / middle(found["corpusbuild"])
    rows, best = [], 0.0
    for tool, runs in found.items():
        text = slices.get(tool, corpus)
        kept = _our_kept(project, corpus) if tool == "corpusbuild" else _their_kept(bench, tool, text)
        recall, true = _judge(pairs, kept)
        best = max(best, recall if tool != "corpusbuild" else 0.0)
        took = middle(runs) - starts.get(tool, 0.0)
        speed = text.megabytes / took
        section.chart[tool] = speed
        version = "" if tool == "corpusbuild" else f" {environments.version(tool, tool)}"
        ratio = "" if tool == "corpusbuild" else f"{mine / speed:.1f} x"
        rows.append(
            (
                f"{tool}{version}",
                text.documents,
                took,
                speed,
                ratio,
                max(r.peak for r in runs) / 1e6,
                f"{recall:.2%}",
                f"{true:.1%}",
            )
        )
        if tool == "corpusbuild":
            ours_recall = recall
        else:
            section.claim(f"near duplicates, against {tool}", mine / speed, TOOLS[tool][0])
    section.table(("tool", "documents", "s", "MB/s", "we are", "peak MB, all processes", "recall", "true"), rows)
    section.say(
        f"From documents that stand in the store, best of {bench.rounds}: to shards {to_shards:.2f} s, {corpus.megabytes / to_shards:.0f} MB/s; to decisions, which is sign and near_dedup "
        f"alone, {to_decisions:.2f} s, {corpus.megabytes / to_decisions:.0f} MB/s."
    )
    section.claim("recall at J >= 0.8, against the best of them", ours_recall, best, "")
    project.destroy()
    return section


def _peer(bench: Bench, tool: str, text: Text) -> Ran:
    return bench.rival(tool, "peers.py", tool, TOOLS[tool][1], ROWS, text.path, _kept_file(bench, tool), bench.folder(f"peer-{tool}"))


def _kept_file(bench: Bench, tool: str) -> Path:
    return bench.work / "runs" / f"kept-{tool}.txt"


def _their_kept(bench: Bench, tool: str, text: Text) -> np.ndarray:
    kept = np.zeros(text.documents, np.bool_)
    first = bench.jsonl(times=1).documents
    kept[[_number(name, first) for name in _kept_file(bench, tool).read_text().splitlines()]] = True
    return kept


def _number(name: str, first: int) -> int:
    """The place of a document, from ``02-0000017``, where a copy of the first corpus has ``first`` of them."""
    copy, number = name.split("-")
    return int(copy) * first + int(number)


def _our_kept(project: ours.Project, text: Text) -> np.ndarray:
    kept = np.ones(text.documents, np.bool_)
    for entry in project.entries("near_dedup"):
        for path in entry.glob("*.removed.parquet"):
            places = pq.read_table(path, columns=["place"]).column("place").to_pylist()
            kept[[int(place) - 1 for place in places]] = False
    return kept


def true_pairs(corpus: Text, work: Path) -> Pairs:
    """All pairs from the threshold up, found now or remembered."""
    code = file_sha256(Path(similarity_join.__file__))
    name = hashlib.sha256(json.dumps([corpus.sha256, THRESHOLD, peers.SHINGLE, code]).encode()).hexdigest()[:16]
    path = work / "results" / f"true-{name}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **similarity_join.join(similarity_join.shingle_sets(texts(corpus), peers.SHINGLE), THRESHOLD)._asdict())
    stored = np.load(path)
    return Pairs(*(stored[name] for name in Pairs._fields))


def _judge(pairs: Pairs, kept: np.ndarray) -> tuple[float, float]:
    """The share of pairs of which not both stay, and of the removed that have a partner that stays."""
    pairs = pairs.take(pairs.later < len(kept))
    earlier, later = kept[pairs.earlier], kept[pairs.later]
    has = np.zeros(len(kept), np.bool_)
    has[pairs.later[earlier]] = True
    has[pairs.earlier[later]] = True
    removed = ~kept
    return float((~(earlier & later)).mean()) if len(earlier) else 1.0, float(has[removed].mean()) if removed.any() else 1.0
