"""The configuration: one TOML file a corpus, checked whole at the door. What it refers to is resolved and digested here, so that planning is pure."""

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from corpusbuild import identifiers, language, licenses, pii, plugins, strict
from corpusbuild.errors import ConfigError
from corpusbuild.hashing import config_sha256, file_sha256
from corpusbuild.kernels import Choice
from corpusbuild.mix import Share, share
from corpusbuild.model import Record
from corpusbuild.quality import FilterParams
from corpusbuild.sources import Source, sources_from_config
from corpusbuild.stages import earlier, tokenize
from corpusbuild.stages.decontaminate import Protected
from corpusbuild.stages.scrub import Policy as PiiPolicy
from corpusbuild.stages.shard import SHARD, Sharding
from corpusbuild.tokenizer import Spec, kind_of, separator_beside
from corpusbuild.tokenizer.huggingface import TRAINED_END_OF_TEXT
from corpusbuild.tokenizer.ranks import END_OF_TEXT, KNOWN, special_tokens_of

Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]*$(?!\n)", max_length=100)]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]
Text = Annotated[str, Meta(min_length=1)]

OURS = ("filters", "allow_empty", "credit", "notice", "max_removed")  # of a source: what no fetch has to know
MAX_NOTICE = 100_000


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


@dataclass(frozen=True)
class Loaded:
    """A configuration with everything that it refers to found and digested."""

    name: str
    path: Path
    corpus: Corpus
    config: dict[str, Any]
    """The decoded TOML without ``[run]``: what the configuration's hash is of."""
    sha256: str
    sources: tuple[Source, ...]
    filters: tuple[FilterParams, ...]
    """One a source: the corpus's filters with the source's own over them."""
    protected: tuple[Protected, ...]
    against: tuple[earlier.Params, ...]
    tokenizer: Spec
    mix: dict[str, Share] | None
    """With no path where it is bytes, or is trained."""
    doc_sep_id: int | None
    plugins: dict[str, str]
    """``package.module:function`` -> digest of its source."""
    lid: str | None
    """The trained identifier of languages with its version, where any source asks for it."""
    pii_validators: str | None
    """The version of the library that checks the further kinds of personal data, where there are some."""
    project: str
    """The folder that holds the configurations' folder."""
    policy: licenses.Policy
    notices: tuple[str, ...]
    """One a source: the text of its notice, or nothing."""
    revoked: dict[str, str]
    """Ids and digests that ``policy/revocations.toml`` or the ledger takes back -> why."""
    limit: int | None


def load(
    path: Path,
    overrides: tuple[str, ...] = (),
    limit: int | None = None,
    revoked: Mapping[str, str] = MappingProxyType({}),
    cache: Path = Path("cache"),
) -> Loaded:
    """Read and check the configuration at ``path``. ``ConfigError`` lists every problem, each with the file and the key.

    ``overrides`` are ``key.path=value`` with TOML values, for one run; ``limit`` takes the first documents of each source.
    ``revoked`` are ids and digests that something besides ``policy/revocations.toml`` takes back, and why. ``cache`` is where earlier corpora lie.
    """
    return load_decoded(_read(path), path, path.parent, path.stem, overrides, limit, revoked, cache)


def load_decoded(
    raw: dict[str, Any],
    path: Path,
    folder: Path,
    name: str | None = None,
    overrides: tuple[str, ...] = (),
    limit: int | None = None,
    revoked: Mapping[str, str] = MappingProxyType({}),
    cache: Path = Path("cache"),
) -> Loaded:
    """As ``load``, of what was decoded already. ``path`` is named in errors; relative paths and the policy start at ``folder``.

    Its name is ``<dataset>-<version>`` where no other is given.
    """
    for override in overrides:
        _set(raw, override)
    corpus, problems = strict.convert(raw, Corpus)
    if corpus is None:
        raise ConfigError(*(f"{path}: {problem}" for problem in problems))
    problems = _across(corpus)
    sources: list[Source] = []
    try:
        entries = [{name: value for name, value in source.items() if name not in OURS} for source in raw["sources"]]
        sources = sources_from_config({"sources": entries}, str(folder.resolve()))
    except ValueError as error:
        problems += str(error).split("\n")
    filters = []
    for i, source in enumerate(raw["sources"]):
        merged, more = strict.convert(_merge(raw.get("filters", {}), source.get("filters", {})), FilterParams, f"sources[{i}].filters")
        problems += more
        filters.append(merged or FilterParams())
    protected, more = _protected(corpus, folder)
    problems += more
    notices, more = _notices(corpus, folder)
    problems += more
    against, more = _against(corpus, folder, cache)
    problems += more
    project = folder.resolve().parent
    found, more = _plugins(filters, project)
    problems += more
    lid, more = _lid(filters)
    problems += more
    validators, more = _validators(corpus)
    problems += more
    shares, more = _mix(corpus)
    problems += more
    tokenizer, separator, more = _tokenizer(corpus.tokenizer, folder)
    problems += more
    if problems:
        raise ConfigError(*(f"{path}: {problem}" for problem in problems))
    config = {name: value for name, value in raw.items() if name != "run"}
    return Loaded(
        name=name or f"{corpus.dataset}-{corpus.version}",
        path=path,
        corpus=corpus,
        config=config,
        sha256=config_sha256(config),
        sources=tuple(sources),
        filters=tuple(filters),
        protected=protected,
        against=against,
        tokenizer=tokenizer,
        mix=shares,
        doc_sep_id=separator,
        plugins=found,
        lid=lid,
        pii_validators=validators,
        project=str(project),
        policy=_policy(_policy_folder(folder) / "licenses.toml"),
        notices=tuple(notices),
        revoked={**revoked, **_revocations(folder / "policy" / "revocations.toml")},
        limit=limit,
    )


def bytes_of(amount: str) -> int:
    """
    >>> bytes_of("1.5 GB")
    1500000000
    """
    number, unit = re.fullmatch(r"([\d.]+) ?(MB|GB|TB)", amount).groups()  # type: ignore[union-attr]  # the patterns of the keys
    return int(float(number) * {"MB": 10**6, "GB": 10**9, "TB": 10**12}[unit])


def resolve(url: str, folder: Path) -> str:
    """A URL as it is, and a path relative to ``folder`` as an absolute one."""
    return url if re.match(r"^[A-Za-z][A-Za-z0-9+.-]*://", url) else str((folder / url).resolve())


def schema() -> dict[str, Any]:
    """The JSON Schema of a configuration, from the types."""
    out = msgspec.json.schema(Corpus)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "corpusbuild configuration"} | out


def _read(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    if not data.strip():
        raise ConfigError(f"{path}: is empty; a corpus needs dataset, version, sources, shard and tokenizer (see configs/sample.toml)")
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from None


def _set(raw: dict[str, Any], override: str) -> None:
    name, equals, text = override.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"--set {override}: write key.path=value, for instance --set dedup.shingle=3")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    table = raw
    *parents, last = name.strip().split(".")
    for parent in parents:
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise ConfigError(f"--set {override}: {parent} is not a table")
    table[last] = value


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(below)
    for name, value in above.items():
        out[name] = _merge(out[name], value) if isinstance(value, dict) and isinstance(out.get(name), dict) else value
    return out


def _across(corpus: Corpus) -> list[str]:
    """What is wrong between keys that are right one by one."""
    problems = []
    for i, source in enumerate(corpus.sources):
        at = f"sources[{i}]"
        if source.format == "text" and (source.id_field or source.keep):
            problems.append(f"{at}: text has no fields, so id_field and keep cannot be taken from it")
        problems += [f"{at}.keep: {name!r} is a column that every shard has; leave it out" for name in source.keep if name in SHARD.names]
        problems += [f"{at}.keep: {name!r} is named twice" for name in sorted({n for n in source.keep if source.keep.count(n) > 1})]
    return problems


def _protected(corpus: Corpus, folder: Path) -> tuple[tuple[Protected, ...], list[str]]:
    found, problems = [], []
    for i, name in enumerate(corpus.decontam.protected):
        path, more = _file(folder, name, f"decontam.protected[{i}]")
        problems += more
        if path:
            found.append(Protected(name=name, path=str(path), sha256=file_sha256(path)))
    return tuple(found), problems


def _notices(corpus: Corpus, folder: Path) -> tuple[list[str], list[str]]:
    texts, problems = [], []
    for i, source in enumerate(corpus.sources):
        path, more = _file(folder, source.notice, f"sources[{i}].notice")
        problems += more
        text = ""
        try:
            text = path.read_text("utf-8") if path else ""
        except (OSError, UnicodeDecodeError) as error:
            problems.append(f"sources[{i}].notice: {path} cannot be read as text ({error})")
        if len(text) > MAX_NOTICE:
            problems.append(f"sources[{i}].notice: {path} has more than {MAX_NOTICE} characters; name the page of the notice itself")
        texts.append(text)
    return texts, problems


def _against(corpus: Corpus, folder: Path, cache: Path) -> tuple[tuple[earlier.Params, ...], list[str]]:
    found: list[earlier.Params] = []
    problems = []
    for i, name in enumerate(corpus.dedup.against):
        at = f"dedup.against[{i}]"
        home = cache / name if name.startswith("corpus/") and (cache / name).is_dir() else Path(resolve(name, folder))
        path = home / earlier.MANIFEST
        try:
            data = path.read_bytes()
            manifest = earlier.read_manifest(data)
        except OSError:
            problems.append(
                f"{at}: there is no corpus at {cache / name} or {home}; build it first, or name the folder that holds its {path.name}"
            )
            continue
        except msgspec.DecodeError as error:
            problems.append(f"{at}: {path} is no manifest of a corpus ({error})")
            continue
        params = earlier.Params(
            dataset=manifest.dataset, version=manifest.version, manifest_sha256=hashlib.sha256(data).hexdigest(), path=str(home.resolve())
        )
        if params.name in [p.name for p in found]:
            problems.append(f"{at}: {manifest.dataset} {manifest.version} is named twice")
        if (params.dataset, params.version) == (corpus.dataset, corpus.version):
            problems.append(
                f"{at}: this configuration publishes {params.dataset} {params.version} itself and would remove all of it; change version"
            )
        found.append(params)
    return tuple(found), problems


def _plugins(filters: list[FilterParams], folder: Path) -> tuple[dict[str, str], list[str]]:
    found, problems = {}, []
    for name in sorted({name for limits in filters for name in limits.functions()}):
        try:
            found[name] = plugins.digest(name, folder)
        except ConfigError as error:
            key = "rules" if any(name in limits.rules for limits in filters) else "ppl.model"
            problems.append(f"filters.{key}: {error}")
    return found, problems


def _lid(filters: list[FilterParams]) -> tuple[str | None, list[str]]:
    if not any(limits.lang_model == "lid" for limits in filters):
        return None, []
    try:
        return language.lid_version(), []
    except ImportError:
        return None, [f"filters.lang_model: lid needs {language.LID_PACKAGE}; install it with: pip install 'corpusbuild[lid]'"]


def _validators(corpus: Corpus) -> tuple[str | None, list[str]]:
    further = [kind for kind in corpus.pii.kinds if kind in pii.FURTHER_KINDS]
    if not further:
        return None, []
    try:
        return identifiers.version(), []
    except ImportError:
        return None, [f"pii.kinds: {', '.join(further)} need python-stdnum: pip install 'corpusbuild[pii]'"]


def _mix(corpus: Corpus) -> tuple[dict[str, Share] | None, list[str]]:
    """What is asked of each source, in plan order, where sources are mixed."""
    if corpus.mix is None:
        return None, []
    ids = [source.id for source in corpus.sources]
    problems = [f"mix.{name}: there is no source of that name, only {', '.join(ids)}" for name in corpus.mix if name not in ids]
    problems += [f"mix: {name} is not in it; write {name} = 0 to leave it out" for name in ids if name not in corpus.mix]
    shares = {}
    for name in ids:
        asked = corpus.mix.get(name, 0.0)
        try:
            shares[name] = asked if isinstance(asked, Share) else share(asked)
        except ValueError as error:
            problems.append(f"mix.{name}: {error}")
    return shares, problems


def _tokenizer(config: TokenizerConfig, folder: Path) -> tuple[Spec, int | None, list[str]]:
    """The tokenizer, the id that goes before each document, and what is wrong."""
    path, problems = _file(folder, config.path, "tokenizer.path")
    if path is None:
        return Spec(), TRAINED_END_OF_TEXT if config.train and config.doc_sep_id is None else config.doc_sep_id, problems
    data = path.read_bytes()
    digest, kind = hashlib.sha256(data).hexdigest(), config.kind or kind_of(data)
    if config.sha256 not in (None, digest):
        problems.append(f"tokenizer.sha256: {path} has {digest}; if this is the file that is wanted, write that")
    if kind is None:
        problems.append(f"tokenizer.path: {path} is not a tokenizer.json, a rank file of tiktoken or a SentencePiece model")
    if kind == "tiktoken" and config.pattern is None:
        problems.append(f"tokenizer.pattern: a rank file holds none; name {', '.join(KNOWN)} or write the regular expression")
    if kind != "tiktoken" and (config.pattern or config.special_tokens):
        problems.append("tokenizer.pattern and tokenizer.special_tokens belong to rank files of tiktoken, which do not hold them")
    special = special_tokens_of(config.pattern, config.special_tokens or {}) if kind == "tiktoken" else {}
    beside = separator_beside(path)
    separator = next((id for id in (config.doc_sep_id, beside, special.get(END_OF_TEXT)) if id is not None), None)
    tokens = tuple(sorted(special.items()))
    return (
        Spec(kind=kind or "huggingface", sha256=digest, pattern=config.pattern, special_tokens=tokens, path=str(path)),
        separator,
        problems,
    )


def _file(folder: Path, name: str | None, key: str) -> tuple[Path | None, list[str]]:
    if name is None:
        return None, []
    path = Path(resolve(name, folder))
    return (path, []) if path.is_file() else (None, [f"{key}: there is no file {path}"])


def _policy_folder(folder: Path) -> Path:
    """The policy beside the configurations; where a folder has none, the one that the package carries."""
    own = folder / "policy"
    return own if own.is_dir() else Path(__file__).parent / "policy"


@lru_cache
def _policy(path: Path) -> licenses.Policy:
    """The policy, read once in a process: every configuration of a folder has the same."""
    try:
        return licenses.policy_from(_read(path))
    except ConfigError as error:
        raise ConfigError(*(p if p.startswith(str(path)) else f"{path}: {p}" for p in map(str, error.args))) from None


class Revocation(Record):
    """A source taken back, by its id or by the digest of its bytes."""

    why: Text
    date: Annotated[str, Meta(pattern=r"^\d{4}-\d{2}-\d{2}$(?!\n)")]
    id: str | None = None
    sha256: Sha256 | None = None

    def __post_init__(self) -> None:
        if (self.id is None) == (self.sha256 is None):
            raise ValueError("name either id or sha256")


class Revocations(Record):
    version: Literal[1]
    revoke: tuple[Revocation, ...] = ()


def _revocations(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    raw = msgspec.to_builtins(_read(path))
    found, problems = strict.convert(raw, Revocations)
    if found is None:
        raise ConfigError(*(f"{path}: {problem}" for problem in problems))
    return {r.id or r.sha256 or "": r.why for r in found.revoke}
