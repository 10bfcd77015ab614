"""Where the time of the whole path goes, by stage, and a flame graph of it."""

import sys

import environments
from harness import Bench, Section
from ours import WORKERS

from rows.path import project_of

STAGES = ("fetch", "filter", "scrub", "sign", "exact_dedup", "near_dedup", "shard", "tokenize")
RATE = 100


def measure(bench: Bench) -> Section:
    corpus = bench.zst()
    little = project_of(bench, "stages-start", bench.few())
    starts = [little.run(stage) for stage in STAGES]
    project = project_of(bench, "stages", corpus)
    section = Section("By stage", axis="CPU ms a MB")
    rows, done = [], [0.0, 0.0]
    for stage, start in zip(STAGES, starts, strict=True):
        ran = project.run(stage)
        wall, cpu = max(1e-3, ran.seconds - start.seconds), max(0.0, ran.cpu - start.cpu)
        done = [done[0] + wall, done[1] + cpu]
        section.chart[stage] = 1e3 * cpu / corpus.megabytes
        rows.append(
            (
                stage,
                wall,
                cpu,
                1e3 * cpu / corpus.megabytes,
                corpus.megabytes / wall,
                f"{cpu / (WORKERS * wall):.0%}",
                ran.peak / 1e6,
                project.size(stage) / 1e6,
                start.seconds,
            )
        )
    rows.append(
        (
            "all",
            done[0],
            done[1],
            1e3 * done[1] / corpus.megabytes,
            corpus.megabytes / done[0],
            "",
            "",
            "",
            sum(start.seconds for start in starts),
        )
    )
    section.say(
        "Each stage by a command of its own after those before it, less what the same command takes on twenty documents (*start*: Python, two workers, the compiled kernels; one "
        "command for all stages pays it once). In one command stages overlap, so the whole path takes "
        f"less than the sum. *Busy* is the CPU used of {WORKERS} cores; what is missing waits for the disk, for the last part, or for one process. shard includes rails "
        "and the licence gate."
    )
    section.table(("stage", "s", "CPU s", "CPU ms a MB", "MB/s", "busy", "peak MB", "MB on disk", "start, s"), rows)
    if flame(bench, project):
        section.say("A flame graph of all processes is in `plots/flame.svg`, which stays on the machine whose folders it names.")
    project.destroy()
    return section


def flame(bench: Bench, project) -> bool:
    """Sample all processes of a build by py-spy. Gives whether this system lets it."""
    environments.python("report", bench.work)
    target = bench.plots / "flame.svg"
    project.forget()
    spy = [bench.work / "envs" / "report" / "bin" / "py-spy", "record", "--subprocesses", "--rate", str(RATE), "--output", target, "--"]
    try:
        project.run(under=spy)
    except SystemExit as error:
        print(f"no flame graph: {error}", file=sys.stderr)
        return False
    return True
