"""How fast corpusbuild is, against other tools and against the least that must be done, on the same text in the same run.

    python benchmarks/run.py [--only near,path] [--rounds 3] [--size 1] [--quick] [--work FOLDER]

Prints tables of medians and ratios, writes them to ``RESULTS.md`` with drawings in ``plots/``, and exits with 1 when a bar is not reached. The other
tools run in environments that it makes; the text comes from packages with pinned digests (``real_text.py``). Absolute figures drift with
the machine, so every bar is a ratio within this run, tools by turns. Needs ``pip install -e '.[fast]'``, Debian for the text, and nothing else to be running.
"""

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import environments  # noqa: E402 - these are found by the line above
import real_text  # noqa: E402
from harness import Bar, Bench, Section  # noqa: E402

from corpusbuild.machinecode import make_ready  # noqa: E402

ROWS = ("near", "filter", "exact", "personal", "tokens", "ids", "raw", "path", "stages", "small", "memory")


def main() -> int:
    options = arguments()
    bench = Bench(options.work.resolve(), options.size, options.rounds, options.quick)
    corpus = bench.jsonl()
    make_ready(print)  # compiled once for a machine; ``small`` says how long that takes
    sections: list[tuple[str, Section]] = []
    for name in options.only:
        began = time.perf_counter()
        print(f"{name}:", flush=True)
        try:
            section = importlib.import_module(f"rows.{name}").measure(bench)
        except SystemExit as error:  # one tool that fails must not cost what the others measured
            section = Section(name, [f"Not measured: {str(error).strip().splitlines()[-1]}", ""], [Bar(f"{name} was measured", 0, 1, "")])
            print(error, file=sys.stderr)
        sections.append((name, section))
        print("\n".join(section.lines), flush=True)
        for bar in section.bars:
            print(
                f"  {'reached' if bar.holds else 'MISSED '}  {bar.what}: {bar.value:.3g}{bar.unit}, {'at most' if bar.most else 'at least'} {bar.bound:g}"
            )
        print(f"  ({time.perf_counter() - began:.0f} s)\n", flush=True)
    draw(bench, sections)
    head = (
        f"{corpus.documents:,} documents, {corpus.megabytes:.0f} MB of text (`corpora.py`), times {bench.size} or what a row says, since starting takes ours a second or so; medians of {bench.rounds} rounds by turns, slow tools once. "
        f"{machine()}. MB are of text as UTF-8; seconds are of whole processes by the clock."
    )
    page = report(head, sections)
    where = bench.work / "RESULTS.md" if options.quick or set(options.only) != set(ROWS) else HERE / "RESULTS.md"
    where.write_text(page)
    print(f"written to {where}")
    missed = [bar for _, section in sections for bar in section.bars if not bar.holds]
    if options.quick:
        print("a quick run judges nothing: on so little text starting is most of the time")
        return 0
    for bar in missed:
        print(f"MISSED  {bar.what}: {bar.value:.3g}{bar.unit}, {'at most' if bar.most else 'at least'} {bar.bound:g}", file=sys.stderr)
    return 1 if missed else 0


def report(head: str, sections: list[tuple[str, Section]]) -> str:
    lines = [
        "# How fast it is",
        "",
        "Written by `python benchmarks/run.py`, which fails when a bar is not reached. Do not edit.",
        "",
        head,
        "",
        "## Bars",
        "",
    ]
    lines += ["| bar | measured | wanted | |", "|---|---|---|---|"]
    for _, section in sections:
        for bar in section.bars:
            sign = "at most" if bar.most else "at least"
            lines.append(
                f"| {bar.what} | {bar.value:.3g} {bar.unit} | {sign} {bar.bound:.4g} | {'reached' if bar.holds else '**missed**'} |"
            )
    lines.append("")
    for name, section in sections:
        lines += [f"## {section.title}", "", *section.lines]
        if section.chart:
            lines += [f"![{section.title}](plots/{name}.svg)", ""]
    return "\n".join(lines).rstrip() + "\n"


def draw(bench: Bench, sections: list[tuple[str, Section]]) -> None:
    results = bench.work / "results.json"
    results.write_text(json.dumps([{"name": name, **asdict(section)} for name, section in sections], indent=1))
    subprocess.run([environments.python("report", bench.work), HERE / "plots.py", results, bench.plots], check=True)


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{len(os.sched_getaffinity(0))} cores of {model}, {platform.system()}, Python {platform.python_version()}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda names: names.split(","), default=list(ROWS), metavar="ROW,ROW", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=1, help="times the first corpus")
    parser.add_argument("--quick", action="store_true", help="a few megabytes, to see that everything runs; judges nothing")
    parser.add_argument(
        "--work", type=Path, default=real_text.WORK, help="folder for environments, text and builds (default: benchmarks/.work)"
    )
    options = parser.parse_args()
    if unknown := set(options.only) - set(ROWS):
        parser.error(f"--only: {', '.join(sorted(unknown))} is none of {', '.join(ROWS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
