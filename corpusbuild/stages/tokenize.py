"""Tokenize: shards that passed the gate to token files for training, with an index back to the documents.

Four rounds of tasks. Each shard is encoded. The documents of each split are put in order: mixed, shuffled, packed, and laid into files, as rows of small
numbers only. Each file is written, in every layout that was asked for, with its part of the index. The parts of the index become one.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from corpusbuild import binfile, mix, order, spool, writers
from corpusbuild.encoded import DOCUMENT, SPLITS, Names, Shards, ids_of, runs_of
from corpusbuild.encoding import Encode, How, check_special, encode_shard
from corpusbuild.errors import ConfigError, StageError
from corpusbuild.hashing import file_sha256, sums_line
from corpusbuild.mix import Draw, Drawn, Draws, Share
from corpusbuild.model import Counts, Record, Tally, add_counts, total
from corpusbuild.order import CHUNK, FILE, RUN, Runs
from corpusbuild.stage import Job, Out, Stage, Task
from corpusbuild.stages.shard import MANIFEST, MANIFEST_SHA256
from corpusbuild.tokenizer import Spec
from corpusbuild.tokenizer.reading import pieces_of
from corpusbuild.tokentables import TABLES, borders, run_ends, sequence_ends, write_index, write_sequences
from corpusbuild.tokentables import join as join_tables

MAX_FILE_TOKENS = 100_000_000
TOKENIZER = "tokenizer.json"
"""A tokenizer that was trained, in its step's entry and beside its tokens."""

Format = Literal["megatron", "npy", "nanotron", "mds", "litdata"]


Method = Literal["concatenate", "best-fit"]


class Shuffle(Record):
    """A permutation that depends on the seed and the documents' ids only."""

    seed: Annotated[int, Meta(ge=0, lt=2**53)] = 0
    unit: Literal["document", "window"] = "document"
    window: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 4096
    """Ids in a window, for the unit of that name."""


class Packing(Record):
    """Sequences of one length."""

    sequence_length: int
    method: Method = "concatenate"
    pad_id: int = 0


class Params(Record):
    dataset: str
    version: str
    id: str
    tokenizer: Spec
    """With no path where the step takes a trained one."""
    doc_sep_id: int | None = None
    max_file_tokens: int = MAX_FILE_TOKENS
    on_special: Literal["text", "refuse"] = "text"
    """What becomes of a document in which a control token is written: it is text like other text, or the document is left out."""
    max_unknown: float = 1.0
    """The largest share of a source's ids that may stand for what the vocabulary lacks."""
    formats: tuple[Format, ...] = ()
    shuffle: Shuffle | None = None
    packing: Packing | None = None
    mix: dict[str, Share] | None = None
    """By source. What is held out for validation is not mixed."""


class Weigh(Task):
    """How each source is to be drawn for the mix."""

    shards: Shards
    sources: tuple[str, ...]
    asked: dict[str, Share]


class Arrange(Task):
    """The order of one split."""

    split: str
    shards: Shards
    draws: tuple[Draw, ...]
    """By source; one whole pass each where nothing is mixed."""
    params: Params
    memory: int


class Assemble(Task):
    """One token file."""

    split: str
    first: int
    runs: int
    start: int
    end: int
    documents: int
    shards: Shards
    vocab_size: int
    params: Params


class Join(Task):
    """One table of the parts of it that the token files have."""

    parts: tuple[str, ...]
    scratch: str


def build(job: Job) -> Counts:
    params: Params = located(job)
    corpus = job.inputs["corpus"][0]
    sources = tuple(corpus.contents.counts)
    shards, encoded = _encode(job, params, sources)
    vocab_size = encoded[0]["vocab_size"]
    check_special("pad_id", params.packing.pad_id if params.packing else None, vocab_size)
    counts = add_counts([{s: Tally() for s in sources}, *({s: Tally(**t) for s, t in value["counts"].items()} for value in encoded)])
    check_unknown(counts, params.max_unknown)
    sampled, equal = (sum(value["decoded"][i] for value in encoded) for i in range(2))
    restored = {
        "documents": sampled,
        "equal": equal,
        "losses": encoded[0]["losses"] if equal < sampled else [],
        "unknown": unknown_share(counts),
    }
    mixed = None
    if params.mix is not None:
        weighing = Weigh(name="mix", shards=shards, sources=sources, asked=params.mix)
        mixed = msgspec.convert(job.map(weigh, [weighing])[0], dict[str, Drawn])
    whole = tuple(Draw(passes=1) for _ in sources)
    drawn = whole if mixed is None else tuple(mixed[s].draw for s in sources)
    orders = [
        Arrange(
            name=f"order-{split}",
            split=split,
            shards=shards,
            draws=drawn if split == "train" else whole,
            params=params,
            memory=job.memory,
        )
        for split in SPLITS
    ]
    arranged = dict(zip(SPLITS, job.map(arrange, orders), strict=True))
    files = [
        Assemble(
            name=f"{split}-{i:05d}",
            split=split,
            **{n: int(f[n]) for n in FILE.names or ()},
            shards=shards,
            vocab_size=vocab_size,
            params=params,
        )
        for split in SPLITS
        for i, f in enumerate(np.load(job.scratch / f"order-{split}.files.npy"))
    ]
    written = job.map(assemble, files)
    tables = ["index", "sequences"] if params.packing else ["index"]
    joined = job.map(join, [Join(name=t, parts=tuple(f"{f.name}.{t}.parquet" for f in files), scratch=shards.home) for t in tables])
    if params.on_special == "refuse":
        parts = tuple(f"{shards.name(i)}.refused.parquet" for i in range(shards.n))
        tables.append("refused")
        joined += job.map(join, [Join(name="refused", parts=parts, scratch=shards.home)])
    manifest = {
        "tokenizer_id": params.id,
        "tokenizer_sha256": params.tokenizer.sha256,
        "vocab_size": vocab_size,
        "doc_sep_id": params.doc_sep_id,
        "dataset": params.dataset,
        "version": params.version,
        "corpus_manifest_sha256": file_sha256(corpus.path / MANIFEST),
        "files": [
            {"name": f"{f.name}.bin", "split": f.split, "n_tokens": f.end - f.start, "n_docs": f.documents, "sha256": w["sha256"]}
            for f, w in zip(files, written, strict=True)
        ],
        **{t: {"name": f"{t}.parquet", "sha256": digest} for t, digest in zip(tables, joined, strict=True)},
        **({"formats": _formats(job, files, written)} if params.formats else {}),
        "order": _order(params.shuffle),
        "packing": _packing(params.packing, arranged),
        "mix": None
        if mixed is None
        else {s: _mixed((params.mix or {})[s], d, sum(d.tokens for d in mixed.values())) for s, d in mixed.items()},
        "bytes_per_token": bytes_per_token(counts),
        "decoded": restored,
        "key": job.key,
    }
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
    job.put(MANIFEST, data)
    job.put(MANIFEST_SHA256, sums_line(data, MANIFEST))
    return {s: _tally(t, None if mixed is None else mixed[s]) for s, t in counts.items()}


def located(job: Job) -> Params:
    """The parameters, with the tokenizer that another step trained in the place of its file."""
    params: Params = job.params
    trained = job.inputs.get("tokenizer", ())
    if not trained:
        return params
    path = trained[0].path / TOKENIZER
    job.put(TOKENIZER, path.read_bytes())
    return msgspec.structs.replace(params, tokenizer=Spec(kind="huggingface", path=str(path), sha256=file_sha256(path)))


def _encode(job: Job, params: Params, sources: tuple[str, ...]) -> tuple[Shards, list[Any]]:
    """Encode every piece of every shard. Where a faster library gives other ids than the one that decides, all of them by the latter."""
    pieces = [piece for path in job.inputs["corpus"][0].files(".parquet") for piece in pieces_of(path)]
    how = How(tokenizer=params.tokenizer, doc_sep_id=params.doc_sep_id, on_special=params.on_special)

    def encode(shards: Shards, plain: bool) -> list[Any]:
        tasks = [Encode(name=shards.name(i), piece=piece, sources=sources, how=how, plain=plain) for i, piece in enumerate(pieces)]
        return job.map(encode_shard, tasks)

    shards = Shards(home=str(job.scratch), n=len(pieces))
    encoded = encode(shards, plain=False)
    if wrong := next((e["differs"] for e in encoded if "differs" in e), None):
        job.say(f"tokenize: the faster library gives other ids than the tokenizer's own for {wrong}: all is encoded by the latter, slower")
        shards = msgspec.structs.replace(shards, ending=".plain")
        encoded = encode(shards, plain=True)
    return shards, encoded


def weigh(task: Weigh, out: Out) -> Any:
    """Find how each source is drawn, by going through the documents twice."""

    def documents() -> Iterator[NDArray[Any]]:
        return (rows for shard in range(task.shards.n) for rows in task.shards.documents("train", shard))

    scale = mix.Scale(task.sources)
    for rows in documents():
        scale.count(rows["source"], rows["hash"], rows["ids"])
    scale.aim(task.asked)
    for rows in documents():
        scale.narrow(rows["source"], rows["hash"], rows["ids"])
    return msgspec.to_builtins(scale.drawn())


def arrange(task: Arrange, out: Out) -> Any:
    """Write the runs of ids of a split in the order of its files, and how they are laid into files."""
    params, shuffle, packing = task.params, task.params.shuffle, task.params.packing
    runs = _drawn(task)
    if shuffle is not None:
        if shuffle.unit == "window":
            runs = order.windows(order.placed(runs), shuffle.window)
        place = Path(task.shards.home) / f"{task.name}.spool.tmp"
        runs = _sorted(runs, place, _size(task), task.memory)
    files: order.Files | order.SequenceFiles = order.Files(params.max_file_tokens)
    if packing is None:
        runs = order.placed(runs)
    else:
        files = order.SequenceFiles(params.max_file_tokens, packing.sequence_length)
        if packing.method == "best-fit":
            runs = order.packed(order.rechunked(runs), packing.sequence_length)
        else:
            runs = (order.cut(placed, packing.sequence_length) for placed in order.placed(runs))
    ids = cuts = 0
    with out.scratch(".runs").open("wb") as sink:
        for chunk in runs:
            files.add(chunk)
            ids, cuts = ids + int(chunk["ids"].sum()), cuts + int(np.count_nonzero(chunk["offset"]))
            sink.write(chunk.tobytes())
    laid = files.close()
    with out.scratch(".files.npy").open("wb") as sink:
        np.save(sink, laid)
    return {"tokens": ids, "cuts": cuts, "end": int(laid["end"][-1])}


def assemble(task: Assemble, out: Out) -> Any:
    """Write a token file, in every layout, and its part of the index."""
    packing = task.params.packing
    n_tokens, dtype = task.end - task.start, binfile.dtype_for(task.vocab_size)
    chunks = partial(runs_of, Path(task.shards.home) / f"order-{task.split}.runs", task.first, task.runs, task.start)
    shape = writers.Shape(
        name=task.name,
        n_tokens=n_tokens,
        vocab_size=task.vocab_size,
        tokenizer=task.params.id,
        dtype=dtype,
        samples=partial(sequence_ends, packing.sequence_length, n_tokens) if packing else partial(run_ends, chunks),
        runs=partial(borders, chunks, n_tokens),
    )
    path = out.path(".bin")
    sinks: dict[str, writers.Sink] = {"": writers.Plain(path, binfile.pack_header(n_tokens, task.vocab_size))}
    paths: dict[str, Path] = {}
    for name in task.params.formats if n_tokens else ():

        def named(suffix: str, folder: str = f"{name}/{task.split}") -> Path:
            paths[f"{folder}/{task.name}{suffix}"] = out.path(suffix, folder)
            return paths[f"{folder}/{task.name}{suffix}"]

        try:
            sinks[name] = writers.layout(name).sink(shape, named)
        except ValueError as error:
            raise ConfigError(f"tokenizer.formats: {error}") from None
    for ids in ids_of(chunks(), n_tokens, packing.pad_id if packing else 0, dtype, task.shards, task.split):
        for sink in sinks.values():
            sink.write(ids)
    pages = {name: sink.close() for name, sink in sinks.items()}
    write_index(out.scratch(".index.parquet"), f"{task.name}.bin", chunks(), Names(task.shards, task.split))
    if packing is not None:
        write_sequences(out.scratch(".sequences.parquet"), f"{task.name}.bin", chunks(), packing.sequence_length)
    others = {name: {"format": name.partition("/")[0], "sha256": file_sha256(other)} for name, other in sorted(paths.items())}
    return {"sha256": file_sha256(path), "others": others, "pages": {name: page for name, page in pages.items() if name}}


def join(task: Join, out: Out) -> Any:
    path = out.path(".parquet")
    join_tables(path, [Path(task.scratch) / part for part in task.parts], TABLES[task.name])
    return file_sha256(path)


def _tally(tally: Tally, mixed: Drawn | None) -> Tally:
    """What became of a source's documents: with a mix, those that it has no room for are left out."""
    if mixed is None:
        return tally
    out = mixed.left_out
    also = tally.also | ({"train_tokens": mixed.tokens} if tally.also else {})
    return Tally(docs_in=tally.docs_in, kept=tally.kept - out, dropped={"mix": out} if out else {}, also=also)


def _mixed(asked: Share, drawn: Drawn, whole: int) -> dict[str, Any]:
    return {
        "asked": {name: value for name, value in msgspec.to_builtins(asked).items() if value is not None},
        "available": drawn.available,
        "tokens": drawn.tokens,
        "documents": drawn.documents,
        "passes": round(drawn.tokens / drawn.available, 9) if drawn.available else 0,
        "weight": round(drawn.tokens / whole, 9) if whole else 0,
    }


def _order(shuffle: Shuffle | None) -> dict[str, Any]:
    if shuffle is None:
        return {"unit": "plan"}
    return {"unit": shuffle.unit, "seed": shuffle.seed} | ({"window": shuffle.window} if shuffle.unit == "window" else {})


def _packing(packing: Packing | None, arranged: dict[str, Any]) -> dict[str, Any] | None:
    if packing is None:
        return None
    splits = {
        split: {"n_sequences": a["end"] // packing.sequence_length, "padding": a["end"] - a["tokens"], "cuts": a["cuts"]}
        for split, a in arranged.items()
    }
    return {**msgspec.to_builtins(packing), **splits}


def _formats(job: Job, files: list[Assemble], written: list[Any]) -> list[dict[str, Any]]:
    """Write the indices of the other layouts; gives every file of them, by name."""
    named = [
        {"name": name, "format": of["format"], "split": file.split, "sha256": of["sha256"]}
        for file, value in zip(files, written, strict=True)
        for name, of in value["others"].items()
    ]
    for format in job.params.formats:
        for split in SPLITS:
            pages = [value["pages"][format] for file, value in zip(files, written, strict=True) if file.split == split and value["pages"]]
            data = writers.layout(format).index(pages) if pages else None
            if data is not None:
                job.put(f"{format}/{split}/index.json", data)
                digest = sums_line(data, "").decode().split()[0]
                named.append({"name": f"{format}/{split}/index.json", "format": format, "split": split, "sha256": digest})
    return sorted(named, key=lambda file: file["name"])


def _size(task: Arrange) -> int:
    """How many runs there may be before packing."""
    documents = ids = 0
    for shard in range(task.shards.n):
        documents += task.shards.path(shard, task.split, "documents").stat().st_size // DOCUMENT.itemsize
        ids += task.shards.path(shard, task.split, "ids").stat().st_size // 2
    shuffle = task.params.shuffle
    windows = ids // shuffle.window if shuffle is not None and shuffle.unit == "window" else 0
    return (documents + windows) * Draws(task.draws).most()


def _drawn(task: Arrange) -> Iterator[Runs]:
    """The documents of a split in plan order, as often as they are drawn, a pass after another, with the keys of a shuffle."""
    draws, seed = Draws(task.draws), task.params.shuffle.seed if task.params.shuffle else 0
    for drawn in range(draws.most()):
        place = 0
        for shard in range(task.shards.n):
            document = 0
            for rows in task.shards.documents(task.split, shard):
                mine = np.flatnonzero(draws.copies(rows["source"], rows["hash"], place + np.arange(len(rows))) > drawn)
                runs = np.zeros(len(mine), RUN)
                runs["shard"], runs["document"] = shard, document + mine
                runs["first"], runs["ids"] = rows["first"][mine], rows["ids"][mine]
                runs["key"] = order.keyed(rows["hash"][mine], seed, drawn)
                yield runs
                place, document = place + len(rows), document + len(rows)


def _sorted(chunks: Iterable[Runs], place: Path, n: int, memory: int) -> Iterator[Runs]:
    """Runs by key, those of one key as they come: parted by the key's first bits, so that each part can be sorted in memory."""
    bits = max(4 * n * RUN.itemsize // memory, 1).bit_length()
    try:
        with spool.writing(place) as sink:
            for runs in chunks:
                sink.add(runs["key"] >> np.uint64(64 - bits), runs)
        for part in range(2**bits):
            runs = np.concatenate([np.empty(0, RUN), *spool.runs(place, part, RUN)])
            runs = runs[np.argsort(runs["key"], kind="stable")]
            for start in range(0, len(runs), CHUNK):
                yield runs[start : start + CHUNK]
    finally:
        place.unlink(missing_ok=True)


def bytes_per_token(counts: Counts) -> dict[str, dict[str, float | None]]:
    """Of each source and split, how many bytes of text an id stands for, separators left out; nothing where there are no ids.

    >>> bytes_per_token({"a": Tally(also={"train_bytes": 9, "train_tokens": 4, "train_separators": 1})})
    {'a': {'train': 3.0, 'val': None}}
    """
    return {source: {split: _ratio(tally.also, split) for split in SPLITS} for source, tally in counts.items()}


def _ratio(also: dict[str, int], split: str) -> float | None:
    tokens = also.get(f"{split}_tokens", 0) - also.get(f"{split}_separators", 0)
    return round(also[f"{split}_bytes"] / tokens, 6) if tokens else None


def unknown_share(counts: Counts) -> float | None:
    """The share of all ids that stand for what the vocabulary lacks; nothing where the tokenizer has no such id.

    >>> unknown_share({"a": Tally(also={"train_tokens": 9, "train_separators": 1, "unknown_tokens": 2})})
    0.25
    """
    also = total(list(counts.values())).also
    ids = sum(also.get(f"{split}_tokens", 0) - also.get(f"{split}_separators", 0) for split in SPLITS)
    return round(also["unknown_tokens"] / ids, 6) if "unknown_tokens" in also and ids else None


def check_unknown(counts: Counts, limit: float) -> None:
    """``StageError`` for a source of which too many ids stand for what the vocabulary lacks."""
    for source, tally in counts.items():
        tokens = sum(tally.also.get(f"{split}_tokens", 0) - tally.also.get(f"{split}_separators", 0) for split in SPLITS)
        unknown = tally.also.get("unknown_tokens", 0)
        if unknown > limit * tokens:
            raise StageError(
                "tokenize",
                source,
                f"{unknown:,} of {tokens:,} ids ({unknown / tokens:.2%}) stand for what the vocabulary lacks, and tokenizer.max_unknown lets "
                f"{limit:.2%}: take a tokenizer that knows this text, or raise it",
            )


def names_output(params: Params) -> Any:
    """All but the place of the tokenizer's file."""
    return msgspec.to_builtins(msgspec.structs.replace(params, tokenizer=msgspec.structs.replace(params.tokenizer, path=None)))


STAGE = Stage("tokenize", version=4, build=build, names_output=names_output)
