"""Reach: which store entries something still refers to. What nothing reaches, ``doit gc`` may take away."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from corpusbuild.journal import runs
from corpusbuild.model import Contents, Key
from corpusbuild.project import Project
from corpusbuild.staging import CONTENTS
from corpusbuild.undo import in_use

Entry = tuple[str, Key]


@dataclass(frozen=True)
class Unreached:
    """A store entry that nothing refers to. ``age`` is the seconds since it was made."""

    stage: str
    key: Key
    label: str
    path: Path
    bytes: int
    age: float


def reached(project: Project, keep: int) -> set[Entry]:
    """What configurations, records, published names, locks, living runs and the last ``keep`` runs of each build refer to."""
    entries = in_use(project.store)
    entries |= {(step.stage.name, step.key) for build in project.builds.values() if build.plan for step in build.plan.steps}
    names = {key for _, key in entries} | set(_locked(project)) | set(_published(project)) | set(_journalled(project, keep))
    return entries | {(stage, key) for stage, key in _entries(project) if key in names}


def unreached(project: Project, keep: int = 0, older_than: float = 0.0) -> list[Unreached]:
    """Entries that nothing reaches and that were made at least ``older_than`` seconds ago, largest first.

    Raw documents are never among them: they can be dear to get again.
    """
    known, now, found = reached(project, keep), time.time(), []
    for stage, key in _entries(project):
        path = project.store.path(stage, key)
        age = now - (path / CONTENTS).stat().st_mtime
        if stage != "fetch" and (stage, key) not in known and age >= older_than:
            contents = msgspec.json.decode((path / CONTENTS).read_bytes(), type=Contents)
            found.append(Unreached(stage, key, contents.label, path, sum(f.size for f in contents.files), age))
    return sorted(found, key=lambda e: (-e.bytes, e.stage, e.key))


def unreached_downloads(project: Project) -> list[Path]:
    """Download folders of sources that no configuration names any more."""
    root = project.store.root / "downloads"
    return [path for path in sorted(root.iterdir()) if path.is_dir() and path.name not in project.sources] if root.is_dir() else []


def _entries(project: Project) -> Iterable[Entry]:
    for path in sorted((project.store.root / "store").glob(f"*/*/{CONTENTS}")):
        yield path.parent.parent.name, Key(path.parent.name)


def _locked(project: Project) -> Iterable[Key]:
    """Every key that a lock file beside a configuration names, whatever else it holds."""
    for build in project.builds.values():
        lock = build.path.with_suffix(".lock")
        if lock.exists():
            yield from (Key(word) for word in _words(lock.read_text()) if len(word) == 64)


def _words(text: str) -> Iterable[str]:
    word = ""
    for ch in text:
        if ch in "0123456789abcdef":
            word += ch
        else:
            yield word
            word = ""
    yield word


def _published(project: Project) -> Iterable[Key]:
    root = project.store.root
    for link in [*root.glob("corpus/*/*"), *root.glob("tokens/*/*")]:
        if link.is_symlink():
            yield Key(link.resolve().name)


def _journalled(project: Project, keep: int) -> Iterable[Key]:
    seen: dict[str, int] = {}
    for _, events in runs(project.store):
        build = events[0]["build"]
        seen[build] = seen.get(build, 0) + 1
        if seen[build] <= keep:
            yield from (Key(event["key"]) for event in events if event["event"] == "step")
