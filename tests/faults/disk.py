"""Faults of the disk, put between a build and the operating system: every operation that changes a name or makes bytes durable can be counted and struck."""

import os
from contextlib import contextmanager

OPERATIONS = ("open", "fsync", "replace", "rename", "link", "symlink", "unlink", "mkdir", "rmdir")


class Killed(BaseException):
    """The process is dead: nothing after this may reach the disk."""


@contextmanager
def struck(monkeypatch, at, error=None, times=None):
    """Count disk operations; at the ``at``-th raise ``error`` for ``times`` operations (None: for ever), or kill. Gives the list of operations.

    A kill is for ever: clean-up that a dead process could not have done does not happen. Opening to read is no operation.
    """
    seen = []
    real = {name: getattr(os, name) for name in OPERATIONS}

    def wrap(name):
        def call(*args, **kwargs):
            flags = args[1] if name == "open" and len(args) > 1 else kwargs.get("flags", 0)
            if name == "open" and not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return real[name](*args, **kwargs)
            seen.append((name, str(args[0])))
            if at is not None and len(seen) >= at and (times is None or len(seen) < at + times):
                raise Killed if error is None else OSError(error, os.strerror(error), str(args[0]))
            return real[name](*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name in OPERATIONS:
            patch.setattr(os, name, wrap(name))
        yield seen
