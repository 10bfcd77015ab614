"""What ``python -m corpusbuild`` and ``corpusbuild.build`` do for a configuration that lies anywhere: build it, verify its ledger, print its datasheet."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from corpusbuild import licenses, report
from corpusbuild.corpus import Corpus
from corpusbuild.corpus import open as open_corpus
from corpusbuild.drive import UNTIL, drive
from corpusbuild.durable import disk, write_atomic
from corpusbuild.errors import DATA, Cancelled, ConfigError, CorpusError, DiskError, IntegrityError, LicenseError, LockError, SourceError
from corpusbuild.journal import Journal
from corpusbuild.ledger import LEDGER_NAME, read_rows
from corpusbuild.plan import Plan
from corpusbuild.project import Options, open_build, revoked_in
from corpusbuild.stages import ledger
from corpusbuild.statement import statement
from corpusbuild.store import Store
from corpusbuild.undo import Undo, finish_pending

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(config: Path, until: str, options: Options) -> None:
    """Build the configuration up to a stage and print the statement of it. A cancel and a final failure are undone as by ``doit build``."""
    plan, store = _opened(config, options)
    _drive(config, plan, store, until, options, _say)
    _print(statement(plan, store, until))


def build(
    config: str | os.PathLike[str],
    *,
    cache: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    overrides: Sequence[str] = (),
    say: Callable[[str], None] = lambda line: None,
) -> Corpus:
    """Build the configuration at ``config`` and open what it gave. What is there already is not built again.

    ``cache`` is the folder for everything built: $CORPUSBUILD_CACHE or ``cache``; ``overrides`` are ``key.path=value``; ``say`` is told a line a step.
    Raises what the command would end with: ``ConfigError``, ``LicenseError``, ``StageError`` and the like, or ``KeyboardInterrupt``, after a cancel or a
    final failure was undone.
    """
    made = options_from(dict(os.environ), None if cache is None else str(cache), workers)
    options = replace(made, overrides=tuple(overrides))
    plan, store = _opened(Path(config), options)
    if threading.current_thread() is threading.main_thread():
        with signals_kept():
            _drive(Path(config), plan, store, "tokenize", options, say)
    else:  # where no signal is heard
        _drive(Path(config), plan, store, "tokenize", options, say, signals=False)
    return open_corpus(plan.name, cache=store.root, configs=Path(config).parent)


def _drive(config: Path, plan: Plan, store: Store, until: str, options: Options, say: Callable[[str], None], signals: bool = True) -> None:
    """Run a plan up to a stage; a cancel or a final failure is undone, then raised."""
    with disk(store.root):
        store.root.mkdir(parents=True, exist_ok=True)
    finish_pending(store)
    undo, journal = Undo(plan, store), Journal(plan, store, {"config": str(config), "until": until, "cache": str(store.root)})
    try:
        with signals_cancel() if signals else nullcontext():
            drive(plan, store, options, UNTIL[until], undo, journal, say)
    except Cancelled:
        _undone(undo, journal, True, say)
        raise
    except CorpusError as error:
        if error.exit_code == DATA and not isinstance(error, SourceError | LockError):
            _undone(undo, journal, False, say)
        else:
            undo.done()
        journal.end("failed")
        raise
    undo.done()
    journal.end("built")


def verify_ledger(config: Path, options: Options) -> None:
    """Judge what was acquired and what is in the corpus against the configuration and the policy. ``LicenseError`` has every problem, a line each."""
    plan, store = _opened(config, options)
    params: ledger.Params = plan.corpus.params
    rows = {row.get("source_id"): row for row in read_rows(store.root / LEDGER_NAME)}
    problems = []
    for source in params.sources:
        row = rows.get(source.id)
        if row is None:
            problems.append(f"source {source.id}: {store.root / LEDGER_NAME} has no row: fetch it")
        else:
            problems += [f"source {source.id}: {problem}" for problem in licenses.row_problems(row)]
    held: dict[str, tuple[str, int]] = {source.id: (source.license_spdx, 1) for source in params.sources}
    kept = None
    built = store.has("ledger", plan.corpus.key)
    if built:
        contents, entry = store.check("ledger", plan.corpus.key), store.path("ledger", plan.corpus.key)
        held = ledger.licences_in([entry / file.path for file in contents.files if file.path.endswith(".parquet")])
        kept = {name: tally.kept for name, tally in contents.counts.items()}
    problems += licenses.verify(params.policy, params.sources, held, params.use, kept)
    corpus = plan.loaded.corpus
    _print({"dataset": corpus.dataset, "version": corpus.version, "sources": len(params.sources), "built": built, "problems": problems})
    if problems:
        raise LicenseError(*problems)


def datasheet(config: Path, out: Path | None, options: Options) -> None:
    """Print the datasheet of the built configuration, or write it to ``out``; then a line that says whose it is."""
    plan, store = _opened(config, options)
    if not store.has("ledger", plan.corpus.key):
        raise IntegrityError(f"{config} is not built in {store.root}: run it first (python -m corpusbuild run --config {config})")
    store.check("ledger", plan.corpus.key)
    sheet = (store.path("ledger", plan.corpus.key) / "DATASHEET.md").read_bytes()
    if out is None:
        print(sheet.decode(), flush=True)
    else:
        write_atomic(out, sheet)
    _print({"dataset": plan.loaded.corpus.dataset, "version": plan.loaded.corpus.version, "bytes": len(sheet)})


@contextmanager
def signals_kept() -> Iterator[None]:
    """Whatever the block does about signals, they mean afterwards what they meant before."""
    before = {number: handler for number in SIGNALS if (handler := signal.getsignal(number)) is not None}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_cancel() -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal end the block with ``Cancelled``. When the block has ended they are ignored, so that an undo is finished."""
    mine = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]

    def ignore() -> None:
        for number in mine:
            signal.signal(number, signal.SIG_IGN)

    def cancel(*_: object) -> None:
        ignore()
        raise KeyboardInterrupt

    for number in mine:
        signal.signal(number, cancel)
    try:
        yield
    except KeyboardInterrupt:
        raise Cancelled("cancelled; what was finished is kept, and the next run goes on from there") from None
    finally:
        ignore()


def options_from(environ: dict[str, str], cache_dir: str | None, workers: int | None) -> Options:
    """The options of a run from the command line and the environment."""
    if workers is not None and workers < 1:
        raise ConfigError("--workers takes a number of at least 1")
    return Options(cache=Path(cache_dir or environ.get("CORPUSBUILD_CACHE") or "cache"), workers=workers)


def _opened(config: Path, options: Options) -> tuple[Plan, Store]:
    build = open_build(config, options, revoked_in(options.cache))
    if build.problem is not None:
        raise build.problem
    assert build.plan is not None
    if options.cache.exists() and not options.cache.is_dir():
        raise DiskError(f"{options.cache} is not a folder: move it away, or point --cache-dir elsewhere")
    return build.plan, Store(options.cache)


def _undone(undo: Undo, journal: Journal, cancelled: bool, say: Callable[[str], None]) -> None:
    undone = undo.undo()
    journal.undone(undone.stages, undone.bytes)
    for line in report.undone_lines(undone, cancelled):
        say(line)
    if cancelled:
        journal.end("cancelled")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print(line: dict[str, Any]) -> None:
    print(json.dumps(line, ensure_ascii=False, separators=(",", ":")), flush=True)
