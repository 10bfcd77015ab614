"""Segments: the files of a source cut where no document is, so that each can become one raw part in any process.

What is cut follows from the bytes alone: a segment ends at the first place between two documents at which 64 MB, or what may be 100,000 documents, have
come. Files that are not compressed are only looked at, and a segment names ranges of them; what one reader decompresses goes into a file a segment.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np
import pyarrow as pa

from corpusbuild import decompress, tables
from corpusbuild.downloads import Stopped
from corpusbuild.errors import SourceError
from corpusbuild.parts import MAX_PART_BYTES
from corpusbuild.sources import Source
from corpusbuild.split import Cuts, cuts, line_ends

READ_BYTES = 1 << 20
FORMATS = ("jsonl", "text", "parquet")
"""Formats that are cut. In others only one who reads from the start knows where a record begins."""


class Verified(msgspec.Struct, frozen=True):
    """One file that has its pinned digest. ``name`` is shown in errors; ``within`` begins the places of its documents."""

    path: str
    url: str
    name: str
    sha256: str
    size: int
    within: str = ""


class Piece(msgspec.Struct):
    """A range of one file: the bytes from ``start`` to ``end`` of ``path``, or for tables the rows of the Arrow file ``path``.

    ``file`` is the file's index among those of its source, ``line`` the number of the range's first line.
    """

    file: int
    path: str
    start: int = 0
    end: int = 0
    line: int = 1
    begins: bool = True
    """Whether it has the file's first byte."""


class Segment(msgspec.Struct):
    """What becomes raw part ``number``. ``spooled`` is the file that was made for it, to be deleted when the part is there, or empty."""

    number: int
    pieces: list[Piece]
    spooled: list[str]


class Opened(msgspec.Struct):
    """What is known of a file once all of it was read. ``decompressed`` is in bytes."""

    compression: str
    decompressed: int


def segments(
    source: Source, files: Iterable[Verified], most: int, spool: Path, opened: list[Opened], stop: Callable[[], bool] = lambda: False
) -> Iterator[Segment]:
    """The segments of a source's files, one at least; each file is told to ``opened`` when all of it was read.

    ``most`` bounds the documents of a segment; ``spool`` is an existing folder. ``SourceError`` names the file that cannot be read; ``stop`` is asked
    between reads, and True ends the work with ``Stopped``.
    """
    reader = _Tables(source, most, spool, opened) if source.format == "parquet" else _Bytes(source, most, spool, opened)
    for index, file in enumerate(files):
        try:
            for segment in reader.read(index, file):
                if stop():
                    raise Stopped
                if segment is not None:
                    yield segment
        except ValueError as error:
            raise SourceError(source.id, f"{file.name}: {error}") from None
    if (last := reader.last()) is not None:
        yield last


def decompressed(path: Path) -> tuple[str, Iterator[bytes]]:
    """How a file is compressed, and its plain bytes in pieces of at most 1 MB. ``ValueError`` for what is not read, also on the way."""
    with path.open("rb") as f:
        compression = decompress.compression_of(f.read(32))
    return compression, decompress.decompress(read(path))


def read(path: Path, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """The bytes of a file from ``start`` to ``end``, in pieces of at most 1 MB."""
    with path.open("rb") as f:
        f.seek(start)
        left = end - start if end is not None else None
        while chunk := f.read(READ_BYTES if left is None else min(READ_BYTES, left)):
            if left is not None:
                left -= len(chunk)
            yield chunk


class _Reader:
    """Collects pieces until a segment is due."""

    def __init__(self, source: Source, most: int, spool: Path, opened: list[Opened]):
        self.source, self.most, self.spool, self.opened = source, most, spool, opened
        self.number = 0
        self.clear()

    def clear(self) -> None:
        self.pieces: list[Piece] = []
        self.spooled: list[str] = []

    def end(self) -> Segment:
        segment = Segment(self.number, self.pieces, self.spooled)
        self.number += 1
        self.clear()
        return segment

    def last(self) -> Segment | None:
        return self.end() if self.pieces or not self.number else None

    def new_file(self, suffix: str) -> Path:
        path = self.spool / f"spooled-{self.number:05d}{suffix}"
        self.spooled.append(str(path))
        return path


class _Bytes(_Reader):
    def __init__(self, source: Source, most: int, spool: Path, opened: list[Opened]):
        super().__init__(source, most, spool, opened)
        self._cuts: Cuts = cuts(source.format, source.separator, MAX_PART_BYTES, most)
        self._sink: BinaryIO | None = None

    def read(self, index: int, file: Verified) -> Iterator[Segment | None]:
        compression, chunks = decompressed(Path(file.path))
        offset, line = 0, 1
        piece: Piece | None = None
        try:
            for chunk in chunks:
                found, at = self._cuts.feed(chunk), 0
                for edge in dict.fromkeys([*found, len(chunk)]):
                    data = chunk[at:edge]
                    if piece is None:
                        piece = self._begin(index, file, offset, line, compression != "none")
                    if self._sink is not None:
                        self._sink.write(data)
                    piece.end += len(data)
                    offset += len(data)
                    line += line_ends(data)
                    at = edge
                    if edge in found:
                        yield self.end()
                        piece = None
                yield None
            if self._cuts.end_file() and self.pieces:
                yield self.end()
        except BaseException:
            self._close()
            raise
        self.opened.append(Opened(compression, offset))

    def end(self) -> Segment:
        self._close()
        return super().end()

    def _begin(self, index: int, file: Verified, offset: int, line: int, spooled: bool) -> Piece:
        path, start = file.path, offset
        if spooled:
            if self._sink is None:
                self._sink = self.new_file(".bytes").open("wb")
            path, start = self._sink.name, self._sink.tell()
        piece = Piece(index, path, start, start, line, begins=offset == 0)
        self.pieces.append(piece)
        return piece

    def _close(self) -> None:
        if self._sink is not None:
            self._sink.close()
            self._sink = None


class _Tables(_Reader):
    """A Parquet file has no place to begin in the middle of a row group, so one reader decodes it and the others take its columns as they are."""

    def __init__(self, source: Source, most: int, spool: Path, opened: list[Opened]):
        super().__init__(source, most, spool, opened)
        self._rows = self._bytes = 0

    def read(self, index: int, file: Verified) -> Iterator[Segment | None]:
        path = Path(file.path)
        if (compression := decompressed(path)[0]) != "none":
            raise ValueError("a compressed Parquet file is not read: unpack it and pin what is in it")
        writer: pa.RecordBatchFileWriter | None = None
        try:
            for batch in tables.parquet_batches(path, self.source.text_field, self.source.id_field, self.source.keep):
                lengths, at = tables.text_lengths(batch), 0
                while at < batch.num_rows:
                    upto = self._upto(lengths, at)
                    if writer is None:
                        spooled = self.new_file(f"-{index}.arrow")
                        writer = pa.ipc.new_file(str(spooled), batch.schema)
                        self.pieces.append(Piece(index, str(spooled)))
                    writer.write_batch(batch.slice(at, upto - at))
                    self.pieces[-1].end += upto - at
                    self._rows += upto - at
                    self._bytes += int(lengths[at:upto].sum())
                    at = upto
                    if self._rows >= self.most or self._bytes >= MAX_PART_BYTES:
                        writer.close()
                        writer = None
                        yield self.end()
                yield None
        finally:
            if writer is not None:
                writer.close()
        self.opened.append(Opened(compression, file.size))

    def end(self) -> Segment:
        self._rows = self._bytes = 0
        return super().end()

    def _upto(self, lengths: "np.ndarray[tuple[int], np.dtype[np.int64]]", at: int) -> int:
        """The row behind the one with which the segment is full, or the end of the batch."""
        ends = np.cumsum(lengths[at : at + self.most - self._rows])
        return at + min(int(np.searchsorted(ends, MAX_PART_BYTES - self._bytes)) + 1, len(ends))
