"""Export: a corpus as a folder of plain files to hand on or upload: shards, manifest, attribution, datasheet, and its tokens in ``tokens/``.

Nothing in it is a link, nothing names this machine, and ``corpusbuild verify DIR`` checks it wherever it is.
"""

import os
import shutil
from pathlib import Path

from corpusbuild.corpus import Corpus
from corpusbuild.durable import disk, fsync_dir, fsync_file
from corpusbuild.errors import ConfigError
from corpusbuild.publish import BuildRecord
from corpusbuild.store import Store

TOKENS = "tokens"
"""The folder of the tokens in an export."""


def export(record: BuildRecord, store: Store, target: Path) -> Corpus:
    """Copy the last build of a name to ``target``, which appears only when every file was checked against its manifest.

    ``ConfigError`` where something stands already; ``IntegrityError`` names a file that is not what it should be.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{target} is there already and not empty: name another folder, or remove it")
    aside = target.with_name(f".{target.name}.{os.getpid()}.partial")
    with disk(target):
        aside.mkdir(parents=True)
        try:
            _copy(record, "ledger", store, aside)
            if record.step("tokenize") is not None:
                _copy(record, "tokenize", store, aside / TOKENS)
            copied = opened(aside)
            copied.check()
            if target.exists():
                target.rmdir()
            os.rename(aside, target)
            fsync_dir(target.parent)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return opened(target)


def opened(folder: Path) -> Corpus:
    """A corpus that was exported, with its tokens where it has them."""
    tokens = folder / TOKENS
    return Corpus(folder, tokens if tokens.is_dir() else None, None, None)


def _copy(record: BuildRecord, label: str, store: Store, target: Path) -> None:
    step = record.step(label)
    assert step is not None
    entry = store.path(step.stage, step.key)
    for file in store.check(step.stage, step.key).files:
        copy = target / file.path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(entry / file.path, copy)
        fsync_file(copy)
