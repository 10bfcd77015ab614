"""Fetch: the verified files of one source become raw parts. Getting the files is the work of ``corpusbuild.fetch``."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from blake3 import blake3

from corpusbuild import decompress, split, tables, webarchive
from corpusbuild.downloads import Stopped
from corpusbuild.errors import SourceError
from corpusbuild.model import Counts, Tally
from corpusbuild.parts import MAX_PART_DOCS
from corpusbuild.raw import FileReceipt, Writer
from corpusbuild.sources import SPLIT_VERSION, Source, fetch_identity
from corpusbuild.split import RawDocument, Reject
from corpusbuild.stage import Job, Out, Stage, Task

READ_BYTES = 1 << 20
DIGEST_BYTES = 16  # of a text: no two texts that are not equal have met at 128 bits

REASONS = {
    **split.REASONS,
    "not_csv": "has quotes that do not close or stand within a field",
    "fields": "has fewer fields than there are columns",
    "no_main_text": "is a page without a main text",
}
"""What each reason of a reject says, to follow the document's place."""

NO_FAULT = frozenset({"no_main_text"})
"""Rejects that are no fault of the file: they end no strict source and do not count towards ``max_bad``."""


class Verified(msgspec.Struct, frozen=True):
    """One file that has its pinned digest. ``name`` is shown in errors; ``within`` begins the places of its documents."""

    path: str
    url: str
    name: str
    sha256: str
    size: int
    within: str = ""


class SplitSource(Task):
    """Split one source. ``fetched_at`` is UTC, ``YYYY-MM-DDTHH:MM:SSZ``."""

    source: Source
    files: tuple[Verified, ...]
    fetched_at: str
    part_docs: int = MAX_PART_DOCS


def split_source(task: SplitSource, out: Out, stop: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """Write the raw parts of a source and give its tally, its parts and what is known of each file.

    ``SourceError`` names the first document that cannot be read where the source is strict, or the share of them where it is above ``max_bad``.
    ``stop`` is asked between documents; True ends the work with ``Stopped``.
    """
    source = task.source
    writer = Writer(out, source.id, task.fetched_at, source.license_spdx, task.part_docs)
    several = len(task.files) > 1 and not any(f.within for f in task.files)
    receipts = []
    try:
        for index, file in enumerate(task.files):
            receipts.append(_add_file(source, file, index if several else 0, writer, stop))
    except BaseException:
        writer.abandon()
        raise
    tally = writer.close()
    _check_share(source, tally)
    return {"tally": msgspec.to_builtins(tally), "parts": msgspec.to_builtins(writer.parts), "files": msgspec.to_builtins(receipts)}


class Counted:
    """Pieces of bytes on their way, and how many bytes went by."""

    def __init__(self, pieces: Iterable[bytes]):
        self._pieces, self.bytes = pieces, 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.bytes += len(piece)
            yield piece


def documents_of(source: Source, path: Path, compression: str, chunks: Iterator[bytes]) -> Iterator[RawDocument | Reject]:
    """The documents of one file of the source, streaming; ``chunks`` are its decompressed bytes. ``ValueError`` when it cannot be read as a whole."""
    if source.format == "parquet":
        if compression != "none":
            raise ValueError("a compressed Parquet file is not read: unpack it and pin what is in it")
        return tables.parquet_documents(path, text_field=source.text_field, id_field=source.id_field, keep=source.keep)
    if source.format in ("csv", "tsv"):
        tabs = source.format == "tsv"
        return tables.csv_documents(chunks, tabs=tabs, text_field=source.text_field, id_field=source.id_field, keep=source.keep)
    if source.format == "warc":
        return webarchive.documents(chunks, id_field=source.id_field, keep=source.keep)
    return split.documents(
        chunks, source.format, separator=source.separator, text_field=source.text_field, id_field=source.id_field, keep=source.keep
    )


def _add_file(source: Source, file: Verified, index: int, writer: Writer, stop: Callable[[], bool]) -> FileReceipt:
    path = Path(file.path)
    rejected, digests = 0, bytearray()
    try:
        with path.open("rb") as f:
            head = f.read(32)
        compression = decompress.compression_of(head)
        content = Counted(decompress.decompress(_read(path)))
        for found in documents_of(source, path, compression, iter(content)):
            if stop():
                raise Stopped
            if isinstance(found, Reject):
                rejected += 1
                if source.on_bad == "stop" and found.reason not in NO_FAULT:
                    raise SourceError(source.id, f"{file.name}: {_unit(source)} {found.place} {REASONS[found.reason]}{_HINT}")
            else:
                digests += blake3(found.text.encode()).digest(DIGEST_BYTES)
            writer.add(found._replace(place=f"{file.within}{found.place}"), index, file.url)
    except ValueError as error:
        raise SourceError(source.id, f"{file.name}: {error}") from None
    note = decompress.disagreement(file.name, compression) or ""
    return FileReceipt(
        url=file.url,
        sha256=file.sha256,
        size=file.size,
        decompressed=file.size if compression == "none" else content.bytes,
        compression=compression,
        documents=len(digests) // DIGEST_BYTES,
        unique=distinct(digests),
        rejected=rejected,
        name=file.within.removesuffix(":"),
        note=note,
    )


def distinct(digests: bytes | bytearray) -> int:
    """How many different digests of ``DIGEST_BYTES`` stand one after another in ``digests``.

    >>> distinct(bytes(16) + bytes(15) + b"x" + bytes(16))
    2
    """
    halves = np.frombuffer(digests, np.uint64).reshape(-1, 2)
    ordered = halves[np.lexsort(halves.T)]
    return int(np.count_nonzero((ordered[1:] != ordered[:-1]).any(axis=1))) + bool(len(ordered))


def _check_share(source: Source, tally: Tally) -> None:
    bad = sum(n for reason, n in tally.rejected.items() if reason not in NO_FAULT)
    if bad > source.max_bad * tally.docs_in:
        reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(tally.rejected.items()))
        raise SourceError(
            source.id, f"{bad} of {tally.docs_in} documents cannot be read ({reasons}), more than max_bad = {source.max_bad:g} allows"
        )


def _unit(source: Source) -> str:
    return {"parquet": "row", "warc": "the record at byte"}.get(source.format, "line")


def _read(path: Path) -> Iterator[bytes]:
    with path.open("rb") as f:
        while chunk := f.read(READ_BYTES):
            yield chunk


def build(job: Job) -> Counts:
    """Split the files that ``job.params``, a ``SplitSource``, names."""
    (value,) = job.map(split_source, [job.params])
    return {job.params.source.id: msgspec.convert(value["tally"], Tally)}


_HINT = '; correct the file, or set on_bad = "reject" to leave such documents out'

STAGE = Stage("fetch", version=SPLIT_VERSION, build=build, names_output=fetch_identity)
