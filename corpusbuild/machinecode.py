"""Compiled kernels of this machine: where they are kept, and how they get there, at most once.

The folder is named by the package's place, its kernels' sources and the versions that compile them, since the compiler itself looks only at the time of
a file. ``ready`` is written in it last.
"""

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from corpusbuild import kernels
from corpusbuild.errors import StageError
from corpusbuild.kernels import Kernels

PACKAGE = Path(kernels.__file__).parent
READY = "ready"


def make_ready(say: Callable[[str], None]) -> Kernels:
    """The compiled kernels, compiled now if they never were. ``StageError`` with what the compiler says when they cannot be."""
    place = hashlib.sha256(str(PACKAGE).encode()).hexdigest()[:8]
    home = _home()
    folder = home / f"{place}-{_identity()}"
    if not (folder / READY).exists():
        with (home / f"{place}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / READY).exists():
                for old in home.glob(f"{place}-*"):
                    shutil.rmtree(old)
                say("compiling the kernels for this machine, once; it takes some seconds")
                _compile(folder)
    return Kernels("compiled", str(folder))


def _compile(folder: Path) -> None:
    """In a process of its own, so that this one need not load the compiler."""
    folder.mkdir()
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; from corpusbuild.machinecode import load; load({str(folder)!r})"],
        capture_output=True,
        text=True,
    )
    if run.returncode:
        last = run.stderr.strip().splitlines()[-1:] or [f"the compiler ended with {run.returncode}"]
        raise StageError("kernels", str(folder), f'{last[0]}; set run.kernels = "reference" to build without, slower')
    (folder / READY).touch()


def load(folder: str) -> None:
    """Import every module of kernels, which compiles what ``folder`` does not hold."""
    with kernels.using(Kernels("compiled", folder)):
        for name in kernels.MODULES:
            __import__(f"corpusbuild.kernels.{name}")


def _identity() -> str:
    sources = [path.read_bytes() for path in sorted(PACKAGE.glob("*.py"))]
    versions = [version("numba"), version("llvmlite"), version("numpy"), platform.python_version(), platform.machine()]
    return hashlib.sha256(b"\0".join([*sources, *(v.encode() for v in versions)])).hexdigest()[:16]


def _home() -> Path:
    """The person's cache, or, where that cannot be written, a folder of theirs among the temporary files."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "corpusbuild"
    with contextlib.suppress(OSError):  # asked for in the next line
        cache.mkdir(parents=True, exist_ok=True)
    if os.access(cache, os.W_OK):
        return cache
    mine = Path(tempfile.gettempdir(), f"corpusbuild-{os.getuid()}")
    mine.mkdir(mode=0o700, exist_ok=True)
    return mine
