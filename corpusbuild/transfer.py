"""One file from wherever it lies to its final name: asks ``resume`` what to do and does it, until the pinned object is there or cannot be had."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from corpusbuild import objects, resume
from corpusbuild.downloads import Download, Note, Ownership, SegmentFile, file_digest, forget_quarantined, quarantined, remove
from corpusbuild.errors import SourceError
from corpusbuild.http import Fault, Http
from corpusbuild.origins import hub
from corpusbuild.progress import Event
from corpusbuild.resume import Again, Answer, Append, Ask, Checkpoint, Drop, Hop, Part, Refuse, Rewrite, Segment, Step, Verify, Whole, Wrong
from corpusbuild.sources import hub_url, is_local, local_path, shown

BATCH = 1 << 20
"""Bytes that are written and hashed in one go, in a thread, while the next arrive."""

FORGIVING_BYTES = 1 << 20
"""Progress that makes earlier failures forgotten when the next wait is chosen."""

MAX_BACKOFF = 60.0

T = TypeVar("T")


class Clock(Protocol):
    def now(self) -> float: ...


class Opened(Protocol):
    """An answer and its body, from whatever kind of server."""

    @property
    def answer(self) -> Answer: ...

    @property
    def framed(self) -> bool: ...

    def chunks(self) -> AsyncGenerator[bytes, None]: ...

    @property
    def done(self) -> Callable[[], Awaitable[None]]: ...


@dataclass(frozen=True)
class How:
    """How to download; nothing here changes what arrives. Times are seconds, rates bytes a second, 0 means no limit."""

    attempts: int = 4
    timeout: float = 30.0
    base_delay: float = 0.5
    deadline: float = 24 * 3600.0
    connections: int = 1
    per_host: int = 0
    rate: float = 0.0
    contact: str = ""
    offline: bool = False
    resume_only: bool = False
    retry_quarantined: bool = False


class Throttle:
    """Keeps the bytes of all downloads of a run below ``rate`` a second."""

    def __init__(self, rate: float, sleep: Callable[[float], Awaitable[Any]]):
        self._rate, self._sleep, self._due = rate, sleep, 0.0

    async def __call__(self, n: int) -> None:
        now = asyncio.get_running_loop().time()
        self._due = max(self._due, now) + n / self._rate
        if self._due > now:
            await self._sleep(self._due - now)


@dataclass
class World:
    """What a download is given to act with, shared by all downloads of a run."""

    how: How
    http: Http
    clock: Clock
    sleep: Callable[[float], Awaitable[Any]]
    boot_id: str
    environment: dict[str, str]
    writers: ThreadPoolExecutor
    tell: Callable[[Event], None] = lambda event: None
    demerits: Counter[str] = field(default_factory=Counter)
    """By URL without its last segment: how often a place failed or lied in this run."""
    throttle: Callable[[int], Awaitable[None]] | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    """Set when the work of one source is cancelled; what runs long in a thread asks it."""
    owner: Ownership | None = None
    """Whose the source's download folder is."""

    async def blocking(self, fn: Callable[..., T], *args: Any) -> T:
        """Run what blocks in a thread. A cancel asks it to stop and waits for it, so that no thread outlives what it works on."""
        future = asyncio.get_running_loop().run_in_executor(self.writers, fn, *args)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self.stop.set()
            await asyncio.wait([future])
            raise


@dataclass(frozen=True)
class Wanted:
    """One pinned file: ``places`` promise it, ``source`` is whose it is."""

    source: str
    name: str
    sha256: str
    size: int | None
    places: tuple[str, ...]
    root: str = ""
    allow_private: bool = False


@dataclass(frozen=True)
class Got:
    """What became of it. ``path`` is the file with its pinned digest, or None when it was quarantined and ``sha256`` is what came."""

    path: Path | None
    sha256: str
    bytes: int = 0
    requests: int = 0


@dataclass
class _Account:
    bytes: int = 0
    requests: int = 0

    def count(self) -> None:
        self.requests += 1


@dataclass(frozen=True)
class _Lie:
    """A place that has other bytes. ``digest`` is "" where its announced size was enough to know."""

    why: str
    digest: str = ""


@dataclass(frozen=True)
class _Failed:
    why: str
    retryable: bool


async def obtain(wanted: Wanted, downloads: Path, quarantine: Path, world: World) -> Got:
    """Make ``downloads/<name>`` the pinned object. ``SourceError`` when it cannot be had; a file that no place has right is quarantined."""
    final = downloads / wanted.name
    if await world.blocking(final.exists):
        if await world.blocking(file_digest, final, world.stop) == wanted.sha256:
            return Got(final, wanted.sha256)
        await world.blocking(remove, final)
    if world.how.retry_quarantined:
        await world.blocking(forget_quarantined, quarantine, wanted.name)
    elif (note := await world.blocking(quarantined, quarantine, wanted.name, wanted.sha256)) is not None:
        return Got(None, note.received)
    if all(is_local(place) for place in wanted.places):
        return await _copy(wanted, downloads, world)
    download = Download(downloads, wanted.name, world.boot_id, world.stop, world.owner)
    try:
        await world.blocking(download.open)
        if world.how.offline:
            raise SourceError(
                wanted.source, f"{wanted.name} is not here and offline was asked for: run again with a network", retryable=True
            )
        if world.how.resume_only and download.checkpoint is None:
            raise SourceError(wanted.source, f"{wanted.name} has no download to go on with: run again without resume-only to begin one")
        async with asyncio.timeout(world.how.deadline or None):
            return await _from_some_place(wanted, download, quarantine, world)
    except TimeoutError:
        raise SourceError(
            wanted.source, f"{wanted.name} took more than {world.how.deadline:g} seconds: run again to go on", retryable=True
        ) from None
    finally:
        await world.blocking(download.close)


async def take_unpinned(wanted: Wanted, downloads: Path, world: World) -> Path:
    """The one file that ``wanted`` names, whatever its digest: complete, and from one answer or from answers of one strong ETag. One that is
    there is taken as it is."""
    final = downloads / wanted.name
    if await world.blocking(final.exists):
        return final
    download = Download(downloads, wanted.name, world.boot_id, world.stop, world.owner)
    try:
        await world.blocking(download.open)
        if world.how.offline:
            raise SourceError(
                wanted.source, f"{wanted.name} is not here and offline was asked for: run again with a network", retryable=True
            )
        outcome = await _Transfer(wanted, download, world, _Account(), wanted.places[0]).run(more_places=False)
        if outcome is not None:
            raise SourceError(
                wanted.source, f"{shown(wanted.places[0])}: {outcome.why}", isinstance(outcome, _Failed) and outcome.retryable
            )
        await world.blocking(download.publish)
        return final
    finally:
        await world.blocking(download.close)


async def _from_some_place(wanted: Wanted, download: Download, quarantine: Path, world: World) -> Got:
    account = _Account()
    places = sorted(wanted.places, key=lambda place: world.demerits[_base(place)])
    lies: list[tuple[str, _Lie]] = []
    failed: list[tuple[str, _Failed]] = []
    for n, place in enumerate(places):
        last = n == len(places) - 1
        outcome = await _Transfer(wanted, download, world, account, place).run(more_places=not last or bool(failed))
        if outcome is None:
            await world.blocking(download.publish)
            world.tell(Event("done", wanted.source, wanted.name))
            return Got(download.final, wanted.sha256, account.bytes, account.requests)
        world.demerits[_base(place)] += 1
        if isinstance(outcome, _Lie):
            lies.append((place, outcome))
            if not last or failed or not outcome.digest:
                await world.blocking(download.discard)
        else:
            failed.append((place, outcome))
    if failed or not lies[-1][1].digest:
        raise _error(wanted, failed, lies)
    digest = lies[-1][1].digest
    note = Note(pinned=wanted.sha256, received=digest, size=download.size, urls=tuple(shown(place) for place, _ in lies))
    await world.blocking(download.quarantine, quarantine, note)
    world.tell(Event("failed", wanted.source, wanted.name, note="quarantined"))
    return Got(None, digest, account.bytes, account.requests)


class _Transfer:
    """The attempts to get one file from one place."""

    def __init__(self, wanted: Wanted, download: Download, world: World, account: _Account, place: str):
        self._wanted, self._download, self._world, self._account, self._place = wanted, download, world, account, place
        self._framed = self._parallel = True
        self._failures = self._waits = 0
        self._high = download.size
        self._forgiven = download.size

    async def run(self, more_places: bool) -> _Lie | _Failed | None:
        """None when the part is the pinned object."""
        d, how = self._download, self._world.how
        plain = bare = clean = False
        while True:
            await self._world.blocking(d.absorb)
            part = Part(d.size, self._wanted.size, d.checkpoint)
            asked = resume.ask(part, url=self._place, plain=plain or clean, bare=bare)
            if isinstance(asked, Drop):
                await self._discard()
                continue
            step: Step | None
            if isinstance(asked, Verify):
                self._framed, step = True, Whole(d.size)
            else:
                step = await self._attempt(asked, part)
            plain = isinstance(step, Again) and step.plain
            bare = isinstance(step, Again) and step.bare
            if isinstance(step, Whole):
                matches = self._is_right()
                match resume.verdict(matches=matches, whole_from_one_answer=d.whole, framed=self._framed, more_places=more_places):
                    case "publish":
                        return None
                    case "clean":
                        self._high = max(self._high, d.size)
                        await self._discard()
                        clean, self._parallel = True, False
                        continue
                    case "again":
                        step = Again("the body ended without saying that it was whole")
                    case _:
                        return _Lie(f"it has the digest {d.digest()}, not {self._wanted.sha256}", d.digest())
            match step:
                case Wrong(why):
                    return _Lie(why)
                case Refuse(why, retryable):
                    return _Failed(why, retryable)
                case Again(why, after=after):
                    if not self._count(d.size):
                        return _Failed(f"{why} ({how.attempts} attempts)", True)
                    await self._wait(why, after)
                case _:
                    self._count_progress(d.size)

    def _is_right(self) -> bool:
        """Whether the complete part is the pinned object; where nothing is pinned, whether its bytes are of one version."""
        if self._wanted.sha256:
            return self._download.digest() == self._wanted.sha256
        checkpoint = self._download.checkpoint
        return self._framed and (self._download.whole or (checkpoint is not None and checkpoint.etag is not None))

    async def _attempt(self, asked: Ask, part: Part) -> Step | None:
        """Ask once, follow redirects, take the body. None: bytes came, and more are wanted."""
        url, hops, guarded = self._address(), 0, False
        try:
            while True:
                async with self._open(url, asked, hops, guarded) as opened:
                    step = resume.judge(asked, part, opened.answer, self._world.clock.now())
                    if isinstance(step, Append | Rewrite):
                        return await self._receive(step, opened)
                if not isinstance(step, Hop):
                    return step
                if hops == 0 and not self._wanted.allow_private:
                    guarded = await self._world.http.is_public(url)
                url, hops = step.url, hops + 1
        except Fault as fault:
            return Again(fault.why) if fault.retryable else Refuse(fault.why)

    async def _receive(self, step: Append | Rewrite, opened: Opened) -> Step | None:
        """Take the body of an answer that is to be written. Whatever arrived is on disk when this ends, however it ends."""
        world, d = self._world, self._download
        total = step.total if isinstance(step, Append) else step.length
        total = total if total is not None else self._wanted.size
        known = resume.checkpoint_of(opened.answer, self._place, total, world.boot_id)
        if isinstance(step, Append):
            await world.blocking(d.go_on, known)
        else:
            self._tell("lost", d.size)
            await world.blocking(d.begin, known)
        self._tell("begin", d.size, total)
        self._framed = opened.framed or self._wanted.size is not None
        limit = d.size + step.length if step.length is not None else total
        start = d.size
        plan = await self._plan(opened.answer, total)
        try:
            async with (
                aclosing(opened.chunks()) as chunks,
                aclosing(self._limited(chunks, limit, start, plan[0].end if plan else None)) as body,
            ):
                if len(plan) > 1 and total is not None:
                    await self._together(body, opened, plan, total, known)
                else:
                    await _write(body, d.append, world)
        except Fault as fault:
            if limit is None or d.size != limit:  # a connection may end badly after the last byte
                return Again(fault.why) if fault.retryable else Refuse(fault.why)
        except _TooLong:
            return Whole(d.size)  # the digest cannot match, and that says what to do
        if isinstance(step, Append) and (total is None or d.size < total):
            return None if d.size > start else Again("the server sends an empty body")
        if total is not None and d.size < total:
            return Again(f"the body was cut after {d.size} of {total} bytes")
        return Whole(d.size)

    async def _plan(self, answer: Answer, total: int | None) -> tuple[Segment, ...]:
        """The segments to get over several connections, or none."""
        d, connections = self._download, self._world.how.connections
        if connections < 2 or total is None or not self._parallel or not resume.takes_ranges(answer):
            return ()
        plan = resume.segments(d.size, total, await self._world.blocking(d.held), connections)
        return plan if len(plan) > 1 else ()

    async def _together(
        self, body: AsyncGenerator[bytes, None], opened: Opened, plan: tuple[Segment, ...], total: int, known: Checkpoint
    ) -> None:
        """Take the first segment from the body at hand and the others from requests of their own, then put them in line."""
        room = asyncio.Semaphore(self._world.how.connections - 1)
        faults: list[Fault] = []

        async def other(segment: Segment) -> None:
            async with room:
                try:
                    await self._segment(segment, total, known)
                except Fault as fault:
                    faults.append(fault)

        async with asyncio.TaskGroup() as group:
            for segment in plan[1:]:
                group.create_task(other(segment))
            try:
                await _write(body, self._download.append, self._world)
            except Fault as fault:
                faults.append(fault)
            await opened.done()  # the others may be waiting for its place at the host
        await self._world.blocking(self._download.absorb)
        if faults:
            raise Fault(faults[0].why)

    async def _segment(self, segment: Segment, total: int, known: Checkpoint) -> None:
        """Get one segment into its own file, trying again as often as a file is tried. ``Fault`` when it cannot be had."""
        world = self._world
        file = await world.blocking(SegmentFile, self._download.segment(segment.start))
        try:
            for failure in range(1, world.how.attempts + 1):
                now = Segment(segment.start, segment.end, file.size)
                if now.have >= segment.end - segment.start:
                    return
                try:
                    await self._ask_segment(now, total, known, file)
                except Fault as fault:
                    if failure == world.how.attempts or not fault.retryable:
                        raise
                    await self._wait(fault.why, resume.backoff(world.how.base_delay, failure))
        finally:
            await world.blocking(file.close)

    async def _ask_segment(self, segment: Segment, total: int, known: Checkpoint, file: SegmentFile) -> None:
        asked = Ask(segment.start + segment.have, known.etag or known.last_modified, segment.end - 1)
        url, hops, guarded = self._address(), 0, False
        while True:
            async with self._open(url, asked, hops, guarded) as opened:
                if resume.fits(segment, total, known, opened.answer):
                    limited = self._limited(opened.chunks(), segment.end, asked.start or 0, segment.end)
                    async with aclosing(limited) as body:
                        await _write(body, file.append, self._world)
                    if file.size < segment.end - segment.start:
                        raise Fault("a range was cut")
                    return
                step = resume.judge(asked, Part(asked.start or 0), opened.answer, self._world.clock.now())
            if isinstance(step, Hop):
                guarded = guarded or (hops == 0 and not self._wanted.allow_private and await self._world.http.is_public(url))
                url, hops = step.url, hops + 1
            elif isinstance(step, Again) and not step.plain and not step.bare:
                raise Fault(step.why)
            else:
                self._parallel = False
                raise Fault("the server does not serve several ranges of this file: going on with one connection", retryable=False)

    async def _limited(
        self, chunks: AsyncGenerator[bytes, None], limit: int | None, size: int, end: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The body with an eye on its length: it stops at ``end``, and ``_TooLong`` says that it goes on behind ``limit``."""
        async for chunk in chunks:
            if end is not None and size + len(chunk) >= end:
                chunk, limit = chunk[: end - size], None
            if self._world.throttle is not None:
                await self._world.throttle(len(chunk))
            size += len(chunk)
            self._account.bytes += len(chunk)
            self._tell("bytes", len(chunk))
            yield chunk
            if end is not None and size >= end:
                return
            if limit is not None and size > limit:
                raise _TooLong

    def _address(self) -> str:
        return hub_url(self._place, hub(self._world.environment)) if self._place.startswith("hf://") else self._place

    def _open(self, url: str, asked: Ask, hops: int, guarded: bool) -> AbstractAsyncContextManager[Opened]:
        if objects.is_object(url):
            return objects.get(url, asked, self._world.blocking, self._account.count)
        return self._world.http.get(url, asked.headers(), hops=hops, guarded=guarded, sent=self._account.count)

    async def _discard(self) -> None:
        self._tell("lost", self._download.size)
        await self._world.blocking(self._download.discard)

    def _count_progress(self, size: int) -> None:
        if size > self._high:
            self._high, self._failures = size, 0
        if size - self._forgiven >= FORGIVING_BYTES:
            self._forgiven, self._waits = size, 0

    def _count(self, size: int) -> bool:
        """Count a failure; False when it was the last allowed. Progress makes the count start again."""
        self._count_progress(size)
        self._failures += 1
        self._waits += 1
        return self._failures < self._world.how.attempts

    async def _wait(self, why: str, floor: float) -> None:
        seconds = max(min(resume.backoff(self._world.how.base_delay, self._waits), MAX_BACKOFF), floor)
        self._world.tell(Event("retry", self._wanted.source, self._wanted.name, note=why, seconds=seconds))
        await self._world.sleep(seconds)

    def _tell(self, kind: str, n: int, total: int | None = None) -> None:
        self._world.tell(Event(kind, self._wanted.source, self._wanted.name, n, total))


class _TooLong(Exception):
    """More bytes came than the file can have."""


async def _write(chunks: AsyncGenerator[bytes, None], append: Callable[[list[bytes]], None], world: World) -> None:
    """Write a body as it comes: one batch is written and hashed in a thread while the next gathers."""
    gathered: list[bytes] = []
    size = 0
    writing: asyncio.Future[None] | None = None
    try:
        async for chunk in chunks:
            gathered.append(chunk)
            size += len(chunk)
            if size >= BATCH:
                if writing is not None:
                    await asyncio.shield(writing)
                writing = asyncio.get_running_loop().run_in_executor(world.writers, append, gathered)
                gathered, size = [], 0
    finally:
        if writing is not None:
            await _settled(writing)
            writing.result()
        if gathered:
            await world.blocking(append, gathered)


async def _settled(future: "asyncio.Future[None]") -> None:
    """Wait for a write to end, also under a cancel, which comes after it."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def _copy(wanted: Wanted, downloads: Path, world: World) -> Got:
    """A local file is copied, so that what is split is what was verified."""
    why = []
    for place in wanted.places:
        path = Path(local_path(place, wanted.root))
        download = Download(downloads, wanted.name, world.boot_id, world.stop, world.owner)
        try:
            problem = await world.blocking(_copy_into, path, download, wanted)
        finally:
            await world.blocking(download.close)
        if problem is None:
            world.tell(Event("done", wanted.source, wanted.name))
            return Got(download.final, wanted.sha256, download.size)
        why.append(f"{place}: {problem}")
    raise SourceError(wanted.source, "; ".join(why))


def _copy_into(path: Path, download: Download, wanted: Wanted) -> str | None:
    if not path.is_file():
        return (
            "no such file: correct the path"
            if not path.exists()
            else "is no regular file: name a file, a folder with a slash at its end, or a glob"
        )
    download.open()
    download.discard()
    with path.open("rb") as f:
        while chunk := f.read(BATCH):
            download.append([chunk])
    if download.digest() != wanted.sha256:
        digest = download.digest()
        download.discard()
        return f"its digest is {digest}, and {wanted.sha256} is pinned: restore the file, or pin the new digest after looking at it"
    download.publish()
    return None


def _base(place: str) -> str:
    return place.rsplit("/", 1)[0]


def _error(wanted: Wanted, failed: list[tuple[str, _Failed]], lies: list[tuple[str, _Lie]]) -> SourceError:
    retryable = any(f.retryable for _, f in failed)
    said = [f"{shown(place)}: {f.why}" for place, f in failed] + [f"{shown(place)}: {lie.why}" for place, lie in lies]
    return SourceError(wanted.source, "; ".join(said), retryable)
