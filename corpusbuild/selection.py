"""Documents of a build to look at: those in the shards, or those that a rule dropped, a few of them in order or drawn by a seed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from blake3 import blake3

from corpusbuild import raw
from corpusbuild.arrow import read_table
from corpusbuild.errors import ConfigError
from corpusbuild.explain import TABLES, Built, Row, by_id
from corpusbuild.parts import read_arrow

REMOVING = ("filter", *TABLES)


@dataclass(frozen=True)
class Shown:
    """A document with its text. ``values`` are the columns of its shard or of the table that removed it; ``rival`` is the text of the document in whose
    favour it went, with that one's id in ``values["survivor"]``."""

    id: str
    source: str
    url: str
    text: str
    values: Row
    rival: str | None = None


def kept(built: Built, source: str | None, n: int, seed: int | None) -> list[Shown]:
    """At most ``n`` documents of the shards, of one source or of all."""
    entry = built.entry("ledger")
    assert entry is not None
    places = ((path, row, id) for path in sorted(entry.glob("shard-*.parquet")) for row, id in _ids(path, source))
    chosen = _choose(places, n, seed, lambda place: place[2])
    wanted: dict[Path, list[int]] = {}
    for path, row, _ in chosen:
        wanted.setdefault(path, []).append(row)
    found = {(path, row): values for path, rows in wanted.items() for row, values in _shard_rows(path, set(rows))}
    return [
        Shown(id, values["source_id"], values["url"], values["text"], values)
        for (path, row, id) in chosen
        for values in [found[(path, row)]]
    ]


def dropped(built: Built, rule: str, source: str | None, n: int, seed: int | None) -> list[Shown]:
    """At most ``n`` documents that a rule dropped: ``lang``, or ``filter.lang``; a stage alone stands for all its rules.

    ``ConfigError`` when nothing was dropped by what is named, with what was.
    """
    rows = _choose(_removals(built, rule, source), n, seed, lambda item: str(item[2]["id"]))
    if not rows:
        there = sorted({f"{row['stage']}.{row['rule']}" for _, _, row in _removals(built, "", source)})
        raise ConfigError(
            f"no document was dropped by {rule}"
            + (f" from {source}" if source else "")
            + f"; there is {', '.join(there) or 'nothing dropped'}"
        )
    texts = _texts(built, rows)
    return [_shown(built, index, row, texts[(index, part, row["file"], row["place"])]) for index, part, row in rows]


def _shown(built: Built, index: int, row: Row, text: str) -> Shown:
    rival = by_id(built, row["survivor"]) if row.get("survivor") else None
    other = None
    if rival is not None and rival.row is not None:
        other = str(_document(built, rival.source, rival.part)["text"][rival.row].as_py())
    return Shown(row["id"], row["source"], f"{built.sources[index]['urls'][row['file']]}#{row['place']}", text, row, other)


def _choose(items: Iterator[Any], n: int, seed: int | None, id: Callable[[Any], str]) -> list[Any]:
    """The first ``n``, or, by a seed, the ``n`` whose ids have the smallest keyed digests: the same ones on any machine."""
    if seed is None:
        return list(islice(items, n))
    key = seed.to_bytes(32, "little")
    return nsmallest(n, items, key=lambda item: blake3(id(item).encode(), key=key).digest(16))


def _ids(path: Path, source: str | None) -> Iterator[tuple[int, str]]:
    row = 0
    for batch in pq.ParquetFile(path).iter_batches(columns=["id", "source_id"]):
        for id, of in zip(batch["id"].to_pylist(), batch["source_id"].to_pylist(), strict=True):
            if source in (None, of):
                yield row, id
            row += 1


def _shard_rows(path: Path, rows: set[int]) -> Iterator[tuple[int, Row]]:
    first = 0
    file = pq.ParquetFile(path)
    for group in range(file.num_row_groups):
        n = file.metadata.row_group(group).num_rows
        here = sorted(row for row in rows if first <= row < first + n)
        if here:
            table = file.read_row_group(group).take([row - first for row in here])
            yield from zip(here, table.to_pylist(), strict=True)
        first += n


def _removals(built: Built, rule: str, source: str | None) -> Iterator[tuple[int, str, Row]]:
    """The rows of removals, (index of the source, part, row), of those whose rule, stage or both ``rule`` names; of all for ""."""
    for index, declared in enumerate(built.sources):
        if source not in (None, declared["id"]):
            continue
        for part in built.parts(index):
            for stage in REMOVING:
                path = built.table(stage, index, part)
                for row in read_table(path).to_pylist() if path is not None and path.exists() else ():
                    if rule in ("", row["rule"], row["stage"], f"{row['stage']}.{row['rule']}"):
                        yield index, part, row


def _texts(built: Built, rows: list[tuple[int, str, Row]]) -> dict[tuple[int, str, int, str], str]:
    """The texts of removed documents, by (source, part, file, place): as filtered, or as they came where filter dropped them."""
    texts: dict[tuple[int, str, int, str], str] = {}
    of_part: dict[tuple[int, str], list[Row]] = {}
    for index, part, row in rows:
        of_part.setdefault((index, part), []).append(row)
    for (index, part), here in of_part.items():
        filtered = [row for row in here if row["row"] is not None]
        documents = _document(built, index, part)["text"] if filtered else None
        for row in filtered:
            assert documents is not None
            texts[(index, part, row["file"], row["place"])] = documents[row["row"]].as_py()
        wanted = {(row["file"], row["place"]) for row in here if row["row"] is None}
        fetched = built.of_source("fetch", index)
        for document in raw.read_part(fetched / f"{part}{raw.RAW_SUFFIX}") if wanted and fetched else ():
            if (document.file, document.place) in wanted:
                texts[(index, part, document.file, document.place)] = document.text
    return texts


def _document(built: Built, source: int, part: str) -> Any:
    filtered = built.of_source("filter", source)
    assert filtered is not None
    return read_arrow(filtered / f"{part}.docs.arrow", ["text"])
