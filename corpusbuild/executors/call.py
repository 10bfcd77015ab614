"""One call: run a pickled function on a pickled item, and turn whatever happens into a Reply. Light, since every worker imports it."""

import os
import pickle
import time
import traceback
from typing import Literal, NamedTuple

from corpusbuild.errors import CorpusError

Kind = Literal["error", "crash", "oom", "timeout", "lost", "retry"]

LIMIT = 1_000_000
"""Bytes that a pickled function, item or value may have."""

LONGEST_TEXT = 20_000
"""Characters of a message (its beginning) or a traceback (its end, where it says what happened) that travel."""


class Retry(Exception):
    """Raised by a mapped function to say that the trouble is passing: try this item again."""


class Reply(NamedTuple):
    """How one attempt ended; plain values only, so it can always travel.

    ``payload`` is the pickled value of an ``ok``; else the pickled CorpusError that the function raised, or raised Retry from.
    """

    kind: Literal["ok"] | Kind
    payload: bytes = b""
    message: str = ""
    tb: str = ""
    seconds: float = 0.0
    where: str = ""


def call(fn: bytes, item: bytes) -> Reply:
    """Runs a pickled function on a pickled item. Only KeyboardInterrupt passes, which is the person's and not the function's."""
    started = time.monotonic()
    where = f"{os.uname().nodename}:{os.getpid()}"
    reply = Reply("ok")
    try:
        value = pickle.loads(fn)(pickle.loads(item))
        try:
            reply = Reply("ok", pack(value))
        except Exception as error:
            raise TypeError(f"its value cannot be sent: {error}") from error
    except KeyboardInterrupt:
        raise
    except Retry as retry:
        reply = Reply("retry", _packed(retry.__cause__), str(retry)[:LONGEST_TEXT], _traceback(retry))
    except MemoryError as error:
        reply = Reply("oom", message="it ran out of memory", tb=_traceback(error))
    except BaseException as error:  # noqa: BLE001 - it is told at home, with its traceback; the worker lives on
        reply = Reply("error", _packed(error), f"{type(error).__name__}: {error}"[:LONGEST_TEXT], _traceback(error))
    return reply._replace(seconds=time.monotonic() - started, where=where)


def pack(value: object) -> bytes:
    """Pickles what travels. Raises ValueError beyond LIMIT."""
    packed = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    if len(packed) > LIMIT:
        raise ValueError(f"{len(packed):,} bytes pickled, {LIMIT:,} at most: put the data in a file and send its path")
    return packed


def _packed(error: BaseException | None) -> bytes:
    """A CorpusError, pickled to be raised at home as itself; nothing for other errors, and for one that would not come through."""
    if not isinstance(error, CorpusError):
        return b""
    try:
        packed = pack(error)
        same = pickle.loads(packed)
    except Exception:  # noqa: BLE001 - its message and traceback travel all the same
        return b""
    return packed if type(same) is type(error) else b""


def _traceback(error: BaseException) -> str:
    """The traceback without this module's own frame."""
    frames = error.__traceback__
    return "".join(traceback.format_exception(type(error), error, frames.tb_next if frames else None))[-LONGEST_TEXT:]
