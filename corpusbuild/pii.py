"""Where personal data stands in a text, and the text without it.

Every detector takes time linear in the text, whatever the text, and finds nothing that holds a line end.
"""

import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from corpusbuild import identifiers, kernels
from corpusbuild.identifiers import BEGINS, ENDS, WORD, LatePattern
from corpusbuild.text import replace
from corpusbuild.texts import Texts

Kind = Literal[
    "email", "phone", "card", "ip", "key",
    "iban", "mac", "us_ssn", "gb_nino", "de_idnr", "fr_nir", "es_dni", "it_cf", "nl_bsn", "pt_nif",
]  # fmt: skip
ALL_KINDS: tuple[Kind, ...] = get_args(Kind)
KINDS = ALL_KINDS[:5]
"""The kinds that are looked for unless a configuration says otherwise."""
FURTHER_KINDS = ALL_KINDS[5:]
"""The kinds that a configuration may add: those of :mod:`corpusbuild.identifiers`."""
PLACEHOLDERS: dict[str, str] = {kind: f"<{kind.upper()}>" for kind in ALL_KINDS}
MANIFEST_KEYS: dict[str, str] = {kind: f"{kind}s" for kind in ALL_KINDS}
"""The name under which a manifest counts each kind."""

MAX_ROUNDS = 20
SHORTEST = len("a@b.cc")
"""No piece of personal data is shorter."""


class PiiSpan(NamedTuple):
    """One piece of personal data: its kind, and where it stands, in code points of the text."""

    kind: str
    start: int
    end: int


def detect(text: str, kinds: Sequence[str] = KINDS) -> list[PiiSpan]:
    """The personal data of ``kinds`` in ``text``, in order, without overlaps.

    - email: ``local@label.label.tld``, local of ``A-Za-z0-9._%+-``, labels of ``A-Za-z0-9-``, a last one of two letters or more; not after a
      word character or one of ``.+-``, not before a word character or ``-``.
    - phone: a North American number as ``(212) 555-0123``, ``212-555-0123``, ``212.555.0123`` or ``212 555 0123``, after ``1`` or ``+1`` or
      not; or ``+`` and 8 to 15 digits that single spaces, dots or dashes may group. Not within a longer run of digits or a word.
    - card: 13 to 19 digits, the first 2 to 6, that end in the right check digit (Luhn). They are one group of digits, or all groups of a run
      that single spaces and dashes join, or four groups of four or 4-6-5 at either end of such a run. Not part of a word or a decimal.
    - ip: four numbers up to 255, not within a word or a longer dotted run; or what :mod:`ipaddress` takes for IPv6, with two groups and four digits or
      more, so that ``::1`` and slices are none.
    - key: a secret in the form of a well-known service, not touching a word character or ``-``.

    - iban, mac, us_ssn, gb_nino, de_idnr, fr_nir, es_dni, it_cf, nl_bsn, pt_nif: as :data:`corpusbuild.identifiers.FORMS` has them.

    Of spans that overlap the first stays, of those that start together the longest, of equal ones the first of ``FURTHER_KINDS``, then of
    ``KINDS``. What is found is then taken for a border and what stands between is searched again, up to ``MAX_ROUNDS`` times a line, so that nothing is to be found in the
    redacted text.

    >>> detect("Mail ana@example.com or call (212) 555-0123.")
    [PiiSpan(kind='email', start=5, end=20), PiiSpan(kind='phone', start=29, end=43)]
    """
    found = _search(text, kinds)
    stretches = list(_between(text, 0, len(text), found)) if found else []
    if not stretches:
        return found
    for _ in range(MAX_ROUNDS - 1):
        again: list[tuple[int, int]] = []
        for start, end in stretches:
            spans = [PiiSpan(kind, start + at, start + until) for kind, at, until in _search(text[start:end], kinds)]
            if spans:
                found += spans
                again += _between(text, start, end, spans)
        stretches = again
        if not stretches:
            break
    return sorted(found, key=lambda span: span.start)


class Places(NamedTuple):
    """Personal data of many texts, by text and then place: a column each of :class:`PiiSpan`, after the index of the text."""

    rows: NDArray[np.int64]
    kinds: NDArray[np.int32]
    """Places among the kinds that were looked for."""
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def at(self, which: NDArray[np.bool_]) -> "Places":
        return Places(self.rows[which], self.kinds[which], self.starts[which], self.ends[which])


NOWHERE = Places(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))


def detect_all(texts: Texts, kinds: Sequence[str] = KINDS) -> Places:
    """What :func:`detect` finds in each text.

    >>> texts = Texts(np.frombuffer(b"mail a@b.cc", np.uint8), np.array([0, 11]))
    >>> [column.tolist() for column in detect_all(texts)]
    [[0], [0], [5], [11]]
    """
    # of the further kinds some have no byte that is worth a look, and some stand behind words
    compiled = kernels.compiled() and not set(kinds) & set(FURTHER_KINDS)
    number = {kind: i for i, kind in enumerate(kinds)}
    found = [NOWHERE]
    for rows, points, pieces in _windows(texts, kinds) if compiled else _whole(texts):
        # no detector looks past a line, and many short texts take longer than a long one
        spans = [(number[kind], start, end) for kind, start, end in detect("\n".join(pieces), kinds)]
        kind, start, end = np.array(spans, np.int64).reshape(-1, 3).T
        first = np.cumsum([0, *(len(piece) + 1 for piece in pieces[:-1])])
        which = np.searchsorted(first, start, side="right") - 1
        to_text = points[which] - first[which]
        found.append(Places(rows[which], kind.astype(np.int32), start + to_text, end + to_text))
    return joined(found)


def joined(places: Sequence[Places]) -> Places:
    """The columns of all, one after another."""
    rows, kinds, starts, ends = zip(*places, strict=True)
    return Places(np.concatenate(rows), np.concatenate(kinds), np.concatenate(starts), np.concatenate(ends))


def redact(text: str, spans: Sequence[PiiSpan]) -> str:
    """``text`` with the placeholder of its kind for each span. ``ValueError`` when spans are out of order, overlap, are empty or out of range.

    >>> redact("Mail ana@example.com.", [PiiSpan("email", 5, 20)])
    'Mail <EMAIL>.'
    """
    return replace(text, [(start, end, PLACEHOLDERS[kind]) for kind, start, end in spans])


def luhn_ok(digits: str) -> bool:
    """Whether the last of some ASCII digits is the check digit of the others.

    >>> luhn_ok("4111111111111111"), luhn_ok("4111111111111112"), luhn_ok("")
    (True, False, False)
    """
    if not (digits.isascii() and digits.isdigit()):
        return False
    numbers = [int(d) for d in reversed(digits)]
    return (sum(numbers[::2]) + sum(sum(divmod(2 * n, 10)) for n in numbers[1::2])) % 10 == 0


# --- where to look ---

I64 = NDArray[np.int64]
Pieces = tuple[I64, I64, list[str]]
"""Pieces of texts: the index of each text, how many of its code points stand before the piece, and the piece itself."""
WINDOWS = 1 << 14  # found at once


def _whole(texts: Texts) -> Iterator[Pieces]:
    for row, text in enumerate(texts.strings()):
        yield np.array([row]), np.array([0]), [text]


def _windows(texts: Texts, kinds: Sequence[str]) -> Iterator[Pieces]:
    from corpusbuild.kernels import pii as kernel

    marks, out = np.zeros(256, np.uint8), np.empty((WINDOWS, 4), np.int64)
    marks[list(b"".join(kernel.MARKS[kind] for kind in kinds))] = 1
    numbers = sum(number for kind, number in (("phone", kernel.PHONE), ("card", kernel.CARD), ("ip", kernel.IP)) if kind in kinds)
    state = np.array([0, -1, 0, 0])
    n = WINDOWS
    while n == WINDOWS:
        n = kernel.windows(texts.data, texts.offsets, marks, np.uint8(numbers), state, out)
        if n:
            rows, starts, ends, points = out[:n].T.copy()
            view = texts.data.data
            yield rows, points, [str(view[start:end], "utf-8") for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


# --- one search ---


_PRECEDENCE: dict[str, int] = {kind: place for place, kind in enumerate((*FURTHER_KINDS, *KINDS))}
"""A number with a stricter check may be a card as well, but not the other way about."""


def _search(text: str, kinds: Sequence[str]) -> list[PiiSpan]:
    candidates: list[PiiSpan] = []
    digits = _digit_count(text)
    # no tuple of conditions: short texts, of which there are many, would pay for all of them
    if "@" in text and "email" in kinds:
        candidates += [PiiSpan("email", *span) for span in _emails(text)]
    if digits >= 8 and "phone" in kinds:
        candidates += [PiiSpan("phone", *span) for span in _phones(text)]
    if digits >= 13 and "card" in kinds:
        candidates += [PiiSpan("card", *span) for span in _cards(text)]
    if digits >= 4 and text.count(".") >= 3 and "ip" in kinds:
        candidates += [PiiSpan("ip", *span) for span in _ip4(text)]
    if ("::" in text or text.count(":") >= 6) and "ip" in kinds:
        candidates += [PiiSpan("ip", *span) for span in _ip6(text)]
    if ("-" in text or "_" in text or "A" in text) and "key" in kinds and any(mark in text for mark in _KEY_MARKS):
        candidates += [PiiSpan("key", *span) for span in _keys(text)]
    candidates += [PiiSpan(kind, *span) for kind in kinds if kind in FURTHER_KINDS for span in identifiers.find(kind, text)]
    if len(candidates) < 2:
        return candidates
    spans: list[PiiSpan] = []
    for span in sorted(candidates, key=lambda s: (s.start, -s.end, _PRECEDENCE[s.kind])):
        if not spans or spans[-1].end <= span.start:
            spans.append(span)
    return spans


def _between(text: str, start: int, end: int, spans: Sequence[PiiSpan]) -> Iterator[tuple[int, int]]:
    """The stretches of text[start:end] that a span is now a border of, up to the ends of its line, if they have room for another."""
    borders = [start, *(border for span in spans for border in span[1:]), end]
    for i in range(0, len(borders), 2):
        a, b = borders[i], borders[i + 1]
        if b - a < SHORTEST:
            continue
        first = text.find("\n", a, b)
        if first < 0:
            yield a, b
            continue
        if i > 0 and first - a >= SHORTEST:
            yield a, first
        last = text.rfind("\n", a, b) + 1
        if i < len(borders) - 2 and b - last >= SHORTEST:
            yield last, b


def _digit_count(text: str) -> int:
    data = text.encode("utf-8", "surrogatepass")
    return len(data) - len(data.translate(None, b"0123456789"))


# --- detectors: each gives (start, end), in order; they may overlap those of other kinds ---

_ADDRESS = r"[A-Za-z0-9._%+-]++@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}(?!-)" + ENDS
_EMAIL_HERE = LatePattern(_ADDRESS)
# a run of the local part is tried from its first character only, or each of them would begin a search of the whole run
_EMAIL = LatePattern(r"(?<![A-Za-z0-9._%+-])" + _ADDRESS)
_BORDERLESS = LatePattern(rf"(?<={WORD})|(?<=[.+-])")


def _emails(text: str) -> Iterator[tuple[int, int]]:
    at = 0
    while match := _EMAIL_HERE.match(text, at) or _EMAIL.search(text, at):
        start, end = match.span()
        if _BORDERLESS.match(text, start):
            # an address may yet begin after a "%", the one character of a local that is a border
            sign = text.index("@", start)
            start = text.find("%", start, sign) + 1
            if start in (0, sign):
                at = sign + 1
                continue
        yield start, end
        at = end


# a set before what looks behind it, for the engine skips to the next member of a set that a pattern begins with
_PHONE_START = LatePattern(rf"[(+0-9](?<!{WORD}.)(?<!\+.)", re.DOTALL)
_PHONE = LatePattern(
    r"""(?:
        (?:\+1[ .-]?|1[ .-])?\([2-9][0-9]{2}\)[ ]?[2-9][0-9]{2}[ .-][0-9]{4}(?![.-][0-9])
      | (?<![0-9]-)(?:\+1[ .-]?|1[ .-])?[2-9][0-9]{2}-[2-9][0-9]{2}-[0-9]{4}(?!-[0-9])
      | (?<![0-9]\.)(?:\+1[ .-]?|1[ .-])?[2-9][0-9]{2}\.[2-9][0-9]{2}\.[0-9]{4}(?!\.[0-9])
      | (?<![0-9][ ])(?:\+1[ .-]?|1[ .-])?[2-9][0-9]{2}[ ][2-9][0-9]{2}[ ][0-9]{4}(?![ ][0-9])
      | \+[0-9](?:[ .-]?[0-9]){7,14}
    )"""
    + ENDS,
    re.VERBOSE,
)


def _phones(text: str) -> Iterator[tuple[int, int]]:
    at = 0
    for first in _PHONE_START.finditer(text):
        if first.start() >= at and (match := _PHONE.match(text, first.start())):
            at = match.end()
            yield match.span()


_RUN = LatePattern(r"[0-9]++(?:[ -][0-9]++)*+")
_GROUP = LatePattern(r"[0-9]+")
_CARD_DIGITS = range(13, 20)
_CARD_LAYOUTS = ((4, 4, 4, 4), (4, 6, 5))
_PART_BEFORE = LatePattern(rf"(?<={WORD})|(?<=[0-9]\.)")
_PART_AFTER = LatePattern(rf"{WORD}|\.[0-9]")

Groups = list[tuple[int, int]]


def _cards(text: str) -> Iterator[tuple[int, int]]:
    for run in _RUN.finditer(text):
        if run.end() - run.start() < _CARD_DIGITS.start:
            continue
        rest: Groups = []
        for group in (match.span() for match in _GROUP.finditer(text, *run.span())):
            if _is_card(text, [group]):
                yield group
                yield from _cards_of_run(text, rest)
                rest = []
            else:
                rest.append(group)
        yield from _cards_of_run(text, rest)


def _cards_of_run(text: str, groups: Groups) -> Iterator[tuple[int, int]]:
    """Cards of more than one group: all of the run, else a known layout at its beginning or end, and so on with what is left of it."""
    first, last = 0, len(groups)
    while first < last:
        sizes = _sizes(groups[first : min(last, first + 4)]), _sizes(groups[max(first, last - 4) : last])
        if last - first <= _CARD_DIGITS.stop and _is_card(text, groups[first:last]):
            yield groups[first][0], groups[last - 1][1]
            return
        for layout in _CARD_LAYOUTS:
            n = len(layout)
            if sizes[0][:n] == layout and _is_card(text, groups[first : first + n]):
                yield groups[first][0], groups[first + n - 1][1]
                first += n
                break
            if sizes[1][-n:] == layout and _is_card(text, groups[last - n : last]):
                yield groups[last - n][0], groups[last - 1][1]
                last -= n
                break
        else:
            return


def _is_card(text: str, groups: Groups) -> bool:
    size = sum(end - start for start, end in groups)
    start, end = groups[0][0], groups[-1][1]
    return (
        size in _CARD_DIGITS
        and text[start] in "23456"
        and not _PART_BEFORE.match(text, start)
        and not _PART_AFTER.match(text, end)
        and luhn_ok("".join(text[a:b] for a, b in groups))
    )


def _sizes(groups: Groups) -> tuple[int, ...]:
    return tuple(end - start for start, end in groups)


_IP4 = LatePattern(rf"[0-9](?<!{WORD}.)(?<!\..)[0-9]{{0,2}}(?:\.[0-9]{{1,3}}){{3}}{ENDS}(?!\.\w)", re.DOTALL)


def _ip4(text: str) -> Iterator[tuple[int, int]]:
    return (match.span() for match in _IP4.finditer(text) if all(int(part) <= 255 for part in match[0].split(".")))


_HEX_RUN = LatePattern(rf"{BEGINS}(?<![:.])[0-9A-Fa-f:.]++{ENDS}")
_LONGEST_IP6 = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")


def _ip6(text: str) -> Iterator[tuple[int, int]]:
    for run in _HEX_RUN.finditer(text):
        start = run.start() + len(run[0]) - len(run[0].lstrip("."))
        address = run[0].strip(".")
        if address.endswith(":") and not address.endswith("::"):
            address = address[:-1]  # a colon of the sentence
        if address.count(":") >= 2 and len(address) <= _LONGEST_IP6 and _is_ip6(address):
            yield start, start + len(address)


def _is_ip6(address: str) -> bool:
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return sum(map(bool, address.split(":"))) >= 2 and sum(ch not in ":." for ch in address) >= 4


_KEY = LatePattern(
    BEGINS
    + r"""(?<!-)(?:
        sk-[A-Za-z0-9_-]{20,}+
      | AKIA[0-9A-Z]{16}
      | gh[pousr]_[A-Za-z0-9]{36}
      | xox[abprs]-[A-Za-z0-9-]{10,}+
      | AIza[0-9A-Za-z_-]{35}
      | tl_[a-z0-9]{4,32}_[A-Za-z0-9]{24,}+
    )(?!-)"""
    + ENDS,
    re.VERBOSE,
)
_KEY_MARKS = ("sk-", "AKIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-", "AIza", "tl_")


def _keys(text: str) -> Iterator[tuple[int, int]]:
    return (match.span() for match in _KEY.finditer(text))
