"""Whether a process still does anything, as Linux says it: a heartbeat that no task has to send, and that a hung one cannot."""

from pathlib import Path


def pulse(pid: int) -> tuple[int, ...] | None:
    """Numbers that grow while a process works: page faults, processor time, bytes read and written. None if the system does not say.

    A process that waits for a lock or for a server that never answers has the same pulse for ever.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        moved = Path(f"/proc/{pid}/io").read_text().splitlines()[:2]
    except OSError:
        return None
    minor, major, user, system = (int(stat[i]) for i in (7, 9, 11, 12))
    return (minor, major, user, system, *(int(line.split()[1]) for line in moved))
