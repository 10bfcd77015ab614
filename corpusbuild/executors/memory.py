"""How much memory a process holds and this machine has, as Linux says it."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

SHARE = 0.8
"""The part of the machine's memory that tasks may hold together; the rest is for the driver, the system and its file cache."""


def held(pid: int) -> int:
    """Bytes that a process holds and that the system cannot take back; 0 if it has ended or the system does not say.

    Pages of mapped files are left out: the system drops them when memory is short.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    sizes = dict(line.split(":", 1) for line in status.splitlines() if line.startswith("Rss"))
    return sum(int(sizes[name].split()[0]) * 1024 for name in ("RssAnon", "RssShmem") if name in sizes)


def usable() -> int:
    """Bytes that all tasks may hold together: a share of the machine's memory, or of the control group's where that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        groups = Path("/proc/self/cgroup").read_text()
    except OSError:
        groups = ""
    return int(SHARE * min([machine, *limits(groups, Path("/sys/fs/cgroup"))]))


def limits(groups: str, root: Path) -> Iterator[int]:
    """The memory limits of control groups and of those they lie in, of both versions of the interface.

    ``groups`` is what ``/proc/<pid>/cgroup`` says; ``root`` is where the groups are mounted.
    """
    for group in groups.splitlines():
        _, controllers, path = group.split(":", 2)
        if controllers == "":
            top, file = root, "memory.max"
        elif "memory" in controllers.split(","):
            top, file = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        inside = PurePosixPath(path).relative_to("/")
        for folder in (inside, *inside.parents):
            try:
                limit = (top / folder / file).read_text().strip()
            except OSError:
                continue  # a container sees its own group as the root, and not the folders above
            if limit.isdigit():
                yield int(limit)
