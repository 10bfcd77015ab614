"""GPT-2 ids from shards to ``.bin`` files."""

from functools import partial

import environments
import ours
from harness import Bench, Section
from measured import middle, rounds

SLICES = {"tokenizers": 30, "tiktoken": 60, "fastokens": 10**6, "gigatoken": 10**6}
LEAST = {"tokenizers": 20, "tiktoken": 5, "datatrove": 20}
LEAST_OF_FASTEST = 0.6


def measure(bench: Bench) -> Section:
    corpus, part = bench.jsonl(times=2 * bench.size), bench.jsonl(12)
    project = ours.Project(bench.folder("tokens"), {"text": corpus}, {**ours.OFF, "stages.tokenize": True, **bench.tokenizer()})
    before = ["fetch", "filter", "shard", "ledger"]
    project.run("shard")
    shards = bench.work / "runs" / "tokens" / "cache" / "store" / "shard"
    tools = {"corpusbuild": (bench.rounds, lambda: project.again("tokenize", before))}
    for library, megabytes in SLICES.items():
        tools[library] = (1 if library == "tokenizers" else bench.rounds, partial(_library, bench, library, shards, megabytes))
    tools["datatrove"] = (
        1,
        lambda: bench.rival("datatrove", "rivals/datatrove_pipelines.py", "tokens", part.path, bench.folder("datatrove"), bench.gpt2()),
    )
    found = rounds(bench.rounds, tools)

    mine = corpus.megabytes / middle(found["corpusbuild"])
    theirs = found["datatrove"][0].told
    speeds = {library: middle(found[library], lambda ran: ran.told["megabytes"] / ran.told["seconds"]) for library in SLICES}
    speeds["datatrove"] = part.megabytes / max(0.01, theirs["seconds"] - theirs["start"])
    section = Section("GPT-2 tokens, from shards to `.bin`", chart={"corpusbuild": mine, **speeds})
    section.say(
        "The text of Parquet shards to ids of two bytes in files. Ours is the stage tokenize by the whole command, with the start of its processes, checksums, manifests and "
        "indices; the libraries are timed once they stand, in two processes or with threads of their own (`rivals/encode.py`); datatrove's tokenizer gets JSON Lines, "
        "less the seconds that it takes on one document a worker."
    )
    rows = [("corpusbuild", corpus.megabytes, mine, "")]
    for library, speed in speeds.items():
        megabytes = part.megabytes if library == "datatrove" else found[library][0].told["megabytes"]
        version = environments.version("datatrove" if library == "datatrove" else "encoders", library)
        rows.append((f"{library} {version}", megabytes, speed, f"{mine / speed:.2f} x"))
    section.table(("tool", "MB of text", "MB/s", "we are"), rows)
    for library, least in LEAST.items():
        section.claim(f"GPT-2 tokens, against {library}", mine / speeds[library], least)
    fastest = max(speeds, key=speeds.__getitem__)
    section.claim(f"GPT-2 tokens, of the fastest library ({fastest})", mine / speeds[fastest], LEAST_OF_FASTEST)
    digests = {runs[0].told["md5"] for library, runs in found.items() if library in ("fastokens", "gigatoken")}
    section.say("The fast libraries give the same ids." if len(digests) == 1 else "The fast libraries do not give the same ids.")
    project.destroy()
    return section


def _library(bench, library, shards, megabytes):
    return bench.rival("encoders", "rivals/encode.py", library, shards, bench.folder("ids"), bench.gpt2(), megabytes)
