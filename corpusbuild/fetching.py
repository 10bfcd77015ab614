"""Fetching for a build: several fetch steps in one event loop, told line by line, each with its own outcome."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from corpusbuild.errors import SourceError
from corpusbuild.kernels import PLAIN
from corpusbuild.machinecode import make_ready
from corpusbuild.progress import Event, Meter
from corpusbuild.project import Options
from corpusbuild.settings import Run
from corpusbuild.stage import Step
from corpusbuild.store import Store

if TYPE_CHECKING:
    from corpusbuild.fetch import Fetched

PROGRESS_SECONDS = 3.0


def fetch_steps(
    steps: Sequence[Step],
    store: Store,
    run: Run,
    options: Options,
    tell: Callable[[Event], None],
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, SourceError | None]:
    """Fetch the sources of ``steps``; source id -> why it failed, or None. ``tell`` is told of every chunk and every other event, ``say`` that kernels are compiled."""
    import asyncio

    from corpusbuild.fetch import fetch_all
    from corpusbuild.transfer import How

    how = How(
        attempts=run.attempts,
        timeout=run.timeout,
        connections=run.connections,
        per_host=run.per_host,
        rate=run.rate,
        contact=run.contact,
        offline=options.offline,
        resume_only=options.resume_only,
        retry_quarantined=options.retry_quarantined,
    )
    sources = [step.params for step in steps]
    outcomes = asyncio.run(
        fetch_all(
            sources,
            store.root,
            concurrency=run.concurrency,
            how=how,
            progress=tell,
            workers=1 if (options.executor or run.executor) == "serial" else options.workers or run.workers,
            kernels=lambda: make_ready(say) if run.kernels != "reference" else PLAIN,
        )
    )
    return {o.source.id: o.error or _quarantined(o.fetched) for o in outcomes}


def in_lines(say: Callable[[str], None], beat: Callable[[], None] = lambda: None) -> Callable[[Event], None]:
    """Tell of fetching in lines, every few seconds and when a file is tried again. ``beat`` hears of every event."""
    meter, last = Meter(), time.monotonic()

    def tell(event: Event) -> None:
        nonlocal last
        now = time.monotonic()
        meter.take(event, now)
        beat()
        if event.kind in ("retry", "waiting"):
            say(f"fetch:{event.source}: {event.file} {event.note}".replace("  ", " "))
        if now - last >= PROGRESS_SECONDS:
            last = now
            for line in meter.lines(now):
                say(line)

    return tell


def is_fetched(step: Step, store: Store) -> bool:
    """Whether the source's documents are in the store and its own name stands for them."""
    entry = store.path("fetch", step.key).resolve()
    return store.has("fetch", step.key) and any(link.resolve() == entry for link in (store.root / "raw" / step.source).glob("*"))


def _quarantined(fetched: "Fetched | None") -> SourceError | None:
    if fetched is None or fetched.status != "quarantined":
        return None
    return SourceError(
        fetched.source.id,
        f"other bytes came than pinned (sha256 {fetched.sha256[:12]}..., not {fetched.source.sha256[:12]}...); they wait in quarantine/{fetched.source.id}. "
        "Pin the new digest if they are right, or run again with --retry-quarantined",
    )
