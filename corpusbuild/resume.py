"""What to do about one file, as a table: from what is on disk, what was asked and what was answered, to an action. Pure.

A download is a loop of four questions, each a function here: ``trusted`` (how much of the part is worth keeping), ``ask`` (what to request),
``judge`` (what to do with the answer) and ``verdict`` (what to do once the bytes are there). ``backoff`` and ``hop`` answer the two small ones.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from itertools import pairwise
from urllib.parse import urljoin, urlsplit

MAX_REDIRECTS = 5
REDIRECTS = frozenset({301, 302, 303, 307, 308})
RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504, 522, 524})
GONE = frozenset({401, 403, 404, 410})
EXPIRED = frozenset({400, 401, 403})
"""What a signed URL answers once its signature is too old."""

MAX_RETRY_AFTER = 300.0
"""Seconds a server may make us wait; above, the run ends and says when to come back."""

_RANGE = re.compile(r"\s*bytes\s+(\d{1,19})-(\d{1,19})/(\d{1,19}|\*)\s*", re.IGNORECASE)
_UNSATISFIED = re.compile(r"\s*bytes\s+\*/(\d{1,19})\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Checkpoint:
    """What is known about a part: its first ``verified_bytes`` bytes are durable and have the digest ``sha256_prefix`` (64 hex digits).

    ``expected_size`` is the size in bytes the server named, ``etag`` a strong one, ``last_modified`` one that may be used as a validator,
    ``encoding`` the content encoding of the stored bytes, ``boot_id`` the boot of the machine that wrote it.
    """

    verified_bytes: int
    expected_size: int | None
    sha256_prefix: str
    url: str
    etag: str | None = None
    last_modified: str | None = None
    boot_id: str = ""
    encoding: str = ""


@dataclass(frozen=True)
class Ask:
    """A GET. ``start`` is the first byte asked for, None for the whole file; ``last`` the last one, None for all that follow; ``if_range`` the
    validator sent with it."""

    start: int | None = None
    if_range: str | None = None
    last: int | None = None

    def headers(self) -> dict[str, str]:
        """
        >>> Ask(20, '"v1"').headers()
        {'Accept-Encoding': 'identity', 'Range': 'bytes=20-', 'If-Range': '"v1"'}
        """
        out = {"Accept-Encoding": "identity"}
        if self.start is not None:
            out["Range"] = f"bytes={self.start}-{'' if self.last is None else self.last}"
            if self.if_range is not None:
                out["If-Range"] = self.if_range
        return out


@dataclass(frozen=True)
class Verify:
    """No request: the part is as long as the file. Compare its digest."""


@dataclass(frozen=True)
class Drop:
    """The part cannot be a beginning of the file. Remove it and ask again."""

    why: str


@dataclass(frozen=True)
class Append:
    """Write the body at ``start``. It has ``length`` bytes (None: until it ends); the file has ``total`` (None: unknown)."""

    start: int
    length: int | None
    total: int | None


@dataclass(frozen=True)
class Rewrite:
    """Empty the part and write the body from 0. ``length`` as in Append, and the file's size too."""

    length: int | None


@dataclass(frozen=True)
class Whole:
    """There is nothing behind the part: it is the file. Compare its digest. ``total`` is its size."""

    total: int


@dataclass(frozen=True)
class Again:
    """Write nothing, wait, try again. ``plain`` asks for the whole file, ``bare`` leaves If-Range away, ``after`` is a floor in seconds."""

    why: str
    plain: bool = False
    bare: bool = False
    after: float = 0.0


@dataclass(frozen=True)
class Wrong:
    """This URL has another object than the one that is pinned. No byte of it was written."""

    why: str


@dataclass(frozen=True)
class Refuse:
    """No use trying this URL again. ``retryable`` says whether another run may have more luck."""

    why: str
    retryable: bool = False


@dataclass(frozen=True)
class Hop:
    """Follow the redirect to ``url``, which is taken as it is."""

    url: str


Step = Append | Rewrite | Whole | Again | Wrong | Refuse | Hop


@dataclass(frozen=True)
class Answer:
    """A response's head. ``headers`` have lower-case names. ``hops`` redirects lie between the configured URL and ``url``."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    hops: int = 0


@dataclass(frozen=True)
class Part:
    """The part as it stands: its size in bytes and what is known about it. ``pinned_size`` is the size the configuration pins."""

    size: int
    pinned_size: int | None = None
    checkpoint: Checkpoint | None = None

    @property
    def expected(self) -> int | None:
        if self.pinned_size is not None:
            return self.pinned_size
        return self.checkpoint.expected_size if self.checkpoint else None


def trusted(size: int, checkpoint: Checkpoint | None, boot_id: str) -> int:
    """How many bytes of a part of ``size`` bytes to keep, before its prefix is compared.

    Within one boot, and without a checkpoint, the size is right and the pin judges. After another boot the size proves nothing: names and sizes
    survive a power cut while the data is gone.

    >>> c = Checkpoint(64, None, "", "http://h/x", boot_id="a")
    >>> trusted(100, c, "a"), trusted(100, c, "b"), trusted(50, c, "a"), trusted(100, None, "a")
    (100, 64, 0, 100)
    """
    if checkpoint is None:
        return size
    if size < checkpoint.verified_bytes:
        return 0
    return size if checkpoint.boot_id == boot_id else checkpoint.verified_bytes


def ask(part: Part, *, url: str = "", plain: bool = False, bare: bool = False) -> Ask | Verify | Drop:
    """What to request. A validator is only good for the URL that gave it."""
    if part.expected is not None and part.size == part.expected and part.size and not plain:
        return Verify()
    if part.expected is not None and part.size > part.expected:
        return Drop(f"the part has {part.size} bytes and the file {part.expected}")
    if part.size == 0 or plain:
        return Ask()
    c = part.checkpoint
    validator = (c.etag or c.last_modified) if c is not None and c.url == url and not bare else None
    return Ask(part.size, validator)


def judge(asked: Ask, part: Part, answer: Answer, now: float = 0.0) -> Step:
    """What to do with an answer, before one byte of its body is read."""
    status = answer.status
    if status in REDIRECTS:
        return hop(answer)
    if status == 206:
        return _partial(asked, part, answer)
    if status == 200:
        return _full(asked, part, answer)
    if status == 416 and asked.start is not None:
        return _unsatisfied(part, answer)
    if answer.hops and status in EXPIRED:
        return Again(f"the redirected URL answers {status}, as an expired signature does")
    if status in RETRYABLE:
        return _later(answer, now)
    if status in GONE:
        return Refuse(f"{status} {_NAMES[status]}")
    if 200 <= status < 300:
        return Refuse(f"the answer {status} is no file")
    return Refuse(f"the server answers {status}")


def hop(answer: Answer) -> Hop | Refuse:
    """Where a redirect leads, or why it is not followed.

    >>> hop(Answer(302, {"location": "/b?x=a%2Fb"}, "https://h/a"))
    Hop(url='https://h/b?x=a%2Fb')
    >>> hop(Answer(302, {"location": "http://h/b"}, "https://h/a")).why
    'the redirect leads from https to http'
    """
    location = answer.headers.get("location", "").strip()
    if not location:
        return Refuse(f"the answer {answer.status} names no place to go to")
    if answer.hops >= MAX_REDIRECTS:
        return Refuse(f"more than {MAX_REDIRECTS} redirects")
    try:
        url = urljoin(answer.url, location)
        scheme, before, host = urlsplit(url).scheme, urlsplit(answer.url).scheme, urlsplit(url).hostname
    except ValueError:
        return Refuse("the redirect leads to what is no URL")
    if scheme not in ("http", "https"):
        return Refuse(f"the redirect leads to a {scheme}: URL")
    if before == "https" and scheme == "http":
        return Refuse("the redirect leads from https to http")
    if not host:
        return Refuse("the redirect names no host")
    return Hop(url)


MIN_SEGMENT = 8 << 20
"""Bytes below which a connection of its own is not worth it."""


@dataclass(frozen=True)
class Segment:
    """Bytes ``start`` to ``end`` (exclusive) of a file, of which the first ``have`` are there."""

    start: int
    end: int
    have: int = 0


def segments(have: int, total: int, held: Mapping[int, int], connections: int, least: int = MIN_SEGMENT) -> tuple[Segment, ...]:
    """How to get bytes ``have`` to ``total`` over several connections; the first segment goes behind the part. ``held`` are the segments that an
    earlier attempt began (start: bytes there); their borders stay.

    >>> segments(10, 100, {}, 3, least=20)
    (Segment(start=10, end=40, have=0), Segment(start=40, end=70, have=0), Segment(start=70, end=100, have=0))
    >>> segments(10, 100, {60: 5}, 3, least=20)
    (Segment(start=10, end=60, have=0), Segment(start=60, end=100, have=5))
    """
    begun = sorted(start for start in held if have < start < total)
    if begun:
        borders = [have, *begun, total]
    else:
        n = max(1, min(connections, (total - have) // least))
        borders = [have + (total - have) * i // n for i in range(n + 1)]
    return tuple(Segment(a, b, min(held.get(a, 0), b - a)) for a, b in pairwise(borders))


def takes_ranges(answer: Answer) -> bool:
    """Whether the server says, or has shown, that it serves ranges of this file."""
    return answer.status == 206 or answer.headers.get("accept-ranges", "").strip().lower() == "bytes"


def fits(segment: Segment, total: int, known: Checkpoint, answer: Answer) -> bool:
    """Whether a 206 brings exactly what a segment still lacks, of the version that is known."""
    match = _RANGE.fullmatch(answer.headers.get("content-range", ""))
    if answer.status != 206 or match is None or match[3] == "*" or _changed(known, answer):
        return False
    first, last, size = int(match[1]), int(match[2]), int(match[3])
    return (first, last, size) == (segment.start + segment.have, segment.end - 1, total) and _length(answer.headers) in (
        None,
        last - first + 1,
    )


def verdict(*, matches: bool, whole_from_one_answer: bool, framed: bool, more_places: bool) -> str:
    """What to do once as many bytes are there as the file is said to have.

    ``publish``; ``clean`` (the bytes were put together from several answers: drop them and get the file in one); ``again`` (a body without a length
    ended, and nothing says whether that was its end); ``next`` (this place has other bytes: try another); ``quarantine``.

    >>> verdict(matches=False, whole_from_one_answer=False, framed=True, more_places=False)
    'clean'
    """
    if matches:
        return "publish"
    if not framed:
        return "again"
    if not whole_from_one_answer:
        return "clean"
    return "next" if more_places else "quarantine"


def backoff(base: float, failure: int, floor: float = 0.0) -> float:
    """Seconds to wait after the ``failure``-th failure in a row, counted from 1.

    >>> [backoff(0.5, n) for n in (1, 2, 3)], backoff(0.5, 1, floor=7)
    ([0.5, 1.0, 2.0], 7)
    """
    return max(base * float(2 ** min(failure - 1, 30)), floor)


def checkpoint_of(answer: Answer, url: str, total: int | None, boot_id: str) -> Checkpoint:
    """The checkpoint of a part that this answer begins, before its first byte."""
    return Checkpoint(
        verified_bytes=0,
        expected_size=total,
        sha256_prefix=_EMPTY_SHA256,
        url=url,
        etag=strong_etag(answer.headers),
        last_modified=usable_date(answer.headers),
        boot_id=boot_id,
        encoding=_encoding(answer.headers),
    )


def strong_etag(headers: Mapping[str, str]) -> str | None:
    etag = headers.get("etag", "").strip()
    return etag if len(etag) >= 2 and etag.startswith('"') and etag.endswith('"') else None


def usable_date(headers: Mapping[str, str]) -> str | None:
    """Last-Modified where it identifies one version: at least a second older than the answer, for its resolution is a second."""
    try:
        age = (parsedate_to_datetime(headers["date"]) - parsedate_to_datetime(headers["last-modified"])).total_seconds()
    except (KeyError, ValueError, TypeError):
        return None
    return headers["last-modified"] if age >= 1 else None


def _partial(asked: Ask, part: Part, answer: Answer) -> Append | Whole | Again:
    if asked.start is None:
        return Again("the server sends a part of the file that nobody asked for", plain=True)
    headers, size = answer.headers, part.size
    if headers.get("content-type", "").strip().lower().startswith("multipart/"):
        return Again("the server sends several ranges at once", plain=True)
    match = _RANGE.fullmatch(headers.get("content-range", ""))
    if match is None:
        return Again("the server does not say which bytes it sends", plain=True)
    start, last = int(match[1]), int(match[2])
    total = None if match[3] == "*" else int(match[3])
    length = _length(headers)
    known = part.expected
    if start != size:
        return Again(f"the server sends bytes from {start} and {size} were asked for", plain=True)
    if total is not None and known is not None and total != known:
        return Again(f"the file has {total} bytes now, not {known}", plain=True)
    total = total if total is not None else known
    if last < start or length == 0:
        return Whole(size) if total == size else Again("the server sends an empty range", plain=True)
    if total is not None and last >= total:
        return Again(f"the server sends bytes up to {last} of a file of {total}", plain=True)
    if length is not None and length != last - start + 1:
        return Again(f"the server announces {length} bytes for a range of {last - start + 1}", plain=True)
    if _changed(part.checkpoint, answer):
        return Again("the file changed on the server", plain=True)
    return Append(size, last - start + 1, total)


def _full(asked: Ask, part: Part, answer: Answer) -> Rewrite | Again | Wrong:
    headers = answer.headers
    if "content-range" in headers:
        return Again("the server says that it sends both the whole file and a part of it", plain=True)
    length = _length(headers)
    if length is not None and part.pinned_size is not None and length != part.pinned_size and not _encoding(headers):
        if _is_html(headers):
            return Again("the server sends a web page instead of the file", plain=asked.start is None)
        return Wrong(f"the server has a file of {length} bytes, and {part.pinned_size} are pinned")
    if part.size and _is_html(headers) and not _says_html(answer.url):
        return Again("the server sends a web page instead of the file")
    c = part.checkpoint
    if asked.if_range is not None and c is not None and c.etag is not None and asked.if_range == c.etag == strong_etag(headers):
        return Again("the server sends the whole file although it did not change", bare=True)
    return Rewrite(length)


def _unsatisfied(part: Part, answer: Answer) -> Whole | Again:
    match = _UNSATISFIED.fullmatch(answer.headers.get("content-range", ""))
    if match is not None and int(match[1]) == part.size and part.expected in (None, part.size):
        return Whole(part.size)
    return Again(f"the file does not reach byte {part.size}", plain=True)


def _later(answer: Answer, now: float) -> Again | Refuse:
    wait = retry_after(answer.headers, now)
    why = f"the server answers {answer.status}"
    if wait > MAX_RETRY_AFTER:
        return Refuse(f"{why} and asks to come back in {round(wait)} seconds: run again then", retryable=True)
    return Again(why, after=wait)


def retry_after(headers: Mapping[str, str], now: float) -> float:
    """Seconds that Retry-After asks for, 0 without one. A date is judged by the clock of the server that wrote it.

    >>> retry_after({"retry-after": "Thu, 01 Jan 2026 00:01:00 GMT", "date": "Thu, 01 Jan 2026 00:00:00 GMT"}, now=0)
    60.0
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        then = parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError):
        return 0.0
    with suppress(KeyError, ValueError, TypeError):
        now = parsedate_to_datetime(headers["date"]).timestamp()
    return max(0.0, then - now)


def _changed(checkpoint: Checkpoint | None, answer: Answer) -> bool:
    """Whether a 206 speaks of another version than the part. A server that sends no ETag with it says nothing."""
    if checkpoint is None:
        return bool(_encoding(answer.headers))
    if _encoding(answer.headers) not in ("", checkpoint.encoding):
        return True
    etag = answer.headers.get("etag")
    return bool(etag is not None and checkpoint.etag is not None and checkpoint.url and etag.strip() != checkpoint.etag)


def _length(headers: Mapping[str, str]) -> int | None:
    """Content-Length, unless the body is chunked, where it means nothing."""
    value = headers.get("content-length", "").strip()
    chunked = "chunked" in headers.get("transfer-encoding", "").lower()
    return int(value[:19]) if not chunked and value.isascii() and value.isdigit() else None


def _encoding(headers: Mapping[str, str]) -> str:
    value = headers.get("content-encoding", "").strip().lower()
    return "" if value == "identity" else value


def _is_html(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", "").split(";")[0].strip().lower() in ("text/html", "application/xhtml+xml")


def _says_html(url: str) -> bool:
    return urlsplit(url).path.lower().endswith((".html", ".htm", ".xhtml"))


_NAMES = {
    401: "Unauthorized: a token may be missing (see the documentation of CORPUSBUILD_HEADERS and HF_TOKEN)",
    403: "Forbidden",
    404: "Not Found",
    410: "Gone",
}
_EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
