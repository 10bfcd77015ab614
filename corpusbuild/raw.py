"""Raw parts: the documents of a source as they came, ``part-00000.jsonl.zst`` and so on, with a receipt that counts them.

A line is compact JSON with the keys url, fetched_at, license_spdx, text in this order, then id and meta where the source has them. The URL's
fragment is the document's place in its file. A part is cut at 64 MB of text or so many documents, whichever is first; documents that could not be
read are rows of ``part-00000.removed.parquet`` beside the part in which they would have been.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import zstandard

from corpusbuild.errors import IntegrityError
from corpusbuild.model import Record, Tally
from corpusbuild.parts import MAX_PART_BYTES, MAX_PART_DOCS, REMOVED, part_name, write_rows
from corpusbuild.split import RawDocument, Reject
from corpusbuild.stage import Out

RAW_SUFFIX = ".jsonl.zst"
RECEIPT = "receipt.json"
LEVEL = 3
BATCH = 1 << 20
"""Bytes of a part that are read at once."""
FRAME = 16 << 20
"""Bytes that are compressed at a time. In one call they take a tenth less time than as a stream, and no more room."""


class RawLine(msgspec.Struct, omit_defaults=True):
    """One line of a raw part."""

    url: str
    fetched_at: str
    license_spdx: str
    text: str
    id: str | None = None
    meta: dict[str, Any] | None = None


class RawRow(msgspec.Struct, frozen=True):
    """A raw document as the stages take it. ``file`` is the index of its file, ``meta`` a JSON object or None."""

    text: str
    place: str
    file: int
    id: str | None = None
    meta: str | None = None


class RawPart(Record):
    """One raw part. ``files`` says how many of its documents come from which file, in their order: (index of the file, documents)."""

    name: str
    documents: int
    text_bytes: int
    rejected: int
    files: tuple[tuple[int, int], ...]
    path: str = ""


class FileReceipt(Record):
    """Where one file came from. ``url`` is the configured one, ``name`` what the file is called in what it names, where that is several;
    ``note`` says what is odd about the file, else it is empty.

    ``unique`` counts the documents of different text, as it came: by digest, before anything is normalised.
    """

    url: str
    sha256: str
    size: int
    decompressed: int
    """Bytes after decompression; the size where the file is not compressed as a whole."""
    compression: str
    documents: int
    unique: int
    rejected: int
    name: str = ""
    note: str = ""


class Receipt(Record):
    """What was fetched, when, under which licence, and what is in each part. The only page of the entry that holds a date."""

    source_id: str
    url: str
    license_spdx: str
    sha256: str
    retrieved_at: str
    bytes: int
    files: tuple[FileReceipt, ...]
    parts: tuple[RawPart, ...]
    rejected: dict[str, int]


class Writer:
    """Cuts documents into parts and writes them through ``out``, the ``first`` part under its number and so on.

    ``task`` is the name of the task that writes, with which the names of the parts begin.
    """

    def __init__(
        self,
        out: Out,
        source: str,
        fetched_at: str,
        license_spdx: str,
        part_docs: int = MAX_PART_DOCS,
        *,
        task: str = "part",
        first: int = 0,
    ):
        self._out, self._source, self._part_docs, self._task, self._number = out, source, part_docs, task, first
        self._fetched_at, self._license = fetched_at, license_spdx
        self._encoder = msgspec.json.Encoder()
        self.parts: list[RawPart] = []
        self.rejected: dict[str, int] = {}
        self._file: BinaryIO | None = None
        self._compressor = zstandard.ZstdCompressor(level=LEVEL)
        self._waiting = bytearray()
        self._clear()

    def add(self, found: RawDocument | Reject, file: int, url: str) -> bytes:
        """Write one document, or note one reject, of the file with this index and this configured URL; give the text, in UTF-8."""
        if self._documents >= self._part_docs or self._text_bytes >= MAX_PART_BYTES or len(self._rows) >= MAX_PART_DOCS:
            self.end_part()
        if isinstance(found, Reject):
            self.rejected[found.reason] = self.rejected.get(found.reason, 0) + 1
            self._rows.append(
                {
                    "source": self._source,
                    "stage": "fetch",
                    "rule": found.reason,
                    "rules": [found.reason],
                    "place": found.place,
                    "file": file,
                }
            )
            return b""
        line = RawLine(f"{url}#{found.place}", self._fetched_at, self._license, found.text, found.id, found.meta)
        text = found.text.encode()
        self.add_lines(self._encoder.encode(line) + b"\n", 1, len(text), file)
        return text

    def add_lines(self, lines: Any, documents: int, text_bytes: int, file: int) -> None:
        """Write lines as they are, in bytes, of so many documents whose texts have ``text_bytes`` together. A part is not cut before or within them."""
        if len(lines) >= FRAME:
            if self._waiting:
                self._flush()
            self._compress(lines)  # a long document is not copied
        else:
            self._waiting += lines
            if len(self._waiting) >= FRAME:
                self._flush()
        if documents:
            self._documents += documents
            self._text_bytes += text_bytes
            self._files[file] = self._files.get(file, 0) + documents

    def end_part(self) -> None:
        """Finish the part that is being written, which may be empty."""
        self._flush()
        assert self._file is not None
        self._file.close()
        self._file = None
        name = part_name(self._number)
        if self._rows:
            write_rows(self._out.path(f"{name.removeprefix(self._task)}.removed.parquet"), self._rows, REMOVED)
        self.parts.append(
            RawPart(
                name=f"{name}{RAW_SUFFIX}",
                documents=self._documents,
                text_bytes=self._text_bytes,
                rejected=len(self._rows),
                files=tuple(self._files.items()),
            )
        )
        self._number += 1
        self._clear()

    def close(self) -> None:
        """End the last part; what has no documents has one, empty."""
        if self._documents or self._rows or not self.parts:
            self.end_part()

    def abandon(self) -> None:
        """Close the file that is being written and leave it unfinished."""
        if self._file is not None:
            self._file.close()

    def _clear(self) -> None:
        self._documents = self._text_bytes = 0
        self._files: dict[int, int] = {}
        self._rows: list[dict[str, Any]] = []

    def _flush(self) -> None:
        self._compress(self._waiting)
        self._waiting = bytearray()

    def _compress(self, lines: Any) -> None:
        if self._file is None:
            self._file = self._out.path(f"{part_name(self._number).removeprefix(self._task)}{RAW_SUFFIX}").open("wb")
        self._file.write(self._compressor.compress(lines))


def tally(parts: Sequence[RawPart], rejected: dict[str, int]) -> Tally:
    """What became of the documents of a source."""
    kept = sum(p.documents for p in parts)
    return Tally(
        docs_in=kept + sum(rejected.values()),
        kept=kept,
        rejected=rejected,
        also={"text_bytes": sum(p.text_bytes for p in parts)},
    )


def receipt(entry: Path) -> Receipt:
    """The receipt of a fetched source."""
    path = entry / RECEIPT
    try:
        return msgspec.json.decode(path.read_bytes(), type=Receipt)
    except (FileNotFoundError, msgspec.DecodeError) as error:
        raise IntegrityError(f"{path} cannot be read ({error}): delete {entry} and fetch again") from None


def parts(entry: Path) -> list[RawPart]:
    """The raw parts of a fetched source, in order, with their paths."""
    return [msgspec.structs.replace(p, path=str(entry / p.name)) for p in receipt(entry).parts]


def read_part(path: Path, take: int | None = None) -> Iterator[RawRow]:
    """The first ``take`` documents of one part, in order."""
    for batch in read_batches(path, take):
        for line, file in zip(batch.lines, batch.files, strict=True):
            yield RawRow(msgspec.json.decode(line.text, type=str), line.place(), file, line.id, line.columns())


def read_batches(path: Path, take: int | None = None) -> Iterator["Batch"]:
    """The same, some at a time: about ``BATCH`` bytes of lines, or one that is longer. Who clears the lines of a batch frees them."""
    part = next((p for p in receipt(path.parent).parts if p.name == path.name), None)
    if part is None:
        raise IntegrityError(f"{path} is not in its receipt: delete {path.parent} and fetch again")
    files = [index for index, n in part.files for _ in range(n)]
    wanted, given = len(files) if take is None else min(take, len(files)), 0
    for lines in map(msgspec.json.Decoder(StoredLine).decode_lines, _whole_lines(path)):
        end = min(given + len(lines), wanted)
        if given < end:
            batch = Batch(lines[: end - given], files[given:end])
            given += len(lines)
            del lines
            yield batch
        if given >= wanted and take is not None:
            return
    if given != wanted:
        raise IntegrityError(f"{path} has not the {len(files)} documents of its receipt: delete {path.parent} and fetch again")


def read_raw(raw_dir: str | Path) -> Iterator[dict[str, Any]]:
    """The raw documents of a directory, in order, as their lines say."""
    for path in sorted(Path(raw_dir).glob(f"part-*{RAW_SUFFIX}")):
        for whole in _whole_lines(path):
            yield from msgspec.json.Decoder().decode_lines(whole)


class StoredLine(msgspec.Struct):
    """A line as it is read: what is seldom looked at as a string is still JSON."""

    url: str
    text: msgspec.Raw
    id: str | None = None
    meta: msgspec.Raw = msgspec.Raw()  # empty where the line has none

    def place(self) -> str:
        return self.url.rpartition("#")[2]

    def columns(self) -> str | None:
        """The columns that the source keeps, as a JSON object."""
        return bytes(self.meta).decode() or None


class Batch(NamedTuple):
    """Lines, and the index of the file of each."""

    lines: list[StoredLine]
    files: list[int]


def _whole_lines(path: Path) -> Iterator[bytes]:
    """The bytes of one part, cut behind line ends."""
    with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as stream:
        held: list[bytes] = []
        for chunk in iter(lambda: stream.read(BATCH), b""):
            end = chunk.rfind(b"\n") + 1
            if end:
                held.append(chunk[:end])
                yield b"".join(held)
                held = []
            held.append(chunk[end:])
        if any(held):
            raise IntegrityError("a raw part ends within a line: delete its folder and fetch again")
