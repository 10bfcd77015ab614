"""Compiled loops over UTF-8 bytes. Each is a pure function of arrays, the equal of a plain reference that reads like its definition.

Whoever has both asks ``compiled()`` and imports the kernel's module only then, for that loads the compiler. Outside ``using`` the references run, so a
command that looks at one document pays for no compiler.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, NamedTuple

MODULES: tuple[str, ...] = ("blake3", "contamination", "law", "minhash", "normal", "paragraphs", "pii", "quality", "rawlines", "rows")
"""The modules of this package that hold kernels."""


Form = Literal["compiled", "reference"]


Choice = Literal["auto", "compiled", "reference"]
"""What a person may say: ``auto`` compiles where there is enough text to be worth loading the compiler."""


class Kernels(NamedTuple):
    """Which form runs, and the folder where this machine keeps the compiled one ("" for wherever the compiler keeps it)."""

    form: Form
    folder: str = ""


PLAIN = Kernels("reference")
_current: ContextVar[Kernels] = ContextVar("kernels", default=PLAIN)


def compiled() -> bool:
    """Whether compiled kernels are to be used here."""
    return _current.get().form == "compiled"


def folder() -> str:
    return _current.get().folder


@contextmanager
def using(kernels: Kernels) -> Iterator[None]:
    before = _current.set(kernels)
    try:
        yield
    finally:
        _current.reset(before)
