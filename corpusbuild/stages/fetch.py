"""Fetch: the verified files of one source become raw parts. Getting the files is the work of ``corpusbuild.fetch``."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from blake3 import blake3

from corpusbuild import bulk, decompress, kernels, split, tables, webarchive
from corpusbuild.downloads import Stopped
from corpusbuild.errors import SourceError
from corpusbuild.model import Counts, Tally
from corpusbuild.parts import MAX_PART_DOCS, part_name
from corpusbuild.raw import FileReceipt, RawPart, Writer, tally
from corpusbuild.segments import FORMATS, Opened, Piece, Segment, Verified, decompressed, read, segments
from corpusbuild.sources import SPLIT_VERSION, Source, fetch_identity
from corpusbuild.split import RawDocument, Reject
from corpusbuild.stage import Job, Out, Stage, Task

DIGEST_BYTES = 16  # of a text: no two texts that are not equal have met at 128 bits
DIGESTS = "-digests"
COUNTED_AT_ONCE = 4_000_000
"""Digests that are held in memory to count the different ones."""

REASONS = {
    **split.REASONS,
    "not_csv": "has quotes that do not close or stand within a field",
    "fields": "has fewer fields than there are columns",
    "no_main_text": "is a page without a main text",
}
"""What each reason of a reject says, to follow the document's place."""

NO_FAULT = frozenset({"no_main_text"})
"""Rejects that are no fault of the file: they end no strict source and do not count towards ``max_bad``."""


class SplitSource(Task):
    """Split one source. ``fetched_at`` is UTC, ``YYYY-MM-DDTHH:MM:SSZ``."""

    source: Source
    files: tuple[Verified, ...]
    fetched_at: str
    part_docs: int = MAX_PART_DOCS

    def shown(self, index: int) -> int:
        """The index that documents give for the file with this one: those of a folder or checksum file are one file of their source."""
        return 0 if len(self.files) == 1 or any(f.within for f in self.files) else index


class SplitSegment(Task):
    """Make one raw part of one segment. ``files`` are those of its pieces, ``shown`` the index that documents give for each, both by a piece's ``file``."""

    source: Source
    segment: Segment
    files: dict[int, Verified]
    shown: dict[int, int]
    fetched_at: str
    part_docs: int


class Counted(msgspec.Struct):
    """What some pieces of one file gave."""

    file: int
    documents: int = 0
    rejected: int = 0


class SegmentDone(msgspec.Struct):
    """The value of ``split_segment``. ``identity`` says of what, ``counted`` has a row a piece, in the order of the texts' digests."""

    identity: str
    parts: list[RawPart]
    rejected: dict[str, int]
    counted: list[Counted]


def split_source(task: SplitSource, out: Out, stop: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """Write the raw parts of a source and give its tally, its parts and what is known of each file.

    ``SourceError`` names the first document that cannot be read where the source is strict, or the share of them where it is above ``max_bad``.
    ``stop`` is asked between documents; True ends the work with ``Stopped``.
    """
    source, opened = task.source, list[Opened]()
    writer = Writer(out, source.id, task.fetched_at, source.license_spdx, task.part_docs, task=task.name)
    page = out.scratch(DIGESTS)
    try:
        with page.open("wb") as digests:
            into = _Into(source, writer, task.fetched_at, digests, stop)
            if source.format in FORMATS:
                for segment in segments(source, task.files, task.part_docs, page.parent, opened, stop):
                    for piece in segment.pieces:
                        _add_piece(task.files[piece.file], task.shown(piece.file), piece, into)
                    writer.end_part()
                    for path in segment.spooled:
                        Path(path).unlink()
            else:
                for index, file in enumerate(task.files):
                    opened.append(_add_stream(file, index, task.shown(index), into))
        writer.close()
    except BaseException:
        writer.abandon()
        raise
    return whole(task, writer.parts, writer.rejected, opened, [(page, into.counted)])


def split_segment(task: SplitSegment, out: Out, stop: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """Write one raw part and the digests of its texts; give a ``SegmentDone``. ``SourceError`` as ``split_source``."""
    segment, source = task.segment, task.source
    writer = Writer(out, source.id, task.fetched_at, source.license_spdx, task.part_docs, task=task.name, first=segment.number)
    try:
        with out.scratch(DIGESTS).open("wb") as digests:
            into = _Into(source, writer, task.fetched_at, digests, stop)
            for piece in segment.pieces:
                _add_piece(task.files[piece.file], task.shown[piece.file], piece, into)
        writer.end_part()
    except BaseException:
        writer.abandon()
        raise
    done = SegmentDone(identity(task, kernels.compiled()), writer.parts, writer.rejected, into.counted)
    builtins: dict[str, Any] = msgspec.to_builtins(done)
    return builtins


def segment_task(task: SplitSource, segment: Segment) -> SplitSegment:
    used = sorted({piece.file for piece in segment.pieces})
    return SplitSegment(
        name=part_name(segment.number),
        source=task.source,
        segment=segment,
        files={index: task.files[index] for index in used},
        shown={index: task.shown(index) for index in used},
        fetched_at=task.fetched_at,
        part_docs=task.part_docs,
    )


def identity(task: SplitSegment, compiled: bool) -> str:
    """A name for what a segment is made of, wherever its bytes lie and whenever it is made."""
    pieces = [(task.files[p.file].sha256, p.file, p.start, p.end, p.line) for p in task.segment.pieces]
    return blake3(msgspec.json.encode([pieces, task.part_docs, compiled])).hexdigest()


def whole(
    task: SplitSource,
    parts: Sequence[RawPart],
    rejected: dict[str, int],
    opened: Sequence[Opened],
    counted: Sequence[tuple[Path, Sequence[Counted]]],
) -> dict[str, Any]:
    """The value of ``split_source``, from its parts and from pages of digests with what they are of, in order."""
    total = tally(parts, rejected)
    _check_share(task.source, total)
    slices: list[list[tuple[Path, int, int]]] = [[] for _ in task.files]
    documents, bad = [0] * len(task.files), [0] * len(task.files)
    for page, rows in counted:
        first = 0
        for row in rows:
            slices[row.file].append((page, first, row.documents))
            first += row.documents
            documents[row.file] += row.documents
            bad[row.file] += row.rejected
    receipts = [
        FileReceipt(
            url=file.url,
            sha256=file.sha256,
            size=file.size,
            decompressed=known.decompressed,
            compression=known.compression,
            documents=documents[index],
            unique=distinct_in(slices[index]),
            rejected=bad[index],
            name=file.within.removesuffix(":"),
            note=decompress.disagreement(file.name, known.compression) or "",
        )
        for index, (file, known) in enumerate(zip(task.files, opened, strict=True))
    ]
    return {"tally": msgspec.to_builtins(total), "parts": msgspec.to_builtins(list(parts)), "files": msgspec.to_builtins(receipts)}


class _Into:
    """Where the documents of a source go: a writer, digests of their texts, and counts by piece."""

    def __init__(self, source: Source, writer: Writer, fetched_at: str, digests: Any, stop: Callable[[], bool]):
        self.source, self.writer, self.fetched_at, self.digests, self.stop = source, writer, fetched_at, digests, stop
        self.counted: list[Counted] = []
        self.digest = bulk.digest if kernels.compiled() else _digest

    def form(self, file: Verified) -> bulk.Form:
        source = self.source
        how = (source.format, source.separator, source.text_field, source.id_field, source.keep)
        return bulk.Form(f"{file.url}#{file.within}", self.fetched_at, source.license_spdx, *how)

    def add_all(self, found: Iterable[RawDocument | Reject], file: Verified, shown: int) -> None:
        for document in found:
            if self.stop():
                raise Stopped
            self.add(document, file, shown)

    def add(self, found: RawDocument | Reject, file: Verified, shown: int) -> None:
        text = self.writer.add(found._replace(place=f"{file.within}{found.place}"), shown, file.url)
        if isinstance(found, Reject):
            self.counted[-1].rejected += 1
            if self.source.on_bad == "stop" and found.reason not in NO_FAULT:
                raise SourceError(self.source.id, f"{file.name}: {_unit(self.source)} {found.place} {REASONS[found.reason]}{_HINT}")
        else:
            self.counted[-1].documents += 1
            self.digests.write(self.digest(text))


def _add_piece(file: Verified, shown: int, piece: Piece, into: _Into) -> None:
    source = into.source
    into.counted.append(Counted(piece.file))
    try:
        if source.format == "parquet":
            with pa.memory_map(piece.path) as mapped, pa.ipc.open_file(mapped) as rows:
                for number in range(rows.num_record_batches):
                    into.add_all(tables.batch_documents(rows.get_batch(number), source.id_field, source.keep), file, shown)
            return
        form = into.form(file)
        if kernels.compiled() and form.is_for_kernels():
            _add_range(file, shown, piece, form, into)
        else:
            chunks = read(Path(piece.path), piece.start, piece.end)
            into.add_all(_documents(source, chunks, piece.line, piece.begins), file, shown)
    except ValueError as error:
        raise SourceError(source.id, f"{file.name}: {error}") from None


def _add_range(file: Verified, shown: int, piece: Piece, form: bulk.Form, into: _Into) -> None:
    path = Path(piece.path)
    for found in bulk.lines(bulk.Range(path, piece.start, piece.end, piece.line, piece.begins), form):
        if into.stop():
            raise Stopped
        if isinstance(found, bulk.Lines):
            into.writer.add_lines(found.data, found.documents, found.text_bytes, shown)
            into.counted[-1].documents += found.documents
            into.digests.write(found.digests)
        else:
            rest = read(path, found.offset, piece.end) if found.offset is not None else ()
            into.add_all(_documents(into.source, chain([found.data], rest), found.line, False), file, shown)


def _documents(source: Source, chunks: Iterable[bytes], line: int, begins: bool) -> Iterator[RawDocument | Reject]:
    return split.documents(
        chunks,
        source.format,
        separator=source.separator,
        text_field=source.text_field,
        id_field=source.id_field,
        keep=source.keep,
        line=line,
        begins=begins,
    )


def _add_stream(file: Verified, index: int, shown: int, into: _Into) -> Opened:
    """Add the documents of a file that is read from its start."""
    source, path = into.source, Path(file.path)
    into.counted.append(Counted(index))
    try:
        compression, chunks = decompressed(path)
        content = _Sized(chunks)
        into.add_all(_stream_documents(source, content), file, shown)
    except ValueError as error:
        raise SourceError(source.id, f"{file.name}: {error}") from None
    return Opened(compression, file.size if compression == "none" else content.bytes)


def _stream_documents(source: Source, chunks: Iterable[bytes]) -> Iterator[RawDocument | Reject]:
    if source.format == "warc":
        return webarchive.documents(chunks, id_field=source.id_field, keep=source.keep)
    tabs = source.format == "tsv"
    return tables.csv_documents(chunks, tabs=tabs, text_field=source.text_field, id_field=source.id_field, keep=source.keep)


class _Sized:
    """Pieces of bytes on their way, and how many bytes went by."""

    def __init__(self, pieces: Iterable[bytes]):
        self._pieces, self.bytes = pieces, 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.bytes += len(piece)
            yield piece


def _digest(text: bytes) -> bytes:
    return blake3(text).digest(DIGEST_BYTES)


def distinct_in(slices: Sequence[tuple[Path, int, int]]) -> int:
    """How many different digests there are in slices of files: (file, first digest, how many).

    Of more than ``COUNTED_AT_ONCE`` only those within a range of values are held at a time.
    """
    passes = sum(n for _, _, n in slices) // COUNTED_AT_ONCE + 1
    return sum(_distinct_within(slices, n * _SPAN // passes, (n + 1) * _SPAN // passes) for n in range(passes))


_SPAN = 1 << 32


def _distinct_within(slices: Sequence[tuple[Path, int, int]], low: int, high: int) -> int:
    held = bytearray()
    for path, first, n in slices:
        for at in range(first, first + n, COUNTED_AT_ONCE):
            rows = np.fromfile(path, np.uint32, min(COUNTED_AT_ONCE, first + n - at) * 4, offset=at * DIGEST_BYTES).reshape(-1, 4)
            held += rows[(rows[:, 0] >= low) & (rows[:, 0] < high)].tobytes()
    return distinct(held)


def distinct(digests: bytes | bytearray) -> int:
    """How many different digests of ``DIGEST_BYTES`` stand one after another in ``digests``.

    >>> distinct(bytes(16) + bytes(15) + b"x" + bytes(16))
    2
    """
    halves = np.frombuffer(digests, np.uint64).reshape(-1, 2)
    ordered = halves[np.lexsort(halves.T)]
    return int(np.count_nonzero((ordered[1:] != ordered[:-1]).any(axis=1))) + bool(len(ordered))


def _check_share(source: Source, total: Tally) -> None:
    bad = sum(n for reason, n in total.rejected.items() if reason not in NO_FAULT)
    if bad > source.max_bad * total.docs_in:
        reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(total.rejected.items()))
        raise SourceError(
            source.id, f"{bad} of {total.docs_in} documents cannot be read ({reasons}), more than max_bad = {source.max_bad:g} allows"
        )


def _unit(source: Source) -> str:
    return {"parquet": "row", "warc": "the record at byte"}.get(source.format, "line")


def build(job: Job) -> Counts:
    """Split the files that ``job.params``, a ``SplitSource``, names."""
    (value,) = job.map(split_source, [job.params])
    return {job.params.source.id: msgspec.convert(value["tally"], Tally)}


_HINT = '; correct the file, or set on_bad = "reject" to leave such documents out'

STAGE = Stage("fetch", version=SPLIT_VERSION, build=build, names_output=fetch_identity)
