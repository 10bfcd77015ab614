"""Pin: find the digest of sources that have none yet, show what they hold, and write it into the configuration, which keeps its every comment."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomlkit

from corpusbuild import decompress, trees
from corpusbuild.downloads import owned
from corpusbuild.durable import write_atomic
from corpusbuild.errors import ConfigError, SourceError
from corpusbuild.fetch import world_of
from corpusbuild.progress import Event
from corpusbuild.sources import file_names, is_local, is_tree, local_path, shown
from corpusbuild.transfer import Clock, How, Wanted, take_unpinned

HEAD_BYTES = 1 << 16
HINTS = ("license", "licence", "copyright", "creative commons", "cc-by", "cc0", "public domain", "project gutenberg", "all rights reserved")
"""Words that show where a file speaks of its terms."""

MAGIC = ((b"PAR1", "parquet"), (b"WARC/", "warc"), (b"<!doctype html", "a web page"), (b"<html", "a web page"))


@dataclass(frozen=True)
class Pinned:
    """What was found for one file. ``at`` is its place in the configuration; ``lines`` are its first, ``hints`` those that speak of a licence."""

    at: str
    url: str
    sha256: str
    size: int
    compression: str
    format: str
    lines: tuple[str, ...]
    hints: tuple[str, ...]

    def __str__(self) -> str:
        shown_lines = "".join(f"\n    | {line}" for line in self.lines)
        hints = "".join(f"\n    licence? {line}" for line in self.hints)
        return (
            f"{self.at}: {shown(self.url)}\n    sha256 {self.sha256}\n    size {self.size}, compression {self.compression}, looks like {self.format}"
            f"{shown_lines}{hints}"
        )


async def pin(
    config_path: Path,
    dest: Path,
    *,
    source: str | None = None,
    how: How | None = None,
    clock: Clock | None = None,
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    progress: Callable[[Event], None] = lambda event: None,
    environment: dict[str, str] | None = None,
) -> list[Pinned]:
    """Download every source (or only ``source``) of a configuration that has no digest, and write ``sha256`` and ``size`` into the file.

    Gives what was found, in the file's order; an empty list when everything is pinned. The downloads stay, so a fetch after it asks for nothing.
    """
    text = config_path.read_text()
    try:
        document = tomlkit.parse(text)
    except tomlkit.exceptions.TOMLKitError as error:
        raise ConfigError(f"{config_path}: {error}") from None
    found: list[tuple[Any, Pinned]] = []
    async with world_of(how or How(), clock, sleep, progress, environment) as world:
        for at, id, name, entry in _unpinned(document, config_path):
            if source in (None, id):
                wanted = Wanted(
                    id, name, "", None, (str(entry["url"]),), str(config_path.parent.resolve()), bool(entry.get("allow_private", False))
                )
                found.append((entry, await _look(at, wanted, dest, world)))
    if found:
        for entry, pinned in found:
            _write(entry, pinned)
        if config_path.read_text() != text:
            raise ConfigError(f"{config_path} was changed while its sources were downloaded: run pin again, the downloads are kept")
        write_atomic(config_path, tomlkit.dumps(document).encode())
    return [pinned for _, pinned in found]


def look(data: bytes) -> tuple[str, str, tuple[str, ...], tuple[str, ...]]:
    """Compression, format, first lines and licence hints of a file, from its first bytes.

    >>> look(b'{"text": "a"}\\n')[:2]
    ('none', 'jsonl')
    """
    compression = decompress.compression_of(data)
    plain = _first_bytes(data)
    format = next((name for magic, name in MAGIC if plain[: len(magic)].lower() == magic.lower()), "")
    lines = [line.strip() for line in plain.decode(errors="replace").splitlines() if line.strip()]
    if format == "parquet":
        lines = []
    hints = [line[:120] for line in lines if any(word in line.lower() for word in HINTS)]
    return compression, format or _format_of(lines), tuple(line[:100] for line in lines[:3]), tuple(hints[:3])


async def _look(at: str, wanted: Wanted, dest: Path, world: Any) -> Pinned:
    url = wanted.places[0]
    if is_tree(url) and is_local(url):
        base, names = await world.blocking(trees.find, url, wanted.root)
        if not names:
            raise SourceError(wanted.source, f"{url} names no file: correct the path")
        digests = await world.blocking(trees.digests, base, names, world.stop)
        digest = trees.digest(digests)
        size = sum((base / name).stat().st_size for name in names)
        compression, format, lines, hints = look(_head(base / names[0]))
        return Pinned(at, url, digest, size, compression, format, lines, hints)
    if is_local(url):
        path = Path(local_path(url, wanted.root))
        if not path.is_file():
            raise SourceError(wanted.source, f"{url}: no such file: correct the path")
    else:
        folder = dest / "downloads" / wanted.source
        with owned(folder) as ours:
            if ours is None:
                raise SourceError(wanted.source, "another process is fetching it: run again when it has ended", retryable=True)
            path = await take_unpinned(wanted, folder, replace(world, owner=ours))
    sha256, size = await world.blocking(_digest_and_size, path)
    try:
        return Pinned(at, url, sha256, size, *look(_head(path)))
    except ValueError as error:
        raise SourceError(wanted.source, f"{shown(url)}: {error}") from None


def _unpinned(document: Any, path: Path) -> Iterator[tuple[str, str, str, Any]]:
    """(place, source id, name of the download, table) of every source or file that has a URL and no digest."""
    for index, entry in enumerate(document.get("sources", [])):
        if "id" not in entry:
            raise ConfigError(f"{path}: sources[{index}].id: missing")
        id = str(entry["id"])
        if "files" in entry:
            names = file_names(str(file.get("url", "")) for file in entry["files"])
            for n, file in enumerate(entry["files"]):
                if "url" in file and not file.get("sha256"):
                    yield f"sources[{index}].files[{n}]", id, names[n], file
        elif "url" in entry and not entry.get("sha256"):
            yield f"sources[{index}]", id, file_names([str(entry["url"])])[0], entry


def _write(entry: Any, pinned: Pinned) -> None:
    """Put the two keys behind ``url``, or at their place where they stand empty."""
    for name, value in (("sha256", pinned.sha256), ("size", pinned.size)):
        entry[name] = value


def _format_of(lines: list[str]) -> str:
    if not lines:
        return "nothing readable"
    if all(line.startswith("{") for line in lines[:5]):
        return "jsonl"
    if all("\t" in line for line in lines[:5]):
        return "tsv"
    if len(lines) > 1 and lines[0].count(",") and len({line.count(",") for line in lines[:5]}) == 1:
        return "csv"
    return "text"


def _first_bytes(data: bytes) -> bytes:
    """The beginning of the plain bytes of a file whose beginning is ``data``; that it ends within a member is no fault here."""
    out = b""
    try:
        for piece in decompress.decompress([data]):
            out += piece
            if len(out) >= HEAD_BYTES:
                break
    except ValueError:
        return out
    return out


def _head(path: Path) -> bytes:
    with path.open("rb") as f:
        return f.read(HEAD_BYTES)


def _digest_and_size(path: Path) -> tuple[str, int]:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest(), path.stat().st_size
