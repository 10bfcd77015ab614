"""Canonical bytes and their digests. The only module that knows how a key is spelled."""

import hashlib
import math
import re
from pathlib import Path
from typing import Any

import msgspec
from blake3 import blake3

FORMAT = 1  # bump to invalidate every key at once
_SAFE_INTEGER = 2**53


def canonical(value: object) -> bytes:
    """Encode a value as JSON so that equal content gives equal bytes, as Go's ``json.Marshal`` writes it.

    Keys sorted by code point, no white space, UTF-8 kept, ``< > &`` and the two Unicode line separators escaped, numbers as float64.
    ``ValueError`` for NaN, infinities and integers beyond 2**53, which have no exact common form.

    >>> canonical({"b": 1.0, "a": "x<y"}).decode()
    '{"a":"x\\\\u003cy","b":1}'
    """
    return _encode(msgspec.to_builtins(value)).encode()


def key_digest(*parts: object) -> str:
    """The SHA-256 of the canonical form of ``parts`` under the key format, in hex."""
    return hashlib.sha256(canonical([FORMAT, *parts])).hexdigest()


def config_sha256(config: Any) -> str:
    """The hash of a configuration's content, whatever its spelling, in hex."""
    return hashlib.sha256(canonical(config)).hexdigest()


def build_id(dataset: str, version: str, config_sha256: str) -> str:
    """The id of a build, under which its steps, its journal and its workflow are named."""
    return f"corpus/{dataset}/{version}/{config_sha256[:12]}"


def sums_line(data: bytes, name: str) -> bytes:
    """The line by which ``sha256sum -c`` checks a file ``name`` that holds ``data``."""
    return f"{hashlib.sha256(data).hexdigest()}  {name}\n".encode()


def file_sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def file_blake3(path: Path) -> str:
    return blake3().update_mmap(path).hexdigest() if path.stat().st_size else blake3().hexdigest()


def _encode(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_string(str(k))}:{_encode(value[k])}" for k in sorted(value, key=str)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_encode, value)) + "]"
    raise TypeError(f"{type(value).__name__} has no canonical form")


def _string(text: str) -> str:
    return f'"{_SPECIAL.sub(_escaped, text)}"'


def _escaped(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[0], "\\ufffd")  # Go replaces what is not valid UTF-8: a lone surrogate


_ESCAPES = {chr(c): f"\\u{c:04x}" for c in [*range(32), ord("<"), ord(">"), ord("&"), 0x2028, 0x2029]} | {
    '"': '\\"',
    "\\": "\\\\",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\b": "\\b",
    "\f": "\\f",
}

_SPECIAL = re.compile('[\x00-\x1f"\\\\<>&\u2028\u2029\ud800-\udfff]')


def _number(value: int | float) -> str:
    if isinstance(value, int) and abs(value) > _SAFE_INTEGER:
        raise ValueError(f"{value} is beyond 2**53 and has no exact common form")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value} has no canonical form")
    if number == 0:
        return "-0" if math.copysign(1, number) < 0 else "0"
    # the shortest digits that read back, laid out as ECMAScript and Go do: fixed between 1e-6 and 1e21, else an exponent
    sign, digits = ("-" if number < 0 else ""), repr(abs(number))
    mantissa, _, exponent = digits.partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    point = len(whole) + (int(exponent) if exponent else 0)
    significant = (whole + fraction).lstrip("0")
    point -= len(whole + fraction) - len(significant)
    significant = significant.rstrip("0")
    if 1e-6 <= abs(number) < 1e21:
        if point <= 0:
            return f"{sign}0.{'0' * -point}{significant}"
        if len(significant) <= point:
            return sign + significant + "0" * (point - len(significant))
        return f"{sign}{significant[:point]}.{significant[point:]}"
    head = significant[0] + ("." + significant[1:] if len(significant) > 1 else "")
    power = point - 1
    return f"{sign}{head}e{'-' if power < 0 else '+'}{abs(power)}"
