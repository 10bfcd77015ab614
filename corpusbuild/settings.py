"""What a configuration may say: the types that ``configs/NAME.toml`` is read into, with every default and bound. ``config.py`` reads it."""

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from corpusbuild import pii
from corpusbuild.kernels import Choice
from corpusbuild.mix import Share
from corpusbuild.model import Record
from corpusbuild.quality import FilterParams
from corpusbuild.stages import tokenize
from corpusbuild.stages.scrub import Policy as PiiPolicy
from corpusbuild.stages.shard import Sharding

Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]*$(?!\n)", max_length=100)]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]
Text = Annotated[str, Meta(min_length=1)]


def _partial(struct: type[msgspec.Struct]) -> Any:
    """The same table with every key optional and no defaults, for overrides."""
    fields = []
    for field in msgspec.structs.fields(struct):
        nested = isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
        fields.append((field.name, (_partial(field.type) if nested else field.type) | UnsetType, UNSET))
    return msgspec.defstruct(f"{struct.__name__}Overrides", fields, bases=(Record,), kw_only=True, frozen=True, forbid_unknown_fields=True)


if TYPE_CHECKING:
    FilterOverrides = FilterParams
else:
    FilterOverrides = _partial(FilterParams)


class FileConfig(Record):
    """One file of a source of several."""

    url: Text
    sha256: Sha256
    size: Annotated[int, Meta(ge=0)] | None = None


class SourceConfig(Record):
    """One pinned source. Relative paths start at the configuration's folder."""

    id: Name
    license_spdx: Text
    url: Text | None = None
    sha256: Sha256 | None = None
    size: Annotated[int, Meta(ge=0)] | None = None
    urls: tuple[Text, ...] = ()
    files: tuple[FileConfig, ...] = ()
    checksums: bool = False
    select: tuple[Text, ...] = ()
    allow_private: bool = False
    allowed_uses: Annotated[tuple[Literal["train", "eval"], ...], Meta(min_length=1)] = ("train", "eval")
    format: Literal["jsonl", "text", "parquet", "csv", "tsv", "warc"] = "jsonl"
    separator: Text | None = None
    text_field: Text = "text"
    id_field: Text | None = None
    keep: tuple[Annotated[str, Meta(pattern=r"^[A-Za-z_]\w*$(?!\n)")], ...] = ()
    pii_policy: PiiPolicy = "scrub"
    on_bad: Literal["stop", "reject"] = "stop"
    max_bad: Annotated[float, Meta(ge=0, le=1)] = 0.01
    filters: FilterOverrides | None = None
    allow_empty: bool = False
    """Whether it is fine that every document of the source is dropped."""
    credit: Text | None = None
    """Whom ATTRIBUTION.md names as the authors, and how; absent means those whom the source's own page names."""
    notice: Text | None = None
    """A text file with the copyright notice and the licence, where every copy must keep them; ATTRIBUTION.md holds it."""
    max_removed: Annotated[float, Meta(ge=0, le=1)] | None = None
    """Instead of ``dedup.max_removed``, for this source."""


class Dedup(Record):
    bloom_bytes_per_item: Annotated[int, Meta(ge=1)] = 10
    jaccard_threshold: Annotated[float, Meta(gt=0, le=1)] = 0.8
    num_perm: Annotated[int, Meta(ge=1, le=4096)] = 128
    bands: Annotated[int, Meta(ge=1)] = 16
    shingle: Annotated[int, Meta(ge=1)] = 5
    seed: Annotated[int, Meta(ge=0, lt=2**53)] = 0
    max_bucket: Annotated[int, Meta(ge=2)] = 64
    max_removed: Annotated[float, Meta(ge=0, le=1)] = 0.6
    """The share of a source's documents that may go as duplicates; when more would, the build stops and shows them."""
    against: tuple[Text, ...] = ()
    """Earlier corpora whose documents are not to come again: ``corpus/<dataset>/<version>`` of the cache, or a folder with shards."""

    def __post_init__(self) -> None:
        if self.num_perm % self.bands:
            raise ValueError(f"bands ({self.bands}) must divide num_perm ({self.num_perm})")


class Decontam(Record):
    protected: tuple[Text, ...] = ()
    ngram: Annotated[int, Meta(ge=1)] = 13


class Pii(Record):
    kinds: Annotated[tuple[pii.Kind, ...], Meta(min_length=1)] = pii.KINDS
    """Which kinds of personal data are looked for. Those after key need the extra corpusbuild[pii]."""

    def __post_init__(self) -> None:
        if repeated := sorted({kind for kind in self.kinds if self.kinds.count(kind) > 1}):
            raise ValueError(f"kinds names {', '.join(repeated)} twice")


class TrainConfig(Record):
    """A byte-level BPE, trained on the corpus's own train split."""

    vocab_size: Annotated[int, Meta(ge=258, le=2**31 - 1)]
    """Entries in all: the 256 bytes, the end of a text, and merges."""
    sample: Annotated[str, Meta(pattern=r"^\d+(\.\d+)? ?(MB|GB|TB)$(?!\n)")] = "100 MB"
    """About how much text it is trained on: every document where there is less, else documents drawn by their digest."""


class TokenizerConfig(Record):
    id: Name
    path: Text | None = None
    """A tokenizer.json, a rank file of tiktoken or a SentencePiece model; absent means bytes, or a trained one."""
    sha256: Sha256 | None = None
    """Of the file; a build with another is refused."""
    kind: Literal["huggingface", "tiktoken", "sentencepiece"] | None = None
    """Of the file; absent means what stands in it."""
    pattern: Text | None = None
    """tiktoken: gpt2, r50k_base, p50k_base, cl100k_base, o200k_base, or the regular expression that cuts words."""
    special_tokens: dict[Text, Annotated[int, Meta(ge=0, lt=2**31 - 1)]] | None = None
    """tiktoken: control tokens and their ids; absent means those of the named pattern."""
    train: TrainConfig | None = None
    doc_sep_id: Annotated[int, Meta(ge=0)] | None = None
    max_file_tokens: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 100_000_000
    on_special: Literal["text", "refuse"] = "text"
    """What becomes of a document in which a control token is written: it is text like other text, or the document is left out of the tokens."""
    max_unknown: Annotated[float, Meta(ge=0, le=1)] = 0.01
    """The share of a source's ids that may stand for what the vocabulary lacks; with more, the build stops."""
    formats: tuple[tokenize.Format, ...] = ()
    """The layouts of other trainers in which the ids are written as well."""
    shuffle: tokenize.Shuffle | None = None
    """Absent means plan order."""
    sequence_length: Annotated[int, Meta(ge=2, le=2**31 - 1)] | None = None
    """Ids in a sequence, where the ids are laid into sequences of one length."""
    packing: tokenize.Method | None = None
    """How, with sequence_length; absent means concatenate."""
    pad_id: Annotated[int, Meta(ge=0)] | None = None
    """What fills a sequence; absent means the separator, or 0 where there is none."""

    def __post_init__(self) -> None:
        if self.path is not None and self.train is not None:
            raise ValueError("path and train exclude each other: a tokenizer is given or trained")
        for key, value in (("sha256", self.sha256), ("kind", self.kind)):
            if value is not None and self.path is None:
                raise ValueError(f"{key} belongs to a file: name it with path")
        if self.sequence_length is None and (self.packing is not None or self.pad_id is not None):
            raise ValueError("packing and pad_id are of sequences of one length: say which, with sequence_length")
        if self.sequence_length is not None and self.sequence_length > self.max_file_tokens:
            raise ValueError(
                f"sequence_length ({self.sequence_length}) is more than a file may hold, max_file_tokens ({self.max_file_tokens})"
            )
        if self.packing == "best-fit" and self.shuffle is not None and self.shuffle.unit == "window":
            raise ValueError('packing = "best-fit" cuts no document, and shuffle.unit = "window" does: shuffle by document')
        if repeated := sorted({name for name in self.formats if self.formats.count(name) > 1}):
            raise ValueError(f"formats names {', '.join(repeated)} twice")


class Stages(Record):
    """Which stages run. The licence gate cannot be switched off."""

    filter: bool = True
    decontaminate: bool = True
    scrub: bool = True
    exact_dedup: bool = True
    near_dedup: bool = True
    tokenize: bool = True


class Run(Record):
    """How to run, never what to build: nothing here reaches a key."""

    executor: Annotated[str, Meta(pattern=r"^(serial|local(:[1-9]\d*)?)$(?!\n)")] = "local"
    workers: Annotated[int, Meta(ge=0, le=1024)] = 0
    """0 means as many as there are cores, and memory for."""
    memory: Annotated[str, Meta(pattern=r"^\d+(\.\d+)? ?(MB|GB|TB)$(?!\n)")] = "1.5 GB"
    """For all processes together."""
    kernels: Choice = "auto"
    """``auto`` runs compiled loops where a step reads enough text to be worth loading them, ``compiled`` everywhere, ``reference`` their plain forms,
    much slower. The bytes are the same."""
    concurrency: Annotated[int, Meta(ge=1, le=256)] = 8
    attempts: Annotated[int, Meta(ge=1, le=100)] = 4
    timeout: Annotated[float, Meta(gt=0)] = 30.0
    connections: Annotated[int, Meta(ge=1, le=32)] = 1
    """Parallel ranges of one large file, where the server allows it."""
    per_host: Annotated[int, Meta(ge=0)] = 0
    """Downloads from one host at a time; 0 means no limit of its own."""
    rate: Annotated[float, Meta(ge=0)] = 0.0
    """Bytes a second for all downloads together; 0 means no limit."""
    check_space: bool = True
    """Whether a build that cannot fit on the disk is refused before it begins."""
    part_attempts: Annotated[int, Meta(ge=1, le=100)] = 3
    """How often a part is begun whose worker dies or hangs."""
    part_timeout: Annotated[float, Meta(gt=0)] = 3600.0
    """Seconds a part may take, from start to close; most take less than thirty."""
    heartbeat: Annotated[float, Meta(gt=0)] = 120.0
    """Seconds the worker of a part may stand still: no processor time, nothing read or written."""
    contact: str = ""
    """Sent in the User-Agent, so that a server's owner can reach you."""

    def memory_bytes(self) -> int:
        return bytes_of(self.memory)


class Corpus(Record):
    """A corpus: what ``configs/NAME.toml`` says."""

    dataset: Name
    version: Name
    sources: Annotated[tuple[SourceConfig, ...], Meta(min_length=1)]
    shard: Sharding
    tokenizer: TokenizerConfig
    use: Literal["train", "eval"] = "train"
    filters: FilterParams = FilterParams()
    dedup: Dedup = Dedup()
    decontam: Decontam = Decontam()
    pii: Pii = Pii()
    mix: dict[Name, float | Text | Share] | None = None
    """How much of the train ids each source gives: a weight, a number of ids ("2B"), or one of both with how many epochs it may take."""
    stages: Stages = Stages()
    run: Run = Run()


def bytes_of(amount: str) -> int:
    """
    >>> bytes_of("1.5 GB")
    1500000000
    """
    number, unit = re.fullmatch(r"([\d.]+) ?(MB|GB|TB)", amount).groups()  # type: ignore[union-attr]  # the patterns of the keys
    return int(float(number) * {"MB": 10**6, "GB": 10**9, "TB": 10**12}[unit])
