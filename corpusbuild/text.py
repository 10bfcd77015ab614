"""What a document's text is: its normal form, its paragraphs, and what remains of it when decisions are applied."""

import hashlib
import re
import unicodedata
from collections.abc import Collection, Sequence
from typing import Literal

Split = Literal["train", "val"]

# Category Cc never changes: C0, DEL and C1. Line feed and tab stay; carriage returns have become line feeds by then.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff]")
_BLANK_LINES = re.compile("\n{3,}")


def normalize(text: str) -> str:
    r"""The normal form of a raw text; normalizing it again changes nothing.

    In this order: CR LF and CR become LF; control characters (Cc, but LF and TAB) and U+FEFF go; NFC; each line loses the spaces and tabs at
    its end; three or more LF become two; the white space at both ends goes.

    >>> normalize("e\u0301te\u0301 \r\n\r\n\r\n\x00fin\t\n")
    'été\n\nfin'
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _CONTROLS.sub("", text)
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    # line by line, for a regular expression of blanks before a line end takes quadratic time on a long run of spaces
    text = "\n".join([line.rstrip(" \t") for line in text.split("\n")])
    return _BLANK_LINES.sub("\n\n", text).strip()


def paragraphs(text: str) -> list[tuple[int, int]]:
    r"""Where the paragraphs stand: (start, end) in code points, in order.

    A paragraph is what stands between blank lines (empty, or spaces and tabs only), less the white space at its ends; empty ones are skipped.

    >>> paragraphs("one\ntwo\n \t\n three\n")
    [(0, 7), (12, 17)]
    """
    found = []
    start, at = 0, 0
    for line in text.split("\n"):
        if not line.strip(" \t"):
            found.append((start, at))
            start = at + len(line) + 1
        at += len(line) + 1
    found.append((start, len(text)))
    return [stripped for start, end in found if (stripped := _strip(text, start, end))]


def replace(text: str, spans: Sequence[tuple[int, int, str]]) -> str:
    """``text`` with each span (start, end, placeholder), in code points, replaced by its placeholder.

    ``ValueError`` when spans are empty, overlap, are out of order or reach out of the text.

    >>> replace("call 555 now", [(5, 8, "<PHONE>")])
    'call <PHONE> now'
    """
    out, at = [], 0
    for start, end, placeholder in spans:
        if not at <= start < end <= len(text):
            raise ValueError(
                f"span [{start},{end}) is empty, out of order, overlaps the one before or leaves the text of {len(text)} code points"
            )
        out += [text[at:start], placeholder]
        at = end
    return "".join([*out, text[at:]])


def effective(text: str, cuts: Collection[int], spans: Sequence[tuple[int, int, str]] = ()) -> str | None:
    r"""What remains of a filtered text when the paragraphs ``cuts`` (indices) are removed and ``spans`` are replaced.

    Without cuts the text keeps its own white space; with cuts the remaining paragraphs are joined by one blank line; ``None`` when none remains.
    Spans are (start, end, placeholder) in code points of ``text``, in order; those in a cut paragraph go with it. ``ValueError`` for a span that
    crosses the border of a paragraph, for spans as in :func:`replace`, and for a cut that names no paragraph.

    >>> effective("a\n\nmail b@c.de\n\nd", {0}, [(8, 14, "<EMAIL>")])
    'mail <EMAIL>\n\nd'
    """
    if not cuts:
        return replace(text, spans)
    where = paragraphs(text)
    if not all(0 <= cut < len(where) for cut in cuts):
        raise ValueError(f"cuts {sorted(cuts)} name a paragraph that the text of {len(where)} paragraphs does not have")
    within: list[list[tuple[int, int, str]]] = [[] for _ in where]
    paragraph = 0
    for start, end, placeholder in spans:
        while paragraph < len(where) and where[paragraph][1] <= start:
            paragraph += 1
        if paragraph == len(where) or not where[paragraph][0] <= start < end <= where[paragraph][1]:
            raise ValueError(f"span [{start},{end}) does not stand within one paragraph, or is out of order")
        offset = where[paragraph][0]
        within[paragraph].append((start - offset, end - offset, placeholder))
    removed = set(cuts)
    kept = [replace(text[start:end], within[i]) for i, (start, end) in enumerate(where) if i not in removed]
    return "\n\n".join(kept) if kept else None


def split_of(text: str, val_permille: int) -> Split:
    """The split that a text falls into, by nothing but the text: ``val`` for about ``val_permille`` in a thousand texts.

    The first eight bytes of the SHA-256 of the UTF-8 text, as a big-endian number, modulo 1000, are compared with ``val_permille``.

    >>> split_of("é", 51), split_of("é", 52)
    ('train', 'val')
    """
    residue = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % 1000
    return "val" if residue < val_permille else "train"


def _strip(text: str, start: int, end: int) -> tuple[int, int] | None:
    piece = text[start:end]
    body = piece.strip()
    if not body:
        return None
    start += len(piece) - len(piece.lstrip())
    return start, start + len(body)
