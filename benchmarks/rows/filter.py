"""Gopher's quality rules, repetition and language, against datatrove's two Gopher filters."""

import environments
import ours
from harness import WIDE, Bench, Section
from measured import middle, rounds

LEAST = 250


def measure(bench: Bench) -> Section:
    corpus, part = bench.jsonl(times=4 * bench.size), bench.jsonl(6)
    project = ours.Project(
        bench.folder("filter"), {"text": corpus}, {**ours.OFF, "stages.filter": True, "filters.langs": ours.LANGS, **WIDE}
    )
    project.run("fetch")
    found = rounds(
        bench.rounds,
        {
            "corpusbuild": (bench.rounds, lambda: project.again("filter", ["fetch"])),
            "datatrove": (
                1,
                lambda: bench.rival("datatrove", "rivals/datatrove_pipelines.py", "filter", part.path, bench.folder("datatrove")),
            ),
        },
    )
    theirs = found["datatrove"][0].told
    mine, speed = corpus.megabytes / middle(found["corpusbuild"]), part.megabytes / max(0.01, theirs["seconds"] - theirs["start"])
    section = Section("Quality, repetition and language", chart={"corpusbuild": mine, "datatrove": speed})
    section.say(
        "Every document is read, measured by all rules and written again. Ours is the whole command, started from nothing, with normalisation, seven of "
        "Gopher's statistics, repeated three-word runs and a vote on the language; datatrove's is GopherQualityFilter and GopherRepetitionFilter, without a language, on a "
        f"slice of {part.megabytes:.0f} MB, less the {theirs['start']:.1f} s that its pipeline takes on one document."
    )
    rows = [("corpusbuild", corpus.megabytes, middle(found["corpusbuild"]), mine, ""),
            (f"datatrove {environments.version('datatrove', 'datatrove')}", part.megabytes, theirs["seconds"] - theirs["start"], speed, f"{mine / speed:.0f} x")]  # fmt: skip
    section.table(("tool", "MB of text", "s", "MB/s", "we are"), rows)
    section.claim("quality, repetition and language, against datatrove", mine / speed, LEAST)
    project.destroy()
    return section
