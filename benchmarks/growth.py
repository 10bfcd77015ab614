"""How deduplication grows: its time with the text, its memory with the number of documents, and ways to band.

    python benchmarks/growth.py slope [--work FOLDER]
    python benchmarks/growth.py documents [--documents 20000000] [--work FOLDER]
    python benchmarks/growth.py bands [--work FOLDER]

``slope`` decides about real text at 1, 2, 4 and 8 times its size, ``documents`` about short generated documents of which it is known who must go,
``bands`` compares ways to find documents with a common key. Each exits with 1 when a bar is missed. Memory is that of all processes together. ``slope``
needs what ``real_text.py`` says; ``bands`` needs ``pip install duckdb polars``; 20 million documents need 15 GB of disk and some ten minutes.
"""

import argparse
import os
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import real_text
from numpy.typing import NDArray

from corpusbuild import kernels, law, minhash, spool
from corpusbuild.executors import memory
from corpusbuild.machinecode import make_ready
from corpusbuild.minhash import U64, SignParams
from corpusbuild.model import Counts, Record, Tally, add_counts
from corpusbuild.parts import DOCUMENTS, part_name, write_arrow
from corpusbuild.plan import step_key
from corpusbuild.stage import Job, Out, Stage, Step, Task
from corpusbuild.stages import exact_dedup, near_dedup, sign
from corpusbuild.stages.exact_dedup import ExactParams
from corpusbuild.stages.near_dedup import NearParams
from corpusbuild.store import Store
from corpusbuild.workshop import Workshop, realise

WORKERS, MEMORY = 2, 1_500_000_000
SIZES, REPEATS, RISE = (1, 2, 4, 8), 3, 0.10
PART_DOCS, PART_BYTES = 100_000, 50_000_000
WORDS, LETTERS = 20, 5  # of a generated document, of a word
SPREAD = 1.25  # how much more time a document may take at the full number than at an eighth of it
FOUND = 0.995  # of those that must go; 16 bands of 8 rows meet 99.9 % of pairs with a similarity of 15/17
BANDS = 16


class Generate(Record):
    documents: int


class Copies(Record):
    """Real text, and copies of it in which no word is what it was."""

    path: str
    times: int


class Part(Task):
    first: int
    end: int
    path: str = ""
    turn: int = 0


def mix(numbers: Iterable[int] | U64) -> U64:
    return minhash.mix(np.asarray(numbers, np.uint64) * np.uint64(minhash.GOLDEN) + np.uint64(1))


def kinds(at: U64) -> tuple[U64, NDArray[np.int64]]:
    """Of each generated document whose words it has, and how: 0 its own, 1 all of an earlier one's, 2 all but the last, 3 all but one in the middle."""
    drawn = mix(at)
    share = (drawn % np.uint64(100)).astype(np.int64)
    kind = np.select([share < 70, share < 78, share < 90], [0, 1, 2], 3)
    kind[at == 0] = 0
    earlier = np.minimum((mix(drawn) >> np.uint64(11)).astype(np.float64) / 2**53 * at, at - (at > 0)).astype(np.uint64)
    return np.where(kind == 0, at, earlier), kind


def generated(first: int, end: int) -> pa.Array:
    """Documents of twenty words of five letters."""
    at = np.arange(first, end, dtype=np.uint64)
    base, kind = kinds(at)
    words = mix(base[:, None] * np.uint64(WORDS) + np.arange(WORDS, dtype=np.uint64))
    own = mix(at + np.uint64(1 << 60))
    words[kind == 2, -1], words[kind == 3, WORDS // 2] = own[kind == 2], own[kind == 3]
    text = np.full((len(at), WORDS, LETTERS + 1), ord(" "), np.uint8)
    for letter in range(LETTERS):
        text[:, :, letter] = ord("a") + words % np.uint64(26)
        words //= np.uint64(26)
    offsets = np.arange(len(at) + 1, dtype=np.int64) * WORDS * (LETTERS + 1)
    return pa.Array.from_buffers(pa.large_string(), len(at), [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def due(documents: int) -> int:
    """How many of them have an earlier one that stays and is like them: all but the first of those that share a base, without those of kind 3."""
    groups, members = [], 0
    for first in range(0, documents, 1 << 20):
        base, kind = kinds(np.arange(first, min(first + (1 << 20), documents), dtype=np.uint64))
        groups.append(base[kind != 3].astype(np.uint32))
        members += len(groups[-1])
    return members - len(np.unique(np.concatenate(groups)))


def write_documents(out: Out, first: int, texts: pa.Array) -> dict[str, int]:
    n = len(texts)
    numbers = pa.array(np.arange(first, first + n)).cast(pa.string())
    known = {"id": numbers, "text": texts, "file": pa.repeat(0, n).cast(pa.int32()), "place": numbers}
    write_arrow(out.path(".docs.arrow"), pa.table({f.name: known.get(f.name, pa.nulls(n, f.type)) for f in DOCUMENTS}, schema=DOCUMENTS))
    return {"docs_in": n, "kept": n}


def generate_part(task: Part, out: Out) -> dict[str, int]:
    return write_documents(out, task.first, generated(task.first, task.end))


def generate(job: Job) -> Counts:
    n = job.params.documents
    cuts = range(0, n, PART_DOCS)
    tasks = [Part(name=part_name(i), first=first, end=min(first + PART_DOCS, n)) for i, first in enumerate(cuts)]
    return add_counts([{"all": Tally(**value)} for value in job.map(generate_part, tasks)])


def copy_part(task: Part, out: Out) -> dict[str, int]:
    """A part of real text; of a copy the letters are turned on by the number of the copy, so that it is like no other."""
    texts = real_text.texts(Path(task.path))
    letters = bytes(range(ord("a"), ord("z") + 1))
    table = bytes.maketrans(letters, letters[task.turn :] + letters[: task.turn])
    first, texts = task.turn * len(texts) + task.first, texts[task.first : task.end]
    return write_documents(out, first, pa.array([text.encode().translate(table).decode() for text in texts], pa.large_string()))


def copy(job: Job) -> Counts:
    texts = real_text.texts(Path(job.params.path))
    cuts = [0]
    size = 0
    for i, text in enumerate(texts):
        size += len(text)
        if size > PART_BYTES:
            cuts, size = [*cuts, i], 0
    cuts = [*cuts, len(texts)]
    places = [(turn, first, end) for turn in range(job.params.times) for first, end in pairwise(cuts)]
    tasks = [Part(name=part_name(i), first=first, end=end, path=job.params.path, turn=turn) for i, (turn, first, end) in enumerate(places)]
    return add_counts([{"all": Tally(**value)} for value in job.map(copy_part, tasks)])


GENERATE, COPY = Stage("generated", 1, generate), Stage("copies", 1, copy)


def step(stage: Stage, params: Any, **inputs: Step) -> Step:
    by = {role: (entry,) for role, entry in inputs.items()}
    return Step(stage, params, by, step_key(stage, params, by), stage.name, "all")


class Peak:
    """The most that this process and those it started held at once, since the last question."""

    def __init__(self) -> None:
        self._most, self._on = 0, True
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def take(self) -> int:
        most, self._most = self._most, 0
        return most

    def _watch(self) -> None:
        while self._on:
            self._most = max(self._most, sum(memory.held(pid) for pid in family(os.getpid())))
            time.sleep(0.05)


def family(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]
    except OSError:  # it has ended
        return
    for child in children:
        yield from family(child)


@contextmanager
def workshop(folder: Path) -> Iterator[Workshop]:
    shutil.rmtree(folder, ignore_errors=True)
    with Workshop(Store(folder), "local", WORKERS, MEMORY, print, kernels="compiled") as shop:
        yield shop
    shutil.rmtree(folder)


def build(shop: Workshop, wanted: Step) -> tuple[float, dict[str, Tally]]:
    started = time.perf_counter()
    contents = realise(wanted, shop)
    return time.perf_counter() - started, dict(contents.counts)


def slope(work: Path, repeats: int) -> bool:
    """Seconds of sign, exact_dedup and near_dedup at each size, medians, workers already started."""
    texts = real_text.texts(work)
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    del texts
    taken: dict[int, list[list[float]]] = {times: [] for times in SIZES}
    with workshop(work / "growth") as shop:
        for times in (1, *SIZES * repeats):
            docs = step(COPY, Copies(path=str(work), times=times))
            signed = step(sign.STAGE, SignParams(), documents=docs)
            exact = step(exact_dedup.STAGE, ExactParams(), documents=docs, signs=signed)
            near = step(near_dedup.STAGE, NearParams(), documents=docs, signs=signed, exact=exact)
            build(shop, docs)
            taken[times].append([build(shop, wanted)[0] for wanted in (signed, exact, near)])
            for wanted in (signed, exact, near):
                shutil.rmtree(shop.store.path(wanted.stage.name, wanted.key))
    taken[1] = taken[1][1:]  # the very first also starts the workers
    seconds = {times: [statistics.median(column) for column in zip(*runs, strict=True)] for times, runs in taken.items()}
    print("| text | MB | sign s | exact s | near s | all s | MB/s | more seconds for each more MB |\n|---|---|---|---|---|---|---|---|")
    slopes = []
    for i, times in enumerate(SIZES):
        whole = sum(seconds[times])
        if i:
            slopes.append((whole - sum(seconds[SIZES[i - 1]])) / (times - SIZES[i - 1]) / megabytes)
        cells = [f"{s:.2f}" for s in (*seconds[times], whole)]
        print(
            f"| {times}x | {times * megabytes:,.0f} | {' | '.join(cells)} | {times * megabytes / whole:.0f} | {f'{slopes[-1]:.4f}' if i else ''} |"
        )
    early = (sum(seconds[4]) - sum(seconds[1])) / 3 / megabytes
    print(f"\nThe slope from 4x to 8x is {slopes[-1] / early:.2f} of that from 1x to 4x; at most {1 + RISE:.2f} is allowed.")
    return slopes[-1] <= (1 + RISE) * early


def documents(work: Path, most: int) -> bool:
    """Time, memory and what goes at an eighth of the documents, and at all."""
    peak, fine, rates = Peak(), True, []
    print(
        "| documents | generate s | sign s | near_dedup s | µs a document | peak MB | pairs | gone | due |\n|---|---|---|---|---|---|---|---|---|"
    )
    for n in (most // 8, most):
        expected = due(n)
        with workshop(work / "growth") as shop:
            docs = step(GENERATE, Generate(documents=n))
            signed = step(sign.STAGE, SignParams(), documents=docs)
            near = step(near_dedup.STAGE, NearParams(), documents=docs, signs=signed)
            generating, _ = build(shop, docs)
            peak.take()
            signing, _ = build(shop, signed)
            deciding, counts = build(shop, near)
        held, gone = peak.take(), sum(counts["all"].dropped.values())
        rates.append(1e6 * deciding / n)
        cells = (f"{generating:.0f}", f"{signing:.1f}", f"{deciding:.1f}", f"{rates[-1]:.2f}", f"{held / 1e6:,.0f}")
        print(f"| {n:,} | {' | '.join(cells)} | {counts['all'].also['candidates']:,} | {gone:,} | {expected:,} |", flush=True)
        fine &= held <= MEMORY and FOUND * expected <= gone <= expected
    print(
        f"\nA document takes {rates[1] / rates[0]:.2f} of the time at 8 times as many; at most {SPREAD} is allowed, and {MEMORY / 1e6:,.0f} MB."
    )
    return fine and rates[1] <= SPREAD * rates[0]


def members(n: int) -> tuple[U64, U64]:
    """The keys of one band of ``n`` documents, of which a fifth share one with an earlier, and their ordinals."""
    at = np.arange(n, dtype=np.uint64)
    return mix(np.where(mix(at) % np.uint64(5) == 0, at // np.uint64(2), at)), at


def pairs_of(buckets: law.Buckets, keys: U64, at: U64) -> int:
    return sum(len(later) for later, _ in buckets.add(keys, at)[1])


def in_memory(n: int, folder: Path) -> int:
    """All keys of all bands at once, each band's buckets filled from an array."""
    held, found = [members(n) for _ in range(BANDS)], 0
    for keys, at in held:
        crowd = law.Crowd(n)
        crowd.count(keys)
        here = crowd.holds(keys)
        found += pairs_of(law.Buckets(64), keys[here], at[here])
    return found


def on_disk(n: int, folder: Path) -> int:
    """As the product does: dealt out to files by band and the highest bits of the key, a part of the documents at a time."""
    bits = spool.partition_bits(n, 1, near_dedup.CELL)
    for part, first in enumerate(range(0, n, PART_DOCS)):
        records = np.empty(min(PART_DOCS, n - first), near_dedup.MEMBER)
        with spool.writing(folder / f"{part}") as cells:
            for band in range(BANDS):
                keys, at = members(n) if n <= PART_DOCS else some_members(first, first + len(records))
                records["key"], records["at"] = keys, at
                cells.add(np.uint64(band << bits) | spool.partition_of(keys, bits), records)
    readers = [spool.Reader(folder / f"{part}", near_dedup.MEMBER) for part in range(-(-n // PART_DOCS))]
    found = 0
    for cell in range(BANDS << bits):
        crowd = law.Crowd(sum(reader.count(cell) for reader in readers))
        for reader in readers:
            for run in reader.runs(cell):
                crowd.count(run["key"])
        buckets = law.Buckets(64)
        for here in spool.gathered((run[crowd.holds(run["key"])] for reader in readers for run in reader.runs(cell)), near_dedup.BATCH):
            found += pairs_of(buckets, here["key"], here["at"])
    return found


def some_members(first: int, end: int) -> tuple[U64, U64]:
    at = np.arange(first, end, dtype=np.uint64)
    return mix(np.where(mix(at) % np.uint64(5) == 0, at // np.uint64(2), at)), at


def tables(n: int, folder: Path) -> list[str]:
    """The same members as Parquet, a file a part."""
    paths = []
    for part, first in enumerate(range(0, n, PART_DOCS)):
        keys, at = some_members(first, min(first + PART_DOCS, n))
        columns = {"band": np.repeat(np.arange(BANDS, dtype=np.uint8), len(at)), "key": np.tile(keys, BANDS), "at": np.tile(at, BANDS)}
        paths.append(str(folder / f"{part}.parquet"))
        pa.parquet.write_table(pa.table(columns), paths[-1], compression="none")
    return paths


def sorted_by_arrow(n: int, folder: Path) -> int:
    table = pa.parquet.read_table(tables(n, folder)).sort_by([("band", "ascending"), ("key", "ascending"), ("at", "ascending")])
    return neighbours(table.column("band").to_numpy(), table.column("key").to_numpy())


def sorted_by_polars(n: int, folder: Path) -> int:
    import polars

    table = polars.scan_parquet(tables(n, folder)).sort("band", "key", "at").collect(engine="streaming")
    return neighbours(table["band"].to_numpy(), table["key"].to_numpy())


def sorted_by_duckdb(n: int, folder: Path) -> int:
    import duckdb

    with duckdb.connect() as db:
        db.execute(f"set memory_limit = '{MEMORY // 10**6}MB'; set threads = {WORKERS}; set temp_directory = '{folder}'")
        read = f"read_parquet({tables(n, folder)})"
        sql = f"""with counted as (select row_number() over (partition by band, "key" order by "at") - 1 as before from {read})
            select sum(least(before, 64)) from counted"""
        return int(db.execute(sql).fetchall()[0][0])


def neighbours(band: NDArray[np.uint8], key: U64) -> int:
    """How many pairs the buckets of a sorted table give."""
    new = np.concatenate([[True], (key[1:] != key[:-1]) | (band[1:] != band[:-1])])
    starts = np.flatnonzero(new)
    sizes = np.diff(starts, append=len(key))
    return int(np.minimum(np.arange(len(key)) - np.repeat(starts, sizes), 64).sum())


WAYS: dict[str, Callable[[int, Path], int]] = {
    "in memory": in_memory,
    "on disk by hash": on_disk,
    "pyarrow sort": sorted_by_arrow,
    "polars sort": sorted_by_polars,
    "duckdb window": sorted_by_duckdb,
}


def bands(work: Path, sizes: Iterable[int]) -> bool:
    """Each way in a process of its own, that its memory be known."""
    print("| documents | keys | way | s | million keys a second | peak MB | pairs |\n|---|---|---|---|---|---|---|")
    fine = True
    for n in sizes:
        told = set()
        for name in WAYS:
            folder = work / "bands"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            with ProcessPoolExecutor(1, get_context("spawn")) as alone:
                seconds, held, found = alone.submit(measured, name, n, folder).result()
            told.add(found)
            print(
                f"| {n:,} | {BANDS * n:,} | {name} | {seconds:.2f} | {BANDS * n / seconds / 1e6:.1f} | {held / 1e6:,.0f} | {found:,} |",
                flush=True,
            )
            shutil.rmtree(folder)
        fine &= len(told) == 1
    return fine


def measured(name: str, n: int, folder: Path) -> tuple[float, int, int]:
    """Seconds, the most bytes held, and pairs."""
    peak = Peak()
    with kernels.using(make_ready(print)):
        law.Crowd(1).count(np.zeros(1, np.uint64))  # which loads the compiled loops
        started = time.perf_counter()
        found = WAYS[name](n, folder)
    return time.perf_counter() - started, peak.take(), found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("slope", "documents", "bands"))
    parser.add_argument("--work", type=Path, default=real_text.WORK, help="folder for everything that is made (default: benchmarks/.work)")
    parser.add_argument("--documents", type=int, default=20_000_000)
    parser.add_argument("--repeats", type=int, default=REPEATS, help="of slope, of which the medians are told")
    parser.add_argument("--sizes", type=int, nargs="+", default=[250_000, 1_000_000, 4_000_000], help="documents, for bands")
    options = parser.parse_args()
    work = options.work.resolve()
    runs = {
        "slope": lambda: slope(work, options.repeats),
        "documents": lambda: documents(work, options.documents),
        "bands": lambda: bands(work, options.sizes),
    }
    return 0 if runs[options.what]() else 1


if __name__ == "__main__":
    from growth import main as imported  # so that workers find the tasks' functions under this name

    sys.exit(imported())
