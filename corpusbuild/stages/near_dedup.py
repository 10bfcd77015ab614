"""Near dedup: a document goes in favour of an earlier, kept one that shares enough of its shingles. The law itself is in ``law.py``.

Documents are known by ordinals, which count through the plan. Between tasks travel fixed-width records in scratch files, read a part or a partition
at a time; only the one task that decides holds something of every document, a few bytes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Meta
from numpy.typing import NDArray

from corpusbuild import law, minhash, placement, removals, repeats, spool, unionfind
from corpusbuild.arrow import read_table
from corpusbuild.law import Buckets
from corpusbuild.minhash import I64, U64, Ragged, SignParams
from corpusbuild.model import Counts, Record, Tally, add_counts
from corpusbuild.parts import read_arrow
from corpusbuild.placement import Part
from corpusbuild.signfile import UNKEPT, read_band, read_sets, write_signs
from corpusbuild.stage import Job, Out, Stage, Task
from corpusbuild.texts import Cuts, Texts, remaining

CLUSTERS = pa.schema(
    [
        ("row", pa.int32()),
        ("id", pa.string()),
        ("cluster", pa.string()),  # the id of the first document, in plan order, of those that duplicates connect
    ]
)
"""``*.clusters.parquet``: one row for a document, kept or not, that is connected with another."""

SETTLED = pa.schema([("row", pa.int32()), ("id", pa.string()), ("survivor", pa.string())])
"""``*.settled.parquet``: documents that exact_dedup removed in favour of one that went here, each with the document that stays instead."""

ORDINAL = np.dtype("<u8")
PAIR = np.dtype("<u8")  # in one number: the later document's row in its part (20 bits are plenty) and the earlier's ordinal (44 bits)
MEMBER = np.dtype([("key", "<u8"), ("at", "<u8")])
VERIFIED = np.dtype([("later", "<u8"), ("earlier", "<u8"), ("similarity", "<f8")])
GONE = np.dtype([("at", "<u8"), ("survivor", "<u8"), ("similarity", "<f8")])
CONNECTED = np.dtype([("at", "<u8"), ("first", "<u8")])

EARLIER_BITS = np.uint64(44)
WORKING_BYTES = 8 * MEMBER.itemsize  # what filling a bucket holds for a member
BATCH = 1 << 20  # members worked on at once
GROUP = 1 << 19  # documents of parts that give their keys together, about
CELL = 1 << 18  # members of a cell, and of the cells of a task, about: few enough for the nearer caches


class NearParams(Record):
    sign: SignParams = SignParams()
    jaccard_threshold: Annotated[float, Meta(gt=0, le=1, description="Jaccard similarity from which a document is a near duplicate.")] = 0.8
    max_bucket: Annotated[
        int, Meta(ge=1, description="How many members of a bucket, the first ones, each later member is compared with.")
    ] = 64


class Shape(Record):
    """How the work is cut; no result depends on it. Digests and the keys of each band fall into ``2**bits`` partitions, and each such partition
    of each band is a cell, of which a task fills the buckets of ``cells``."""

    digest_bits: int
    key_bits: int
    cells: int

    def name(self, kind: str, index: int) -> str:
        return f"{kind}-{self.digest_bits}-{self.key_bits}-{self.cells}-{index:05d}"


class Step(Task):
    """A unit of work: one part, one partition of the digests, or one run of cells. ``index`` says which."""

    scratch: str
    layout: str
    index: int
    shape: Shape
    params: NearParams

    def parts(self) -> tuple[Part, ...]:
        return placement.load(self.scratch, self.layout)

    def file(self, kind: str, index: int, suffix: str = "") -> Path:
        """A scratch file of another task."""
        return Path(self.scratch, self.shape.name(kind, index) + suffix)

    def links(self, part: int) -> NDArray[Any]:
        """The documents of a part whose shingle set is that of an earlier one."""
        return repeats.links(self.file("alive", part), [self.file("equal", i) for i in range(1 << self.shape.digest_bits)], part)

    def candidates(self, part: int, suffix: str, dtype: np.dtype[Any]) -> Iterator[U64]:
        """What all tasks that looked for candidates say of a part."""
        for i in range(_tasks(self.shape, self.params)):
            yield from spool.runs(self.file("candidates", i, suffix), part, dtype)

    def gone(self, part: int) -> NDArray[Any]:
        """The documents of a part that go, in plan order, each with its survivor."""
        return spool.read(self.file("decided", 0, ".gone"), part, GONE)

    def sets(self, part: int) -> tuple[U64, Ragged]:
        """The ordinals of a part's candidates, and their shingle sets, mapped into memory."""
        at, offsets = (np.asarray(np.load(self.file("sets", part, suffix), mmap_mode="r")) for suffix in (".at.npy", ".offsets.npy"))
        flat = np.asarray(np.memmap(self.file("sets", part, ".flat"), "<u8", "r")) if offsets[-1] else np.empty(0, np.uint64)
        return at, Ragged(flat, offsets)


def build(job: Job) -> Counts:
    params: NearParams = job.params
    parts = placement.lay_out(job.inputs)
    layout, shape = placement.share(job, parts), _shape(placement.documents(parts), params, job.memory)
    own = [i for i, part in enumerate(parts) if not part.earlier]

    def every(fn: Callable[[Any, Out], Any], names: Iterable[tuple[int, str]]) -> list[Any]:
        common: dict[str, Any] = {"scratch": str(job.scratch), "layout": layout, "shape": shape, "params": params}
        return job.map(fn, [Step(name=name, index=i, **common) for i, name in names])

    def named(kind: str, indices: Iterable[int]) -> Iterator[tuple[int, str]]:
        return ((i, shape.name(kind, i)) for i in indices)

    alive = every(sign_alive, named("alive", range(len(parts))))
    every(match_digests, named("equal", range(1 << shape.digest_bits)))
    every(spread_keys, named("keys", range(len(_groups(parts)))))
    passed_over = every(find_candidates, named("candidates", range(_tasks(shape, params))))
    every(collect_sets, named("sets", range(len(parts))))
    verified = every(verify, named("verified", own))
    every(decide, named("decided", [0]))
    gone = every(write_part, ((i, parts[i].name) for i in own))

    counts: list[Counts] = [{entry.source: Tally() for entry in job.inputs["signs"]}]
    for i, also, dropped in zip(own, verified, gone, strict=True):
        counts.append({parts[i].source: Tally(docs_in=alive[i], kept=alive[i] - sum(dropped.values()), dropped=dropped, also=also)})
    counts += [{source: Tally(also=also)} for value in passed_over for source, also in value.items()]
    return add_counts(counts)


def sign_alive(task: Step, out: Out) -> int:
    """Sign again the documents of a part that lost a paragraph, and deal out the digests of all that are still there and have words."""
    part, params = task.parts()[task.index], task.params.sign
    alive, cuts = placement.alive(part), _cuts(part)
    cut: I64 = np.unique(cuts.rows)
    cut = cut[alive[cut]]
    again = minhash.join([minhash.sign_texts(texts, params) for texts in _remaining(part, cut, cuts)], params.bands)
    write_signs(out.scratch(".signs.arrow"), {"row": cut}, again)
    hi, lo, shingles = read_sets(Path(part.signs))
    hi[cut], lo[cut], shingles[cut] = again.hi, again.lo, again.shingles
    rows = np.flatnonzero(alive & (shingles > 0))
    repeats.spread([repeats.digests(hi[rows], lo[rows], rows.astype(np.uint64) + np.uint64(part.first))], task.shape.digest_bits, out)
    with out.scratch(".rows.npy").open("wb") as file:
        np.save(file, rows)
    return int(alive.sum())


def match_digests(task: Step, out: Out) -> None:
    parts = task.parts()
    repeats.match([task.file("alive", i) for i in range(len(parts))], task.index, np.array([part.first for part in parts], np.uint64), out)


def spread_keys(task: Step, out: Out) -> None:
    """Deal out the keys of a group of parts to the cells. Of documents with equal sets only the first takes part."""
    parts, bits = task.parts(), task.shape.key_bits
    group = [_Keys(task, parts[i], i) for i in _groups(parts)[task.index]]
    members = np.empty(sum(len(keys.rows) for keys in group), MEMBER)
    members["at"] = np.concatenate([keys.rows.astype(np.uint64) + np.uint64(keys.part.first) for keys in group])
    with spool.writing(out.scratch("")) as cells:
        for band in range(task.params.sign.bands):
            members["key"] = np.concatenate([keys.of(band) for keys in group])
            cells.add(np.uint64(band << bits) | spool.partition_of(members["key"] << UNKEPT, bits), members)


class _Keys:
    """The keys of those documents of a part that take part."""

    def __init__(self, task: Step, part: Part, index: int):
        self.part = part
        self._again = task.file("alive", index, ".signs.arrow")
        self._cut = read_arrow(self._again).column("row").to_numpy()
        rows = np.load(task.file("alive", index, ".rows.npy"))
        first = np.ones(part.docs, np.bool_)
        first[(task.links(index)["at"] - np.uint64(part.first)).astype(np.int64)] = False
        self.rows: I64 = rows[first[rows]]

    def of(self, band: int) -> U64:
        keys = read_band(Path(self.part.signs), band)
        if len(self._cut):
            keys = keys.copy()
            keys[self._cut] = read_band(self._again, band)
        return keys[self.rows]


def find_candidates(task: Step, out: Out) -> dict[str, dict[str, int]]:
    """Fill the buckets of some cells and spool, by part, who is to be compared. Gives by source how much was passed over.

    Documents of earlier corpora stand first in every bucket, and are not compared among themselves.
    """
    parts, cap = task.parts(), task.params.max_bucket
    before = placement.earlier_documents(parts)
    firsts, last = np.array([part.first for part in parts], np.uint64), task.params.sign.bands << task.shape.key_bits
    not_compared, capped = np.zeros((2, len(parts)), np.int64)
    keys = [spool.Reader(task.file("keys", i), MEMBER) for i in range(len(_groups(parts)))]
    with spool.writing(out.scratch(".pairs")) as pairs, spool.writing(out.scratch(".involved")) as involved:
        for cell in range(task.index * task.shape.cells, min((task.index + 1) * task.shape.cells, last)):
            for new, found in _filled(keys, cell, cap):
                where = placement.part_indices(parts, new.at)
                np.add.at(not_compared, where, np.maximum(new.rank - cap, 0))
                np.add.at(capped, where, new.rank == cap)
                for later, earlier in found:
                    if before:
                        later, earlier = later[later >= before], earlier[later >= before]
                    where = placement.part_indices(parts, later)
                    pairs.add(where, (later - firsts[where]) << EARLIER_BITS | earlier)
                    both = _sorted_set([later, earlier])
                    involved.add(placement.part_indices(parts, both), both)
    passed: dict[str, dict[str, int]] = {}
    for part, n_pairs, n_buckets in zip(parts, not_compared.tolist(), capped.tolist(), strict=True):
        if part.earlier:
            continue
        so_far = passed.setdefault(part.source, {"not_compared": 0, "buckets_capped": 0})
        so_far["not_compared"] += n_pairs
        so_far["buckets_capped"] += n_buckets
    return passed


def _filled(keys: Sequence[spool.Reader], cell: int, cap: int) -> Iterator[tuple[law.Members, Iterator[tuple[U64, U64]]]]:
    """Fill the buckets of one cell, some members at a time."""
    crowd = law.Crowd(sum(group.count(cell) for group in keys))
    for group in keys:
        for run in group.runs(cell):
            crowd.count(run["key"])
    buckets = Buckets(cap)
    crowds = (run[crowd.holds(run["key"])] for group in keys for run in group.runs(cell))
    for members in spool.gathered(crowds, BATCH):
        yield buckets.add(members["key"], members["at"])


def collect_sets(task: Step, out: Out) -> None:
    """The shingle sets of the documents of a part that are candidates."""
    part = task.parts()[task.index]
    at = _distinct(task.candidates(task.index, ".involved", ORDINAL))
    counts = [np.zeros(1, np.int64)]
    with out.scratch(".flat").open("wb") as flat:
        for texts in _remaining(part, (at - np.uint64(part.first)).astype(np.int64), _cuts(part)):
            sets = minhash.set_texts(texts, task.params.sign.shingle)
            flat.write(sets.flat.astype("<u8", copy=False).data)
            counts.append(np.diff(sets.offsets))
    for suffix, column in ((".at.npy", at), (".offsets.npy", np.cumsum(np.concatenate(counts)))):
        with out.scratch(suffix).open("wb") as file:
            np.save(file, column)


def verify(task: Step, out: Out) -> dict[str, int]:
    """The true similarity of every candidate pair whose later document is of this part; those that reach the threshold are written."""
    parts, threshold = task.parts(), task.params.jaccard_threshold
    pairs = _distinct(task.candidates(task.index, ".pairs", PAIR))
    later = (pairs >> EARLIER_BITS) + np.uint64(parts[task.index].first)
    earlier = pairs & ((np.uint64(1) << EARLIER_BITS) - np.uint64(1))
    own_at, own = task.sets(task.index)
    similarity, where = np.zeros(len(pairs)), placement.part_indices(parts, earlier)
    for index in np.unique(where).tolist():
        here, (at, theirs) = where == index, task.sets(index)
        mine, others = np.searchsorted(own_at, later[here]), np.searchsorted(at, earlier[here])
        similarity[here] = law.similarities(own, mine, theirs, others, threshold)
    same = similarity >= threshold
    with out.scratch(".npy").open("wb") as file:
        np.save(file, _records(VERIFIED, later[same], earlier[same], similarity[same]))
    return {"candidates": len(pairs), "verified": int(same.sum()), "not_compared": 0, "buckets_capped": 0}


def decide(task: Step, out: Out) -> None:
    """Decide, in plan order, who goes and in whose favour, and who is connected with whom."""
    parts = task.parts()
    gone, connected = np.zeros((2, placement.documents(parts)), np.bool_)
    parents = unionfind.singles(len(gone))
    decided = [np.empty(0, GONE)]
    for i, part in enumerate(parts):
        verified = np.load(task.file("verified", i, ".npy")) if not part.earlier else np.empty(0, VERIFIED)
        decided.append(_records(GONE, *law.decide(verified["later"], verified["earlier"], verified["similarity"], gone)))
        _connect(parents, connected, verified["later"], verified["earlier"])
    first_gone = np.concatenate(decided)
    with spool.writing(out.scratch(".gone")) as all_gone:
        for i, part in enumerate(parts):
            links = task.links(i) if not part.earlier else np.empty(0, repeats.LINKS)
            _connect(parents, connected, links["at"], links["first"])
            both = np.concatenate([decided[i + 1], _follow(links, first_gone, gone)])
            all_gone.add(np.full(len(both), i), both[np.argsort(both["at"])])
    with spool.writing(out.scratch(".connected")) as all_connected:
        for i, part in enumerate(parts):
            at = part.first + np.flatnonzero(connected[part.first : part.first + part.docs])
            all_connected.add(np.full(len(at), i), _records(CONNECTED, at, unionfind.roots(parents, at)))


def write_part(task: Step, out: Out) -> dict[str, int]:
    """Write who of a part went, and who is connected. Gives how many went by which rule."""
    parts = task.parts()
    part = parts[task.index]
    gone = task.gone(task.index)
    connected = spool.read(task.file("decided", 0, ".connected"), task.index, CONNECTED)
    clusters = placement.ids(parts, connected["first"])
    dropped = removals.write(
        out.path(".removed.parquet"), part, gone["at"] - np.uint64(part.first), stage=STAGE.name, rule="jaccard",
        against=gone["survivor"] < placement.earlier_documents(parts), value=gone["similarity"], threshold=np.full(len(gone), task.params.jaccard_threshold), similarity=gone["similarity"],
        survivor=placement.ids(parts, gone["survivor"]), cluster=clusters.take(pa.array(np.searchsorted(connected["at"], gone["at"]))),
    )  # fmt: skip
    rows = (connected["at"] - np.uint64(part.first)).astype(np.int32)
    table = pa.table({"row": rows, "id": placement.ids(parts, connected["at"]), "cluster": clusters}, schema=CLUSTERS)
    pq.write_table(table, out.path(".clusters.parquet"), compression="zstd")
    if part.exact_survivors is not None:
        pq.write_table(_settled(task, parts, part), out.path(".settled.parquet"), compression="zstd")
    return dropped


def _settled(task: Step, parts: tuple[Part, ...], part: Part) -> pa.Table:
    """Whom exact_dedup removed in favour of a document that then went here: who stays instead."""
    exact = read_arrow(Path(part.exact_survivors or ""))
    rows, stays = exact.column("row").to_numpy(), exact.column("survivor").to_numpy().copy()
    moved = np.zeros(len(stays), np.bool_)
    where = placement.part_indices(parts, stays)
    for index in np.unique(where).tolist():
        gone, here = task.gone(index), np.flatnonzero(where == index)
        at = np.minimum(np.searchsorted(gone["at"], stays[here]), max(len(gone) - 1, 0))
        went = here[gone["at"][at] == stays[here]] if len(gone) else here[:0]
        moved[went] = True
        stays[went] = gone["survivor"][np.searchsorted(gone["at"], stays[went])]
    ids = read_arrow(Path(part.signs)).column("id").take(pa.array(rows[moved]))
    return pa.table({"row": rows[moved], "id": ids, "survivor": placement.ids(parts, stays[moved])}, schema=SETTLED)


def _shape(docs: int, params: NearParams, memory: int) -> Shape:
    """As the number of documents demands; memory has a say only where there is little of it."""
    key_bits = spool.partition_bits(docs, WORKING_BYTES, min(memory, CELL * WORKING_BYTES))
    return Shape(
        digest_bits=spool.partition_bits(docs, repeats.WORKING_BYTES, min(memory, repeats.TOGETHER * repeats.WORKING_BYTES)),
        key_bits=key_bits,
        cells=max(1, min(CELL // max(1, docs >> key_bits), params.sign.bands << key_bits)),
    )


def _groups(parts: Sequence[Part]) -> list[range]:
    """Which consecutive parts give their keys together: so many that the files do not grow in number as the square of the documents."""
    closed = np.diff(np.cumsum([part.docs for part in parts], dtype=np.int64) // GROUP, prepend=0)
    return [range(start, end) for start, end in pairwise(sorted({0, *(np.flatnonzero(closed) + 1).tolist(), len(parts)}))]


def _tasks(shape: Shape, params: NearParams) -> int:
    """How many tasks fill the buckets of all cells."""
    return -(-(params.sign.bands << shape.key_bits) // shape.cells)


def _cuts(part: Part) -> Cuts:
    """The cut paragraphs of a part."""
    if part.cuts is None:
        return Cuts(*np.empty((4, 0), np.int64))
    table = read_table(part.cuts, columns=["row", "paragraph", "start", "end"])
    return Cuts(*(table.column(name).to_numpy().astype(np.int64) for name in ("row", "paragraph", "start", "end")))


def _remaining(part: Part, rows: I64, cuts: Cuts) -> Iterator[Texts]:
    """What remains of the text of each of ``rows``, in blocks. Reads nothing for none."""
    if len(rows):
        yield from remaining(read_arrow(Path(part.documents), ["text"]).column("text"), rows, cuts)


def _distinct(runs: Iterable[U64]) -> U64:
    """The distinct numbers of all runs, sorted. Holds little more than twice the result and the longest run."""
    result = np.empty(0, np.uint64)
    held: list[U64] = []
    for run in runs:
        held.append(run)
        if sum(map(len, held)) > len(result):
            result, held = _sorted_set([result, *held]), []
    return _sorted_set([result, *held])


def _sorted_set(columns: list[U64]) -> U64:
    values: U64 = np.sort(np.concatenate(columns))  # numpy's unique hashes, which takes several times as long
    distinct: U64 = values[np.concatenate([np.ones(min(1, len(values)), np.bool_), values[1:] != values[:-1]])]
    return distinct


def _records(dtype: np.dtype[Any], *columns: NDArray[Any]) -> NDArray[Any]:
    out = np.empty(len(columns[0]), dtype)
    for name, column in zip(dtype.names or (), columns, strict=True):
        out[name] = column
    return out


def _connect(parents: unionfind.Parents, connected: NDArray[np.bool_], u: U64, v: U64) -> None:
    unionfind.union(parents, u, v)
    connected[u] = connected[v] = True


def _follow(links: NDArray[Any], first_gone: NDArray[Any], gone: NDArray[np.bool_]) -> NDArray[Any]:
    """Those equal to an earlier document go in its favour, or with it in favour of its survivor."""
    went = gone[links["first"]]
    fate = _records(GONE, links["at"], links["first"], np.ones(len(links)))
    first = first_gone[np.searchsorted(first_gone["at"], links["first"][went])]
    fate["survivor"][went], fate["similarity"][went] = first["survivor"], first["similarity"]
    return fate


STAGE = Stage("near_dedup", version=2, build=build)
