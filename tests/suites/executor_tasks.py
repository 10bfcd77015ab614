"""What the executor suite maps. Workers import this module, so it imports nothing heavy."""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from corpusbuild.errors import Cancelled, ConfigError, SourceError
from corpusbuild.executors.call import Retry

Item = tuple[str, int]
"""A folder in which runs leave their marks, and the item's number."""


def key(item: Item) -> str:
    return f"item-{item[1]}"


def mark(item: Item) -> int:
    """Notes one more run of the item; says which it is, from 1."""
    path = Path(item[0], f"runs-{item[1]}")
    with path.open("ab", buffering=0) as file:
        file.write(f"{os.getpid()}\n".encode())
    return len(path.read_text().split())


def runs(folder: Path) -> list[int]:
    """The processes of all runs so far."""
    return [int(pid) for path in sorted(folder.glob("runs-*")) for pid in path.read_text().split()]


def square(item: Item) -> int:
    mark(item)
    return item[1] ** 2


def noop(number: int) -> int:
    return number


def slow_when_even(item: Item) -> int:
    time.sleep(0 if item[1] % 2 else 0.02)
    return item[1]


def fail_at_7(item: Item) -> int:
    mark(item)
    if item[1] == 7:
        raise ValueError("seven is not to be had")
    return item[1]


def raise_at_7(error: Exception, item: Item) -> int:
    mark(item)
    if item[1] == 7:
        raise error
    return item[1]


def exit_at_7(item: Item) -> int:
    mark(item)
    return sys.exit("by sys.exit") if item[1] == 7 else item[1]


def transient_at_7(item: Item) -> int:
    if mark(item) == 1 and item[1] == 7:
        raise Retry("503")
    return item[1]


def transient_for_ever(item: Item) -> int:
    mark(item)
    raise Retry("503\nService Unavailable")


def transient_for_ever_with_a_cause(item: Item) -> int:
    raise Retry("503") from SourceError("web", "503 for a long time", retryable=True)


def killed_once_at_7(item: Item) -> int:
    if mark(item) == 1 and item[1] == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return item[1]


def poison_at_7(item: Item) -> int:
    mark(item)
    if item[1] == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return item[1]


def exits_at_7(item: Item) -> int:
    if item[1] == 7:
        os._exit(3)
    return item[1]


def hangs_up_at_7(item: Item) -> int:
    """Closes every file that it did not open, as a library that makes a daemon would."""
    if item[1] == 7:
        os.closerange(3, 256)
        time.sleep(60)
    return item[1]


def hangs_at_7(item: Item) -> int:
    mark(item)
    while item[1] == 7:
        time.sleep(60)
    return item[1]


def hog(item: Item) -> int:
    """Holds as many MB as its number says, long enough to be seen."""
    mark(item)
    held = b"x" * (item[1] << 20)
    time.sleep(0.3)
    return os.getpid() if held else 0


LEAK: list[bytes] = []


def leak(item: Item) -> int:
    """Leaves as many MB behind as its number says."""
    LEAK.append(b"x" * (item[1] << 20))
    time.sleep(0.15)
    return os.getpid()


def out_of_memory(item: Item) -> int:
    mark(item)
    raise MemoryError


def wait_for_ever(item: Item) -> None:
    mark(item)
    while True:
        time.sleep(60)


def wait_for_ever_deaf(item: Item) -> None:
    """Cannot be asked to stop."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    wait_for_ever(item)


def fail_at_0_wait_at_others(item: Item) -> None:
    """The first fails once all others run."""
    mark(item)
    while item[1] != 0 or len(runs(Path(item[0]))) < 2:
        time.sleep(0.01)
    raise ConfigError("the first failed")


def cancelled_at_7(item: Item) -> int:
    if item[1] == 7:
        raise Cancelled("from inside")
    return item[1]


def of_size(size: int) -> bytes:
    return bytes(size)


def length(item: bytes) -> int:
    return len(item)


def unpicklable(item: Item) -> Any:
    return (number for number in item)


def pid(item: Item) -> int:
    return os.getpid()


def together(item: Item) -> int:
    """The most tasks of this folder that ran at once, as seen from this one."""
    folder = Path(item[0])
    here = folder / f"here-{item[1]}"
    here.touch()
    most = 0
    for _ in range(20):
        most = max(most, len(list(folder.glob("here-*"))))
        time.sleep(0.005)
    with contextlib.suppress(FileNotFoundError):
        here.unlink()
    return most


def modules(item: Item) -> list[str]:
    return sorted(sys.modules)


def interrupt_handler(item: Item) -> tuple[bool, bool]:
    """Whether SIGINT is ignored, and whether it is blocked."""
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN, signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


class Moody:
    """A value that travels one way only."""

    def __reduce__(self) -> Any:
        return refuse, ()


def refuse() -> None:
    raise RuntimeError("not in this process")


def moody(item: Item) -> Moody:
    return Moody()


def hangs_once_at_7(item: Item) -> int:
    """Stands still for ever, but only the first time."""
    if mark(item) == 1 and item[1] == 7:
        time.sleep(600)
    return item[1]


def works_at_7(item: Item) -> int:
    """Works for a second and a half without a word."""
    end = time.monotonic() + (1.5 if item[1] == 7 else 0)
    while time.monotonic() < end:
        sum(range(1000))
    return mark(item)
