"""Sources: what a configuration pins, checked before anything moves. Pure: no file is opened and no host is asked."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit

from corpusbuild.hashing import key_digest
from corpusbuild.model import Key

SPLIT_VERSION = 3
"""Bump when equal pinned bytes are split into other documents."""

FORMATS = ("jsonl", "text", "parquet", "csv", "tsv", "warc")
USES = ("train", "eval")
PII_POLICIES = ("scrub", "drop", "none")
SCHEMES = ("http", "https", "file", "hf", "s3", "gs")
MAX_NAME_BYTES = 215
"""Longest name of a download; with ``.partial.json`` or ``.part.<offset>`` behind it, it stays below the 255 bytes of a file system."""

_ID = re.compile(r"[a-z0-9][a-z0-9._-]*")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_RESERVED = re.compile(r"\.(part|partial\.json|segments)$", re.IGNORECASE)
_SUMS_LINE = re.compile(r"(?P<digest>[0-9a-fA-F]{64}) [ *](?P<name>.+)")


@dataclass(frozen=True)
class SourceFile:
    """One file of a source of many: where it lies, the digest it must have, and its size in bytes where known."""

    url: str
    sha256: str
    size: int | None = None


@dataclass(frozen=True)
class Source:
    """One pinned source. ``sha256`` is the digest of the file, or what ``source_digest`` says for a source of several files.

    ``urls`` are mirrors of ``url``. ``files`` lists the files of a source of several. ``checksums`` means that ``url`` is a file in the style of
    ``sha256sum`` and that its lines (those whose name matches ``select``) are the files. A local ``url`` may be a folder or a glob; then ``sha256``
    is the digest of what ``sha256sum`` prints for its files, sorted by name. ``root`` is the folder that relative paths start at.
    """

    id: str
    url: str
    sha256: str
    license_spdx: str
    allowed_uses: tuple[str, ...] = USES
    format: str = "jsonl"
    pii_policy: str = "scrub"
    urls: tuple[str, ...] = ()
    files: tuple[SourceFile, ...] = ()
    checksums: bool = False
    select: tuple[str, ...] = ()
    size: int | None = None
    separator: str | None = None
    text_field: str = "text"
    id_field: str | None = None
    keep: tuple[str, ...] = ()
    on_bad: str = "stop"
    max_bad: float = 0.01
    allow_private: bool = False
    root: str = ""

    def __post_init__(self) -> None:
        if self.files and not self.sha256:
            object.__setattr__(self, "sha256", files_digest(self.files))


def files_digest(files: Iterable[SourceFile]) -> str:
    """One digest for several files: of their digests in order, a line each."""
    return sha256("".join(f"{f.sha256}\n" for f in files).encode()).hexdigest()


def fetch_identity(source: Source) -> dict[str, object]:
    """What decides the raw documents of a source, and nothing else: the pinned bytes in order and how they are split."""
    columns = source.format != "text"
    return {
        "id": source.id,  # the counts and the rejects of the entry name it
        "digests": [f.sha256 for f in source.files] or [source.sha256],
        "checksums": sorted(source.select) if source.checksums else None,
        "tree": _tree_pattern(source.url) if not source.files and is_tree(source.url) else None,
        "format": source.format,
        "separator": source.separator if source.format == "text" else None,
        "text_field": source.text_field if columns else None,
        "id_field": source.id_field if columns else None,
        "keep": list(source.keep) if columns else [],
        "on_bad": source.on_bad,
        "max_bad": source.max_bad if source.on_bad == "reject" else None,
    }


def fetch_key(source: Source) -> Key:
    """The key of the source's raw documents in the store. URLs, mirrors, licence and dates are not in it."""
    return Key(key_digest("step", "fetch", SPLIT_VERSION, fetch_identity(source)))


def sources_from_config(config: Mapping[str, Any], root: str = "") -> list[Source]:
    """The sources of a configuration, in its order. ``ValueError`` names every problem, one a line, by its path in the file.

    >>> sources_from_config({"sources": [{"id": "a", "url": "http://x/a", "sha256": "0" * 64, "license_spdx": "MIT"}]})[0].format
    'jsonl'
    """
    entries = config.get("sources")
    if not isinstance(entries, list | tuple):
        raise ValueError("sources: must be a list of tables with at least id, url, sha256 and license_spdx")
    sources, problems, seen = [], [], dict[str, int]()
    for index, entry in enumerate(entries):
        at = f"sources[{index}]"
        if not isinstance(entry, Mapping):
            problems.append(f"{at}: must be a table")
            continue
        found = _entry_problems(entry, at)
        id = entry.get("id")
        if isinstance(id, str) and id in seen:
            found.append(f"{at}.id: duplicate of sources[{seen[id]}].id ({id!r}): give each source an id of its own")
        elif isinstance(id, str):
            seen[id] = index
        problems += found
        if not found:
            sources.append(_source(entry, root))
    if problems:
        raise ValueError("\n".join(problems))
    return sources


def file_urls(source: Source) -> tuple[str, ...]:
    """The URL, as configured, of each file of a source, by its index; the first stands for the source in the ledger. The files behind a checksum file, a folder or a glob count as one file:
    their documents' places begin with the file's name."""
    return tuple(f.url for f in source.files) or (source.url,)


def is_pinned(source: Source) -> bool:
    return bool(_DIGEST.fullmatch(source.sha256)) and all(_DIGEST.fullmatch(f.sha256) for f in source.files)


def is_local(url: str) -> bool:
    """Whether ``url`` is a path or a ``file:`` URL.

    >>> is_local("texts/a.jsonl"), is_local("file:///x"), is_local("https://h/x")
    (True, True, False)
    """
    return "://" not in url or urlsplit(url).scheme == "file"


def local_path(url: str, root: str = "") -> str:
    """The path that a local ``url`` means; relative ones start at ``root``."""
    if url.startswith("file:"):
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost"):
            raise ValueError(f"{url}: a file URL names no host; write file:///path")
        return unquote(parts.path)
    return str(PurePosixPath(root) / url)


def is_tree(url: str) -> bool:
    """Whether a local ``url`` is a folder (it ends in a slash) or a glob."""
    return is_local(url) and (url.endswith("/") or any(c in url for c in "*?["))


def split_glob(url: str) -> tuple[str, str]:
    """The folder that a folder's or glob's URL starts from, and the pattern of the files in it.

    >>> split_glob("texts/**/*.txt"), split_glob("file:///texts/")
    (('texts', '**/*.txt'), ('file:///texts', '**'))
    """
    if url.endswith("/"):
        return url.rstrip("/") or "/", "**"
    segments = url.split("/")
    first = next(i for i, s in enumerate(segments) if any(c in s for c in "*?["))
    return "/".join(segments[:first]) or ("/" if url.startswith("/") else "."), "/".join(segments[first:])


def places(source: Source, file: SourceFile) -> tuple[str, ...]:
    """Every URL that promises ``file``, the configured one first. The mirrors of a source of several files are other bases of it."""
    if not source.files and not source.checksums:
        return (file.url, *(u for u in source.urls if u != file.url))
    base = urljoin(source.url, ".") if source.url else ""
    relative = file.url.removeprefix(base) if base and file.url.startswith(base) else None
    return (file.url, *(urljoin(u, relative) for u in source.urls if relative))


def hub_url(url: str, endpoint: str = "https://huggingface.co") -> str:
    """The https URL of ``hf://datasets/<repo>@<revision>/<path>``.

    >>> hub_url("hf://datasets/owner/set@0123abc/data/a b.txt")
    'https://huggingface.co/datasets/owner/set/resolve/0123abc/data/a%20b.txt'
    """
    m = re.fullmatch(r"hf://(?P<kind>datasets|models|spaces)/(?P<repo>[^/@]+/[^/@]+|[^/@]+)@(?P<revision>[^/]+)/(?P<path>.+)", url)
    if m is None:
        raise ValueError(f"{url}: write hf://datasets/<repo>@<revision>/<path>")
    kind = "" if m["kind"] == "models" else m["kind"] + "/"
    path = "/".join(_quoted(p) for p in m["path"].split("/"))
    return f"{endpoint.rstrip('/')}/{kind}{m['repo']}/resolve/{_quoted(unquote(m['revision']))}/{path}"


def checksum_files(text: str, url: str, select: Iterable[str] = ()) -> list[SourceFile]:
    """The files that a checksum file in the style of ``sha256sum`` names, in its order. ``ValueError`` names the line that is none.

    >>> checksum_files("0" * 64 + "  data/a.jsonl\\n", "https://h/d/SHA256SUMS")[0].url
    'https://h/d/data/a.jsonl'
    """
    patterns, files = tuple(select), []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        m = _SUMS_LINE.fullmatch(line.rstrip("\r"))
        if m is None:
            raise ValueError(f"line {number} is not '<64 hex digits>  <name>'")
        name = m["name"].removeprefix("./")
        if name.startswith("/") or ".." in name.split("/") or "://" in name:
            raise ValueError(f"line {number} names {name!r}, which is outside the folder of the checksum file")
        if not patterns or any(PurePosixPath(name).match(p) for p in patterns):
            quoted = name if is_local(url) and not url.startswith("file:") else "/".join(_quoted(p) for p in name.split("/"))
            base = urljoin(url, ".") if "://" in url else str(PurePosixPath(url).parent / ".")
            files.append(SourceFile(urljoin(base, quoted) if "://" in url else str(PurePosixPath(base) / quoted), m["digest"].lower()))
    return files


def tree_sums(digests: Mapping[str, str]) -> str:
    """What ``sha256sum`` prints for the files of a folder, sorted by name; its digest pins the folder.

    >>> tree_sums({"b.txt": "1" * 64, "a.txt": "0" * 64}).splitlines()[0][-7:]
    '  a.txt'
    """
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))


def file_names(urls: Iterable[str]) -> list[str]:
    """A safe name for each URL's download: its last segment, one path segment, unlike every other also for a file system that folds case.

    >>> file_names(["https://h/a/x.txt?sig=1", "https://h/b/X.txt", "https://h/"])
    ['x.txt', 'X.txt-454208ad', 'download-29aec5d7']
    """
    names: list[str] = []
    taken: set[str] = set()
    for url in urls:
        path = urlsplit(url).path if "://" in url or url.startswith("file:") else url
        name = _safe(unquote(path.rsplit("/", 1)[-1]))
        tag = sha256(url.encode()).hexdigest()[:8]
        if not name or _RESERVED.search(name):
            name = f"{name or 'download'}-{tag}"
        if len(name.encode()) > MAX_NAME_BYTES:
            name = name.encode()[: MAX_NAME_BYTES - 9].decode(errors="ignore") + f"-{tag}"
        if _folded(name) in taken:
            name = f"{name.encode()[: MAX_NAME_BYTES - 9].decode(errors='ignore')}-{tag}"
        while _folded(name) in taken:
            name += "x"
        taken.add(_folded(name))
        names.append(name)
    return names


def shown(url: str) -> str:
    """``url`` as a log may show it: without user, query and fragment, which may hold a secret.

    >>> shown("https://u:p@h/x?sig=1#f")
    'https://h/x'
    """
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl() if parts.netloc else url


def _entry_problems(entry: Mapping[str, Any], at: str) -> list[str]:
    problems = []
    for name in entry:
        if name not in _KEYS:
            near = get_close_matches(name, _KEYS, 1)
            problems.append(f"{at}.{name}: unknown key" + (f"; did you mean {near[0]}?" if near else f"; known are {', '.join(_KEYS)}"))
    several = bool(entry.get("files"))
    for name in ("id", "license_spdx") if several else ("id", "url", "sha256", "license_spdx"):
        if name not in entry:
            problems.append(f"{at}.{name}: missing")
    for name, check in _CHECKS.items():
        if name in entry and (problem := check(entry[name])):
            problems.append(f"{at}.{name}: {problem}")
    if several and isinstance(entry["files"], list | tuple):
        for i, file in enumerate(entry["files"]):
            problems += _file_problems(file, f"{at}.files[{i}]")
    if several and ("sha256" in entry or entry.get("checksums")):
        problems.append(f"{at}: with files, each file has its own sha256; remove sha256 and checksums beside them")
    own = entry.get("url") or (entry["files"][0]["url"] if several and not problems else "")
    if not problems and any(is_local(mirror) != is_local(own) for mirror in entry.get("urls", ())):
        problems.append(f"{at}.urls: a mirror of a local file must be local too, and one of a URL a URL")
    if entry.get("separator") is not None and entry.get("format", "jsonl") != "text":
        problems.append(f'{at}.separator: only format = "text" is cut at a separator')
    return problems


def _file_problems(file: object, at: str) -> list[str]:
    if not isinstance(file, Mapping):
        return [f"{at}: must be a table with url and sha256"]
    problems = [f"{at}.{name}: missing" for name in ("url", "sha256") if name not in file]
    problems += [f"{at}.{name}: unknown key; known are url, sha256, size" for name in file if name not in ("url", "sha256", "size")]
    return problems + [f"{at}.{n}: {p}" for n in ("url", "sha256", "size") if n in file and (p := _CHECKS[n](file[n]))]


def _source(entry: Mapping[str, Any], root: str) -> Source:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
    if "files" in values:
        values["files"] = tuple(SourceFile(**file) for file in entry["files"])
    return Source(**{"url": "", "sha256": "", **values, "root": root})


def _text(value: object) -> str | None:
    return None if isinstance(value, str) and value.strip() else "must be a text that is not empty"


def _one_of(allowed: tuple[str, ...]) -> Any:
    def check(value: object) -> str | None:
        if value in allowed:
            return None
        near = get_close_matches(str(value), allowed, 1)
        return f"{value!r} is none of {', '.join(allowed)}" + (f"; did you mean {near[0]}?" if near else "")

    return check


def _list_of(check: Any, least: int = 0) -> Any:
    def checked(value: object) -> str | None:
        if not isinstance(value, list | tuple) or len(value) < least:
            return "must be a list" + (" that is not empty" if least else "")
        return next((f"[{i}]: {p}" for i, item in enumerate(value) if (p := check(item))), None)

    return checked


def _digest(value: object) -> str | None:
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        return None
    return "must be 64 lower-case hex digits, as sha256sum prints them (corpusbuild can find it: doit pin NAME)"


def _url(value: object) -> str | None:
    if not isinstance(value, str) or not value.strip() or any(ord(c) < 32 or ord(c) == 127 for c in value):
        return "must be a URL or a path"
    if "://" not in value:
        return None
    parts = urlsplit(value)
    if parts.scheme not in SCHEMES:
        return f"the scheme {parts.scheme!r} is none of {', '.join(SCHEMES)}"
    if parts.username or parts.password:
        return "holds a user or password; put it into the environment instead (CORPUSBUILD_HEADERS)"
    try:
        if parts.scheme == "hf":
            hub_url(value)
        if parts.scheme == "file":
            local_path(value)
    except ValueError as error:
        return str(error)
    return None if parts.scheme == "file" or parts.netloc else "names no host"


def _size(value: object) -> str | None:
    return None if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else "must be a number of bytes"


def _share(value: object) -> str | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    return None if good else "must be a share between 0 and 1"


def _flag(value: object) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


def _files(value: object) -> str | None:
    return None if isinstance(value, list | tuple) and value else "must be a list of {url, sha256, size} that is not empty"


def id_problem(value: object) -> str | None:
    """What is wrong with a source's id, which is also the name of folders; None when nothing is."""
    good = isinstance(value, str) and _ID.fullmatch(value) and len(value) <= 128
    return None if good else "must be lower-case letters, digits, dots, dashes and underscores, beginning with a letter or digit"


_CHECKS: dict[str, Any] = {
    "id": id_problem,
    "url": _url,
    "sha256": _digest,
    "license_spdx": _text,
    "allowed_uses": _list_of(_one_of(USES), least=1),
    "format": _one_of(FORMATS),
    "pii_policy": _one_of(PII_POLICIES),
    "urls": _list_of(_url),
    "files": _files,
    "checksums": _flag,
    "select": _list_of(_text),
    "size": _size,
    "separator": _text,
    "text_field": _text,
    "id_field": _text,
    "keep": _list_of(_text),
    "on_bad": _one_of(("stop", "reject")),
    "max_bad": _share,
    "allow_private": _flag,
}
_KEYS = tuple(_CHECKS)
assert {*_KEYS, "root"} == {f.name for f in fields(Source)}


def _tree_pattern(url: str) -> str:
    return split_glob(url)[1]


def _safe(name: str) -> str:
    name = unicodedata.normalize("NFC", "".join("_" if ord(c) < 32 or ord(c) == 127 or c in "/\\:" else c for c in name))
    name = name.encode("utf-8", "replace").decode()
    return "" if name.strip(". ") == "" else name.lstrip(".") or ""


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _quoted(segment: str) -> str:
    return quote(segment, safe="-._~!$&'()*+,;=:@")
