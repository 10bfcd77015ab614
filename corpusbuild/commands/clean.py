"""``doit clean [BUILD ...]``: remove what interrupted builds left; for a build that is named, its published corpus and tokens too."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from doit.cmd_base import DoitCmdBase

from corpusbuild.commands.base import OPTIONS, Ours, build_names
from corpusbuild.commands.session import Session, finish_earlier
from corpusbuild.durable import TEMPORARY_PREFIX, disk
from corpusbuild.model import Key
from corpusbuild.publish import links, read_record, record_path
from corpusbuild.staging import owner_is_alive
from corpusbuild.store import Store

DRY = {
    "name": "dry",
    "short": "n",
    "long": "dry-run",
    "type": bool,
    "default": False,
    "help": "say what would be removed, and remove nothing",
}


class Clean(Ours, DoitCmdBase):  # type: ignore[misc]  # doit has no types
    name = "clean"
    doc_purpose = "remove what interrupted builds left"
    doc_usage = "[BUILD ...]"
    doc_description = "With a build's name its published corpus and tokens go too. Raw documents and downloads are never removed."
    cmd_options = (DRY, *OPTIONS)

    def execute(self, params: Any, args: list[str]) -> int:
        with self.open(params) as session:
            finish_earlier(session)
            names = build_names(session, args) if args else []
            removed = list(_unfinished(session)) + [item for name in names for item in _published(session, name)]
            for what, paths in removed:
                size = sum(_size(path) for path in paths)
                if not params["dry"]:
                    with disk(session.project.store.root):
                        for path in paths:
                            _remove(session.project.store, path)
                session.say(f"{'would remove' if params['dry'] else 'removed'} {what} ({size / 1e6:.1f} MB)")
            if not removed:
                session.say("clean: nothing to remove")
        return 0


def _unfinished(session: Session) -> Iterator[tuple[str, list[Path]]]:
    """Staging directories that no running process works in, and their locks."""
    root = session.project.store.root
    staging = root / "staging"
    torn = [p for folder in ("", "builds", "runs/active") for p in sorted((root / folder).glob(f"{TEMPORARY_PREFIX}*")) if _is_old(p)]
    if torn:
        yield "writes that were cut short", torn
    labels = {s.key: f"{b.name}: {s.label}" for b in session.project.builds.values() if b.plan for s in b.plan.steps}
    for home in sorted(p for p in staging.glob("*") if p.is_dir()):
        dead = [owner for owner in sorted(home.iterdir()) if not owner_is_alive(owner.name)]
        if home.name.startswith("trash-"):
            yield "what an earlier removal left", [home]
            continue
        with session.project.store.try_lock(Key(home.name)) as ours:
            if dead and ours:
                yield f"unfinished {labels.get(Key(home.name), home.name[:12])}", dead


def _published(session: Session, name: str) -> Iterator[tuple[str, list[Path]]]:
    """The names and entries of a build from shard on. An entry that another build's names stand for stays."""
    project, plan = session.project, session.project.builds[name].plan
    last = read_record(project.store, name)
    entries = {(s.stage, s.key) for s in last.steps} if last else set()
    entries |= {(s.stage.name, s.key) for s in plan.steps} if plan else set()
    own = {project.store.path(stage, key) for stage, key in entries if stage in ("shard", "ledger", "tokenize")}
    others = {
        project.store.path(s.stage, s.key)
        for other in sorted((project.store.root / "builds").glob("*.json"))
        if other.stem != name and (record := read_record(project.store, other.stem)) is not None
        for s in record.steps
    }
    names = [link for link in (links(plan, project.store) if plan else {}) if link.is_symlink()]
    found = [
        *names,
        *(path for path in [record_path(project.store, name)] if path.exists()),
        *sorted(p for p in own - others if p.exists()),
    ]
    if found:
        yield f"build:{name}, its corpus and tokens", found


def _is_old(path: Path) -> bool:
    """A write takes no minute: what is older belongs to no living process."""
    return time.time() - path.stat().st_mtime > 60


def _size(path: Path) -> int:
    if path.is_symlink():
        return 0
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) if path.is_dir() else path.stat().st_size


def _remove(store: Store, path: Path) -> None:
    if path.parent.parent == store.root / "store":
        store.discard(path.parent.name, Key(path.name))  # gone from its key in one step, so that a kill leaves no half of it there
    elif path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
