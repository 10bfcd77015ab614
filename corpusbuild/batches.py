"""The reader of token files for training: batches in an order that seed and epoch decide, shared by ranks, and resumed where they stopped.

tokens = corpusbuild.tokens("sample")
batches = tokens.batches(batch_size=8, sequence_length=256, seed=1)
for batch in batches:
    batch.tokens, batch.targets          # two int64 arrays of 8 x 256, the second one id ahead
    batches.state_dict()                 # where to go on: load_state_dict(...) of the same batches, on any number of ranks
"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from corpusbuild import binfile
from corpusbuild.corpus import REMEDY, read_manifest, refuse_other_files
from corpusbuild.corpus import open as open_corpus
from corpusbuild.errors import ConfigError, IntegrityError
from corpusbuild.hashing import file_sha256
from corpusbuild.permutation import shuffled
from corpusbuild.stages.shard import MANIFEST

IGNORED = -100
"""A target that is padding; what ``torch.nn.functional.cross_entropy`` leaves out of a loss."""


class Batch(NamedTuple):
    """Rows of consecutive ids, each row a sequence; all arrays have the shape (rows, context)."""

    tokens: NDArray[np.int64]
    targets: NDArray[np.int64]
    """The id after each of ``tokens``; ``IGNORED`` where that is padding."""
    positions: NDArray[np.int64] | None = None
    """With ``positions``: ids since the document, or the row, began."""
    segments: NDArray[np.int64] | None = None
    """With ``positions``: which of the row's documents an id belongs to, 0, 1, ...; -1 is padding."""


class Tokens:
    """The token files of a tokenized corpus, of which each size and header was held against the manifest when it was opened."""

    def __init__(self, path: Path):
        self.path = path
        self.manifest: dict[str, Any] = read_manifest(path)
        if "tokenizer_id" not in self.manifest:
            raise ConfigError(f"{path} holds a corpus and no tokens; its tokens lie under tokens/TOKENIZER/DATASET")
        self.sha256 = file_sha256(path / MANIFEST)
        self.vocab_size = int(self.manifest["vocab_size"])
        self.packed: int | None = (self.manifest.get("packing") or {}).get("sequence_length")
        """Ids in a packed sequence, or None where documents stand one after another."""
        refuse_other_files(path, [file["name"] for file in self.manifest["files"]], ".bin")
        for i in range(len(self.manifest["files"])):
            self._read(i)
        self._open: dict[int, NDArray[Any]] = {}
        self._tables: dict[tuple[str, str], NDArray[Any]] = {}

    def __repr__(self) -> str:
        ids = sum(file["n_tokens"] for file in self.manifest["files"])
        return (
            f"<tokens {self.manifest['dataset']} {self.manifest['version']} as {self.manifest['tokenizer_id']}: {ids:,} ids in {self.path}>"
        )

    def __getstate__(self) -> dict[str, Any]:
        """Without what is mapped into memory: another process maps it again."""
        return self.__dict__ | {"_open": {}, "_tables": {}}

    def check(self) -> None:
        """Read every file through. ``IntegrityError`` names the first that is not what the manifest says."""
        tables = [self.manifest[name] for name in ("index", "sequences") if name in self.manifest]
        for file in [*self.manifest["files"], *tables]:
            self._vouched(file)

    def files(self, split: str) -> list[int]:
        """The token files of a split, in order, as numbers into the manifest's list."""
        found = [i for i, file in enumerate(self.manifest["files"]) if file["split"] == split]
        if not found:
            raise ConfigError(f"{self.path} has no split {split!r}: {', '.join(sorted({f['split'] for f in self.manifest['files']}))}")
        return found

    def ids(self, file: int) -> NDArray[Any]:
        """The ids of a token file, mapped into memory and read-only."""
        if file not in self._open:
            self._open[file] = self._read(file)
        return self._open[file]

    def starts(self, split: str) -> NDArray[np.int64]:
        """Where in a split, its files one after another, each document begins: ascending, and not in memory."""
        names = [self.manifest["files"][i]["name"] for i in self.files(split)]
        ends = np.cumsum([self.manifest["files"][i]["n_tokens"] for i in self.files(split)])
        before = np.concatenate([[0], ends[:-1]]).astype(np.int64)
        return self._table("index", split, ["file", "start"], lambda rows, at: before[at] + rows.column("start").to_numpy(), names)

    def filled(self, split: str) -> NDArray[np.int64]:
        """How many ids of each packed sequence of a split are not padding, not in memory."""
        names = [self.manifest["files"][i]["name"] for i in self.files(split)]
        return self._table("sequences", split, ["file", "length"], lambda rows, at: rows.column("length").to_numpy(), names)

    def batches(
        self,
        split: str = "train",
        *,
        batch_size: int,
        sequence_length: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        world_size: int = 1,
        epochs: int | None = None,
        start_step: int = 0,
        drop_last: bool = False,
        positions: bool = False,
    ) -> "Batches":
        """Batches for one of ``world_size`` ranks, without end or for so many ``epochs``.

        A row is ``sequence_length`` ids and their targets: the ids of the split, its files one after another, are cut into such rows, and what
        is left behind the last is not read. Packed ids come as they were packed, a row a sequence: then leave ``sequence_length`` out.
        Each epoch has all rows, in an order of its own. Of the order, a step takes the next ``batch_size * world_size`` rows and each rank its
        share of them, so that a number of rows has one order whatever the ranks. In the last step there may be fewer, even none for some
        rank, unless ``drop_last``; every rank has as many steps. ``ConfigError`` tells of an argument that cannot be.
        """
        return Batches(
            self,
            split,
            batch_size=batch_size,
            sequence_length=sequence_length,
            seed=seed,
            shuffle=shuffle,
            rank=rank,
            world_size=world_size,
            epochs=epochs,
            start_step=start_step,
            drop_last=drop_last,
            positions=positions,
        )

    def _read(self, file: int) -> NDArray[Any]:
        said = self.manifest["files"][file]
        path = self.path / said["name"]
        try:
            header, ids = binfile.read(path)
        except ValueError as error:
            raise IntegrityError(f"{error}: {REMEDY}") from None
        if (header.n_tokens, header.vocab_size) != (said["n_tokens"], self.vocab_size):
            raise IntegrityError(
                f"{path} holds {header.n_tokens} ids of a vocabulary of {header.vocab_size}, its manifest says {said['n_tokens']} of "
                f"{self.vocab_size}: {REMEDY}"
            )
        return ids

    def _vouched(self, said: dict[str, Any]) -> Path:
        path = self.path / str(said["name"])
        if not path.is_file():
            raise IntegrityError(f"{path} is missing: {REMEDY}")
        found = file_sha256(path)
        if found != said["sha256"]:
            raise IntegrityError(f"{path} has the sha256 {found[:12]}..., its manifest says {said['sha256'][:12]}...: {REMEDY}")
        return path

    def _table(self, table: str, split: str, columns: list[str], value: Any, names: list[str]) -> NDArray[np.int64]:
        """A column of a table for the rows of some files, in a file without a name: with a corpus of any size, none of it need be in memory."""
        if (table, split) not in self._tables:
            path = self._vouched(self.manifest[table])
            with pq.ParquetFile(path) as file:
                self._tables[table, split] = _mapped(
                    value(rows.filter(pc.is_in(rows.column("file"), pa.array(names))), _places(rows.column("file"), names))
                    for rows in file.iter_batches(columns=columns)
                )
        return self._tables[table, split]


class Batches(Iterator[Batch]):
    """Batches one after another; where it stands is one number, the rows that all ranks have taken together."""

    def __init__(
        self,
        tokens: Tokens,
        split: str,
        *,
        batch_size: int,
        sequence_length: int | None,
        seed: int,
        shuffle: bool,
        rank: int,
        world_size: int,
        epochs: int | None,
        start_step: int,
        drop_last: bool,
        positions: bool,
    ):
        for name, value, least in (("batch_size", batch_size, 1), ("world_size", world_size, 1), ("start_step", start_step, 0)):
            if value < least:
                raise ConfigError(f"{name}: {value} is below {least}")
        if not 0 <= rank < world_size:
            raise ConfigError(f"rank: {rank} is not within [0, {world_size}), the ranks of world_size")
        if epochs is not None and epochs < 1:
            raise ConfigError(f"epochs: {epochs} is below 1; leave it out for batches without end")
        self.source, self.split, self.context = tokens, split, _context(tokens, sequence_length)
        self.batch_size, self.rank, self.world_size = batch_size, rank, world_size
        self.seed, self.shuffle, self.epochs, self.drop_last, self.positions = seed, shuffle, epochs, drop_last, positions
        self._files = tokens.files(split)
        self._ends = np.cumsum([tokens.manifest["files"][i]["n_tokens"] for i in self._files], dtype=np.int64)
        ids = int(self._ends[-1])
        self.stride = tokens.packed or self.context
        """Ids from the beginning of a row to that of the next."""
        self.rows = ids // tokens.packed if tokens.packed else max(0, ids - 1) // self.context
        """Rows in an epoch, of all ranks."""
        if not self.rows:
            raise ConfigError(f"{tokens.path}: {split} has {ids:,} ids, too few for one sequence of {self.context} and its targets")
        self.taken = start_step * batch_size * world_size

    @property
    def steps(self) -> int | None:
        """Batches from the first of all to the last of the last epoch, or None without ``epochs``."""
        if self.epochs is None:
            return None
        rows, step = self.rows * self.epochs, self.batch_size * self.world_size
        return rows // step if self.drop_last else -(-rows // step)

    def __iter__(self) -> "Batches":
        return self

    def __next__(self) -> Batch:
        batch = self.ahead(0)
        if batch is None:
            raise StopIteration
        self.taken = self._after(1)
        return batch

    def ahead(self, steps: int) -> Batch | None:
        """The batch that comes after ``steps`` others, None behind the last; where this stands does not change."""
        share = self._share(self._after(steps))
        return None if share is None else self._batch(self._places(share))

    def state_dict(self, steps: int = 0) -> dict[str, Any]:
        """Where to go on after ``steps`` more batches than this has given: plain numbers and strings, the same on every rank."""
        return self._fixed() | {"taken": self._after(steps)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a ``state_dict``. Ranks and batch size may be others; ``ConfigError`` names what may not."""
        for name, value in self._fixed().items():
            if state.get(name) != value:
                raise ConfigError(f"this state is of other batches: {name} was {state.get(name)!r}, and here it is {value!r}")
        self.taken = int(state["taken"])

    def _fixed(self) -> dict[str, Any]:
        """What decides the order of rows."""
        return {
            "manifest_sha256": self.source.sha256,
            "split": self.split,
            "sequence_length": self.context,
            "seed": self.seed,
            "shuffle": self.shuffle,
        }

    def _after(self, steps: int) -> int:
        """Rows taken after ``steps`` more."""
        taken = self.taken + steps * self.batch_size * self.world_size
        return taken if self.epochs is None else min(taken, max(self.taken, self.rows * self.epochs))

    def _share(self, taken: int) -> NDArray[np.int64] | None:
        """Which rows, counted from the first of the first epoch, this rank has of the next step; None when there is none."""
        whole = self.batch_size * self.world_size
        left = whole if self.epochs is None else min(whole, self.rows * self.epochs - taken)
        if left <= 0 or (left < whole and self.drop_last):
            return None
        return taken + np.arange(left * self.rank // self.world_size, left * (self.rank + 1) // self.world_size, dtype=np.int64)

    def _places(self, share: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where in the split each row stands, in rows."""
        epochs, places = np.divmod(share, self.rows)
        for epoch in np.unique(epochs) if self.shuffle else ():
            places[epochs == epoch] = shuffled(places[epochs == epoch], self.rows, self.seed, int(epoch))
        return places

    def _batch(self, places: NDArray[np.int64]) -> Batch:
        ids = np.empty((len(places), self.context + 1), np.int64)
        for row, place in zip(ids, places, strict=True):
            self._copy(int(place) * self.stride, row)
        tokens, targets = ids[:, :-1], ids[:, 1:].copy()
        filled = np.full(len(places), self.context + 1)
        if self.source.packed:
            filled = self.source.filled(self.split)[places].astype(np.int64)
            targets[np.arange(1, self.context + 1) >= filled[:, None]] = IGNORED
        if not self.positions:
            return Batch(np.ascontiguousarray(tokens), targets)
        starts = self.source.starts(self.split)
        positions, segments = np.zeros(tokens.shape, np.int64), np.full(tokens.shape, -1, np.int64)
        for i, (place, n) in enumerate(zip(places * self.stride, np.minimum(filled, self.context), strict=True)):
            positions[i, :n], segments[i, :n] = _within(starts, int(place), int(n))
        return Batch(np.ascontiguousarray(tokens), targets, positions, segments)

    def _copy(self, start: int, row: NDArray[np.int64]) -> None:
        """Copy the ids from ``start`` of the split on, across the borders of files."""
        at, file = 0, int(np.searchsorted(self._ends, start, side="right"))
        while at < len(row):
            ids = self.source.ids(self._files[file])
            here = ids[len(ids) - (int(self._ends[file]) - start - at) :][: len(row) - at]
            row[at : at + len(here)] = here
            at, file = at + len(here), file + 1


def tokens(
    path_or_name: str | os.PathLike[str],
    *,
    lock: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    configs: str | os.PathLike[str] = "configs",
    deep: bool = False,
) -> Tokens:
    """Open a folder of tokens, or the tokens of a build by its name, which is found as ``corpusbuild.open`` finds it, under its lock.

    The manifest, every file's size and every header are checked; with ``deep`` every byte is. ``IntegrityError`` names what the manifest or the
    lock does not vouch for; ``ConfigError`` when there are no such tokens.
    """
    folder = Path(path_or_name)
    if not folder.is_dir():
        corpus = open_corpus(path_or_name, lock=lock, cache=cache, configs=configs)
        if corpus.tokens_path is None:
            raise ConfigError(f"{path_or_name} was built without a tokenizer: give it one, and build it again")
        folder = corpus.tokens_path
    opened = Tokens(folder)
    if deep:
        opened.check()
    return opened


def _context(tokens: Tokens, sequence_length: int | None) -> int:
    if tokens.packed:
        if sequence_length not in (None, tokens.packed - 1):
            raise ConfigError(
                f"sequence_length: {tokens.path} is packed in sequences of {tokens.packed}, which give {tokens.packed - 1} ids and their targets, "
                f"not {sequence_length}; leave it out"
            )
        sequence_length = tokens.packed - 1
    if sequence_length is None or sequence_length < 1:
        raise ConfigError(f"sequence_length: {sequence_length} ids a row cannot be; {tokens.path} is not packed, so it takes 1 or more")
    return sequence_length


def _within(starts: NDArray[np.int64], first: int, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions and segments of ``n`` ids from ``first`` on.

    >>> [values.tolist() for values in _within(np.array([0, 4, 6]), 3, 5)]
    [[0, 0, 1, 0, 1], [0, 1, 1, 2, 2]]
    """
    cuts = starts[np.searchsorted(starts, first, side="right") : np.searchsorted(starts, first + n)] - first
    begins = np.zeros(n, np.int64)
    begins[cuts] = cuts
    marks = np.zeros(n, np.int64)
    marks[cuts] = 1
    return np.arange(n) - np.maximum.accumulate(begins), np.cumsum(marks)


def _places(names: pa.Array, known: list[str]) -> NDArray[np.int64]:
    """Of each name that is known, its place among those."""
    return np.asarray(pc.index_in(names, pa.array(known)).drop_null().to_numpy(zero_copy_only=False), np.int64)


def _mapped(blocks: Iterable[NDArray[Any]]) -> NDArray[np.int64]:
    """The numbers of ``blocks`` one after another, mapped from a file that is gone with them."""
    with tempfile.TemporaryFile() as file:
        for block in blocks:
            file.write(np.ascontiguousarray(block, np.int64).tobytes())
        file.flush()
        if not file.tell():
            return np.empty(0, np.int64)  # nothing cannot be mapped
        return np.memmap(file, np.int64, mode="r", shape=(file.tell() // 8,))
