"""Where work runs: an executor maps a function over small items, and every executor keeps one contract (see ``base``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpusbuild.errors import ConfigError

if TYPE_CHECKING:  # workers import this package too, and need none of it
    from corpusbuild.executors.base import Executor


def open_executor(spec: str, workers: int, memory: int | None = None) -> Executor:
    """Opens what ``run.executor`` names; close it, or use it in a ``with``. Nothing is started before the first ``map``.

    ``workers`` is how many tasks run at a time where ``spec`` says no number of its own. ``memory`` is how many bytes all
    running tasks may ask for together: four fifths of the machine unless said. Raises ConfigError for a ``spec`` that is none.
    """
    name, colon, number = spec.partition(":")
    if spec == "serial":
        from corpusbuild.executors.serial import Serial

        return Serial()
    if name == "local" and (not colon or (number.isascii() and number.isdigit())):
        count = int(number) if colon else workers
        if count < 1:
            raise ConfigError(f"run.{'executor' if colon else 'workers'}: at least one worker is needed, not {count}")
        from corpusbuild.executors.local import Local

        return Local(count, memory)
    raise ConfigError(f'run.executor: there is no executor "{spec}": use "serial", "local" or "local:N" (N workers)')
