"""The configuration: one TOML file a corpus, checked whole at the door. What it refers to is resolved and digested here, so that planning is pure."""

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from corpusbuild import identifiers, language, licenses, pii, plugins, strict
from corpusbuild.errors import ConfigError
from corpusbuild.hashing import config_sha256, file_sha256
from corpusbuild.mix import Share, share
from corpusbuild.model import Record
from corpusbuild.quality import FilterParams
from corpusbuild.settings import Corpus, Sha256, Text, TokenizerConfig
from corpusbuild.sources import Source, sources_from_config
from corpusbuild.stages import earlier
from corpusbuild.stages.decontaminate import Protected
from corpusbuild.stages.shard import SHARD
from corpusbuild.tokenizer import Spec, kind_of, separator_beside
from corpusbuild.tokenizer.huggingface import TRAINED_END_OF_TEXT
from corpusbuild.tokenizer.ranks import END_OF_TEXT, KNOWN, special_tokens_of

OURS = ("filters", "allow_empty", "credit", "notice", "max_removed")  # of a source: what no fetch has to know
MAX_NOTICE = 100_000


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
    """With no path where it is bytes, or is trained."""
    mix: dict[str, Share] | None
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
