"""One stage of a build as a subprocess activity of a durable engine: over the same steps and the same store as ``doit build``.

The engine starts ``python -m corpusbuild run --stage fetch|shard|tokenize --spec S --progress P`` or ``cleanup --spec S --progress P`` and may kill it
at any moment and start it again. What binds both sides:

- ``TL_ARTIFACTS`` is the root: it is the cache. Outputs are named relative to it. Without it the cache is the one that ``doit`` would use.
- ``TL_IDEMPOTENCY_KEY`` names the work: its segments are the work folder ``<root>/activities/<key>``, the same for every attempt. Without it the work
  folder is that of P.
- ``DONE.json`` in the work folder, ``{"outputs":[...]}``, is written last. An attempt that finds it, and the outputs in their places, does no work.
- ``.lock`` in the work folder is held while an attempt works; one that finds it held ends with 75.
- P gets a line of compact JSON an event, flushed: ``step`` (a part or a chunk is done, or it goes on), ``ckpt`` (a step's entry is in the store), ``metric``, ``done``.
- The exit code is 0, or 65 (will not heal), 75 (may), 130 (cancelled by SIGTERM, or because the parent ended), 1 (a bug, with its traceback).
- A specification that is wrong is 65 before anything is written.

A cancelled activity undoes nothing: the workflow calls ``cleanup``, once, which puts back what its configuration's hash had published.
"""

import fcntl
import math
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
from msgspec import Meta

from corpusbuild import strict
from corpusbuild.config import load_decoded
from corpusbuild.drive import drive, finished
from corpusbuild.durable import disk, fsync_dir, write_atomic
from corpusbuild.errors import TEMPORARY, ConfigError, CorpusError
from corpusbuild.hashing import build_id
from corpusbuild.journal import Journal
from corpusbuild.ledger import LEDGER_NAME
from corpusbuild.model import Record, total
from corpusbuild.plan import Plan, plan
from corpusbuild.project import Options, refused, revoked_in
from corpusbuild.publish import links
from corpusbuild.settings import Name, Sha256
from corpusbuild.stage import Step
from corpusbuild.stages.shard import MANIFEST
from corpusbuild.store import Store
from corpusbuild.undo import Undo, forget_complete, undo_workflows
from corpusbuild.workflow import STAGES

UNTIL = {"fetch": "fetch", "shard": "ledger", "tokenize": "tokenize"}
"""The last of our stages that an activity runs."""

BEAT_SECONDS = 0.5
"""The least time between two ``step`` lines; a part may take milliseconds, and each line is read by somebody."""

ALIVE_SECONDS = 20.0
"""The longest time without a line. A worker that hangs is found and killed below this; waiting for another build, or a long merge, is no hang."""

_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")


class Busy(CorpusError):
    """Another attempt of the same activity is at work."""

    exit_code = TEMPORARY


class CleanupSpec(Record):
    """What ``cleanup`` is told. Without a hash every workflow of the dataset and version is meant that has not come to its end."""

    dataset: Name
    version: Name
    tokenizer_id: Annotated[str, Meta(min_length=1)]
    config_sha256: Sha256 | None = None


class Progress:
    """The progress file: one line an event, in one write. A torn last line of a killed attempt is taken away first."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time):
        self._clock, self._last, self._steps = clock, -math.inf, 0
        with disk(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = path.open("ab", buffering=0)
            whole = path.read_bytes()
            self._file.truncate(whole.rfind(b"\n") + 1)

    def step(self) -> None:
        """Something more is done; says so if it has not just been said."""
        self._steps += 1
        now = time.monotonic()
        if now - self._last >= BEAT_SECONDS:
            self._last = now
            self._write("step", step=self._steps)

    def alive(self) -> None:
        """Nothing more is done, and it goes on."""
        self._write("step", step=self._steps)

    def ckpt(self, name: str) -> None:
        self._steps += 1
        self._write("ckpt", step=self._steps, ckpt=name)

    def metric(self, name: str, value: float) -> None:
        """``ValueError`` for what is no number that JSON knows."""
        if not math.isfinite(value):
            raise ValueError(f"the metric {name} is {value}")
        self._write("metric", name=name, value=value)

    def done(self, outputs: list[str]) -> None:
        self._write("done", outputs=outputs)

    def _write(self, kind: str, **fields: Any) -> None:
        with disk(self._file.name):
            self._file.write(msgspec.json.encode({"ts": self._clock(), "kind": kind, **fields}) + b"\n")


def run(stage: str, spec: Path, progress: Path, environ: Mapping[str, str]) -> list[str]:
    """Run one stage of the workflow of the configuration in ``spec`` and give its outputs. Raises what the exit code is made of."""
    root, work = places(progress, environ)
    made = _plan(spec, Path(environ.get("CORPUSBUILD_CONFIGS") or root), root)
    store, until = Store(root), UNTIL[stage]
    with held(work):
        out = Progress(progress)
        outputs = outputs_of(made, store, stage)
        if not (_done(work) == outputs and finished(made, store, until)):
            if stage == "fetch":
                forget_complete(store, made.id)
            undo = None if stage == "fetch" else Undo(made, store, made.id)
            journal = Journal(made, store, {"stage": stage, "attempt": environ.get("TL_ATTEMPT", "")})

            def built(step: Step) -> None:
                out.ckpt(str(store.path(step.stage.name, step.key).relative_to(root)))
                counts = total(list(store.contents(step.stage.name, step.key).counts.values()))
                for name, value in (("docs_in", counts.docs_in), ("kept", counts.kept)):
                    out.metric(f"corpus.{step.label}.{name}", value)

            try:
                with beating(out):
                    drive(made, store, Options(cache=root), until, undo, journal, _say, out.step, built)
            except CorpusError:
                journal.end("failed")
                raise
            journal.end("built")
            if stage == STAGES[-1] and undo is not None:
                undo.complete()
            _write_done(work, outputs)
        out.done(outputs)
    return outputs


def cleanup(spec: Path, progress: Path, environ: Mapping[str, str]) -> list[str]:
    """Undo what the workflow of ``spec`` made from shard on: its names stand as before it, and entries that nothing else uses are gone.

    Raw documents, downloads and what other builds share stay. It may be called as often as it takes.
    """
    root, work = places(progress, environ)
    found, problems = strict.convert(_decoded(spec), CleanupSpec)
    if found is None:
        raise ConfigError(*(f"{spec}: {problem}" for problem in problems))
    prefix = build_id(found.dataset, found.version, found.config_sha256 or "").rstrip("/")
    with held(work):
        out = Progress(progress)
        for undone in undo_workflows(Store(root), prefix):
            _say(f"cleanup: {undone.build}: {', '.join(undone.stages) or 'nothing was finished'}; {undone.bytes} bytes")
        _write_done(work, [])
        out.done([])
    return []


def places(progress: Path, environ: Mapping[str, str]) -> tuple[Path, Path]:
    """The root and the work folder. ``ConfigError`` for a key that is not a path of plain names."""
    root = Path(environ.get("TL_ARTIFACTS") or environ.get("CORPUSBUILD_CACHE") or "cache").absolute()
    key = environ.get("TL_IDEMPOTENCY_KEY")
    if key is None:
        return root, progress.absolute().parent
    segments = key.split("/")
    if not all(_SEGMENT.fullmatch(segment) and segment not in (".", "..") for segment in segments):
        raise ConfigError(
            f"TL_IDEMPOTENCY_KEY is {key!r}: it must be names of letters, digits, dots, dashes and underscores between slashes"
        )
    return root, root.joinpath("activities", *segments)


def outputs_of(made: Plan, store: Store, stage: str) -> list[str]:
    """What an activity gives, relative to the root, in the order in which a reader would want it."""
    if stage == "fetch":
        return [LEDGER_NAME]
    corpus, *tokens = (str(name.relative_to(store.root)) for name in links(made, store))
    return [f"{corpus}/{MANIFEST}"] if stage == "shard" else tokens


@contextmanager
def held(work: Path) -> Iterator[None]:
    """Hold the work folder against other attempts; ``Busy`` where one is at work."""
    with disk(work):
        work.mkdir(parents=True, exist_ok=True)
        handle = (work / ".lock").open("a+")
    with handle:
        try:
            fcntl.flock(handle.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"{work}: another attempt of this activity is at work; try again when it has ended") from None
        yield


@contextmanager
def beating(out: Progress) -> Iterator[None]:
    """Tell that the process lives, now and then, from a thread, while the block runs."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(ALIVE_SECONDS):
            out.alive()

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def end_with(parent: int, every: float = 0.5) -> None:
    """Take the end of the parent for a cancel: nobody is left to hear the outcome."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(every)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _plan(spec: Path, folder: Path, root: Path) -> Plan:
    made = plan(load_decoded(_decoded(spec), spec, folder, revoked=revoked_in(root), cache=root))
    if (problem := refused(made)) is not None:
        raise problem
    return made


def _decoded(spec: Path) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(spec.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"{spec}: there is no such file") from None
    except OSError as error:
        raise ConfigError(f"{spec}: cannot be read ({error.strerror})") from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"{spec}: is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{spec}: must be a JSON object")
    return found


def _done(work: Path) -> list[str] | None:
    """The outputs that ``DONE.json`` names; None where there is none that can be read."""
    try:
        outputs: list[str] = msgspec.json.decode((work / "DONE.json").read_bytes(), type=dict[str, list[str]])["outputs"]
    except (FileNotFoundError, msgspec.DecodeError, KeyError):
        return None
    return outputs


def _write_done(work: Path, outputs: list[str]) -> None:
    write_atomic(work / "DONE.json", msgspec.json.encode({"outputs": outputs}))
    fsync_dir(work)


def _say(line: str) -> None:
    os.write(2, f"{line}\n".encode())
