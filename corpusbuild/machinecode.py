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
from collections.abc import Callable, Sequence
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
    """In processes of their own, so that this one need not load the compiler, and every core helps."""
    folder.mkdir()
    code = f"import sys; sys.path[:] = {sys.path!r}; from corpusbuild.machinecode import load; load({str(folder)!r}, sys.argv[1:])"
    runs = [
        subprocess.Popen([sys.executable, "-c", code, *names], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for names in _shares(len(os.sched_getaffinity(0)))
    ]
    for run, (_, said) in [(run, run.communicate()) for run in runs]:
        if run.returncode:
            last = said.strip().splitlines()[-1:] or [f"the compiler ended with {run.returncode}"]
            raise StageError("kernels", str(folder), f'{last[0]}; set run.kernels = "reference" to build without, slower')
    (folder / READY).touch()


def _shares(n: int) -> list[list[str]]:
    """The modules of kernels in at most ``n`` shares of about equal work; the longer a module, the more there is to compile."""
    shares: list[list[str]] = [[] for _ in range(n)]
    work = [0] * n
    for name in sorted(kernels.MODULES, key=lambda name: -(PACKAGE / f"{name}.py").stat().st_size):
        least = work.index(min(work))
        shares[least].append(name)
        work[least] += (PACKAGE / f"{name}.py").stat().st_size
    return [share for share in shares if share]


def load(folder: str, names: Sequence[str]) -> None:
    """Import modules of kernels, which compiles what ``folder`` does not hold."""
    with kernels.using(Kernels("compiled", folder)):
        for name in names:
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
