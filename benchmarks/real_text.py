"""Real text for benchmarks: the documentation packages that ``real_text.txt`` pins, as documents of a few kilobytes, each different from all others.

    python benchmarks/real_text.py [--work FOLDER]

needs Debian 12 or a derivative of it (``apt-get download``, ``dpkg-deb``), and leaves ``text.jsonl`` in the folder. 176 MB are downloaded once.
"""

import argparse
import hashlib
import html
import json
import random
import re
import subprocess
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
WORK = HERE / ".work"

NOT_TEXT = re.compile(r"(?is)<(script|style|head|nav|header|footer)\b.*?</\1\s*>|<!--.*?-->")
BLOCK_END = re.compile(r"(?i)</(p|div|li|tr|h[1-6]|pre|table|ul|ol|dl|dd|dt|section|title|item|note|page|info)\s*>")
TAG = re.compile(r"<[^>]*>")
MARKUP, PLAIN = {".html", ".htm", ".page"}, {".rst"}
LEAST, MOST = 500, 10_000  # characters of a document


class Package(NamedTuple):
    name: str
    version: str
    sha256: str


def packages() -> list[Package]:
    lines = (HERE / "real_text.txt").read_text().splitlines()
    return [Package(*line.split()) for line in lines if line and not line.startswith("#")]


def fetch(package: Package, work: Path) -> Path:
    """The folder of the unpacked package. Exits with a line when what came is not what is pinned."""
    folder, debs = work / "packages" / package.name, work / "debs"
    if folder.exists():
        return folder
    debs.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "-q", "download", f"{package.name}={package.version}"], cwd=debs, check=True)
    (deb,) = debs.glob(f"{package.name}_*.deb")
    digest = hashlib.sha256(deb.read_bytes()).hexdigest()
    if digest != package.sha256:
        raise SystemExit(f"{deb.name}: sha256 {digest}, but {package.sha256} is pinned in real_text.txt")
    unpacked = folder.with_name(f"{package.name}.part")
    unpacked.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["dpkg-deb", "-x", deb, unpacked], check=True)
    unpacked.rename(folder)
    return folder


def text_of(path: Path) -> str:
    text = path.read_bytes().decode("utf-8", "replace").replace("\x00", "")
    if path.suffix in MARKUP:
        text = html.unescape(TAG.sub("", BLOCK_END.sub("\n\n", NOT_TEXT.sub("", text))))
    text = re.sub(r"[ \t\xa0]+", " ", text.replace("\r", ""))
    return re.sub(r"\n{3,}", "\n\n", re.sub(r" ?\n ?", "\n", text)).strip()


def pieces(path: Path, label: str) -> list[str]:
    """A file cut between paragraphs into documents whose lengths are as spread as those of pages."""
    rng = random.Random(zlib.crc32(label.encode()))
    found: list[str] = []
    held: list[str] = []
    size, goal = 0, 0.0
    for paragraph in text_of(path).split("\n\n"):
        if size >= goal or size + len(paragraph) > MOST:
            found.append("\n\n".join(held))
            held, size, goal = [], 0, min(0.95 * MOST, max(700.0, rng.lognormvariate(7.7, 0.75)))
        held.append(paragraph[:MOST])
        size += len(held[-1]) + 2
    return [piece for piece in [*found, "\n\n".join(held)] if LEAST <= len(piece) <= MOST]


def documents(work: Path) -> Iterator[tuple[str, str]]:
    """Package and text of every document, no text twice, in the order of the pins."""
    seen: set[bytes] = set()
    with ProcessPoolExecutor(2) as pool:
        for package in packages():
            root = fetch(package, work)
            paths = sorted(p for p in root.rglob("*") if p.suffix in MARKUP | PLAIN and p.is_file() and not p.is_symlink())
            for found in pool.map(pieces, paths, [str(p.relative_to(root)) for p in paths], chunksize=16):
                for text in found:
                    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
                    if digest not in seen:
                        seen.add(digest)
                        yield package.name, text


def texts(work: Path) -> list[str]:
    """The text of every document, read from ``text.jsonl``, which is made where it is missing."""
    path = work / "text.jsonl"
    if not path.exists():
        work.mkdir(parents=True, exist_ok=True)
        with path.with_suffix(".part").open("w") as file:
            for package, text in documents(work):
                file.write(json.dumps({"package": package, "text": text}, ensure_ascii=False) + "\n")
        path.with_suffix(".part").rename(path)
    with path.open() as file:
        return [json.loads(line)["text"] for line in file]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=WORK)
    found = texts(parser.parse_args().work)
    print(f"{len(found):,} documents, {sum(len(text.encode()) for text in found) / 1e6:.1f} MB")
