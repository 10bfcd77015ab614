"""Token files in the layouts of trainers. A module a layout; all of them are written from one stream of ids."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[Any]
Ends = Callable[[], Iterator[NDArray[np.int64]]]
"""Where things end, in ids from the beginning of the file, ascending, a chunk at a time."""


@dataclass(frozen=True)
class Shape:
    """What is known of a file before its first id."""

    name: str
    """``train-00000``."""
    n_tokens: int
    vocab_size: int
    tokenizer: str
    dtype: np.dtype[Any]
    samples: Ends
    """Ends of documents, or of sequences where there are some."""
    runs: Ends
    """Ends of the runs of ids of one document, and of paddings."""


Page = dict[str, Any]
"""What the index of a split has to know of a file."""


class Sink(Protocol):
    """A file, or several, that take the ids of a file in order."""

    def write(self, ids: Ids) -> None: ...

    def close(self) -> Page: ...


Out = Callable[[str], Path]
"""The path for a suffix of the file's name."""


class Layout(Protocol):
    """A module of this package."""

    def sink(self, shape: Shape, out: Out) -> Sink:
        """Open the files of a token file. ``ValueError`` when the layout cannot hold it."""
        ...

    def index(self, files: list[Page]) -> bytes | None:
        """``index.json`` of a split, of which these are the files in order; None where the layout has none."""
        ...


class Plain(Sink):
    """A header, then the ids."""

    def __init__(self, path: Path, header: bytes = b"", page: Page | None = None):
        self._file: BufferedWriter = path.open("wb")
        self._file.write(header)
        self._page = page or {}

    def write(self, ids: Ids) -> None:
        self._file.write(np.ascontiguousarray(ids).data)

    def close(self) -> Page:
        self._file.close()
        return self._page


def layout(name: str) -> Layout:
    """The layout of this name."""
    from corpusbuild.writers import litdata, mds, megatron, nanotron, npy

    known: dict[str, Layout] = {"litdata": litdata, "mds": mds, "megatron": megatron, "nanotron": nanotron, "npy": npy}
    return known[name]


def count(ends: Ends) -> int:
    return sum(len(chunk) for chunk in ends())


def lengths(ends: Ends) -> Iterator[NDArray[np.int64]]:
    last = 0
    for chunk in ends():
        yield np.diff(chunk, prepend=last)
        last = int(chunk[-1]) if len(chunk) else last
