"""How a stage is declared and what it is given to build with."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from corpusbuild.model import Contents, Counts, Key, Record


@dataclass(frozen=True)
class Input:
    """A finished store entry that a build reads. ``source`` is the source it belongs to, or ``""``."""

    path: Path
    source: str
    contents: Contents

    def files(self, suffix: str) -> list[Path]:
        """The entry's files that end in ``suffix``, by name. Part files are named in document order, so this is plan order."""
        return [self.path / f.path for f in sorted(self.contents.files, key=lambda f: f.path) if f.path.endswith(suffix)]


class Task(Record):
    """Base of what is mapped: a small descriptor of one unit of work. ``name`` is unique in its step and prefixes its files."""

    name: str


class Out(Protocol):
    """Where one task writes. Files appear in the step's directory, whole and durable, only when the task has returned."""

    def path(self, suffix: str, folder: str = "") -> Path:
        """A place to write the file ``<task name><suffix>``, to be published with the task, in a ``folder`` of the entry if one is named."""
        ...

    def scratch(self, suffix: str) -> Path:
        """A place for ``<task name><suffix>`` that later tasks of the same build may read, but that is not part of the result."""
        ...


class Mapper(Protocol):
    """``job.map``: run ``fn(task, out)`` for every task, maybe in other processes, and give the values in the order of the tasks.

    ``fn`` must be a module-level function. Its value must be plain data (dict, list, str, int, float, None) of at most 1 MB, and hold no path.
    A task that an earlier, interrupted attempt finished is not run again: its recorded value is given.
    """

    def __call__(self, fn: Callable[[Any, Out], Any], tasks: Iterable[Task]) -> list[Any]: ...


@dataclass(frozen=True)
class Job:
    """Everything a build may see: its parameters, its inputs by role, and a way to run tasks that write its output.

    ``inputs`` maps a role to the entries that fill it, in plan order (per-source roles: one entry a source).
    ``memory`` is how many bytes one task may hold.
    """

    params: Any
    key: Key
    inputs: Mapping[str, tuple[Input, ...]]
    map: Mapper
    scratch: Path
    """The folder of ``Out.scratch`` files. It may move between attempts: pass it in tasks, never keep it in a value."""
    put: Callable[[str, bytes], None]
    """Write a small file of the entry under its final name: ``put("_MANIFEST.json", data)``."""
    memory: int
    say: Callable[[str], None] = lambda line: None
    """Tell whoever waits for the build. It decides nothing."""


@dataclass(frozen=True)
class Stage:
    """A named, versioned build function. Bump ``version`` when equal inputs give new outputs."""

    name: str
    version: int
    build: Callable[[Job], Counts]
    names_output: Callable[[Any], object] = lambda params: params
    """The part of the parameters that decides the output. All of it, but for a pinned download."""


@dataclass(frozen=True)
class Step:
    """A stage applied to parameters and inputs: what Nix calls a derivation, Bazel an action."""

    stage: Stage
    params: Any
    inputs: Mapping[str, tuple["Step", ...]]
    key: Key
    label: str
    """``<stage>`` or ``<stage>:<source>``."""
    source: str = ""
    follows: tuple["Step", ...] = ()
    """The steps that decided about these documents before: what they kept must be what comes in here."""
