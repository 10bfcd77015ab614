"""Fetch: pinned sources to raw documents in the store, each with a row in the ledger that says where it came from and under which licence."""

import asyncio
import os
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from corpusbuild import __version__, ledger, raw, trees
from corpusbuild.child import split_apart
from corpusbuild.downloads import boot_id, owned
from corpusbuild.durable import disk, replace_link
from corpusbuild.errors import SourceError
from corpusbuild.http import Http
from corpusbuild.kernels import PLAIN, Kernels
from corpusbuild.ledger import LEDGER_NAME
from corpusbuild.model import Key, Tally
from corpusbuild.progress import Event
from corpusbuild.raw import read_raw
from corpusbuild.segments import Verified
from corpusbuild.sources import (
    Source,
    SourceFile,
    checksum_files,
    fetch_key,
    file_names,
    file_urls,
    id_problem,
    is_pinned,
    is_tree,
    places,
    shown,
    sources_from_config,
)
from corpusbuild.split import split_documents
from corpusbuild.stages.fetch import STAGE, SplitSource, split_source
from corpusbuild.staging import perform
from corpusbuild.store import Store
from corpusbuild.transfer import Clock, Got, How, Throttle, Wanted, World, obtain

__all__ = [
    "LEDGER_NAME",
    "FetchError",
    "Fetched",
    "Manifest",
    "Outcome",
    "Source",
    "SourceFile",
    "fetch",
    "fetch_all",
    "ledger_row",
    "read_raw",
    "sources_from_config",
    "split_documents",
]  # fmt: skip

FetchError = SourceError

STAGE_NAME = "fetch"

APART = ("parquet",)
"""Formats that are always split in processes of their own."""

APART_BYTES = 32 * 1000 * 1000
"""Sources of more bytes are split in processes too, on every core: that pays for starting them."""


@dataclass(frozen=True)
class Fetched:
    """What became of one source. ``status`` is fetched, cached or quarantined; ``raw_dir`` is absolute, "" when quarantined.

    ``bytes`` and ``requests`` are what this call received and sent. ``sha256`` is the pinned digest, or of a quarantined file the one that came.
    """

    source: Source
    status: str
    raw_dir: str
    sha256: str
    bytes: int
    n_docs: int
    retrieved_at: str
    requests: int


@dataclass(frozen=True)
class Manifest:
    """What became of every source, in the order asked."""

    entries: tuple[Fetched, ...]

    @property
    def ok(self) -> bool:
        return all(entry.status != "quarantined" for entry in self.entries)


@dataclass(frozen=True)
class Outcome:
    """One source's own end: what was fetched, or why it could not be."""

    source: Source
    fetched: Fetched | None = None
    error: SourceError | None = None


class SystemClock:
    def now(self) -> float:
        return time.time()


def ledger_row(f: Fetched) -> dict[str, Any]:
    """The ledger's row for a fetched source. Nothing is filtered yet, so every document is kept."""
    return {
        "source_id": f.source.id,
        "url": file_urls(f.source)[0],
        "license_spdx": f.source.license_spdx,
        "retrieved_at": f.retrieved_at,
        "sha256": f.sha256,
        "n_docs": f.n_docs,
        "allowed_uses": list(f.source.allowed_uses),
        "pii_policy": f.source.pii_policy,
        "filters_applied": [],
        "kept": f.n_docs,
        "dropped": 0,
        "notes": "",
    }


async def fetch(
    srcs: Iterable[Source],
    dest: str | Path,
    *,
    concurrency: int = 8,
    attempts: int = 4,
    timeout: float = 30.0,
    base_delay: float = 0.5,
    part_docs: int = 100_000,
    clock: Clock | None = None,
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    how: How | None = None,
    progress: Callable[[Event], None] = lambda event: None,
    environment: dict[str, str] | None = None,
) -> Manifest:
    """Fetch every source into ``dest``. The first that fails for good ends the others and raises its ``FetchError``; what had finished by then
    has its row in the ledger. A source with other bytes than pinned is quarantined and ends nothing.

    ``how`` has further settings; ``attempts``, ``timeout`` and ``base_delay`` here win over it. ``ValueError`` for settings below 1 or repeated ids.
    """
    how = replace(how or How(), attempts=attempts, timeout=timeout, base_delay=base_delay)
    run = _Run(tuple(srcs), Path(dest), concurrency, part_docs, how, clock or SystemClock(), sleep, progress, environment)
    outcomes = await run.all(together=True)
    return Manifest(tuple(o.fetched for o in outcomes if o.fetched is not None))


async def fetch_all(
    srcs: Iterable[Source],
    dest: str | Path,
    *,
    concurrency: int = 8,
    part_docs: int = 100_000,
    clock: Clock | None = None,
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    how: How | None = None,
    progress: Callable[[Event], None] = lambda event: None,
    environment: dict[str, str] | None = None,
    workers: int = 0,
    kernels: Callable[[], Kernels] = lambda: PLAIN,
) -> list[Outcome]:
    """As ``fetch``, but a source that fails ends no other: each has its own outcome, in the order asked.

    ``workers`` processes split a large source, 0 for as many as there are cores; they run with what ``kernels`` gives when the first is wanted.
    """
    run = _Run(
        tuple(srcs),
        Path(dest),
        concurrency,
        part_docs,
        how or How(),
        clock or SystemClock(),
        sleep,
        progress,
        environment,
        workers or len(os.sched_getaffinity(0)),
        kernels,
    )
    return await run.all(together=False)


@asynccontextmanager
async def world_of(
    how: How,
    clock: Clock | None = None,
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    progress: Callable[[Event], None] = lambda event: None,
    environment: dict[str, str] | None = None,
    concurrency: int = 8,
) -> AsyncIterator[World]:
    """What downloads act with: connections, threads, a clock, as long as the block lasts."""
    environment = dict(os.environ) if environment is None else environment
    agent = f"corpusbuild/{__version__}" + (f" ({how.contact})" if how.contact else "")
    with ThreadPoolExecutor(min(32, concurrency + 2), "fetch") as threads:
        async with Http(timeout=how.timeout, user_agent=agent, environment=environment, per_host=how.per_host) as http:
            throttle = Throttle(how.rate, sleep) if how.rate else None
            yield World(how, http, clock or SystemClock(), sleep, boot_id(), environment, threads, progress, throttle=throttle)


class _Run:
    """One run over several sources: one loop, one semaphore, one ledger."""

    def __init__(
        self,
        sources: tuple[Source, ...],
        dest: Path,
        concurrency: int,
        part_docs: int,
        how: How,
        clock: Clock,
        sleep: Callable[[float], Awaitable[Any]],
        progress: Callable[[Event], None],
        environment: dict[str, str] | None,
        workers: int = 1,
        kernels: Callable[[], Kernels] = lambda: PLAIN,
    ):
        for name, value in (("concurrency", concurrency), ("attempts", how.attempts), ("part_docs", part_docs)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        ids = [source.id for source in sources]
        for id in ids:
            if problem := id_problem(id):
                raise ValueError(f"source id {id!r} {problem}")
            if ids.count(id) > 1:
                raise ValueError(f"duplicate source id {id!r}")
        self.sources, self.dest, self.part_docs, self.how = sources, dest.absolute(), part_docs, how
        self.clock, self.sleep, self.tell = clock, sleep, progress
        self.environment = environment
        self.room = asyncio.Semaphore(concurrency)
        self.workers, self.kernels = workers, kernels
        self.splitting = asyncio.Semaphore(2)
        self.apart = threading.Semaphore(1)
        self.concurrency = concurrency
        self.store = Store(self.dest)

    async def all(self, together: bool) -> list[Outcome]:
        path = self.dest / LEDGER_NAME
        rows = await asyncio.to_thread(ledger.read_rows, path)
        outcomes: dict[int, Outcome] = {}

        async def one(index: int, source: Source) -> None:
            try:
                await self._source(source, rows, lambda fetched: outcomes.__setitem__(index, Outcome(source, fetched)))
            except SourceError as error:
                self.tell(Event("failed", source.id, "", note=error.message))
                if together:
                    raise
                outcomes[index] = Outcome(source, error=error)

        try:
            async with world_of(self.how, self.clock, self.sleep, self.tell, self.environment, self.concurrency) as world:
                self.world = world
                async with asyncio.TaskGroup() as group:
                    for index, source in enumerate(self.sources):
                        group.create_task(one(index, source))
        except BaseExceptionGroup as several:
            raise _first(several) from None
        finally:
            fresh = [o.fetched for _, o in sorted(outcomes.items()) if o.fetched is not None and o.fetched.status == "fetched"]
            ledger.append_rows(path, [ledger_row(f) for f in fresh])
        return [outcomes[index] for index in range(len(self.sources))]

    async def _source(self, source: Source, rows: Sequence[dict[str, Any]], end: Callable[[Fetched], None]) -> None:
        """Bring one source to its end and tell ``end`` what became of it, before anything can be cancelled in between."""
        if not is_pinned(source):
            raise SourceError(source.id, "has no sha256 yet: run doit pin NAME, look at what it shows, and run again")
        key = fetch_key(source)
        world = replace(self.world, stop=threading.Event())
        if (cached := await world.blocking(self._cached, source, key, rows)) is not None:
            return end(cached)
        async with self._owned(source) as owner:
            world = replace(world, owner=owner)
            if await world.blocking(self.store.has, STAGE_NAME, key):
                await world.blocking(self._relink, source, key, end)
                return
            files, got = await self._files(source, world)
            received, requests = sum(g.bytes for g in got), sum(g.requests for g in got)
            now = _utc(self.clock.now())
            if bad := [g for g in got if g.path is None]:
                return end(Fetched(source, "quarantined", "", bad[0].sha256, received, 0, now, requests))
            fetched = Fetched(source, "fetched", "", source.sha256, received, 0, now, requests)
            async with self.splitting:
                await world.blocking(self._split, fetched, key, files, end, world.stop)

    def _cached(self, source: Source, key: Key, rows: Sequence[dict[str, Any]]) -> Fetched | None:
        """The source as an earlier run left it: a row with its id and digest, whose raw directory exists and is of this key."""
        if not self.store.has(STAGE_NAME, key):
            return None
        entry = os.path.realpath(self.store.path(STAGE_NAME, key))
        for row in reversed(rows):
            if row.get("source_id") == source.id and row.get("sha256") == source.sha256:
                day = str(row.get("retrieved_at", ""))[:10].replace("-", "")
                for link in (self.dest / "raw" / source.id / day, self.dest / "raw" / source.id / f"{day}-{key[:8]}"):
                    if os.path.realpath(link) == entry:
                        return Fetched(source, "cached", str(link), source.sha256, 0, row["n_docs"], row["retrieved_at"], 0)
        return None

    @asynccontextmanager
    async def _owned(self, source: Source) -> Any:
        """Hold the source's downloads, waiting for another process that has them."""
        told = False
        while True:
            with owned(self.dest / "downloads" / source.id) as ours:
                if ours is not None:
                    yield ours
                    return
            if not told:
                self.tell(Event("waiting", source.id, "", note="another process is fetching it"))
                told = True
            await asyncio.sleep(0.05)

    async def _files(self, source: Source, world: World) -> tuple[list[Verified], list[Got]]:
        """Every file of the source, verified, each under its own name."""
        if source.checksums:
            return await self._checksummed(source, world)
        if not source.files and is_tree(source.url):
            return await self._tree(source, world)
        listed = list(source.files) or [SourceFile(source.url, source.sha256, source.size)]
        return await self._all_of(source, listed, file_names(f.url for f in listed), world)

    async def _checksummed(self, source: Source, world: World) -> tuple[list[Verified], list[Got]]:
        """The files that a checksum file names. It is pinned itself, and so are they."""
        (own_name,) = file_names([source.url])
        own = SourceFile(source.url, source.sha256, source.size)
        pages, first = await self._all_of(source, [own], [own_name], world)
        if not pages:
            return [], first
        try:
            text = (await world.blocking(Path(pages[0].path).read_bytes)).decode()
            listed = checksum_files(text, source.url, source.select)
        except ValueError as error:
            raise SourceError(source.id, f"{own_name}: {error}") from None
        if not listed:
            raise SourceError(source.id, f"{own_name} names no file that matches select = {list(source.select)}")
        base = source.url.rpartition("/")[0] + "/"
        names = file_names([source.url, *(f.url for f in listed)])[1:]
        files, got = await self._all_of(source, listed, names, world)
        within = {f.url: unquote(f.url.removeprefix(base)) for f in listed}
        return [msgspec.structs.replace(f, url=source.url, within=f"{within[f.url]}:") for f in files], [*first, *got]

    async def _tree(self, source: Source, world: World) -> tuple[list[Verified], list[Got]]:
        """The files of a local folder or glob, when their names and digests together are the pinned ones."""
        base, found = await world.blocking(trees.find, source.url, source.root)
        if not found:
            raise SourceError(source.id, f"{source.url} names no file: correct the path")
        digests = await world.blocking(trees.digests, base, found, world.stop)
        digest = trees.digest(digests)
        if digest != source.sha256:
            raise SourceError(
                source.id,
                f"the {len(found)} files of {source.url} have the digest {digest}, and {source.sha256} is pinned: restore them, or pin the new digest "
                "after looking at them",
            )
        listed = [SourceFile((base / name).as_uri(), digests[name]) for name in found]
        files, got = await self._all_of(source, listed, file_names(f.url for f in listed), world)
        return [msgspec.structs.replace(f, url=source.url, within=f"{name}:") for f, name in zip(files, found, strict=True)], got

    async def _all_of(self, source: Source, listed: list[SourceFile], names: list[str], world: World) -> tuple[list[Verified], list[Got]]:
        """Several files at once, in the order listed; those that were quarantined are only among what was got."""
        downloads, quarantine = self.dest / "downloads" / source.id, self.dest / "quarantine" / source.id
        got: list[Got | None] = [None] * len(listed)

        async def one(index: int, file: SourceFile) -> None:
            wanted = Wanted(source.id, names[index], file.sha256, file.size, places(source, file), source.root, source.allow_private)
            async with self.room:
                got[index] = await obtain(wanted, downloads, quarantine, world)

        try:
            async with asyncio.TaskGroup() as group:
                for index, file in enumerate(listed):
                    group.create_task(one(index, file))
        except BaseExceptionGroup as several:
            raise _first(several) from None
        done = [g for g in got if g is not None]
        files = [
            Verified(str(g.path), file.url, name, file.sha256, g.path.stat().st_size)
            for g, file, name in zip(done, listed, names, strict=True)
            if g.path is not None
        ]
        return files, done

    def _relink(self, source: Source, key: Key, end: Callable[[Fetched], None]) -> None:
        """The entry is there but its row or its name is not: write both as its receipt says."""
        receipt = raw.receipt(self.store.path(STAGE_NAME, key))
        link = self._link(source, key, receipt.retrieved_at)
        documents = sum(p.documents for p in receipt.parts)
        end(Fetched(source, "fetched", str(link), source.sha256, 0, documents, receipt.retrieved_at, 0))

    def _split(self, fetched: Fetched, key: Key, files: list[Verified], end: Callable[[Fetched], None], stop: threading.Event) -> None:
        """Split the verified files, publish the entry and name it."""
        source, now = fetched.source, fetched.retrieved_at
        task = SplitSource(name="part", source=source, files=tuple(files), fetched_at=now, part_docs=self.part_docs)
        with self.store.lock(key) as staging:
            if not self.store.has(STAGE_NAME, key):
                done = staging.finished(task.name)
                if done is not None:
                    value = done.value
                elif source.format in APART or sum(f.size for f in files) > APART_BYTES:
                    with self.apart:
                        value = split_apart(task, staging.home, stop, workers=self.workers, kernels=self.kernels())
                else:
                    value = perform((partial(split_source, stop=stop.is_set), task, staging.home))
                tally = msgspec.convert(value["tally"], Tally)
                tally = msgspec.structs.replace(tally, also={"bytes": sum(f.size for f in files), **tally.also})
                receipt = raw.Receipt(
                    source_id=source.id,
                    url=shown(file_urls(source)[0]),
                    license_spdx=source.license_spdx,
                    sha256=source.sha256,
                    retrieved_at=now,
                    bytes=fetched.bytes,
                    files=msgspec.convert(value["files"], tuple[raw.FileReceipt, ...]),
                    parts=msgspec.convert(value["parts"], tuple[raw.RawPart, ...]),
                    rejected=tally.rejected,
                )
                staging.put(raw.RECEIPT, msgspec.json.format(msgspec.json.encode(receipt)) + b"\n")
                self.store.commit(staging, STAGE_NAME, key, STAGE.version, f"fetch:{source.id}", {source.id: tally})
        link = self._link(source, key, now)
        end(replace(fetched, raw_dir=str(link), n_docs=self.store.contents(STAGE_NAME, key).counts[source.id].kept))

    def _link(self, source: Source, key: Key, retrieved_at: str) -> Path:
        """Point ``raw/<id>/<yyyymmdd>`` at the entry; a second entry of one day has the beginning of its key behind the date."""
        folder, day = self.dest / "raw" / source.id, re.sub(r"\D", "", retrieved_at[:10])
        entry = self.store.path(STAGE_NAME, key)
        link = folder / day
        if link.exists() and os.path.realpath(link) != os.path.realpath(entry):
            link = folder / f"{day}-{key[:8]}"
        with disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
        if not (link.is_symlink() and os.path.realpath(link) == os.path.realpath(entry)):
            replace_link(link, entry)
        return link


def _utc(seconds: float) -> str:
    """
    >>> _utc(1_791_547_200.5)
    '2026-10-09T12:00:00Z'
    """
    return datetime.fromtimestamp(int(seconds // 1), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error to raise for several: a bug before a fault of the world, and among equals the first."""
    flat: list[BaseException] = []
    todo: list[BaseException] = [group]
    while todo:
        e = todo.pop(0)
        if isinstance(e, BaseExceptionGroup):
            todo[:0] = e.exceptions
        else:
            flat.append(e)
    return next((e for e in flat if not isinstance(e, SourceError)), flat[0])
