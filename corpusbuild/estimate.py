"""What a build will take before it begins: text by step, time from what earlier runs of this cache took, disk from the sizes that are known."""

from collections.abc import Iterator
from dataclasses import dataclass

from corpusbuild import preflight
from corpusbuild.journal import runs
from corpusbuild.plan import Plan
from corpusbuild.store import Store

RUNS = 50
"""How many of the last runs are asked for what a stage takes."""

LEAST_TEXT = 1_000_000
"""Bytes of text below which a run says nothing of a stage's speed: starting takes most of it."""


@dataclass(frozen=True)
class Estimate:
    """``download`` and ``disk`` in bytes; ``seconds`` is None where no run of this cache tells what a step takes, and ``unknown`` names such stages."""

    download: int
    disk: dict[str, int]
    seconds: float | None
    unknown: tuple[str, ...]


def estimate(plan: Plan, store: Store, workers: int) -> Estimate:
    """What the steps that are not in the store will take with so many workers."""
    speeds, text = dict(_seconds_per_byte(store)), preflight.text_by_source(plan, store)
    seconds, unknown = 0.0, []
    for step in plan.steps:
        if step.stage.name == "fetch" or store.has(step.stage.name, step.key):
            continue
        reads = text.get(step.source, 0) if step.source else sum(text.values())
        if step.stage.name in speeds:
            seconds += speeds[step.stage.name] * reads / workers
        elif reads and step.stage.name not in unknown:
            unknown.append(step.stage.name)
    disk = preflight.needed(plan, store)
    return Estimate(preflight.download(plan, store), disk, None if unknown else seconds, tuple(unknown))


def _seconds_per_byte(store: Store) -> Iterator[tuple[str, float]]:
    """Stage -> seconds of one worker for a byte of text, over the last runs; 0 for one that reads no text."""
    text: dict[str, int] = {}
    worked: dict[str, float] = {}
    for n, (_, events) in enumerate(runs(store)):
        if n == RUNS:
            break
        for event in events:
            if event["event"] == "step" and "worked" in event:
                stage = event["label"].partition(":")[0]
                text[stage] = text.get(stage, 0) + event["text_bytes"]
                worked[stage] = worked.get(stage, 0.0) + event["worked"]
    return ((stage, worked[stage] / n if n else 0.0) for stage, n in text.items() if not n or n >= LEAST_TEXT)
