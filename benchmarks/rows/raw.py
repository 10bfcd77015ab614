"""A source that has arrived to raw parts, against zstd alone on the same bytes."""

from functools import partial

import corpora
import ours
from harness import Bench, Section
from measured import middle, rounds

LEAST = 0.6


def measure(bench: Bench) -> Section:
    corpus = bench.jsonl(times=2 * bench.size)
    sources = {"jsonl": corpus, "text": corpora.separated(bench.work, corpus)}
    projects = {
        name: ours.Project(bench.folder(f"raw-{name}"), {name: text}, {**ours.OFF}, {name: corpora.SEPARATED} if name == "text" else {})
        for name, text in sources.items()
    }
    tools = {}
    for name, project in projects.items():
        tools[name] = (bench.rounds, partial(_from_nothing, project))
        tools[f"{name}, zstd"] = (bench.rounds, partial(_zstd, bench, sources[name].path))
    found = rounds(bench.rounds, tools)
    section = Section("Raw parts")
    section.say(
        "A local file is copied, verified by SHA-256, split into documents, each checked and written as JSON, and compressed at zstd level 3 into parts with their own digests: the "
        "command `fetch` from an empty cache. Beside it zstd at level 3 with two threads, which reads the file and writes it compressed, timed without its start."
    )
    rows = []
    for name, text in sources.items():
        mine = text.megabytes / middle(found[name])
        alone = text.megabytes / middle(found[f"{name}, zstd"], lambda ran: ran.told["seconds"])
        rows.append((name, text.megabytes, mine, alone, f"{mine / alone:.2f}"))
        section.chart |= {f"{name}, corpusbuild": mine, f"{name}, zstd 3": alone}
        section.claim(f"raw parts of {name}, of zstd alone", mine / alone, LEAST)
    section.table(("format", "MB of text", "MB/s", "zstd alone, MB/s", "of it"), rows)
    for project in projects.values():
        project.destroy()
    return section


def _from_nothing(project):
    return project.again("fetch", [])


def _zstd(bench, path):
    return bench.rival("encoders", "rivals/zstd_alone.py", path, bench.work / "runs" / "alone.zst")
