"""What a text is to a finished build: a document of it, like one of it, or none; and what its filters say of the text."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusbuild import language, minhash, quality, raw
from corpusbuild.arrow import read_table
from corpusbuild.explain import Built, Document
from corpusbuild.law import similarities
from corpusbuild.minhash import SignParams, Signs
from corpusbuild.parts import part_of, read_arrow
from corpusbuild.quality import Failure, FilterParams
from corpusbuild.signfile import agreeing, paragraph_counts, read_sets
from corpusbuild.text import normalize, paragraphs

NEAREST = 5
TEXTS_READ = 3  # parts whose texts are read to verify a candidate: each is up to 64 MB
RAW_READ = 2  # raw parts that are read to find a document that was dropped


@dataclass(frozen=True)
class Near:
    """A document that shares bands with the text; ``similarity`` is the true one of their shingle sets, None where it was not computed."""

    document: Document
    bands: int
    similarity: float | None
    same_text: bool


@dataclass(frozen=True)
class Likeness:
    """``sharded`` are ids whose text in the shards is the given one, where no filtered text is; ``near`` the documents most alike, best first; ``candidates`` how many share a band.

    ``repeated`` are (paragraph of the text, counted from 1, a document that holds it too). ``judged`` is by the filters of each source: sources, failures.
    ``dropped`` are documents of this text that the filters dropped; ``uncompared`` were dropped with the same measure and not read.
    """

    text: str
    shingles: int
    sharded: tuple[str, ...]
    near: tuple[Near, ...]
    candidates: int
    repeated: tuple[tuple[int, Document], ...]
    n_paragraphs: int
    judged: tuple[tuple[tuple[str, ...], tuple[Failure, ...]], ...]
    dropped: tuple[Document, ...]
    uncompared: int
    signed: SignParams | None


def likeness(built: Built, given: str) -> Likeness:
    """Compare a text, as it would be read from a source, with everything that passed the filters."""
    text = normalize(given)
    params = _sign_params(built)
    near: list[Near] = []
    repeated: list[tuple[int, Document]] = []
    candidates = shingles = 0
    where = paragraphs(text)
    if params is not None:
        signs = minhash.signs([text], params)
        shingles = int(signs.shingles[0])
        near, candidates = _nearest(built, text, signs, params)
        repeated = list(_repeated(built, [text[start:end] for start, end in where], params))
    judged = tuple(_judged(built, text))
    dropped, uncompared = _dropped(built, text, judged)
    return Likeness(
        text=text,
        shingles=shingles,
        sharded=() if dropped or any(n.same_text for n in near) else tuple(_sharded(built, {given, text})),
        near=tuple(near),
        candidates=candidates,
        repeated=tuple(repeated),
        n_paragraphs=len(where),
        judged=judged,
        dropped=tuple(dropped),
        uncompared=uncompared,
        signed=params,
    )


def _sign_params(built: Built) -> SignParams | None:
    step = next((s for s in built.record.steps if s.stage == "sign"), None)
    return msgspec.convert(step.params, SignParams) if step else None


def _nearest(built: Built, text: str, own: Signs, params: SignParams) -> tuple[list[Near], int]:
    """The documents that are most alike of those that share a band, and how many share one."""
    if not own.shingles[0]:
        return [], 0
    found: list[tuple[int, int, str, int]] = []  # bands shared, negated; source; part; row
    for source, part, path in _signed(built, ".signs.arrow"):
        shared = agreeing(path, own.bands[:, 0])
        found += [(-int(shared[row]), source, part, row) for row in np.flatnonzero(shared).tolist()]
    found.sort()
    read: dict[tuple[int, str], Any] = {}
    mine = minhash.shingle_sets([text], params.shingle)
    near = []
    for bands, source, part, row in found[: 4 * NEAREST]:
        values = _row(built, source, part, row)
        similarity, same = None, False
        if (source, part) in read or len(read) < TEXTS_READ:
            if (source, part) not in read:
                read[source, part] = read_arrow(_documents(built, source, part), ["text"]).column("text")
            theirs_text = read[source, part][row].as_py()
            their_set = minhash.shingle_sets([theirs_text], params.shingle)
            similarity = float(similarities(mine, np.array([0]), their_set, np.array([0]), 0.0)[0])
            same = theirs_text == text
        near.append(Near(Document(source=source, part=part, row=row, **values), -bands, similarity, same))
    near.sort(key=lambda n: (not n.same_text, -(n.similarity if n.similarity is not None else -1.0)))
    return near[:NEAREST], len(found)


def _repeated(built: Built, pieces: list[str], params: SignParams) -> Iterator[tuple[int, Document]]:
    """For each paragraph the first document in plan order that holds an equal one.

    A document of one paragraph is an equal one only if their shingle sets are equal, which its signs tell; of the others the texts are searched.
    """
    wanted = {piece: number for number, piece in enumerate(pieces, 1)}
    signs = minhash.signs(list(wanted), params)
    sets = dict(zip(wanted, zip(signs.hi, signs.lo, strict=True), strict=True))
    for source, part, path in _signed(built, ".signs.arrow"):
        if not wanted:
            return
        (hi, lo, _), several = read_sets(path), np.flatnonzero(paragraph_counts(path) > 1)
        alike = {piece: np.flatnonzero((hi == sets[piece][0]) & (lo == sets[piece][1])) for piece in wanted}
        if not len(several) and not any(map(len, alike.values())):
            continue
        column = read_arrow(_documents(built, source, part), ["text"]).column("text")
        longer = column.take(pa.array(several)) if len(several) < len(column) else column
        for piece, number in list(wanted.items()):
            holding = several[np.flatnonzero(pc.match_substring(longer, piece).to_numpy())] if len(several) else several
            for row in np.union1d(holding, alike[piece]).tolist():
                text = column[row].as_py()
                if any(text[start:end] == piece for start, end in paragraphs(text)):
                    del wanted[piece]
                    yield number, Document(source=source, part=part, row=row, **_row(built, source, part, row))
                    break


def _sharded(built: Built, texts: set[str]) -> Iterator[str]:
    """The ids of documents whose text in the shards is one of these, as where personal data was replaced or a paragraph cut."""
    entry, digests = built.entry("ledger"), [sha256(text.encode()).digest() for text in texts]
    for path in sorted(entry.glob("shard-*.parquet")) if entry else ():
        column = read_table(path, ["sha256"]).column("sha256")
        rows = {pc.index(column, pa.scalar(digest, pa.binary())).as_py() for digest in digests} - {-1}
        for row in sorted(rows):
            yield read_table(path, ["id"]).column("id")[row].as_py()


def _judged(built: Built, text: str) -> Iterator[tuple[tuple[str, ...], tuple[Failure, ...]]]:
    """What the filters of each source say of the text; sources that say the same stand together. What a person added is not asked."""
    verdicts: dict[tuple[Failure, ...], list[str]] = {}
    for source in built.sources:
        step = built.record.step(f"filter:{source['id']}")
        if step is None:
            continue
        failures = [Failure("empty", 0.0, 1.0)] if not text else []
        if text and step.params["limits"] is not None:
            limits = msgspec.convert(step.params["limits"] | {"ppl": None, "rules": ()}, FilterParams)
            failures = quality.failures(text, *language.identifier(limits.lang_model)(text), limits)
        verdicts.setdefault(tuple(failures), []).append(source["id"])
    for failures_of, sources in verdicts.items():
        yield tuple(sources), failures_of


def _dropped(built: Built, text: str, judged: tuple[tuple[tuple[str, ...], tuple[Failure, ...]], ...]) -> tuple[list[Document], int]:
    """The documents of this text among those that the filters dropped, and how many that measured the same were not read for it.

    Their text stands in the raw parts only; so those are read of which a document broke the same rules with the same value.
    """
    found: list[Document] = []
    uncompared = parts_read = 0
    for source, failures in ((s, failures) for sources, failures in judged if failures for s in sources):
        index, entry, first = built.index(source), built.entry(f"fetch:{source}"), failures[0]
        if index is None or entry is None:
            continue
        for part in built.parts(index):
            path = built.table("filter", index, part)
            assert path is not None
            table = read_table(path)
            same = pc.and_(pc.equal(table.column("rule"), first.rule), pc.equal(table.column("value"), float(first.value)))
            rows = [r for r in table.filter(same).to_pylist() if r["rules"][: len(failures)] == [f.rule for f in failures]]
            if not rows:
                continue
            if parts_read == RAW_READ:
                uncompared += len(rows)
                continue
            parts_read += 1
            at = {(row["file"], row["place"]): row for row in rows}
            for line in raw.read_part(entry / f"{part}{raw.RAW_SUFFIX}"):
                row = at.get((line.file, line.place))
                if row is not None and normalize(line.text) == text:
                    found.append(Document(index, part, row["id"], line.file, line.place, None, row))
    return found, uncompared


def _signed(built: Built, suffix: str) -> Iterator[tuple[int, str, Path]]:
    for source in range(len(built.sources)):
        entry = built.of_source("sign", source)
        for path in sorted(entry.glob(f"*{suffix}")) if entry else ():
            yield source, part_of(path), path


def _documents(built: Built, source: int, part: str) -> Path:
    filtered = built.of_source("filter", source)
    assert filtered is not None
    return filtered / f"{part}.docs.arrow"


def _row(built: Built, source: int, part: str, row: int) -> dict[str, Any]:
    values: dict[str, Any] = read_arrow(_documents(built, source, part), ["id", "file", "place"]).slice(row, 1).to_pylist()[0]
    return values
