"""Local folders and globs: which files they name, and the one digest that pins them all."""

import hashlib
import threading
from pathlib import Path

from corpusbuild.downloads import file_digest
from corpusbuild.durable import disk
from corpusbuild.sources import local_path, split_glob, tree_sums


def find(url: str, root: str = "") -> tuple[Path, list[str]]:
    """The folder of a folder's or glob's URL, and the names of its files below it, sorted by code point. Hidden files, and files of hidden
    folders, are none of it."""
    folder, pattern = split_glob(url)
    base = Path(local_path(folder, root)).absolute()
    with disk(base):
        found = base.rglob("*") if pattern == "**" else base.glob(pattern)
        names = [path.relative_to(base) for path in found if path.is_file()]
    return base, sorted(name.as_posix() for name in names if not any(part.startswith(".") for part in name.parts))


def digests(base: Path, names: list[str], stop: threading.Event | None = None) -> dict[str, str]:
    """The SHA-256 of each file, by name."""
    return {name: file_digest(base / name, stop) for name in names}


def digest(by_name: dict[str, str]) -> str:
    """The SHA-256 of what ``sha256sum`` prints for the files: what a folder is pinned by."""
    return hashlib.sha256(tree_sums(by_name).encode()).hexdigest()
