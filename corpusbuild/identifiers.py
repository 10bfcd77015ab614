"""Numbers that name an account, a device or a person, by their form and their check: where they stand in a text.

The checks are those of the library python-stdnum (``corpusbuild[pii]``), loaded when the first number of a kind is to be checked.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

UNSPACED = (
    r"\u0e00-\u0e4f\u0e80-\u0ecf\u1000-\u103f\u1780-\u17d3\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
    r"\U00020000-\U0003ffff"
)
"""Letters of scripts that write no space between words, or none before an ending, as a set of a regular expression: a number may touch them."""
WORD = rf"[^\W{UNSPACED}]"
"""What a number may not touch."""
BEGINS = rf"(?<!{WORD})"
"""Here a word may begin."""
ENDS = rf"(?!{WORD})"
"""Here a word may end."""


class LatePattern:
    """A regular expression that is compiled when it is first asked: planning asks none of them, and together they take 70 ms."""

    search: Callable[..., re.Match[str] | None]
    match: Callable[..., re.Match[str] | None]
    finditer: Callable[..., Iterator[re.Match[str]]]

    def __init__(self, pattern: str, flags: int = 0):
        self._pattern, self._flags = pattern, flags

    def __getattr__(self, method: str) -> Any:
        if method not in ("search", "match", "finditer"):
            raise AttributeError(method)
        found = getattr(re.compile(self._pattern, self._flags), method)
        setattr(self, method, found)
        return found


@dataclass(frozen=True)
class Form:
    """How a kind of number is written, and what its validators are called in ``stdnum``: any one must vouch for it, where there are some."""

    number: str
    validators: tuple[str, ...]
    name: str = ""
    """What must stand right before a number that, of plain digits, would in one case of ten pass its check by chance."""
    before: str = ""
    after: str = ""

    @property
    def pattern(self) -> LatePattern:
        """The form as an expression; the number is its group 1."""
        is_ = r"(?:[ ](?:is|ist|lautet|luidt|é|n\.?[º°]|nº|no\.?|nr\.?))?[ ]?[:=]?[ ]?"
        named = rf"(?i:{self.name})\.?(?i:{is_})" if self.name else ""
        return LatePattern(rf"{BEGINS}{self.before}{named}({self.number}){ENDS}{self.after}")


_DIGIT_JOINED = r"(?<![0-9][.-])"
_FISCAL = "0-9LMNP-V"  # a digit of an Italian code, or the letter that may stand for it
_MONTH = "(?:0[1-9]|1[0-2]|20|3[0-9]|4[0-2]|[5-9][0-9])"  # from 20 on: where the month of birth was not known

FORMS = {
    "iban": Form(r"[A-Z]{2}[0-9]{2}(?:[A-Z0-9]{11,30}|(?:[ ][A-Z0-9]{4}){2,7}(?:[ ][A-Z0-9]{1,3})?)", ("iban",)),
    # the validator asks whom the address was sold to, which says nothing about the devices that make theirs up
    "mac": Form(
        r"[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\2){4}[0-9A-Fa-f]{2}",
        (),
        before=r"(?<!\b[0-9A-Fa-f]{2}[:-])",
        after=r"(?![:-][0-9A-Fa-f])",
    ),
    "us_ssn": Form("[0-9]{3}-[0-9]{2}-[0-9]{4}", ("us.ssn",), before=_DIGIT_JOINED, after=r"(?![.-]\w)"),
    # it has no check digit, but prefixes that are never given out
    "gb_nino": Form("(?!BG|GB|KN|NK|NT|TN|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z](?:[0-9]{6}|[ ](?:[0-9]{2}[ ]){3})[A-D]", ()),
    "de_idnr": Form(
        "[0-9]{11}|[0-9]{2}(?:[ ][0-9]{3}){3}",
        ("de.idnr",),
        name="(?:steuer-?)?id-?nr|steuer-?id|(?:steuer-?)?identifikationsnummer",
        after="(?![.-][0-9])",
    ),
    # 3 and 4, for people who are being registered, are left out: cards of 15 digits begin with 3
    "fr_nir": Form(
        rf"[1278][0-9]{{2}}{_MONTH}(?:[0-9]{{2}}|2[AB])[0-9]{{8}}"
        rf"|[1278][ ][0-9]{{2}}[ ]{_MONTH}[ ](?:[0-9]{{2}}|2[AB])[ ][0-9]{{3}}[ ][0-9]{{3}}[ ][0-9]{{2}}",
        ("fr.nir",),
    ),
    "es_dni": Form(
        r"(?:[0-9]{8}|[0-9]{2}\.[0-9]{3}\.[0-9]{3}|[XYZ]-?[0-9]{7})-?[A-HJ-NP-TV-Z]", ("es.dni", "es.nie"), before=_DIGIT_JOINED
    ),
    "it_cf": Form(
        rf"[A-Z]{{6}}[{_FISCAL}]{{2}}[A-EHLMPRST][{_FISCAL}]{{2}}[A-Z][{_FISCAL}]{{3}}[A-Z]"
        rf"|[A-Z]{{3}}[ ][A-Z]{{3}}[ ][{_FISCAL}]{{2}}[A-EHLMPRST][{_FISCAL}]{{2}}[ ][A-Z][{_FISCAL}]{{3}}[A-Z]",
        ("it.codicefiscale",),
    ),
    "nl_bsn": Form(
        r"[0-9]{9}|[0-9]{4}\.[0-9]{2}\.[0-9]{3}",
        ("nl.bsn",),
        name="bsn(?:-?nummer)?|burgerservicenummer|sofi-?nummer",
        after="(?![.-][0-9])",
    ),
    "pt_nif": Form("[0-9]{9}|[0-9]{3}[ ][0-9]{3}[ ][0-9]{3}", ("pt.nif",), name="nif|contribuinte", after="(?![.-][0-9])"),
}
_PATTERNS = {kind: form.pattern for kind, form in FORMS.items()}


def find(kind: str, text: str) -> Iterator[tuple[int, int]]:
    """(start, end) of each number of ``kind`` (one of ``FORMS``) in ``text``, in order, without overlaps.

    >>> list(find("mac", "ether 00:1a:2b:3c:4d:5e"))
    [(6, 23)]
    """
    at = 0
    while match := _PATTERNS[kind].search(text, at):
        start, end = match.span(1)
        while end > start and not is_valid(kind, text[start:end]):
            # what follows an account in groups of four may look like one more of them
            end = text.rfind(" ", start, end) if kind == "iban" else start
        if end > start:
            yield start, end
        at = end if end > start else match.start() + 1


def is_valid(kind: str, number: str) -> bool:
    """Whether a number in one of the forms of ``kind`` passes its check.

    >>> is_valid("es_dni", "12.345.678-Z"), is_valid("es_dni", "12345678A")
    (True, False)
    """
    bare = number.replace(".", "").replace(" ", "")
    validators = FORMS[kind].validators
    return not validators or any(_validator(name)(bare) for name in validators)


def version() -> str:
    """The version of the validators, which decide what is found. ``ImportError`` where they are not installed."""
    return str(import_module("stdnum").__version__)


@lru_cache
def _validator(name: str) -> Callable[[str], bool]:
    check: Callable[[str], bool] = import_module(f"stdnum.{name}").is_valid
    return check
