"""The inside of a worker process: receives calls over a socket, one at a time, and answers each. Imports little, so it is ready fast."""

import os
import pickle
import signal
import struct
import sys
from typing import NoReturn

from corpusbuild.executors.call import call

HEADER = struct.Struct(">Q")
"""Before each message in either direction: how many bytes it has."""

PR_SET_PDEATHSIG = 1


def serve(channel: int, parent: int) -> NoReturn:
    """The life of a worker process: says it is ready, then answers calls until the driver, process ``parent``, hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; only the driver decides what it means
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    die_with(parent)
    os.set_inheritable(channel, False)
    try:
        _send(channel, b"ready")
        while (message := _receive(channel)) is not None:
            reply = call(*pickle.loads(message))
            sys.stdout.flush()
            sys.stderr.flush()
            _send(channel, pickle.dumps(tuple(reply)))
    except ConnectionError:
        os._exit(1)
    os._exit(0)  # without waiting for threads that a task may have left behind


def die_with(parent: int) -> None:
    """Asks the kernel to kill this process when the driver ends, however it ends; elsewhere a worker ends after its current task."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the kernel was asked
            os._exit(1)


def _send(channel: int, message: bytes) -> None:
    rest = memoryview(HEADER.pack(len(message)) + message)
    while rest:
        rest = rest[os.write(channel, rest) :]


def _receive(channel: int) -> bytes | None:
    """The next message, or None when the driver has hung up."""
    header = _read(channel, HEADER.size)
    return None if header is None else _read(channel, HEADER.unpack(header)[0])


def _read(channel: int, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        chunk = os.read(channel, min(count - len(data), 1 << 20))
        if not chunk:
            return None
        data += chunk
    return bytes(data)
