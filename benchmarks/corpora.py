"""The text of the speed benchmarks: real documentation with planted near copies, and any multiple of it.

    python benchmarks/corpora.py [--work FOLDER] [--times 1 2 4 8]

The first corpus is ``real_text.py``'s documents, of 15 % of them a copy with 2 to 8 % of its words changed, some under a header or over a footer, and of 5 %
an exact copy, shuffled. Each further one is the first with every word of five letters or more spelled with another letter, so that it repeats
itself as the first does, looks like a language to whoever counts small words, and is no duplicate of another. Lines are ``{"id":"00-0000017","text":"..."}``.
"""

import argparse
import hashlib
import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import planted
import real_text
import zstandard
from numba import njit

SEED = 20261202
NEAR, EXACT = 0.15, 0.05
CHUNK = 1 << 23
LEVEL = 3
SEPARATED = {"format": "text", "separator": "<|endoftext|>"}
"""How a source of ``separated`` is configured."""


class Text(NamedTuple):
    """A corpus on disk. ``sha256`` is of the file, ``text_bytes`` of its documents as UTF-8, without what JSON adds."""

    path: Path
    documents: int
    text_bytes: int
    sha256: str

    @property
    def megabytes(self) -> float:
        return self.text_bytes / 1e6


def jsonl(work: Path, times: int = 1, first: int | None = None) -> Text:
    """As plain JSON Lines; ``first`` takes only so many megabytes of text from the beginning."""
    name = f"{times}" if first is None else f"{times}-first-{first}"
    return _kept(work / "corpora" / f"{name}.jsonl", lambda path: _write_plain(path, work, times, first))


def zst(work: Path, times: int = 1, first: int | None = None) -> Text:
    """The same in one frame of zstd, as the command line tool writes it."""
    name = f"{times}" if first is None else f"{times}-first-{first}"
    return _kept(work / "corpora" / f"{name}.jsonl.zst", lambda path: _write_zst(path, work, times, first))


def separated(work: Path, corpus: Text) -> Text:
    """The same documents as plain text, with the separator of many corpora between them."""
    return _kept(work / "corpora" / f"{corpus.path.stem}.txt", lambda path: _write_separated(path, corpus))


def _write_separated(path: Path, corpus: Text) -> tuple[int, int]:
    with path.open("w", encoding="utf-8") as out, corpus.path.open(encoding="utf-8") as file:
        out.writelines(json.loads(line)["text"] + "\n<|endoftext|>\n" for line in file)
    return corpus.documents, corpus.text_bytes


def texts(corpus: Text) -> list[str]:
    with corpus.path.open(encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file]


def _kept(path: Path, write: Any) -> Text:
    page = path.with_name(f"{path.name}.json")
    if not page.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        documents, size = write(path)
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
        page.write_text(json.dumps([documents, size, digest.hexdigest()]))
    return Text(path, *json.loads(page.read_text()))


def _write_plain(path: Path, work: Path, times: int, first: int | None) -> tuple[int, int]:
    with path.open("wb") as file:
        return _write(file, work, times, first)


def _write_zst(path: Path, work: Path, times: int, first: int | None) -> tuple[int, int]:
    with path.open("wb") as raw, zstandard.ZstdCompressor(LEVEL, threads=2).stream_writer(raw) as file:
        return _write(file, work, times, first)


def _write(file: Any, work: Path, times: int, first: int | None) -> tuple[int, int]:
    documents = size = 0
    for copy in range(times):
        for lines, sizes in _lines(work):
            whole = len(sizes)
            if first is not None:
                take = int(np.searchsorted(np.cumsum(sizes), first * 10**6 - size))
                lines, sizes = b"".join(line + b"\n" for line in lines.split(b"\n")[:take]), sizes[:take]
            buffer = np.frombuffer(lines, np.uint8).copy()
            if copy:
                respell(buffer, copy)
            file.write(buffer.tobytes())
            documents, size = documents + len(sizes), size + int(sizes.sum())
            if len(sizes) < whole:
                return documents, size
    return documents, size


BLOCK = 4096


@cache
def _lines(work: Path) -> list[tuple[bytes, Any]]:
    """The first corpus, some thousand lines at a time, with the bytes of each text."""
    found = plant(real_text.texts(work))
    out = []
    for at in range(0, len(found), BLOCK):
        some = found[at : at + BLOCK]
        lines = (
            f'{{"id":"00-{at + i:07d}","text":{json.dumps(text, ensure_ascii=False, separators=(",", ":"))}}}\n'
            for i, text in enumerate(some)
        )
        out.append(("".join(lines).encode(), np.array([len(text.encode()) for text in some])))
    return out


def plant(base: list[str]) -> list[str]:
    """The documents and the copies, shuffled."""
    rng = random.Random(SEED)
    other = planted.Words(rng.sample(base, 3_000), rng)
    found = list(base)
    for text in rng.sample(base, int(NEAR * len(base))):
        changed = planted.change_words(text, rng.uniform(0.02, 0.08), other, rng)
        found.append(planted.frame(changed, other, rng) if rng.random() < 0.5 else changed)
    found += rng.sample(base, int(EXACT * len(base)))
    rng.shuffle(found)
    return found


@njit(cache=True)
def respell(lines, copy):
    """Spell the words of JSON lines anew, in place, and number their ids: what follows a backslash and the names of the fields stay."""
    n = len(lines)
    start = i = 0
    line = True
    while i < n:
        c = lines[i]
        if line:
            lines[i + 7], lines[i + 8] = 48 + copy // 10, 48 + copy % 10
            line = False
        if (97 <= c <= 122) or (65 <= c <= 90):
            i += 1
            continue
        if i - start >= 5:
            at = start + 1 + (int(lines[start]) + 3 * int(lines[start + 2]) + copy) % (i - start - 1)
            low = 97 if lines[at] >= 97 else 65
            lines[at] = low + (int(lines[at]) - low + 1 + copy % 25) % 26
        if c == 10:
            line = True
        i += 2 if c == 92 else 1
        start = i


def main() -> Iterator[Text]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=real_text.WORK)
    parser.add_argument("--times", type=int, nargs="+", default=[1])
    options = parser.parse_args()
    for times in options.times:
        yield jsonl(options.work.resolve(), times)


if __name__ == "__main__":
    for text in main():
        print(f"{text.path}: {text.documents:,} documents, {text.megabytes:.1f} MB of text, sha256 {text.sha256}")
