"""A second opinion: what a build of a local corpus must decide, computed plainly, without a line of the package.

It reads a configuration and its files and follows the definitions in their own order: one document after the other, strings and sets, no
parts, no tables, no store. Slow and short is its virtue. ``tests/test_sample.py`` compares it with what the package built.

    python tests/oracle.py configs/sample.toml        # prints its findings as JSON
"""

import gzip
import hashlib
import ipaddress
import json
import re
import sys
import tomllib
import unicodedata
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

KINDS = ("email", "phone", "card", "ip", "key")
PLACEHOLDERS = {kind: f"<{kind.upper()}>" for kind in KINDS}
MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


@dataclass
class Document:
    """One document on its way. ``removed`` is (stage, rule) of what removed it; ``text`` is normalised, ``final`` what is published."""

    id: str
    source: str
    text: str
    lang: str = "und"
    removed: tuple[str, str] | None = None
    cuts: set[int] = field(default_factory=set)
    spans: list[tuple[str, int, int]] = field(default_factory=list)
    survivor: str = ""
    similarity: float = 0.0
    final: str = ""
    redacted: Counter[str] = field(default_factory=Counter)
    split: str = ""


@dataclass
class Answer:
    """Every document in plan order, and the pairs that near_dedup verified or passed over."""

    documents: list[Document]
    sources: list[str]
    skipped_pairs: int = 0

    def kept(self, source: str | None = None) -> list[Document]:
        return [d for d in self.documents if d.removed is None and source in (None, d.source)]

    def counts(self, source: str) -> dict[str, Any]:
        """The documents of one source: in, removed by stage and rule, kept."""
        mine = [d for d in self.documents if d.source == source]
        removed: dict[str, Counter[str]] = defaultdict(Counter)
        for document in mine:
            if document.removed:
                removed[document.removed[0]][document.removed[1]] += 1
        return {
            "docs_in": len(mine),
            "removed": {stage: dict(sorted(rules.items())) for stage, rules in sorted(removed.items())},
            "kept": len(self.kept(source)),
            "paragraphs_cut": sum(len(d.cuts) for d in mine),
        }

    def tokens(self, split: str) -> int:
        """How many tokens the byte tokenizer gives for a split; it has no separator."""
        return sum(len(d.final.encode()) for d in self.kept() if d.split == split)

    def pii(self) -> dict[str, int]:
        """Placeholders in what is published, by kind."""
        total = sum((d.redacted for d in self.kept()), Counter[str]())
        return {kind: total[kind] for kind in KINDS}

    def text_sha256(self) -> str:
        """One digest for all published texts, in order."""
        return hashlib.sha256(b"".join(hashlib.sha256(d.final.encode()).digest() for d in self.kept())).hexdigest()

    def summary(self) -> dict[str, Any]:
        return {
            "sources": {source: self.counts(source) for source in self.sources},
            "docs_in": len(self.documents),
            "kept": len(self.kept()),
            "langs": dict(sorted(Counter(d.lang for d in self.kept()).items())),
            "splits": {
                split: {"documents": sum(d.split == split for d in self.kept()), "tokens": self.tokens(split)} for split in ("train", "val")
            },
            "pii": self.pii(),
            "skipped_pairs": self.skipped_pairs,
            "text_sha256": self.text_sha256(),
        }


def build(path: Path) -> Answer:
    config = tomllib.loads(path.read_text("utf-8"))
    answer = Answer([], [source["id"] for source in config["sources"]])
    for source in config["sources"]:
        answer.documents += read_source(source, path.parent)

    policies = {source["id"]: source.get("pii_policy", "scrub") for source in config["sources"]}
    filters = {source["id"]: merged(config.get("filters", {}), source.get("filters", {})) for source in config["sources"]}
    for document in answer.documents:
        filter_document(document, filters[document.source])
    decontaminate(answer.kept(), config.get("decontam", {}), path.parent)
    for document in answer.kept():
        document.spans = personal_data(document.text) if policies[document.source] != "none" else []
        if document.spans and policies[document.source] == "drop":
            document.removed = ("scrub", "pii")
    exact_dedup(answer.kept())
    answer.skipped_pairs = near_dedup(answer.kept(), config.get("dedup", {}))
    for document in answer.kept():
        publish(document, config["shard"].get("val_permille", 5))
    return answer


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    out = dict(below)
    for key, value in above.items():
        out[key] = merged(out.get(key, {}), value) if isinstance(value, dict) else value
    return out


# ---- reading ----


def read_source(source: dict[str, Any], folder: Path) -> list[Document]:
    data = (folder / source["url"]).read_bytes()
    assert hashlib.sha256(data).hexdigest() == source["sha256"], f"{source['id']}: the file is not the pinned one"
    raw = decompressed(data).removeprefix(b"\xef\xbb\xbf")
    named: list[tuple[str | None, str]]
    if source.get("format", "jsonl") == "jsonl":
        rows = [json.loads(line) for line in raw.split(b"\n") if line.strip()]
        field_of_id = source.get("id_field")
        named = [(str(row[field_of_id]) if field_of_id else None, row[source.get("text_field", "text")]) for row in rows]
    elif "separator" in source:
        named = [(None, piece) for piece in raw.decode().split(source["separator"]) if piece.strip()]
    else:
        named = [(None, block) for block in blocks(raw.decode())]
    name = source["id"]
    return [Document(id=f"{name}:{k if id is None else id}", source=name, text=text) for k, (id, text) in enumerate(named)]


def decompressed(data: bytes) -> bytes:
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def blocks(text: str) -> list[str]:
    """The runs of lines that hold something."""
    found: list[list[str]] = [[]]
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        if line.strip():
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return ["\n".join(block) for block in found if block]


# ---- filter ----


def normalised(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = "".join(c for c in text if c in "\n\t" or (unicodedata.category(c) != "Cc" and c != "\ufeff"))
    text = unicodedata.normalize("NFC", text)
    text = "\n".join(line.rstrip(" \t") for line in text.split("\n"))
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text.strip()


def filter_document(document: Document, limits: dict[str, Any]) -> None:
    document.text = normalised(document.text)
    if not document.text:
        document.removed = ("filter", "empty")
        return
    document.lang, confidence = language(document.text)
    for rule, passed in [
        ("length", limits.get("min_chars", 50) <= len(document.text) <= limits.get("max_chars", 100_000)),
        ("lang", document.lang in limits.get("langs", ["en"]) and confidence >= limits.get("lang_min_conf", 0.65)),
        *gopher(document.text, limits.get("gopher", {})),
        ("repetition", repetition(document.text, limits.get("repetition", {}))),
    ]:
        if not passed:
            document.removed = ("filter", rule)
            return


SMALL_WORDS = {
    "de": "der die das und ist nicht ein eine zu den mit sich des auf für im dem von auch es er sie wir ich war",
    "en": "the of and to a in is it that was he she for on with as his her they at be this have from but",
    "es": "el la los las de y que en un una es por con para del se no lo al su como pero muy yo está",
    "fr": "le la les de des et est un une du en que qui dans pour pas sur au ce il elle nous vous je avec",
    "it": "il la di che e un una per non sono del della con si gli le ma come anche io questo nel è ha lo",
    "nl": "de het een en van is dat op te in met niet zijn voor er maar ook als bij nog ik je wat hij ze",
    "pt": "o a os as de e que do da em um uma para com não no na por mais se ao dos das ele ela",
}


def language(text: str) -> tuple[str, float]:
    words = Counter(re.findall(r"[^\W\d_]+", text.lower()))
    hits = {lang: sum(words[word] for word in small.split()) for lang, small in SMALL_WORDS.items()}
    total = sum(hits.values())
    if total < 2:
        return "und", 0.0
    best = min(hits, key=lambda lang: (-hits[lang], lang))
    return best, hits[best] / total


def gopher(text: str, limits: dict[str, float]) -> list[tuple[str, bool]]:
    def at_least(name: str, default: float, value: float) -> bool:
        return value >= limits.get(f"min_{name}", default)

    def at_most(name: str, default: float, value: float) -> bool:
        return value <= limits.get(f"max_{name}", default)

    words, lines = text.split(), [line for line in text.split("\n") if line.strip()]
    n = len(words)
    common = {"the", "be", "to", "of", "and", "that", "have", "with"}
    mean = sum(len(word) for word in words) / n
    bullets = sum(line.lstrip()[:1] in ("•", "‣", "◦", "-", "*") for line in lines)
    trailing = sum(line.endswith(("...", "…")) for line in lines)
    lettered = sum(any(c.isalpha() for c in word) for word in words)
    stopwords = sum(word.lower().strip("\"'.,;:!?()[]{}") in common for word in words)
    return [
        ("gopher_words", at_least("words", 50, n) and at_most("words", 100_000, n)),
        ("gopher_mean_word_len", at_least("mean_word_len", 3, mean) and at_most("mean_word_len", 10, mean)),
        (
            "gopher_symbol_ratio",
            at_most("symbol_ratio", 0.1, text.count("#") / n) and at_most("symbol_ratio", 0.1, (text.count("...") + text.count("…")) / n),
        ),
        ("gopher_bullet_lines", at_most("bullet_lines", 0.9, bullets / len(lines))),
        ("gopher_ellipsis_lines", at_most("ellipsis_lines", 0.3, trailing / len(lines))),
        ("gopher_alpha_words", at_least("alpha_words", 0.8, lettered / n)),
        ("gopher_stopwords", at_least("stopwords", 2, stopwords)),
    ]


def repetition(text: str, limits: dict[str, Any]) -> bool:
    words, n = text.split(), limits.get("n", 3)
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    times = Counter(grams)
    inside = {i + j for i, gram in enumerate(grams) if times[gram] > 1 for j in range(n)}
    return sum(len(words[i]) for i in inside) / sum(map(len, words)) <= float(limits.get("max_frac", 0.3))


# ---- decontaminate ----


def decontaminate(documents: list[Document], params: dict[str, Any], folder: Path) -> None:
    n = params.get("ngram", 13)
    protected = {gram for name in params.get("protected", []) for text in protected_texts(folder / name) for gram in word_grams(text, n)}
    for document in documents:
        if not protected.isdisjoint(word_grams(document.text, n)):
            document.removed = ("decontaminate", "ngram")


def protected_texts(path: Path) -> list[str]:
    if path.suffix != ".jsonl":
        return [path.read_text("utf-8")]
    return [text for line in path.read_bytes().split(b"\n") if line.strip() for text in strings(json.loads(line))]


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [s for key, item in value.items() if key not in ("case_id", "id", "tags", "scorer_args") for s in strings(item)]
    return [s for item in value for s in strings(item)] if isinstance(value, list) else []


def word_grams(text: str, n: int) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return set(zip(*(words[i:] for i in range(n)), strict=False))


# ---- scrub ----

EMAIL = re.compile(r"(?<![\w.+-])[A-Za-z0-9._%+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}(?![\w-])")
NATIONAL = r"\([2-9][0-9]{2}\) ?[2-9][0-9]{2}-[0-9]{4}|[2-9][0-9]{2}([-. ])[2-9][0-9]{2}\1[0-9]{4}"
PHONE = re.compile(rf"(?<![\w+])(?:(?:\+1[-. ]?)?(?:{NATIONAL})|\+[1-9][0-9]*(?:[ .-][0-9]+)*)(?!\w)")
CARD = re.compile(r"(?<![0-9])[2-6](?:[ -]?[0-9]){12,18}(?![0-9])")
KEY = re.compile(
    r"(?<![\w-])(?:sk-[A-Za-z0-9_-]{20,}|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36,}|xox[abprs]-[A-Za-z0-9-]{10,}|AIza[0-9A-Za-z_-]{35}"
    r"|tl_[a-z0-9]{4,32}_[A-Za-z0-9]{24,})(?![\w-])"
)
ADDRESS = re.compile(r"(?<![\w.:])(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*[0-9A-Fa-f:])(?![\w:]|\.[0-9])")


def personal_data(text: str) -> list[tuple[str, int, int]]:
    """(kind, start, end) of what is redacted: of those that overlap the first, of those that begin together the longest."""
    found = [("email", m.start(), m.end()) for m in EMAIL.finditer(text)]
    found += [("phone", m.start(), m.end()) for m in PHONE.finditer(text) if m[0][0] != "+" or 8 <= sum(c.isdigit() for c in m[0]) <= 15]
    found += [("card", m.start(), m.end()) for m in CARD.finditer(text) if luhn(m[0])]
    found += [("ip", m.start(), m.end()) for m in ADDRESS.finditer(text) if is_address(m[0])]
    found += [("key", m.start(), m.end()) for m in KEY.finditer(text)]
    out: list[tuple[str, int, int]] = []
    for kind, start, end in sorted(found, key=lambda f: (f[1], -f[2], KINDS.index(f[0]))):
        if not out or start >= out[-1][2]:
            out.append((kind, start, end))
    return out


def luhn(text: str) -> bool:
    digits = [int(c) for c in reversed(text) if c in "0123456789"]
    return sum(digits[0::2] + [d * 2 - 9 * (d > 4) for d in digits[1::2]]) % 10 == 0


def is_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    groups = [group for group in text.split(":") if group]
    return address.version == 4 or (len(groups) >= 2 and sum(len(group) for group in groups) >= 4)


# ---- exact_dedup ----


def paragraphs(text: str) -> list[str]:
    return [piece.strip() for piece in re.split(r"\n(?:[ \t]*\n)+", text) if piece.strip()]


def exact_dedup(documents: list[Document]) -> None:
    seen: set[str] = set()
    for document in documents:
        pieces = paragraphs(document.text)
        for k, piece in enumerate(pieces):
            if piece in seen:
                document.cuts.add(k)
            seen.add(piece)
        if len(document.cuts) == len(pieces):
            document.removed = ("exact_dedup", "paragraphs")


def remaining(document: Document) -> str:
    if not document.cuts:
        return document.text
    return "\n\n".join(piece for k, piece in enumerate(paragraphs(document.text)) if k not in document.cuts)


# ---- near_dedup ----


def near_dedup(documents: list[Document], params: dict[str, Any]) -> int:
    """Marks what goes; returns how many pairs of large buckets were not compared."""
    hashes = WordHashes()
    sets = [shingles(remaining(document), params.get("shingle", 5), hashes) for document in documents]
    first_of: dict[bytes, int] = {}  # digest of a set -> the first document that has it
    representative = [first_of.setdefault(s.tobytes(), i) if len(s) else i for i, s in enumerate(sets)]
    num_perm, bands = params.get("num_perm", 128), params.get("bands", 16)
    multiply, add = permutations(num_perm, params.get("seed", 0))

    buckets: dict[tuple[int, int], list[int]] = defaultdict(list)
    for i in range(len(documents)):
        if len(sets[i]) and representative[i] == i:
            for band, key in enumerate(band_keys(signature(sets[i], multiply, add), bands)):
                buckets[band, key].append(i)
    pairs: set[tuple[int, int]] = set()
    skipped = 0
    for members in buckets.values():
        for n, later in enumerate(members):
            compared = members[: min(n, params.get("max_bucket", 64))]
            pairs.update((earlier, later) for earlier in compared)
            skipped += n - len(compared)

    alike: dict[int, dict[int, float]] = defaultdict(dict)
    for earlier, later in pairs:
        shared = len(np.intersect1d(sets[earlier], sets[later], assume_unique=True))
        similarity = shared / (len(sets[earlier]) + len(sets[later]) - shared)
        if similarity >= params.get("jaccard_threshold", 0.8):
            alike[earlier][later] = alike[later][earlier] = similarity

    for i, document in enumerate(documents):
        partners = dict(alike[representative[i]])
        if representative[i] != i:
            partners[representative[i]] = 1.0
        kept = [(-similarity, j) for j, similarity in partners.items() if j < i and documents[j].removed is None]
        if kept:
            best, j = min(kept)
            document.removed, document.survivor, document.similarity = ("near_dedup", "jaccard"), documents[j].id, -best
    return skipped


class WordHashes(dict[str, int]):
    """FNV-1a over code points, then mixed."""

    def __missing__(self, word: str) -> int:
        h = 0xCBF29CE484222325
        for c in word:
            h = (h ^ ord(c)) * 0x100000001B3 & MASK
        self[word] = mix(h)
        return self[word]


def mix(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & MASK
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return h ^ h >> 33


def shingles(text: str, k: int, hashes: WordHashes) -> "np.ndarray[Any, np.dtype[np.uint64]]":
    """The set of hashes of the runs of ``k`` words, sorted; one run when there are fewer words."""
    lowered = "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
    words = np.array([hashes[word] for word in re.findall(r"\w+", lowered)], dtype=np.uint64)
    if not len(words):
        return words
    k = min(k, len(words))
    count = len(words) - k + 1
    g = np.zeros(count, dtype=np.uint64)
    for j in range(k):
        g = g * np.uint64(GOLDEN) + words[j : j + count]
    for constant in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        g = (g ^ (g >> np.uint64(33))) * np.uint64(constant)
    return np.unique(g ^ (g >> np.uint64(33)))


def permutations(count: int, seed: int) -> tuple[list[int], list[int]]:
    """The numbers a (odd) and b of each permutation, drawn in turn from PCG32 (XSH-RR), sequence 54."""
    increment = 54 << 1 | 1
    state = 0

    def draw() -> int:
        nonlocal state
        old, state = state, (state * 6364136223846793005 + increment) & MASK
        shifted, turn = (old >> 18 ^ old) >> 27 & 0xFFFFFFFF, old >> 59
        return (shifted >> turn | shifted << (-turn & 31)) & 0xFFFFFFFF

    draw()
    state = (state + seed) & MASK
    draw()
    drawn = [draw() for _ in range(2 * count)]
    return [a | 1 for a in drawn[0::2]], drawn[1::2]


def signature(hashes: "np.ndarray[Any, np.dtype[np.uint64]]", multiply: list[int], add: list[int]) -> list[int]:
    x = hashes >> np.uint64(32)
    out = []
    for a, b in zip(multiply, add, strict=True):
        v = (np.uint64(a) * x + np.uint64(b)) & np.uint64(0xFFFFFFFF)
        out.append(int((v ^ (v >> np.uint64(15))).min()))
    return out


def band_keys(minima: list[int], bands: int) -> list[int]:
    rows = len(minima) // bands
    keys = []
    for band in range(bands):
        h = (band + 1) * GOLDEN & MASK
        for m in minima[band * rows : (band + 1) * rows]:
            h = mix(h ^ m)
        keys.append(h)
    return keys


# ---- shard ----


def publish(document: Document, val_permille: int) -> None:
    """The text with its cuts and placeholders, and the split it falls into."""
    pieces, at, texts = paragraphs(document.text), 0, []
    for k, piece in enumerate(pieces):
        start = document.text.index(piece, at)
        at = start + len(piece)
        if k in document.cuts:
            continue
        spans = [(kind, a - start, b - start) for kind, a, b in document.spans if start <= a and b <= at]
        document.redacted.update(kind for kind, _, _ in spans)
        texts.append(redacted(piece, spans))
    if document.cuts:
        document.final = "\n\n".join(texts)
    else:
        document.final = redacted(document.text, document.spans)
    residue = int.from_bytes(hashlib.sha256(document.final.encode()).digest()[:8], "big") % 1000
    document.split = "val" if residue < val_permille else "train"


def redacted(text: str, spans: list[tuple[str, int, int]]) -> str:
    for kind, start, end in reversed(spans):
        text = text[:start] + PLACEHOLDERS[kind] + text[end:]
    return text


if __name__ == "__main__":
    print(json.dumps(build(Path(sys.argv[1])).summary(), indent=2, ensure_ascii=False))
