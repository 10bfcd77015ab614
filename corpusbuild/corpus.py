"""The reader of a finished corpus. It gives no row and no id that the manifest, and the lock where there is one, do not vouch for.

corpus = corpusbuild.open("sample")
for document in corpus.documents(split="val"):
    print(document["id"], document["text"][:60])
for ids in corpus.tokens("train"):
    ...                                  # a read-only numpy array of one file
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from corpusbuild import binfile
from corpusbuild.errors import ConfigError, IntegrityError
from corpusbuild.explain import Built, Fate, by_id, by_place, by_token, fate
from corpusbuild.hashing import file_sha256, sums_line
from corpusbuild.lock import Lock, lock_path, read_lock
from corpusbuild.publish import BuildRecord, read_record
from corpusbuild.stages.shard import MANIFEST, MANIFEST_SHA256
from corpusbuild.store import Store

REMEDY = "verify with doit verify, then build again"


class Corpus:
    """A corpus whose manifest was checked when it was opened; each shard and token file is checked once, before it is first read."""

    def __init__(self, path: Path, tokens: Path | None, lock: Lock | None, lock_file: Path | None, built: Built | None = None):
        self.path = path
        self._built = built
        self.manifest: dict[str, Any] = read_manifest(path)
        self.token_manifest: dict[str, Any] | None = None
        self._tokens = tokens
        self._checked: set[Path] = set()
        refuse_other_files(path, [shard["name"] for shard in self.manifest["shards"]], ".parquet")
        if lock is not None:
            _held_against(lock.manifest_sha256, path / MANIFEST, lock_file)
            if self.manifest.get("rows_blake3") != lock.rows_blake3:
                raise IntegrityError(f"{path / MANIFEST} speaks of other rows than {lock_file} allows: {REMEDY}")
        if tokens is not None:
            self.token_manifest = read_manifest(tokens)
            refuse_other_files(tokens, [file["name"] for file in self.token_manifest["files"]], ".bin")
            if self.token_manifest["corpus_manifest_sha256"] != file_sha256(path / MANIFEST):
                raise IntegrityError(f"{tokens / MANIFEST} is of another corpus than {path}: {REMEDY}")
            if lock is not None:
                _held_against(lock.tokens_manifest_sha256, tokens / MANIFEST, lock_file)

    def __len__(self) -> int:
        return int(self.manifest["n_docs"])

    def __repr__(self) -> str:
        return f"<corpus {self.manifest['dataset']} {self.manifest['version']}: {len(self):,} documents in {self.path}>"

    @property
    def shards(self) -> list[Path]:
        """The shard files, in order, not yet checked."""
        return [self.path / shard["name"] for shard in self.manifest["shards"]]

    @property
    def tokens_path(self) -> Path | None:
        """The folder of its tokens."""
        return self._tokens

    def check(self) -> None:
        """Check every file now. ``IntegrityError`` names the first that is not what its manifest says."""
        for shard in self.manifest["shards"]:
            self._check(self.path / shard["name"], shard["sha256"])
        for file in self.manifest.get("files", ()):
            self._check(self.path / file["name"], file["sha256"])
        if self.token_manifest is not None and self._tokens is not None:
            tables = [self.token_manifest[name] for name in ("index", "sequences", "refused") if name in self.token_manifest]
            for file in [*self.token_manifest["files"], *tables, *self.token_manifest.get("formats", ())]:
                self._check(self._tokens / file["name"], file["sha256"])

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in order, a row group or less at a time, as Arrow."""
        for shard in self.manifest["shards"]:
            path = self.path / shard["name"]
            self._check(path, shard["sha256"])
            with pq.ParquetFile(path) as file:
                if file.metadata.num_rows != shard["rows"]:
                    raise IntegrityError(f"{path} has {file.metadata.num_rows} rows, its manifest says {shard['rows']}: {REMEDY}")
                yield from file.iter_batches(columns=columns)

    def documents(self, split: str | None = None) -> Iterator[dict[str, Any]]:
        """The documents in order, all or those of a split (``train``, ``val``), each a dict of the shard's columns."""
        for batch in self.batches():
            for document in batch.to_pylist():
                if split is None or document["split"] == split:
                    yield document

    def table(self, columns: Sequence[str] | None = None, split: str | None = None) -> pa.Table:
        """The rows in order, all or those of a split, as one Arrow table, which is as large as what it holds: name the ``columns`` that are needed."""
        wanted = None if columns is None else list(dict.fromkeys([*columns, "split"]))
        batches = list(self.batches(wanted))
        table = pa.Table.from_batches(batches) if batches else pq.read_schema(self.shards[0]).empty_table()
        if split is not None:
            table = table.filter(pc.equal(table["split"], split))
        return table if columns is None else table.select(list(columns))

    def explain(self, what: str) -> list[Fate]:
        """What became of a document: by its id, by ``url#line``, or by ``train-00000.bin@OFFSET``. Nothing where the build does not know it.

        ``ConfigError`` for a corpus that was opened by its folder: what was removed is known only where it was built.
        """
        if self._built is None:
            raise ConfigError(f"{self.path} was opened by its folder, which holds no decisions: open it by its build's name")
        file, at, offset = what.rpartition("@")
        if at and file.endswith(".bin") and offset.isdecimal():
            found = by_token(self._built, Path(file).name, int(offset))
            documents = [found[0]] if found else []
        elif self._built.index(what.partition(":")[0]) is not None:
            one = by_id(self._built, what)
            documents = [one] if one else []
        else:
            documents = by_place(self._built, what)
        return [fate(self._built, document) for document in documents]

    def tokens(self, split: str) -> Iterator[npt.NDArray[Any]]:
        """The ids of each token file of a split, in order, mapped into memory and read-only."""
        if self.token_manifest is None or self._tokens is None:
            raise ConfigError(f"{self.path} was opened without tokens: build it with a tokenizer, or open it by its build's name")
        for file in self.token_manifest["files"]:
            if file["split"] == split:
                path = self._tokens / file["name"]
                self._check(path, file["sha256"])
                try:
                    header, ids = binfile.read(path)
                except ValueError as error:
                    raise IntegrityError(f"{error}: {REMEDY}") from None
                if (header.n_tokens, header.vocab_size) != (file["n_tokens"], self.token_manifest["vocab_size"]):
                    raise IntegrityError(f"{path} holds {header.n_tokens} ids, its manifest says {file['n_tokens']}: {REMEDY}")
                yield np.asarray(ids)

    def _check(self, path: Path, sha256: str) -> None:
        if path in self._checked:
            return
        if not path.is_file():
            raise IntegrityError(f"{path} is missing: {REMEDY}")
        found = file_sha256(path)
        if found != sha256:
            raise IntegrityError(f"{path} has the sha256 {found[:12]}..., its manifest says {sha256[:12]}...: {REMEDY}")
        self._checked.add(path)


def open(
    path_or_name: str | os.PathLike[str],
    *,
    tokens: str | os.PathLike[str] | None = None,
    lock: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    configs: str | os.PathLike[str] = "configs",
) -> Corpus:
    """Open the folder of a corpus, or a build by its name (with or without ``build:``).

    By its name its tokens come with it, and ``configs/NAME.lock`` is held against it where there is one; of a folder, name ``tokens`` and ``lock``
    yourself. ``cache`` is where builds are looked for: $CORPUSBUILD_CACHE or ``cache``. ``IntegrityError`` names what the manifest or the lock does
    not vouch for; ``ConfigError`` when there is no such corpus.
    """
    folder = Path(path_or_name)
    lock_file = Path(lock) if lock is not None else None
    if folder.is_dir():
        return Corpus(folder, Path(tokens) if tokens is not None else None, _lock(lock_file), lock_file)
    name = str(path_or_name).removeprefix("build:")
    store = Store(Path(cache or os.environ.get("CORPUSBUILD_CACHE") or "cache"))
    record = read_record(store, name)
    if record is None:
        raise ConfigError(f"{path_or_name}: there is no such folder, and no build of that name in {store.root}: run doit build:{name}")
    if lock_file is None:
        beside = lock_path(Path(configs) / f"{name}.toml")
        lock_file = beside if beside.exists() else None
    own = _tokens_of(record, store) if tokens is None else Path(tokens)
    return Corpus(store.root / "corpus" / record.dataset / record.version, own, _lock(lock_file), lock_file, Built(record, store))


def _tokens_of(record: BuildRecord, store: Store) -> Path | None:
    return store.root / "tokens" / record.tokenizer / record.dataset if record.tokenizer else None


def _lock(path: Path | None) -> Lock | None:
    if path is None:
        return None
    lock = read_lock(path)
    if lock is None:
        raise ConfigError(f"{path}: there is no such lock; doit lock NAME writes one")
    return lock


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder, if it is what the line beside it says."""
    path = folder / MANIFEST
    try:
        data, line = path.read_bytes(), (folder / MANIFEST_SHA256).read_bytes()
    except FileNotFoundError as error:
        raise IntegrityError(f"{error.filename} is missing: {REMEDY}") from None
    if line != sums_line(data, MANIFEST):
        raise IntegrityError(f"{path} is not what {MANIFEST_SHA256} says: {REMEDY}")
    manifest: dict[str, Any] = msgspec.json.decode(data)
    return manifest


def _held_against(locked: str | None, path: Path, lock_file: Path | None) -> None:
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != locked:
        raise IntegrityError(f"{path} has the sha256 {found[:12]}..., {lock_file} says {(locked or 'nothing')[:12]}: {REMEDY}")


def refuse_other_files(folder: Path, named: Sequence[str], suffix: str) -> None:
    for name in named:
        if not (folder / name).is_file():
            raise IntegrityError(f"{folder / name} is missing: {REMEDY}")
    for path in sorted(folder.glob(f"*{suffix}")):
        if path.name not in named:
            raise IntegrityError(f"{path} is not in {folder / MANIFEST}: move it away, or build again")
