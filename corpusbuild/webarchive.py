"""Documents from web archives: WARC, whose pages become text without their boilerplate, and WET, which holds text already.

Pages need the extra ``warc`` (trafilatura). The records are framed here, because a record that is cut short must never pass for a whole one.
"""

import io
import zlib
from collections.abc import Iterable, Iterator, Sequence
from http.client import HTTPException, HTTPResponse
from typing import Any, NamedTuple

from corpusbuild.split import MAX_DOCUMENT_BYTES, RawDocument, Reject

COLUMNS = {"url": "warc-target-uri", "date": "warc-date", "record_id": "warc-record-id", "content_type": "content-type"}
"""What ``id_field`` and ``keep`` may name, and the record's header it is."""

HTML = ("text/html", "application/xhtml+xml")
MAX_HEADER_BYTES = 1 << 16
REMEDY = "pip install 'corpusbuild[warc]'"


class Record(NamedTuple):
    """One record: where it starts in the decompressed file, in bytes, its headers in lower case, and its body, or None where it is too long."""

    offset: int
    headers: dict[str, str]
    body: bytes | None


def documents(chunks: Iterable[bytes], *, id_field: str | None = None, keep: Sequence[str] = ()) -> Iterator[RawDocument | Reject]:
    """One document for each page or text in the archive; its place is where its record starts in the decompressed file, in bytes.

    Pages are responses with status 200 and resources, of type HTML or plain text; conversions are WET's texts; other records are no documents.
    A page without a main text is a reject. ``ValueError`` for a record that is cut short or none.
    """
    for name in (*([id_field] if id_field else []), *keep):
        if name not in COLUMNS:
            raise ValueError(f"a web archive has no column {name!r}; its columns are {', '.join(COLUMNS)}")
    for record in records(chunks):
        found = _document(record)
        if isinstance(found, RawDocument):
            columns = {name: record.headers.get(header, "") for name, header in COLUMNS.items()}
            found = found._replace(id=columns[id_field] if id_field else None, meta={k: columns[k] for k in keep} or None)
        if found is not None:
            yield found


def records(chunks: Iterable[bytes]) -> Iterator[Record]:
    """Every record of a decompressed archive, whole. ``ValueError`` names the byte of the one that is not."""
    stream = _Stream(chunks)
    while True:
        stream.skip_line_ends()
        if stream.at_end():
            return
        offset = stream.offset
        head = stream.until(b"\r\n\r\n", MAX_HEADER_BYTES)
        if head is None:
            raise ValueError(f"the record at byte {offset} has no end of its headers: the file was cut short or is no WARC")
        version, *lines = head.decode("utf-8", "replace").split("\r\n")
        if not version.startswith("WARC/"):
            raise ValueError(f"at byte {offset} there is no WARC record")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        promised = headers.get("content-length", "")
        if not (promised.isascii() and promised.isdigit()):
            raise ValueError(f"the record at byte {offset} does not say how long it is")
        length = int(promised[:19])
        body = stream.take(length) if length <= MAX_DOCUMENT_BYTES else None
        had = stream.skip(length) if body is None else len(body)
        if had != length or stream.take(4) != b"\r\n\r\n":
            raise ValueError(f"the record at byte {offset} has {had} of {length} bytes or no end: the file was cut short")
        yield Record(offset, headers, body)


def main_text(html: bytes) -> str:
    """The text of a page without its navigation, headers and footers; "" when it has none."""
    try:
        import trafilatura
    except ImportError as error:
        raise ValueError(f"web pages need a package that is not installed ({error.name}): {REMEDY}") from None
    text: str | None = trafilatura.extract(html, include_comments=False, favor_precision=True)
    return (text or "").strip()


def _document(record: Record) -> RawDocument | Reject | None:
    place, body = str(record.offset), record.body
    warc_type, kind = record.headers.get("warc-type", ""), _type(record.headers.get("content-type", ""))
    if warc_type not in ("response", "resource", "conversion"):
        return None
    if body is None:
        return Reject(place, "too_long")
    if warc_type == "response":
        answer = _answer(body) if kind == "application/http" else None
        if answer is None:
            return None
        kind, body = answer
    if kind in HTML:
        text = main_text(body)
        return RawDocument(place, text) if text else Reject(place, "no_main_text")
    if kind == "text/plain":
        try:
            return RawDocument(place, body.decode().strip("\r\n"))
        except UnicodeDecodeError:
            return Reject(place, "not_utf8")
    return None


def _answer(recorded: bytes) -> tuple[str, bytes] | None:
    """Content type and decoded body of a recorded HTTP answer of status 200; None for another one, or one that cannot be read."""
    response = HTTPResponse(_Recorded(recorded), method="GET")  # type: ignore[arg-type]  # it only asks for a file
    try:
        response.begin()
        body = response.read()
        encoding = response.headers.get("Content-Encoding", "").strip().lower()
        if response.status != 200 or encoding not in ("", "identity", "gzip", "deflate"):
            return None
        if encoding in ("gzip", "deflate"):
            body = zlib.decompressobj(wbits=47).decompress(body, MAX_DOCUMENT_BYTES)
        return _type(response.headers.get("Content-Type", "")), body
    except (HTTPException, zlib.error, ValueError):
        return None


def _type(value: str) -> str:
    return value.partition(";")[0].strip().lower()


class _Recorded:
    def __init__(self, data: bytes):
        self._data = data

    def makefile(self, _mode: str) -> Any:
        return io.BytesIO(self._data)


class _Stream:
    """Chunks to read from by length or up to a mark."""

    def __init__(self, chunks: Iterable[bytes]):
        self._chunks, self._held, self._at, self.offset = iter(chunks), b"", 0, 0

    def at_end(self) -> bool:
        return not self._more(1)

    def take(self, n: int) -> bytes:
        self._more(n)
        data = self._held[self._at : self._at + n]
        self._step(len(data))
        return data

    def skip(self, n: int) -> int:
        left = n
        while left and self._more(1):
            step = min(left, len(self._held) - self._at)
            self._step(step)
            left -= step
        return n - left

    def until(self, mark: bytes, most: int) -> bytes | None:
        """Everything before ``mark``, which is skipped; None when it does not come within ``most`` bytes."""
        n = 1024
        while True:
            more = self._more(n)
            if (found := self._held.find(mark, self._at)) >= 0:
                break
            if not more or n > most:
                return None
            n *= 2
        data = self._held[self._at : found]
        self._step(len(data) + len(mark))
        return data

    def skip_line_ends(self) -> None:
        while self._more(1) and self._held[self._at] in b"\r\n":
            self._step(1)

    def _more(self, n: int) -> bool:
        """Have ``n`` bytes at hand, or all there are; False when there are fewer."""
        if len(self._held) - self._at < n:
            pieces = [self._held[self._at :]]
            have = len(pieces[0])
            while have < n and (piece := next(self._chunks, None)) is not None:
                pieces.append(piece)
                have += len(piece)
            self._held, self._at = b"".join(pieces), 0
        return len(self._held) - self._at >= n

    def _step(self, n: int) -> None:
        self._at += n
        self.offset += n
