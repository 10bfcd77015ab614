"""A corpus of 1,000 documents of which each stands on, just under or just over one threshold, and breaks no other.

``documents()`` gives (case, side, text) in order: ``case`` names the threshold, ``side`` says where the text stands. Texts are made of words that occur
nowhere else, so that documents repeat each other only where a case wants it.
"""

import hashlib
import random
from collections.abc import Callable, Iterator
from itertools import count

N = 1000
SIDES = {"under": -1, "on": 0, "over": 1}
CONFIG = """
[filters]
min_chars = 200
max_chars = 1500
lang_min_conf = 0.65
gopher = { min_words = 30, max_words = 180, min_mean_word_len = 4, max_mean_word_len = 8, max_symbol_ratio = 0.1, max_bullet_lines = 0.9, max_ellipsis_lines = 0.3, min_alpha_words = 0.8, min_stopwords = 2 }
repetition = { n = 3, max_frac = 0.3 }
ppl = { max_ppl = 3, model = "measures:ppl" }
rules = ["measures:loud"]

[dedup]
jaccard_threshold = 0.8
bands = 32
max_removed = 1.0

[decontam]
protected = ["protected.txt"]
ngram = 13

[shard]
shard_rows = 500
val_permille = 500
"""
MEASURES = """
def ppl(text):
    return text.count("Q")

def loud(text, meta):
    return (text.count("Z"), 2) if text.count("Z") > 2 else None
"""
FAILS = {
    "length min": ("under", "filter", "length"),
    "length max": ("over", "filter", "length"),
    "lang": ("under", "filter", "lang"),
    "words min": ("under", "filter", "gopher_words"),
    "words max": ("over", "filter", "gopher_words"),
    "mean_word_len min": ("under", "filter", "gopher_mean_word_len"),
    "mean_word_len max": ("over", "filter", "gopher_mean_word_len"),
    "symbol_ratio hash": ("over", "filter", "gopher_symbol_ratio"),
    "symbol_ratio ellipsis": ("over", "filter", "gopher_symbol_ratio"),
    "bullet_lines": ("over", "filter", "gopher_bullet_lines"),
    "ellipsis_lines": ("over", "filter", "gopher_ellipsis_lines"),
    "alpha_words": ("under", "filter", "gopher_alpha_words"),
    "stopwords": ("under", "filter", "gopher_stopwords"),
    "repetition": ("over", "filter", "repetition"),
    "ppl": ("over", "filter", "ppl"),
    "a rule of one's own": ("over", "filter", "measures:loud"),
    "ngram": ("on over", "decontaminate", "ngram"),
    "jaccard": ("on over", "near_dedup", "jaccard"),
    "paragraphs": ("on over", "exact_dedup", "paragraphs"),
    "split": ("", "", ""),
}
"""Which sides of each threshold fail, at which stage, by which rule. Bounds of filters are inclusive; what is alike enough is too alike."""

PROTECTED = " ".join(f"shielded{chr(97 + i)}" for i in range(26))


def documents() -> Iterator[tuple[str, str, str]]:
    given = 0
    for seed in count():
        for case, make in CASES.items():
            for side, step in SIDES.items():
                for name, text in make(_Words(f"{case} {side} {seed}"), step):
                    if given == N:
                        return
                    given += 1
                    yield case, name or side, text


class _Words:
    """Words that no other instance gives, and the common ones: ``English`` (which the language vote knows) and ``common`` (which gopher counts)."""

    def __init__(self, seed: str):
        self._random = random.Random(seed)
        self._seen: set[str] = set()

    def own(self, length: int = 6) -> str:
        while True:
            word = "".join(self._random.choice("bcdfgjkmpvwxz") + self._random.choice("aeiouy") for _ in range(length))[:length]
            if word not in self._seen:
                self._seen.add(word)
                return word

    def sized(self, n: int, letters: int) -> list[str]:
        """``n`` words of that many letters together, as equal as can be; among them common ones that make the text English."""
        short, more = divmod(letters, n)
        words = [self.own(short + (i < more)) for i in range(n)]
        for at, word in zip(range(1, n, max(1, n // 6)), ("the", "with", "that", "from", "this"), strict=False):
            difference = len(words[at]) - len(word)
            words[at], words[at + 1] = (
                word,
                words[at + 1] + self.own(8)[: max(0, difference)] if difference > 0 else words[at + 1][: difference or None],
            )
        return words

    def plain(self, n: int = 60, letters: int = 5) -> list[str]:
        return self.sized(n, n * letters)


One = Iterator[tuple[str, str]]


def _one(text: str) -> One:
    yield "", text


def _exactly(words: list[str], chars: int) -> str:
    """The words with the last one made as long as the text needs."""
    text = " ".join(words)
    last = words[-1] + "k" * max(0, chars - len(text))
    return " ".join([*words[:-1], last])[:chars] if len(text) <= chars else text[:chars]


def length_min(w: _Words, step: int) -> One:
    return _one(_exactly(w.plain(34, 5)[:33], 200 + step))


def length_max(w: _Words, step: int) -> One:
    return _one(_exactly([*w.plain(176, 7), w.own(4)], 1500 + step))


def lang(w: _Words, step: int) -> One:
    english = 13 + step
    mixed = [w.own(6) for _ in range(60)]
    for i in range(english):
        mixed[3 * i] = "the" if i % 2 else "and"
    for i in range(7):
        mixed[3 * i + 1] = "der"
    return _one(" ".join(mixed))


def words_min(w: _Words, step: int) -> One:
    return _one(" ".join(w.plain(30 + step, 7)))


def words_max(w: _Words, step: int) -> One:
    return _one(" ".join(w.plain(180 + step, 6)))


def mean_min(w: _Words, step: int) -> One:
    return _one(" ".join(w.sized(60, 240 + step)))


def mean_max(w: _Words, step: int) -> One:
    return _one(" ".join(w.sized(60, 480 + step)))


def hashes(w: _Words, step: int) -> One:
    words = w.plain(100)
    return _one(" ".join("#" + word if i < 10 + step else word for i, word in enumerate(words)))


def ellipses(w: _Words, step: int) -> One:
    words = w.plain(100)
    return _one(" ".join(word + ("..." if i % 2 else "…") if i < 10 + step else word for i, word in enumerate(words)))


def _lines(words: list[str], n: int) -> list[str]:
    return [" ".join(words[i : i + n]) for i in range(0, len(words), n)]


def bullets(w: _Words, step: int) -> One:
    return _one("\n".join("•‣◦-*"[i % 5] + line if i < 18 + step else line for i, line in enumerate(_lines(w.plain(100), 5))))


def ellipsis_lines(w: _Words, step: int) -> One:
    return _one("\n".join(line + "..." if i < 6 + step else line for i, line in enumerate(_lines(w.plain(100), 5))))


def alpha(w: _Words, step: int) -> One:
    words = w.plain(100)
    numbers = [i for i in range(99, -1, -1) if words[i] not in ("the", "with", "that", "from", "this")][: 20 - step]
    return _one(" ".join(str(10_000 + 37 * i) if i in numbers else word for i, word in enumerate(words)))


def stopwords(w: _Words, step: int) -> One:
    words = [w.own(6) for _ in range(60)]
    for i, word in enumerate(("was", "she", "his", "her", "they", "for")):
        words[i * 5] = word
    for i in range(2 + step):
        words[31 + 3 * i] = ("the", "with", "that")[i]
    return _one(" ".join(words))


def repetition(w: _Words, step: int) -> One:
    block = [w.own(5) for _ in range(15)]
    block[7] = w.own(5 + step)
    rest = [w.own(5) for _ in range(70)]
    for i in range(10):
        rest[3 * i] = ("with", "that", "from", "this", "have")[i % 5]
        rest[3 * i + 1] = w.own(6)  # so that the share is still of 500 letters
    return _one(" ".join([*rest[:35], *block, *rest[35:], *block]))


def ppl(w: _Words, step: int) -> One:
    words = w.plain()
    return _one(" ".join(word + "Q" if 20 <= i < 23 + step else word for i, word in enumerate(words)))


def loud(w: _Words, step: int) -> One:
    words = w.plain()
    return _one(" ".join(word + "Z" if 20 <= i < 22 + step else word for i, word in enumerate(words)))


def ngram(w: _Words, step: int) -> One:
    words = w.plain()
    return _one(" ".join([*words[:30], *PROTECTED.split()[5 : 18 + step], *words[30:]]))


def jaccard(w: _Words, step: int) -> One:
    """A pair whose shingle sets share n - 9 of n + 1: 40 of 50 at 49 words, of which the second text has its last five for itself."""
    words = w.plain(49 + step, 6)
    yield "first", " ".join(words)
    yield "", " ".join([*words[:-5], *(w.own(6) for _ in range(5))])


def paragraphs(w: _Words, step: int) -> One:
    """Four paragraphs, of which the next document has two and one of its own (under), three, or all, there under other white space."""
    said = [" ".join(w.plain(40)) for _ in range(4)]
    yield "first", "\n\n".join(said)
    yield "", "\n \t\n".join(said[: 3 + step] if step >= 0 else [*said[:2], " ".join(w.plain(40))])


def split(w: _Words, step: int) -> One:
    """The first eight bytes of the text's SHA-256 leave 499, 500 or 501 modulo 1000; validation takes those below 500."""
    words = w.plain()
    for n in count():
        text = " ".join([*words, f"k{n}"])
        if int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % 1000 == 500 + step:
            return _one(text)
    raise AssertionError


CASES: dict[str, Callable[[_Words, int], One]] = dict(
    zip(
        FAILS,
        [
            length_min, length_max, lang, words_min, words_max, mean_min, mean_max, hashes, ellipses, bullets, ellipsis_lines, alpha, stopwords,
            repetition, ppl, loud, ngram, jaccard, paragraphs, split,
        ],
        strict=True,
    )
)  # fmt: skip
