"""Lines of a raw part made by kernels, thousands of documents at a time, from a range of a file of JSON Lines or text."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from corpusbuild.split import MAX_DOCUMENT_BYTES

BUFFER = 4 << 20
ROWS = 1 << 14
MARGIN = 16
"""Bytes behind what a kernel is given, which it may read."""
_BOM = b"\xef\xbb\xbf"


class Lines(NamedTuple):
    """Lines of so many documents, whose texts have ``text_bytes`` together and ``digests`` one behind the other."""

    data: Any
    documents: int
    text_bytes: int
    digests: bytes


class Unsure(NamedTuple):
    """Bytes that the plain reader must judge, from this line on: of one document, or with ``offset`` also all that follow in the file from there."""

    data: bytes
    line: int
    offset: int | None = None


class Range(NamedTuple):
    """A range of a file, as a piece of a segment has it."""

    path: Path
    start: int
    end: int
    line: int
    begins: bool


class Form(NamedTuple):
    """What lines look like (the URL of a document up to its line, when it was fetched, its licence), and how documents are found."""

    url: str
    fetched_at: str
    license_spdx: str
    fmt: str
    separator: str | None = None
    text_field: str = "text"
    id_field: str | None = None
    keep: Sequence[str] = ()

    def is_for_kernels(self) -> bool:
        """Whether they know this form: a column that is the text and something else is too odd for them."""
        return self.fmt == "text" or self.text_field not in (self.id_field, *self.keep)


class _Tail(msgspec.Struct, omit_defaults=True):
    id: str | None = None
    meta: dict[str, Any] | None = None


def digest(text: bytes) -> bytes:
    """The digest that ``Lines`` has of this text in UTF-8."""
    from corpusbuild.kernels import rawlines

    token, into = _array(msgspec.json.encode(text.decode())), np.zeros(2, np.uint64)
    rawlines.digest(token, 1, len(token) - 1, into)
    return into.tobytes()


def lines(of: Range, form: Form) -> Iterator[Lines | Unsure]:
    """The documents of a range, in order."""
    size = BUFFER
    buffer, have, line = bytearray(size + MARGIN), 0, of.line
    maker = _Maker(form, size)
    with of.path.open("rb") as f:
        f.seek(of.start)
        at = of.start
        while True:
            got = f.readinto(memoryview(buffer)[have : min(size, have + of.end - at)])
            at += got
            have += got
            final = at == of.end
            if not got and not final:
                raise ValueError(f"ends at byte {at} where {of.end} are wanted: it was cut while it was read")
            done = 3 if of.begins and at - have == of.start and buffer.startswith(_BOM) else 0
            before = done
            for made, read, passed in maker.make(buffer, done, have, line, final):
                yield from made
                done += read
                line += passed
            if final:
                return
            if done == before and have == size:
                if size > MAX_DOCUMENT_BYTES:
                    yield Unsure(bytes(buffer[done:have]), line, at)
                    return
                size *= 2
                maker = _Maker(form, size)
                larger = bytearray(size + MARGIN)
                larger[: have - done] = memoryview(buffer)[done:have]
                buffer = larger
            else:
                buffer[: have - done] = buffer[done:have]
            have -= done


class _Maker:
    """The kernel for one form, with room for what it makes of ``size`` bytes."""

    def __init__(self, form: Form, size: int):
        encode = msgspec.json.encode
        self.form = form
        self.prefix = _array(b'{"url":' + encode(form.url)[:-1])
        self.middle = _array(b'","fetched_at":%b,"license_spdx":%b,"text":"' % (encode(form.fetched_at), encode(form.license_spdx)))
        self.others = (
            list(dict.fromkeys([*([form.id_field] if form.id_field is not None else []), *form.keep])) if form.fmt == "jsonl" else []
        )
        self.wanted = len(self.others)
        self.suffix = _array(b"" if self.wanted else b'"}\n')
        growth = 1 if form.fmt == "jsonl" else 6
        self.out: Any = np.empty(growth * size + (ROWS + 1) * (len(self.prefix) + len(self.middle) + 64), np.uint8)
        self.rows, self.digests = np.empty((ROWS, 7), np.int64), np.empty((ROWS, 2), np.uint64)
        self.spots = np.empty((ROWS, 2 * self.wanted), np.int64)
        keys = [key.encode() for key in (form.text_field, *self.others)]
        self.names, self.ends = _array(b"".join(keys)), np.cumsum([len(key) for key in keys], dtype=np.int64)
        self.separator = _array((form.separator or "").encode())

    def make(self, buffer: bytearray, start: int, end: int, line: int, final: bool) -> Iterator[tuple[Iterator[Lines | Unsure], int, int]]:
        """Pieces of what the kernel makes, with how many bytes and lines it took for each, as far as there are whole documents."""
        if self.form.fmt == "jsonl" and not final:
            end = buffer.rfind(b"\n", start, end) + 1 or start
        held, buffer[end] = buffer[end], 10
        data = np.frombuffer(buffer, np.uint8)
        try:
            while start < end:
                count, read, passed = self.call(data, start, end, line, final)
                if not read:
                    break
                yield self.told(buffer, count), read, passed
                start += read
                line += passed
        finally:
            buffer[end] = held

    def call(self, data: Any, start: int, end: int, line: int, final: bool) -> tuple[int, int, int]:
        from corpusbuild.kernels import rawlines

        parts = (self.prefix, self.middle, self.suffix, self.out, self.rows, self.digests)
        if self.form.fmt == "jsonl":
            result = rawlines.json_lines(data, start, end, line, self.names, self.ends, self.spots, *parts)
        elif self.form.separator is not None:
            result = rawlines.separated(data, start, end, line, final, self.separator, *parts)
        else:
            result = rawlines.text_blocks(data, start, end, line, final, *parts)
        count, _, read, passed = result
        return count, read, passed

    def told(self, buffer: bytearray, count: int) -> Iterator[Lines | Unsure]:
        rows, first, tails = self.rows[:count], 0, list[bytes]()
        if self.wanted:
            tails = [self.tail(buffer, row) for row in range(count)]
            rows[[row for row in range(count) if not tails[row]], 1] = 1
        for index in [*np.flatnonzero(rows[:, 1]).tolist(), count]:
            if index > first:
                some = rows[first:index]
                begin, end = int(some[0, 4]), int(some[-1, 5])
                data = self.joined(some, tails[first:index]) if self.wanted else memoryview(self.out)[begin:end]
                yield Lines(data, index - first, int(some[:, 6].sum()), self.digests[first:index].tobytes())
            if index < count:
                line, _, begin, end = rows[index, :4].tolist()
                yield Unsure(bytes(buffer[begin:end]), line)
            first = index + 1

    def tail(self, buffer: bytearray, row: int) -> bytes:
        """What follows the text in the line of a row: the id and the kept columns. Empty where the plain reader is to judge."""
        if self.rows[row, 1]:
            return b""
        spots = self.spots[row].tolist()
        values = {
            key: msgspec.json.decode(memoryview(buffer)[spots[2 * k] : spots[2 * k + 1]])
            for k, key in enumerate(self.others)
            if spots[2 * k] >= 0
        }
        id = None
        if self.form.id_field is not None:
            id = values.get(self.form.id_field)
            if isinstance(id, bool) or not isinstance(id, str | int) or id == "":
                return b""
        meta = {column: values[column] for column in self.form.keep if column in values}
        line = _Tail(None if id is None else str(id), meta or None)
        return b'"' + msgspec.json.encode(line).replace(b"{", b"," if id is not None or meta else b"", 1) + b"\n"

    def joined(self, rows: Any, tails: Sequence[bytes]) -> bytes:
        out = memoryview(self.out)
        return b"".join(piece for row, tail in zip(rows.tolist(), tails, strict=True) for piece in (out[row[4] : row[5]], tail))


def _array(data: bytes) -> Any:
    return np.frombuffer(bytearray(data) + bytearray(MARGIN), np.uint8)[: len(data)]
