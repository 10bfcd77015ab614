"""Personal data of five kinds, validated, against one alternation of ``re`` and presidio's recognisers of patterns."""

import environments
import ours
from harness import Bench, Section
from measured import middle, rounds

LEAST_RE, LEAST_PRESIDIO = 15, 100


def measure(bench: Bench) -> Section:
    corpus, some, few = bench.jsonl(times=2 * bench.size), bench.jsonl(60), bench.jsonl(3)
    project = ours.Project(bench.folder("personal"), {"text": corpus}, {**ours.OFF, "stages.scrub": True})
    project.run("filter")
    spans = bench.work / "runs" / "spans.jsonl"
    found = rounds(
        bench.rounds,
        {
            "corpusbuild": (bench.rounds, lambda: project.again("scrub", ["fetch", "filter"])),
            "re": (bench.rounds, lambda: bench.rival("encoders", "rivals/re_scan.py", some.path, spans)),
            "presidio": (1, lambda: bench.rival("presidio", "rivals/presidio_scan.py", few.path, spans)),
        },
    )
    mine = corpus.megabytes / middle(found["corpusbuild"])
    by_re = some.megabytes / middle(found["re"], lambda ran: ran.told["seconds"])
    by_presidio = few.megabytes / found["presidio"][0].told["seconds"]
    section = Section("Personal data", chart={"corpusbuild": mine, "re": by_re, "presidio": by_presidio})
    section.say(
        "E-mail addresses, telephone numbers, cards, addresses of the internet and keys, each checked (Luhn, ranges, borders), where they stand written down. Ours "
        "is the stage scrub by the whole command, with the start of its processes, from documents that stand in the store; the others are two processes that read JSON Lines, "
        "timed without their start, presidio without a language model. Each got the first documents of the same text."
    )
    rows = [
        ("corpusbuild", corpus.megabytes, middle(found["corpusbuild"]), mine, ""),
        ("re, one alternation", some.megabytes, some.megabytes / by_re, by_re, f"{mine / by_re:.1f} x"),
        (
            f"presidio {environments.version('presidio', 'presidio-analyzer')}",
            few.megabytes,
            few.megabytes / by_presidio,
            by_presidio,
            f"{mine / by_presidio:.0f} x",
        ),
    ]
    section.table(("tool", "MB of text", "s", "MB/s", "we are"), rows)
    section.claim("personal data, against re", mine / by_re, LEAST_RE)
    section.claim("personal data, against presidio", mine / by_presidio, LEAST_PRESIDIO)
    project.destroy()
    return section
