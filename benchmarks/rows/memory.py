"""What the whole path holds, all processes together, as the text grows; and whether its time grows with it."""

from pathlib import Path

import corpora
from harness import Bench, Section

from corpusbuild.config import load
from rows.path import project_of

GIGABYTES = {1: 0.2, 12: 2, 47: 8}
"""Times the first corpus -> about how many gigabytes that is."""
MOST_SLOWER = 1.1


def measure(bench: Bench) -> Section:
    section = Section("Memory, and time as the text grows", axis="MB held")
    rows, slopes, before = [], [], (0.0, 0.0)
    for times in (1,) if bench.quick else GIGABYTES:
        corpus = bench.zst() if bench.quick else corpora.zst(bench.work, times)
        project = project_of(bench, "memory", corpus)
        ran = project.run(exact=True)
        allowed = load(project.config).corpus.run.memory_bytes()
        rows.append(
            (
                f"{corpus.megabytes / 1e3:.2f} GB",
                corpus.documents,
                ran.seconds,
                corpus.megabytes / ran.seconds,
                ran.peak / 1e6,
                f"{ran.peak / allowed:.2f}",
            )
        )
        section.chart[f"{corpus.megabytes / 1e3:.2g} GB"] = ran.peak / 1e6
        slopes.append((ran.seconds - before[0]) / (corpus.megabytes - before[1]))
        before = ran.seconds, corpus.megabytes
        section.claim(
            f"memory of all processes at {corpus.megabytes / 1e3:.2g} GB of text, of run.memory", ran.peak / allowed, 1.0, "", most=True
        )
        project.destroy()
        if times > 1:  # the large ones are not wanted again
            _drop(corpus.path)
    section.say(
        "The whole path as above, its memory ten times a second: pages of its own of all processes, shared ones divided (Pss), without the files that "
        "the kernel keeps. `run.memory` is its default. The larger texts are the first one respelled, so they repeat themselves as much as it does."
    )
    section.table(("text", "documents", "s", "MB/s", "peak MB", "of run.memory"), rows)
    if len(slopes) > 2:
        section.claim("seconds a further MB, at 8 GB against 2 GB", slopes[2] / slopes[1], MOST_SLOWER, most=True)
    return section


def _drop(path: Path) -> None:
    path.unlink()
    path.with_name(f"{path.name}.json").unlink()
