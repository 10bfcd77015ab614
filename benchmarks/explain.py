"""How long ``doit explain`` takes on a million documents: the command as a person runs it, from the start of the process to its last line.

    python benchmarks/explain.py FOLDER [--documents 1000000] [--again]

Generates a project in FOLDER (about 250 bytes a document, in two sources: most of their own, some too short, some equal, some nearly equal), builds it
with the real commands, then asks ``doit explain`` each kind of question five times and prints the seconds. ``--again`` asks without building.
"""

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq

ROOT = Path(__file__).parent.parent
TIMES = 5
WORDS = (
    "boat island sail engine morning wind water lighthouse child harbour bell woman basket bread wall church village road winter river bridge letter "
    "box cat rain storm garden apple tree gate stone window lamp candle forest mountain valley horse cart market miller baker sailor captain rope anchor"
).split()
CONFIG = """dataset = "million"
version = "v1"

[[sources]]
id = "first"
url = "first.jsonl"
sha256 = "{first}"
license_spdx = "CC0-1.0"

[[sources]]
id = "second"
url = "second.jsonl"
sha256 = "{second}"
license_spdx = "CC0-1.0"

[filters]
gopher = {{ min_words = 20 }}

[shard]
shard_rows = 100000

[tokenizer]
id = "bytes"
"""


def text(rng: random.Random) -> str:
    a = rng.choices(WORDS, k=33)
    return f"The {' '.join(a[:11])} and the {' '.join(a[11:22])} were seen by a {' '.join(a[22:])} that we have not known."


def documents(n: int, rng: random.Random) -> Iterator[str]:
    """Of a hundred documents five are too short, two repeat an earlier one and three differ from an earlier one in a word."""
    earlier = [text(rng) for _ in range(1000)]
    for i in range(n):
        kind = i % 100
        if kind < 5:
            yield f"The {' '.join(rng.choices(WORDS, k=5))}."
        elif kind < 7:
            yield rng.choice(earlier)
        elif kind < 10:
            words = rng.choice(earlier).split()
            words[rng.choice((0, -1))] = "finally"
            yield " ".join(words)
        else:
            new = text(rng)
            earlier[rng.randrange(len(earlier))] = new
            yield new


def generate(folder: Path, n: int) -> None:
    (folder / "configs").mkdir(parents=True, exist_ok=True)
    for name in ("dodo.py", "pyproject.toml"):
        shutil.copyfile(ROOT / name, folder / name)
    shutil.copytree(ROOT / "configs" / "policy", folder / "configs" / "policy", dirs_exist_ok=True)
    rng, digests = random.Random(0), {}
    for source, share in (("first", n * 6 // 10), ("second", n - n * 6 // 10)):
        digest = sha256()
        with (folder / "configs" / f"{source}.jsonl").open("wb") as file:
            for document in documents(share, rng):
                line = json.dumps({"text": document}).encode() + b"\n"
                digest.update(line)
                file.write(line)
        digests[source] = digest.hexdigest()
    (folder / "configs" / "million.toml").write_text(CONFIG.format(**digests))


def doit(folder: Path, *args: str) -> tuple[str, float, float]:
    """What a command prints, the seconds by the clock and those of the processor."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-m", "doit", *args], cwd=folder, env=env, capture_output=True, text=True, check=False)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if run.returncode:
        sys.exit(f"doit {' '.join(args)}: {run.stderr}")
    return run.stdout, took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def questions(folder: Path, rng: random.Random) -> Iterator[tuple[str, str]]:
    """What to ask, by its kind."""
    cache = folder / "cache"
    removed = {stage: _removed(cache, stage) for stage in ("filter", "exact_dedup", "near_dedup")}
    shards = sorted((cache / "corpus" / "million" / "v1").glob("*.parquet"))
    files = json.loads((cache / "tokens" / "bytes" / "million" / "_MANIFEST.json").read_text())["files"]
    for i in range(TIMES):
        kept = pq.read_table(shards[-1 if i == 0 else rng.randrange(len(shards))], columns=["id", "url", "text"])
        row = kept.slice(rng.randrange(len(kept)), 1).to_pylist()[0]
        yield "a document that is kept", row["id"]
        for stage in removed:
            yield f"a document that {stage} removed", rng.choice(removed[stage])["id"]
        yield "a line of a source", row["url"]
        file = rng.choice(files)
        yield "a token", f"{file['name']}@{rng.randrange(file['n_tokens'])}"
        for kind, given in (
            ("a text that is in", row["text"]),
            ("a text with a word changed", row["text"].replace("were", "went", 1)),
            ("a text that is too short", f"{rng.choice(WORDS)} and {i}"),
            ("a text like no other", " ".join(f"{rng.random():.3f} the of and" for _ in range(60))),
        ):
            path = folder / f"text-{i}-{kind.replace(' ', '-')}.txt"
            path.write_text(given)
            yield kind, path.name


def _removed(cache: Path, stage: str) -> list[dict[str, str]]:
    return [
        row
        for path in sorted((cache / "store" / stage).glob("*/*.removed.parquet"))
        for row in pq.read_table(path, columns=["id"]).to_pylist()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--again", action="store_true")
    args = parser.parse_args()
    if not args.again:
        generate(args.folder, args.documents)
        said, took, _ = doit(args.folder, "build:million")
        print(f"built in {took:.0f} s\n{said}")
    asked: dict[str, list[tuple[float, float]]] = {}
    for kind, what in questions(args.folder, random.Random(1)):
        _, wall, cpu = doit(args.folder, "explain", what)
        asked.setdefault(kind, []).append((wall, cpu))
    print("| question | median, s | slowest, s | processor, median, s |\n|---|---|---|---|")
    for kind, times in asked.items():
        walls, cpus = zip(*times, strict=True)
        print(f"| {kind} | {statistics.median(walls):.2f} | {max(walls):.2f} | {statistics.median(cpus):.2f} |")


if __name__ == "__main__":
    main()
