"""Documents from tables: a column of a CSV, TSV or Parquet file."""

import codecs
import csv
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpusbuild.split import MAX_DOCUMENT_BYTES, RawDocument, Reject

BATCH_ROWS = 1000
BATCH_BYTES = 64 * 1000 * 1000


def csv_documents(
    chunks: Iterable[bytes], *, tabs: bool, text_field: str, id_field: str | None = None, keep: Sequence[str] = ()
) -> Iterator[RawDocument | Reject]:
    r"""One document for each record behind the first, which names the columns. Places are the 1-based line on which a record starts.

    CSV is RFC 4180: commas, and double quotes around what holds commas, quotes or line ends. TSV has no quotes: a tab and a line end always divide.
    A record that is not UTF-8, has another number of fields than there are columns, or whose quotes do not close, is a reject.

    >>> list(csv_documents([b'n,text\n1,"a\nb"\n2,c\n'], tabs=False, text_field="text"))
    [RawDocument(place='2', text='a\nb', id=None, meta=None), RawDocument(place='4', text='c', id=None, meta=None)]
    """
    csv.field_size_limit(MAX_DOCUMENT_BYTES)
    lines = _lines(chunks)
    reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True) if tabs else csv.reader(lines, strict=True)
    try:
        header = next(reader, None)
    except csv.Error as error:
        raise ValueError(f"line 1 names no columns ({error})") from None
    if header is None:
        raise ValueError("the file is empty: its first line must name the columns")
    columns = {name: index for index, name in reversed(list(enumerate(header)))}
    for wanted in (text_field, *([id_field] if id_field else []), *keep):
        _check_column(wanted, columns)
    while True:
        place = str(reader.line_num + 1)
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Reject(place, "too_long" if "field limit" in str(error) else "not_csv")
            continue
        if not record:
            continue
        yield _record(place, record, columns, text_field, id_field, keep)


def parquet_documents(
    path: Path, *, text_field: str, id_field: str | None = None, keep: Sequence[str] = ()
) -> Iterator[RawDocument | Reject]:
    """One document for each row. Its place is ``<row group>/<row in it>``, both counted from 0."""
    for batch in parquet_batches(path, text_field, id_field, keep):
        yield from batch_documents(batch, id_field, keep)


def parquet_batches(path: Path, text_field: str, id_field: str | None, keep: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The columns that documents are made of, some rows at a time, in order: row group, row in it, text in bytes, the id where there is one, then ``keep``.

    The columns are named by their number. ``ValueError`` for a file that cannot be read or has other columns.
    """
    try:
        file = pq.ParquetFile(path)
        names = {name: index for index, name in enumerate(file.schema_arrow.names)}
        columns = [text_field, *([id_field] if id_field else []), *keep]
        for name in columns:
            _check_column(name, names)
        kind = file.schema_arrow.field(text_field).type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)):
            raise ValueError(f"the column {text_field} holds {kind}, not text")
        for group in range(file.num_row_groups):
            row = 0
            about = file.metadata.row_group(group)
            rows = max(1, min(BATCH_ROWS, BATCH_BYTES * about.num_rows // max(1, about.total_byte_size)))
            for batch in file.iter_batches(rows, row_groups=[group], columns=list(dict.fromkeys(columns)), use_threads=False):
                texts, *others = (_plain_column(batch.column(name)) for name in columns)
                where = [pa.array(np.full(batch.num_rows, group, np.int64)), pa.array(np.arange(row, row + batch.num_rows, dtype=np.int64))]
                arrays = [*where, texts.cast(pa.large_binary()), *others]
                yield pa.record_batch(arrays, names=[str(n) for n in range(len(arrays))])
                row += batch.num_rows
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        if "Failed to launch" in str(error):  # a thread, for which there was no memory
            raise MemoryError(str(error)) from None
        raise ValueError(f"is no sound Parquet file ({str(error).splitlines()[0]})") from None


def text_lengths(batch: pa.RecordBatch) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """How many bytes each text of ``parquet_batches`` has."""
    texts = batch.column(2)
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.diff(offsets)


def batch_documents(batch: pa.RecordBatch, id_field: str | None, keep: Sequence[str]) -> Iterator[RawDocument | Reject]:
    """The documents of one of ``parquet_batches``."""
    groups, rows, texts, *others = (column.to_pylist() for column in batch.columns)
    ids, kept = (others[0], others[1:]) if id_field else ([None] * len(texts), others)
    for row, (data, id) in enumerate(zip(texts, ids, strict=True)):
        place = f"{groups[row]}/{rows[row]}"
        if data is None:
            yield Reject(place, "no_text")
        elif len(data) > MAX_DOCUMENT_BYTES:
            yield Reject(place, "too_long")
        elif id_field and (isinstance(id, bool) or not isinstance(id, str | int)):
            yield Reject(place, "no_id")
        else:
            try:
                text = data.decode()
            except UnicodeDecodeError:
                yield Reject(place, "not_utf8")
                continue
            meta = {name: _plain(column[row]) for name, column in zip(keep, kept, strict=True) if column[row] is not None}
            yield RawDocument(place, text, None if id is None else str(id), meta or None)


def _plain_column(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _record(
    place: str, record: list[str], columns: dict[str, int], text_field: str, id_field: str | None, keep: Sequence[str]
) -> RawDocument | Reject:
    if any("\udc80" <= c <= "\udcff" for field in record for c in field):
        return Reject(place, "not_utf8")
    if len(record) <= max(columns.values()):
        return Reject(place, "fields")
    meta = {name: record[columns[name]] for name in keep}
    return RawDocument(place, record[columns[text_field]], record[columns[id_field]] if id_field else None, meta or None)


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Lines with their ends, cut at LF only, bytes that are no UTF-8 as lone surrogates, without a byte order mark."""
    held, first = b"", True
    for chunk in chunks:
        if first and len(held + chunk) < 3:
            held += chunk
            continue
        data = held + chunk
        if first:
            data, first = data.removeprefix(codecs.BOM_UTF8), False
        *whole, held = data.split(b"\n")
        for line in whole:
            yield line.decode(errors="surrogateescape") + "\n"
        if len(held) > MAX_DOCUMENT_BYTES * 2:
            raise ValueError(f"a line is longer than {MAX_DOCUMENT_BYTES * 2} bytes")
    if held:
        yield held.decode(errors="surrogateescape")


def _check_column(name: str, columns: dict[str, int]) -> None:
    if name not in columns:
        near = get_close_matches(name, columns, 1)
        raise ValueError(f"has no column {name!r}; " + (f"did you mean {near[0]!r}?" if near else f"its columns are {', '.join(columns)}"))


def _plain(value: Any) -> Any:
    """A value as JSON can say it."""
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value.hex() if isinstance(value, bytes) else str(value)
