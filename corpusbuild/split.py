"""Where a source's bytes become documents: JSON Lines, text with blank lines, text with a separator.

Everything streams: one document and one chunk are in memory, and where the chunks are cut changes nothing. What cannot be read is a
:class:`Reject` in its place, never an error, so the documents around it are whole.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

FORMATS = ("jsonl", "text")
MAX_DOCUMENT_BYTES = 256 * 1024 * 1024
MAX_DEPTH = 100

REASONS = {
    "not_utf8": "is not UTF-8",
    "not_json": "is not JSON",
    "surrogate": "holds half of a surrogate pair",
    "number": "holds a number that is out of range",
    "too_deep": f"is nested deeper than {MAX_DEPTH}",
    "too_long": "is too long",
    "not_object": "is no JSON object",
    "no_text": "has no string for a text",
    "no_id": "has no string or integer for an id",
}
"""What each reason of a reject says, to follow "line N"."""

_BOM = b"\xef\xbb\xbf"
# strings of JSON, closed or not: it never fails once begun, so a hostile line takes linear time
_STRING = re.compile(rb'"(?:[^"\\]+|\\.)*"?', re.DOTALL)


class RawDocument(NamedTuple):
    """A document as its source has it. ``place`` is the 1-based line where it starts; ``meta`` holds the columns that are kept."""

    place: str
    text: str
    id: str | None = None
    meta: dict[str, Any] | None = None


class Reject(NamedTuple):
    """A document that could not be read: the 1-based line where it starts, and a key of ``REASONS``."""

    place: str
    reason: str


def documents(
    chunks: Iterable[bytes],
    fmt: str,
    *,
    separator: str | None = None,
    text_field: str = "text",
    id_field: str | None = None,
    keep: Sequence[str] = (),
    max_bytes: int = MAX_DOCUMENT_BYTES,
    line: int = 1,
    begins: bool = True,
) -> Iterator[RawDocument | Reject]:
    r"""The documents of one file, in order, from its bytes in ``chunks`` of any size. A byte order mark at the start is no part of them.

    ``chunks`` may be a part of a file between two of its :class:`Cuts`: ``line`` is the number of its first line, ``begins`` whether it has the file's
    first byte.

    ``jsonl``: one for each line that is not blank. Lines end at LF only. The text is the string ``text_field`` of the object; with ``id_field``
    the id is that string or integer; ``meta`` has those of the columns ``keep`` that the object has, or is ``None``.
    Not JSON: NaN and infinities, half surrogate pairs, numbers beyond float64, more than ``MAX_DEPTH`` levels.

    ``text``: one for each block of non-blank lines (a line of white space is blank), joined by LF; a CR before the LF goes.

    ``text`` with ``separator``: one for each piece between separators, wherever they stand, less the line ends (CR, LF) around it. A piece of
    white space is none. Its place is the line of its first character that is not white space.

    A document of more than ``max_bytes`` is rejected as ``too_long`` without being held; in that case a separated piece's place is sought in
    its first ``max_bytes`` only. ``ValueError`` for another format, an empty separator, or a separator for JSON Lines.

    >>> list(documents([b"one<s>\n", b"two\n<", b"s>"], "text", separator="<s>"))
    [RawDocument(place='1', text='one', id=None, meta=None), RawDocument(place='2', text='two', id=None, meta=None)]
    """
    if fmt not in FORMATS:
        raise ValueError(f"format {fmt!r} is not split by lines; use one of {', '.join(FORMATS)}")
    if separator is not None and (fmt != "text" or not separator):
        raise ValueError("a separator is for format text, and is not empty")
    if begins:
        chunks = _without_bom(chunks)
    if separator is not None:
        return _separated(chunks, separator.encode(), max_bytes, line)
    if fmt == "text":
        return _blocks(chunks, max_bytes, line)
    return _json_lines(chunks, text_field, id_field, tuple(keep), max_bytes, line)


class Cuts(ABC):
    """Where the bytes of files may be cut so that every document is whole on one side.

    A cut is the first place between two documents at which ``size`` bytes, or what may be ``most`` documents, stand since the last one; so no more than
    ``most`` documents are between two. It follows from the bytes alone, in whatever pieces they come.
    """

    def __init__(self, size: int, most: int):
        self.size, self.most = size, most
        self.bytes = self.units = 0
        self.begin_file()

    @abstractmethod
    def begin_file(self) -> None: ...

    @abstractmethod
    def feed(self, data: bytes) -> list[int]:
        """The cuts in the next bytes of a file, as offsets in ``data`` above 0."""

    def end_file(self) -> bool:
        """Close a file, and say whether there is a cut behind it."""
        self.units += self.is_open()
        self.begin_file()
        return self.is_due(self.units, self.bytes) and self.cut()

    def is_open(self) -> bool:
        """Whether a document may end with the file."""
        return True

    def is_due(self, units: int, size: int) -> bool:
        return units >= self.most or size >= self.size

    def cut(self) -> bool:
        self.bytes = self.units = 0
        return True


def cuts(fmt: str, separator: str | None, size: int, most: int) -> Cuts:
    """The cuts of files of ``fmt``: behind a line, behind a blank line, or behind a separator.

    >>> cuts("jsonl", None, 4, 10).feed(b"1\\n2\\n3\\n4\\n"), cuts("text", None, 1, 10).feed(b"a\\nb\\n\\nc\\n")
    ([4, 8], [5])
    """
    if separator is not None:
        return _SeparatorCuts(separator.encode(), size, most)
    return _BlockCuts(size, most) if fmt == "text" else _LineCuts(size, most)


class _LineCuts(Cuts):
    def begin_file(self) -> None:
        self._open = False

    def is_open(self) -> bool:
        return self._open

    def feed(self, data: bytes) -> list[int]:
        found, at = [], 0
        self._open = not data.endswith(b"\n")
        while at < len(data):
            near = min(max(at, at + self.size - self.bytes - 1), len(data))
            lines = line_ends(data, at, near)
            if self.units + lines >= self.most:
                ends = np.flatnonzero(np.frombuffer(data, np.uint8)[at:near] == 10)
                end = at + int(ends[self.most - self.units - 1]) + 1
            elif (end := data.find(b"\n", near) + 1) == 0:
                self.units += lines
                self.bytes += len(data) - at
                break
            self.cut()
            found.append(end)
            at = end
        return found


class _SeparatorCuts(Cuts):
    def __init__(self, separator: bytes, size: int, most: int):
        self._separator = separator
        super().__init__(size, most)

    def begin_file(self) -> None:
        self._tail = b""  # bytes that a separator may have begun in

    def feed(self, data: bytes) -> list[int]:
        found, last, length = [], 0, len(self._separator)
        seen = self._tail + data
        shift, end = len(self._tail), 0
        while (at := seen.find(self._separator, end)) >= 0:
            end = at + length
            self.units += 1
            if self.is_due(self.units, self.bytes + end - shift - last):
                last = end - shift
                found.append(last)
                self.cut()
        self.bytes += len(data) - last
        self._tail = seen[max(end, len(seen) - length + 1) :]
        return found


class _BlockCuts(Cuts):
    _MAYBE_BLANK = np.isin(np.arange(256), [*range(9, 14), *range(28, 33), 0xC2, 0xE1, 0xE2, 0xE3])
    """What a line of white space may begin with."""
    _LONGEST = 1 << 16
    """Bytes of a line that is looked at: a longer one of white space ends a document too, but is no place for a cut."""

    def begin_file(self) -> None:
        self._line = b""  # the last line so far

    def feed(self, data: bytes) -> list[int]:
        codes = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(codes == 10)
        if not len(ends):
            self._keep(self._line + data)
            self.bytes += len(data)
            return []
        first = self._line + data[: ends[0] + 1]
        starts = np.concatenate([[0], ends[:-1] + 1])
        maybe = self._MAYBE_BLANK[codes[starts]] & (ends - starts <= self._LONGEST)
        maybe[0] = self._MAYBE_BLANK[first[0]] and len(first) - 1 <= self._LONGEST
        lines = np.flatnonzero(maybe)
        behind = ends[lines] + 1
        found, last, done = [], 0, 0
        while True:
            due = min(done + self.most - self.units - 1, int(np.searchsorted(behind, last + self.size - self.bytes)))
            cut = next((i for i in range(max(due, done), len(lines)) if self._is_blank(data, first, starts, ends, int(lines[i]))), None)
            if cut is None:
                break
            last, done = int(behind[cut]), cut + 1
            found.append(last)
            self.cut()
        self.bytes += len(data) - last
        self.units += len(lines) - done
        self._keep(data[ends[-1] + 1 :])
        return found

    def _is_blank(self, data: bytes, first: bytes, starts: Any, ends: Any, line: int) -> bool:
        text, fault = _decode(first if line == 0 else data[starts[line] : ends[line]])
        return not fault and not text.strip()

    def _keep(self, line: bytes) -> None:
        self._line = line if len(line) <= self._LONGEST else b"-" + bytes(self._LONGEST)


def split_documents(data: bytes, fmt: str) -> Iterator[tuple[int, str]]:
    r"""The documents of ``data`` as (1-based start line, text), of any length. ``ValueError`` names the first line that is no document.

    >>> list(split_documents(b"The cat sat.\nIt purred.\n\n  \nA dog ran.\n\n\nEnd\n", "text"))
    [(1, 'The cat sat.\nIt purred.'), (5, 'A dog ran.'), (8, 'End')]
    """
    for found in documents([data], fmt, max_bytes=len(data)):
        if isinstance(found, Reject):
            raise ValueError(f"line {found.place} {REASONS[found.reason]}")
        yield int(found.place), found.text


def _json_lines(
    chunks: Iterable[bytes], text_field: str, id_field: str | None, keep: tuple[str, ...], max_bytes: int, first: int
) -> Iterator[RawDocument | Reject]:
    for number, line in _lines(chunks, max_bytes, first):
        if line is None:
            yield Reject(str(number), "too_long")
        elif line.strip():
            yield json_document(str(number), line, text_field, id_field, keep)


def json_document(place: str, line: bytes, text_field: str, id_field: str | None, keep: tuple[str, ...]) -> RawDocument | Reject:
    """The document of one line of JSON Lines that is not blank, without its end."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return Reject(place, "not_utf8")
    if _deeper_than(line, MAX_DEPTH):
        return Reject(place, "too_deep")
    try:
        value = msgspec.json.decode(line)
    except msgspec.MsgspecError:
        return Reject(place, _why_no_json(line))
    if not isinstance(value, dict):
        return Reject(place, "not_object")
    text = value.get(text_field)
    if not isinstance(text, str):
        return Reject(place, "no_text")
    id = None
    if id_field is not None:
        id = value.get(id_field)
        if isinstance(id, bool) or not isinstance(id, str | int) or id == "":
            return Reject(place, "no_id")
    meta = {column: value[column] for column in keep if column in value}
    return RawDocument(place, text, None if id is None else str(id), meta or None)


def _blocks(chunks: Iterable[bytes], max_bytes: int, first: int) -> Iterator[RawDocument | Reject]:
    block = _Block()
    for number, line in _lines(chunks, max_bytes, first):
        text, fault = _decode(line)
        if fault or text.strip():
            block.add(number, line or b"", text, fault, max_bytes)
        elif block.start:
            yield block.document()
            block = _Block()
    if block.start:
        yield block.document()


class _Block:
    """The non-blank lines of one document so far; none of them are held once it has a fault."""

    def __init__(self) -> None:
        self.start, self.size, self.fault = 0, 0, ""
        self.lines: list[str] = []

    def add(self, number: int, line: bytes, text: str, fault: str, max_bytes: int) -> None:
        self.size += len(line) + (1 if self.start else 0)
        self.start = self.start or number
        self.fault = self.fault or fault or ("too_long" if self.size > max_bytes else "")
        if self.fault:
            self.lines.clear()
        else:
            self.lines.append(text)

    def document(self) -> RawDocument | Reject:
        place = str(self.start)
        return Reject(place, self.fault) if self.fault else RawDocument(place, "\n".join(self.lines))


def _separated(chunks: Iterable[bytes], separator: bytes, max_bytes: int, first: int) -> Iterator[RawDocument | Reject]:
    for line, piece, whole in _pieces(chunks, separator, max_bytes, first):
        seen = piece.decode(errors="replace")
        body = seen.lstrip()
        if whole and not body:
            continue
        place = str(line + seen.count("\n", 0, len(seen) - len(body)))
        text, fault = _decode(piece)
        if not whole:
            yield Reject(place, "too_long")
        elif fault:
            yield Reject(place, fault)
        else:
            yield RawDocument(place, text.strip("\r\n"))


def _pieces(chunks: Iterable[bytes], separator: bytes, max_bytes: int, line: int) -> Iterator[tuple[int, bytes, bool]]:
    """(line where it starts, bytes, whether these are all) for each piece; of a longer one only the first ``max_bytes``."""
    head: bytes | None = None  # the beginning of a piece that is too long; the rest is passed over
    passed = 0  # line ends in that rest
    held = bytearray()
    sought = 0  # no separator starts before this
    for chunk in chunks:
        held += chunk
        begin = 0
        while (at := held.find(separator, max(begin, sought))) >= 0:
            yield line, *_beginning(head, held[begin:at], max_bytes)
            end = at + len(separator)
            line += passed + held.count(b"\n", begin, end)
            begin, head, passed = end, None, 0
        del held[:begin]
        sought = max(0, len(held) - len(separator) + 1)
        if head is None and sought > max_bytes:
            head = bytes(held[:max_bytes])
        if head is not None:
            passed += held.count(b"\n", 0, sought)
            del held[:sought]
            sought = 0
    yield line, *_beginning(head, held, max_bytes)


def _beginning(head: bytes | None, piece: bytearray, max_bytes: int) -> tuple[bytes, bool]:
    if head is not None:
        return head, False
    return bytes(piece[:max_bytes]), len(piece) <= max_bytes


def _lines(chunks: Iterable[bytes], max_bytes: int, number: int) -> Iterator[tuple[int, bytes | None]]:
    """(number, counted from ``number``, bytes less LF or CR LF) for each line, ``None`` for the bytes of a line that is too long."""
    size = 0
    held: list[bytes] = []
    for chunk in chunks:
        *ended, tail = chunk.split(b"\n")
        for part in ended:
            size += len(part)
            yield number, b"".join([*held, part]).removesuffix(b"\r") if size <= max_bytes else None
            number, size, held = number + 1, 0, []
        size += len(tail)
        if size <= max_bytes:
            held.append(tail)
        else:
            held.clear()
    if size:
        yield number, b"".join(held).removesuffix(b"\r") if size <= max_bytes else None


def _without_bom(chunks: Iterable[bytes]) -> Iterator[bytes]:
    stream = iter(chunks)
    head = b""
    for chunk in stream:
        head += chunk
        if len(head) >= len(_BOM):
            break
    yield head.removeprefix(_BOM)
    yield from stream


def line_ends(data: bytes, start: int = 0, end: int | None = None) -> int:
    """How many there are from ``start`` to ``end``; some times faster than ``count``."""
    return int(np.count_nonzero(np.frombuffer(data, np.uint8)[start:end] == 10)) if data else 0


def _decode(line: bytes | None) -> tuple[str, str]:
    """The text and no fault, or no text and the fault."""
    if line is None:
        return "", "too_long"
    try:
        return line.decode(), ""
    except UnicodeDecodeError:
        return "", "not_utf8"


def _deeper_than(line: bytes, limit: int) -> bool:
    # the limit is ours, for that of a decoder depends on how deep its caller stands
    if line.count(b"[") + line.count(b"{") <= limit:
        return False
    depth = 0
    for bracket in _STRING.sub(b"", line):
        depth += (bracket in b"[{") - (bracket in b"]}")
        if depth > limit:
            return True
    return False


def _why_no_json(line: bytes) -> str:
    """The reason for a line that the strict decoder refused, by what the lenient one makes of it."""
    try:
        value = json.loads(line.decode(), parse_constant=_refuse, parse_int=str)
    except ValueError:
        return "not_json"
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "surrogate"
    return "number"


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
