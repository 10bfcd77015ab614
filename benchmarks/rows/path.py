"""The whole path, from compressed JSON Lines on disk to tokens: against the least that must be done, and against datatrove."""

import environments
import ours
from harness import WIDE, Bench, Section
from measured import middle, rounds

LEAST_DATATROVE, LEAST_FLOOR = 100, 0.4
MOST_DISK = 1.6


def project_of(bench: Bench, name: str, corpus: object) -> ours.Project:
    """Everything on: filters, personal data, exact and near duplicates, shards, GPT-2 tokens."""
    return ours.Project(bench.folder(name), {"text": corpus}, {"filters.langs": ours.LANGS, **WIDE, **ours.BANDS, **bench.tokenizer()})


def measure(bench: Bench) -> Section:
    corpus, part = bench.zst(times=2 * bench.size), bench.jsonl(8)
    project = project_of(bench, "path", corpus)
    found = rounds(
        bench.rounds,
        {
            "corpusbuild": (bench.rounds, lambda: project.again("tokenize", [])),
            "floor": (bench.rounds, lambda: bench.rival("encoders", "rivals/floor.py", corpus.path, bench.folder("floor"), bench.gpt2())),
            "datatrove": (
                1,
                lambda: bench.rival(
                    "datatrove", "rivals/datatrove_pipelines.py", "path", part.path, bench.folder("datatrove"), bench.gpt2()
                ),
            ),
        },
    )
    theirs = found["datatrove"][0].told
    took = max(0.01, theirs["seconds"] - theirs["start"])
    mine = corpus.megabytes / middle(found["corpusbuild"])
    floor = corpus.megabytes / middle(found["floor"], lambda ran: ran.told["seconds"])
    speed = part.megabytes / took
    section = Section("The whole path", chart={"the floor": floor, "corpusbuild": mine, "datatrove": speed})
    section.say(
        "From one `.jsonl.zst` on disk to GPT-2 tokens: fetch and verify, filters and language, personal data, exact and near duplicates with true similarities, shards, "
        "licence gate, tokens; one command from an empty cache. Filters measure everything and drop next to nothing, so that every stage has all of it. *The floor* is the "
        "same bytes through one process that decompresses and two that parse, put in NFC, hash twice, compress once and encode with the fastest library, timed once they "
        f"stand (`rivals/floor.py`). datatrove does its two Gopher filters, dedup of lines, MinHash, e-mails and addresses, and tokens on {part.megabytes:.0f} MB, less the "
        f"{theirs['start']:.0f} s that the same pipelines take on one document a worker."
    )
    rows = [
        ("the floor", corpus.megabytes, corpus.megabytes / floor, floor, f"{mine / floor:.2f} of it"),
        ("corpusbuild", corpus.megabytes, middle(found["corpusbuild"]), mine, ""),
        (f"datatrove {environments.version('datatrove', 'datatrove')}", part.megabytes, took, speed, f"{mine / speed:.0f} x"),
    ]
    section.table(("", "MB of text", "s", "MB/s", "we are"), rows)
    kept = [f"{stage} {project.kept(stage):,}" for stage in ("fetch", "filter", "exact_dedup", "near_dedup", "shard")]
    section.say(f"Documents after each stage: {', '.join(kept)}.")
    section.claim("whole path, against datatrove", mine / speed, LEAST_DATATROVE)
    section.claim("whole path, of the floor", mine / floor, LEAST_FLOOR)
    _disk(section, project, corpus.path.stat().st_size)
    project.destroy()
    return section


def _disk(section: Section, project: ours.Project, compressed: int) -> None:
    sizes = {
        "documents (filter)": project.size("filter", ".docs.arrow"),
        "decisions": sum(project.size(stage) for stage in ("scrub", "exact_dedup", "near_dedup", "rails"))
        + project.size("filter", ".removed.parquet"),
        "bands (sign)": project.size("sign"),
    }
    others = {"raw parts": project.size("fetch"), "shards": project.size("shard"), "tokens": project.size("tokenize")}
    section.say("What the build leaves on disk, beside the text compressed at zstd 3, which is the source's file:")
    rows = [(name, size / 1e6, f"{size / compressed:.2f}") for name, size in {"the source": compressed, **sizes, **others}.items()]
    section.table(("", "MB", "of the source"), rows)
    section.claim("documents, decisions and bands on disk, of the text at zstd 3", sum(sizes.values()) / compressed, MOST_DISK, most=True)
