"""Splitting into raw parts against bare zstd at the same level, and on two cores against one, of one large file in each format.

    python benchmarks/split.py TEXT.jsonl [--megabytes 500] [--workers 2] [--formats jsonl text ...] [--work FOLDER]

TEXT.jsonl is what ``real_text.py`` leaves; it is repeated, with a number in each document, up to the size. The files are deleted afterwards. Fails when
JSON Lines or text are split at less than 0.6 of bare zstd on the same bytes, or any format but single-frame gzip less than 1.6 times as fast on two cores.
"""

import argparse
import gzip
import json
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from corpusbuild.child import split_apart
from corpusbuild.machinecode import make_ready
from corpusbuild.segments import Verified
from corpusbuild.sources import Source
from corpusbuild.stages.fetch import SplitSource
from corpusbuild.staging import Staging

SHARE, GAIN = 0.6, 1.6
PIECE = 64_000_000
FORMATS = {
    "jsonl": {"format": "jsonl"},
    "jsonl.zst": {"format": "jsonl"},
    "jsonl.frames.zst": {"format": "jsonl"},
    "jsonl.gz": {"format": "jsonl"},
    "txt": {"format": "text"},
    "separated.txt": {"format": "text", "separator": "<|endoftext|>"},
    "parquet": {"format": "parquet"},
}


def texts(sample: Path, size: int) -> Iterator[str]:
    rows = [json.loads(line)["text"] for line in sample.open()]
    made = copy = 0
    while True:
        for text in rows:
            yield (one := f"{copy} {text}" if copy else text)
            made += len(one)
            if made >= size:
                return
        copy += 1


def write(name: str, path: Path, sample: Path, size: int) -> None:
    if name == "parquet":
        with pq.ParquetWriter(path, pa.schema([("text", pa.string())]), compression="zstd") as writer:
            held: list[str] = []
            for text in texts(sample, size):
                held.append(text)
                if len(held) == 20_000:
                    writer.write_table(pa.table({"text": held}))
                    held.clear()
            writer.write_table(pa.table({"text": pa.array(held, pa.string())}))
        return
    to_bytes: Callable[[str], bytes] = {
        "txt": lambda text: "\n".join(line for line in text.split("\n") if line.strip()).encode() + b"\n\n",
        "separated.txt": lambda text: text.encode() + b"\n<|endoftext|>\n",
    }.get(name, lambda text: json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n")
    with path.open("wb") as raw:
        if name == "jsonl.frames.zst":
            held_bytes = bytearray()
            for text in texts(sample, size):
                held_bytes += to_bytes(text)
                if len(held_bytes) > 4 << 20:
                    raw.write(zstandard.compress(bytes(held_bytes)))
                    held_bytes.clear()
            raw.write(zstandard.compress(bytes(held_bytes)))
            return
        sink = raw
        if name.endswith(".zst"):
            sink = zstandard.ZstdCompressor().stream_writer(raw, closefd=False)
        elif name.endswith(".gz"):
            sink = gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=1)
        for text in texts(sample, size):
            sink.write(to_bytes(text))
        if sink is not raw:
            sink.close()


def compress(piece: tuple[str, int]) -> int:
    """One piece of a file through zstd at the level of raw parts, to disk as they are."""
    path, start = piece
    with open(path, "rb") as f:
        f.seek(start)
        data = f.read(PIECE)
    out = Path(f"{path}.{start}.zst")
    out.write_bytes(zstandard.ZstdCompressor(level=3).compress(data))
    out.unlink()
    return len(data)


def bare(path: Path, workers: int) -> float:
    """Seconds that ``workers`` processes take to compress a file, once they run."""
    with ProcessPoolExecutor(workers) as pool:
        list(pool.map(len, ["x"] * 8))
        since = time.perf_counter()
        list(pool.map(compress, [(str(path), start) for start in range(0, path.stat().st_size, PIECE)]))
        return time.perf_counter() - since


def split(name: str, path: Path, workers: int, folder: Path) -> tuple[float, int]:
    """Seconds from verified file to raw parts, and bytes of text."""
    home = folder / "home"
    Staging(home).create()
    file = Verified(str(path), "http://localhost/" + path.name, path.name, "0" * 64, path.stat().st_size)
    task = SplitSource("part", Source("big", file.url, file.sha256, "MIT", **FORMATS[name]), (file,), "2026-01-01T00:00:00Z")
    ready = make_ready(print)
    since = time.perf_counter()
    value = split_apart(task, home, threading.Event(), workers=workers, kernels=ready)
    seconds = time.perf_counter() - since
    shutil.rmtree(home)
    return seconds, value["tally"]["also"]["text_bytes"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sample", type=Path)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--formats", nargs="*", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--work", type=Path)
    given = parser.parse_args()
    bad = []
    print(
        f"{'format':18} {'MB text':>8} {'1 worker s':>10} {f'{given.workers} workers s':>11} {'gain':>5} {'MB/s':>6} {'zstd 3 alone MB/s':>18} {'share':>6}"
    )
    with tempfile.TemporaryDirectory(dir=given.work) as folder:
        for name in given.formats:
            path = Path(folder) / f"big.{name}"
            write(name, path, given.sample, given.megabytes * 1_000_000)
            one, many, alone = [], [], []
            for _ in range(given.runs):
                one.append(split(name, path, 1, Path(folder))[0])
                seconds, size = split(name, path, given.workers, Path(folder))
                many.append(seconds)
                if name in ("jsonl", "txt", "separated.txt"):
                    alone.append(bare(path, given.workers))
            before, after = statistics.median(one), statistics.median(many)
            row = f"{name:18} {size / 1e6:8.0f} {before:10.2f} {after:11.2f} {before / after:5.2f} {size / 1e6 / after:6.0f}"
            if before / after < GAIN and given.workers == 2:
                bad.append(f"{name}: {before / after:.2f} times as fast on two cores, {GAIN} are wanted")
            if alone:
                share = statistics.median(alone) / after
                row += f" {path.stat().st_size / 1e6 / statistics.median(alone):18.0f} {share:6.2f}"
                if share < SHARE:
                    bad.append(f"{name}: {share:.2f} of bare zstd, {SHARE} are wanted")
            print(row, flush=True)
            path.unlink()
    if bad:
        sys.exit("\n".join(bad))


if __name__ == "__main__":
    main()
