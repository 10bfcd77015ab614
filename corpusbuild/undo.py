"""Undo: a cancelled or finally failed build leaves nothing from shard on, and its names stand as they stood before the run.

A run keeps one page a build, ``runs/active/<build>--<owner>.json``: what it uses (so that no clean-up takes it away), what it is about to make, and
what its names stood for before. The page is written before the deed. It goes through three states: ``running``; ``armed``, from shard on, when an end
that is not a success has something to undo; ``undoing``, which whoever comes next finishes. A kill is not a cancel: the page of a dead owner that was
only running or armed is dropped, and the next run goes on with what is there.

A durable workflow (see ``activity``) is many processes, so its page is not one process's: it outlives them all, until the workflow's clean-up, or until
the workflow is complete and the next one begins.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from corpusbuild.durable import disk, fsync_dir, replace_link, write_atomic
from corpusbuild.errors import IntegrityError
from corpusbuild.model import Key, Record
from corpusbuild.plan import Plan
from corpusbuild.publish import links, read_record, record_path
from corpusbuild.staging import owner_is_alive, owner_token
from corpusbuild.store import Store

UNDONE = ("shard", "ledger", "tokenize")
"""The stages whose results are one build's own. What stands above them is shared, and stays."""


class Page(Record):
    """What a run says of one build. Paths are relative to the cache."""

    build: str
    owner: str
    state: Literal["running", "armed", "undoing", "complete"]
    uses: tuple[tuple[str, Key], ...]
    names: dict[str, str | None]
    """Readable name -> what the link held before the run, None where there was none."""
    record: str | None
    """The build's record before the run."""
    making: tuple[tuple[str, Key], ...] = ()
    """Entries that this run makes, or made."""
    workflow: str = ""
    """The id of the durable workflow whose page it is; "" for a process's own."""


class Undone(Record):
    """What an undo did, for the person at the terminal."""

    build: str
    stages: tuple[str, ...]
    bytes: int
    restored: bool
    """Whether an earlier build's names stand again; False where there was none."""


class Undo:
    """The page of one build in this run."""

    def __init__(self, plan: Plan, store: Store, workflow: str = ""):
        """Takes up the page of ``workflow`` where it stands, so that a later process knows how things were before the first."""
        self._store = store
        before = next((page for page in pages(store) if workflow and page.workflow == workflow), None)
        if before is not None and before.state != "undoing":
            self._page = msgspec.structs.replace(before, owner=owner_token())
            self._write()
            return
        if before is not None:
            _undo(store, before)
        previous = record_path(store, plan.name)
        self._page = Page(
            build=plan.name,
            owner=owner_token(),
            state="running",
            uses=tuple((step.stage.name, step.key) for step in plan.steps),
            names={str(name.relative_to(store.root)): os.readlink(name) if name.is_symlink() else None for name in links(plan, store)},
            record=previous.read_text() if previous.exists() else None,
            workflow=workflow,
        )
        self._write()

    def making(self, stage: str, key: Key) -> None:
        """Say that an entry is about to be made. From shard on this arms the undo."""
        if stage in UNDONE and not self._store.has(stage, key):
            self._page = msgspec.structs.replace(self._page, state="armed", making=(*self._page.making, (stage, key)))
            self._write()

    def publishing(self) -> None:
        """Say that the names are about to change."""
        self._page = msgspec.structs.replace(self._page, state="armed")
        self._write()

    def complete(self) -> None:
        """The workflow's last stage ended. Its clean-up may still be called, until another workflow begins."""
        self._page = msgspec.structs.replace(self._page, state="complete")
        self._write()

    def done(self) -> None:
        """The run ended for this build with nothing to undo."""
        path = _path(self._store, self._page)
        with disk(path):
            path.unlink(missing_ok=True)

    def undo(self) -> Undone:
        """Put everything back. Once this has begun it will be finished, if need be by another process."""
        self._page = msgspec.structs.replace(self._page, state="undoing")
        self._write()
        return _undo(self._store, self._page)

    def _write(self) -> None:
        _write(self._store, self._page)


def forget_complete(store: Store, workflow: str) -> None:
    """Drop the page of an earlier run of ``workflow`` that was complete: what it built is an earlier good build now."""
    for page in pages(store):
        if page.workflow == workflow and page.state == "complete":
            _path(store, page).unlink(missing_ok=True)


def undo_workflows(store: Store, workflow: str) -> list[Undone]:
    """Undo a workflow, or all whose id is below ``workflow`` (a prefix that ends in "/"). None left is none to undo."""
    mine = [
        page
        for page in pages(store)
        if page.workflow and (page.workflow == workflow or page.workflow.startswith(workflow.rstrip("/") + "/"))
    ]
    undone = []
    for page in mine:
        page = msgspec.structs.replace(page, state="undoing", owner=owner_token())
        _write(store, page)
        undone.append(_undo(store, page))
    return undone


def finish_pending(store: Store) -> list[Undone]:
    """Finish what interrupted undos left, and drop the pages of dead runs."""
    finished = []
    for page in pages(store):
        if _is_alive(page):
            continue
        if page.state == "undoing":
            finished.append(_undo(store, page))
        else:
            with disk(store.root):
                _path(store, page).unlink(missing_ok=True)
    return finished


def pages(store: Store) -> Iterator[Page]:
    """The pages of all runs, in the order of their names."""
    for path in sorted((store.root / "runs" / "active").glob("*--*.json")):
        try:
            yield msgspec.json.decode(path.read_bytes(), type=Page)
        except FileNotFoundError:
            continue  # its run has just ended
        except msgspec.DecodeError as error:
            raise IntegrityError(f"{path} cannot be read ({error}): delete it") from None


def in_use(store: Store, without: Page | None = None) -> set[tuple[str, Key]]:
    """The entries that a living run uses or that a build's record names."""
    used = {entry for page in pages(store) if page != without and page.state != "complete" and _is_alive(page) for entry in page.uses}
    return used | _recorded(store)


def _recorded(store: Store) -> set[tuple[str, Key]]:
    records = [read_record(store, path.stem) for path in sorted((store.root / "builds").glob("*.json"))]
    return {(step.stage, step.key) for record in records if record for step in record.steps}


def _undo(store: Store, page: Page) -> Undone:
    with disk(store.root):
        return _put_back(store, page)


def _put_back(store: Store, page: Page) -> Undone:
    record = read_record(store, page.build)
    if record is not None and [(s.stage, s.key) for s in record.steps] == list(page.uses):
        path = record_path(store, page.build)
        if page.record is None:
            path.unlink(missing_ok=True)
        else:
            write_atomic(path, page.record.encode())
    own = {store.path(stage, key).resolve() for stage, key in page.uses}
    others = {store.path(stage, key).resolve() for stage, key in _recorded(store)}  # a name that a record vouches for is that build's now
    for name, before in page.names.items():
        link = store.root / name
        if link.is_symlink() and link.resolve() in own - others and os.readlink(link) != before:
            if before is None:
                link.unlink()
                fsync_dir(link.parent)
            else:
                replace_link(link, link.parent / before)
    used = in_use(store, without=page)
    stages, size = [], 0
    for stage, key in page.making:
        if (stage, key) not in used and store.has(stage, key):
            stages.append(stage)
            size += store.discard(stage, key)
    for stage, key in page.uses:
        if stage in UNDONE:
            for owner in _owners(store, key, page):
                size += store.discard_staged(key, owner)
    _path(store, page).unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        fsync_dir(_path(store, page).parent)
    return Undone(build=page.build, stages=tuple(stages), bytes=size, restored=page.record is not None)


def _owners(store: Store, key: Key, page: Page) -> list[str]:
    """Whose staging of ``key`` an undo of ``page`` removes: the run's own; of a workflow, that of every process of it that has ended."""
    if not page.workflow:
        return [page.owner]
    home = store.root / "staging" / key
    left = sorted(path.name for path in home.iterdir() if path.is_dir()) if home.is_dir() else []
    return [owner for owner in left if owner == page.owner or not owner_is_alive(owner)]


def _is_alive(page: Page) -> bool:
    return (page.workflow != "" and page.state != "undoing") or owner_is_alive(page.owner)


def _write(store: Store, page: Page) -> None:
    path = _path(store, page)
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, msgspec.json.encode(page))


def _path(store: Store, page: Page) -> Path:
    return store.root / "runs" / "active" / f"{page.build}--{page.workflow.replace('/', '.') or page.owner}.json"
