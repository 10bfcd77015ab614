"""The reference of every configuration key, written from the types, so that it says what the program reads.

What a key means stands below its field; a field that says nothing of itself is told of here.
"""

import ast
import inspect
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

from corpusbuild.settings import Corpus

DESCRIPTIONS = {
    "dataset": "Name of the corpus: `corpus/<dataset>/<version>`.",
    "version": "Its version. Another configuration may not publish the same dataset and version.",
    "use": "What the corpus is for; every licence must permit it.",
    "sources": "What it is made of. Their order is a priority: of duplicates the first stays.",
    "sources.id": "Name of the source; documents are called `<id>:<number>`.",
    "sources.license_spdx": "SPDX expression of its licence. One that `configs/policy/licenses.toml` does not know is refused.",
    "sources.url": "Where the file is: http(s), s3://, gs://, hf://, or a path, which starts at the configuration's folder. A folder or a pattern (`texts/*.txt`) names many.",
    "sources.sha256": "Digest of the file. `doit pin` finds it; a build without it is refused.",
    "sources.size": "Bytes of the file, so that a plan knows them before anything is fetched.",
    "sources.urls": "Further places of the same bytes, tried when the first fails.",
    "sources.files": "Several files in place of `url`.",
    "sources.files.url": "Where it is.",
    "sources.files.sha256": "Its digest.",
    "sources.files.size": "Its bytes.",
    "sources.checksums": "Whether `url` is a list of digests and names (as sha256sum writes it) whose files are the source.",
    "sources.select": "Patterns of names: which files of a list of checksums are taken.",
    "sources.allow_private": "Whether the host may be one of a private network.",
    "sources.allowed_uses": "Uses that the source may be put to, within what its licence permits.",
    "sources.format": "How documents stand in it. `text`: blocks between blank lines, or between `separator`s. Compression is known by the first bytes.",
    "sources.separator": "A line that stands between documents of a text file, as `<|endoftext|>`.",
    "sources.text_field": "Field or column that holds the text.",
    "sources.id_field": "Field that names the document, in place of its number.",
    "sources.keep": "Fields that are carried into the shards as columns.",
    "sources.pii_policy": "Replace personal data, drop documents that hold any, or leave it.",
    "sources.on_bad": "Whether a line that is no document stops the fetch, or is rejected and counted.",
    "sources.max_bad": "With `reject`, the share of bad lines from which the source is an error after all.",
    "sources.filters": "Thresholds of this source, over those of `[filters]`.",
    "filters": "Which documents are good enough.",
    "filters.min_chars": "Fewest characters (code points of the normalised text).",
    "filters.max_chars": "Most characters.",
    "filters.langs": "Languages that are kept, by two letters.",
    "filters.lang_min_conf": "Least confidence of the language.",
    "filters.gopher": "The Gopher quality rules. All bounds are inclusive.",
    "filters.gopher.min_words": "Fewest words (runs of what is no white space).",
    "filters.gopher.max_words": "Most words.",
    "filters.gopher.min_mean_word_len": "Least mean length of a word.",
    "filters.gopher.max_mean_word_len": "Greatest mean length of a word.",
    "filters.gopher.max_symbol_ratio": "Most `#`, and most ellipses, a word.",
    "filters.gopher.max_bullet_lines": "Largest share of lines that begin with a bullet.",
    "filters.gopher.max_ellipsis_lines": "Largest share of lines that end in an ellipsis.",
    "filters.gopher.min_alpha_words": "Least share of words with a letter.",
    "filters.gopher.min_stopwords": "Fewest occurrences of English stop words.",
    "filters.repetition": "How much of a document may repeat itself.",
    "filters.repetition.n": "Words of an n-gram.",
    "filters.repetition.max_frac": "Largest share of a document's characters within n-grams that occur more than once.",
    "filters.ppl": "A language model of your own as a judge.",
    "filters.ppl.max_ppl": "Largest perplexity.",
    "filters.ppl.model": "`package.module:function`, which gives a text's perplexity.",
    "dedup": "Removal of what repeats.",
    "dedup.bloom_bytes_per_item": "Bytes a paragraph of the filter that finds candidates for exact duplicates. No result depends on it.",
    "dedup.jaccard_threshold": "Jaccard similarity of shingle sets from which the later document is a near duplicate.",
    "dedup.num_perm": "Minima that a signature holds.",
    "dedup.bands": "Groups of minima; documents that share a group are compared. More find more, and remove nothing wrongly, for each pair is verified.",
    "dedup.shingle": "Words of a shingle.",
    "dedup.seed": "Chooses the permutations.",
    "dedup.max_bucket": "With how many members of a bucket, the first, each later one is compared; what was not is counted.",
    "decontam": "Evaluation texts that must not be in the corpus.",
    "decontam.protected": "Their files: .jsonl, of which every string counts, or plain text.",
    "decontam.ngram": "Words of the n-gram that a document may not share with them.",
    "pii": "Personal data.",
    "shard": "The Parquet files.",
    "tokenizer": "How text becomes ids.",
    "tokenizer.id": "Name of the tokenizer: `tokens/<id>/<dataset>`. `bytes` needs nothing else.",
    "tokenizer.train": "Train the tokenizer on this corpus, in place of a file.",
    "tokenizer.doc_sep_id": "Id that stands before each document; absent means the end-of-text id that stands beside the file, or none.",
    "tokenizer.max_file_tokens": "Most ids of a token file.",
    "tokenizer.shuffle.seed": "Chooses the order.",
    "tokenizer.shuffle.unit": "What is shuffled: whole documents, or windows of ids.",
    "mix": "Shares of the sources in the train split, by source: a weight (`stories = 0.7`), a number of tokens (`notes = \"2B\"`), or a table of the keys below.",
    "mix.weight": "Share among the sources that name a weight.",
    "mix.tokens": "Number of tokens, as `\"500M\"` or `\"2B\"`.",
    "mix.epochs": "How often a document may be drawn.",
    "stages": "Stages that may be left out.",
    "stages.filter": "Judge documents; without it they are only normalised.",
    "stages.decontaminate": "Hold documents against the protected texts.",
    "stages.scrub": "Look for personal data.",
    "stages.exact_dedup": "Remove paragraphs that repeat.",
    "stages.near_dedup": "Remove near duplicates.",
    "stages.tokenize": "Write tokens.",
    "run": "How to run. Nothing here changes a result or a key.",
    "run.executor": "`serial`, or `local` for worker processes; `local:N` says how many.",
    "run.concurrency": "Downloads at a time.",
    "run.attempts": "Tries of a download without progress.",
    "run.timeout": "Seconds without a byte after which a download is tried again.",
}  # fmt: skip


class Key(typing.NamedTuple):
    name: str
    kind: str
    default: str
    text: str


def keys() -> Iterator[Key]:
    """Every key of a configuration, with dots, in the order of the types."""
    yield from _of(Corpus, "")


def page() -> str:
    """The reference as Markdown."""
    lines = [
        "# Every key of a configuration",
        "",
        "Written by `python -m corpusbuild reference` from the types that read a configuration; a test holds this page to them. `configs/schema.json` is the same for editors.",
        "A path starts at the configuration's folder. `doit build:NAME --set KEY=VALUE` sets a key for one run.",
    ]
    tables = ("table", "list of tables", "table by source")
    lines += ["", "## At the top", "", *_HEAD]
    for key in keys():
        if "." not in key.name and key.kind in tables:
            lines += ["", f"## `[[{key.name}]]`" if key.kind == "list of tables" else f"## `[{key.name}]`", "", key.text, "", *_HEAD]
        else:
            lines.append(f"| `{key.name}` | {key.kind} | {key.default} | {_cell(key.text)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


_HEAD = ["| key | value | default | what it is |", "|---|---|---|---|"]


def _of(struct: type[msgspec.Struct], prefix: str) -> Iterator[Key]:
    texts = _docstrings(struct)
    fields = msgspec.structs.fields(struct)
    plain = [f for f in fields if prefix or not (_inner(f.type) or f.name == "mix")]
    for field in [*plain, *(f for f in fields if f not in plain)]:
        name = f"{prefix}{field.name}"
        inner = _inner(field.type)
        text = DESCRIPTIONS.get(name) or texts.get(field.name) or _description(field.type) or ""
        yield Key(name, _kind(field.type, inner), _default(field, inner), " ".join(text.split()))
        if inner is not None and not inner.__name__.endswith("Overrides"):
            yield from _of(inner, f"{name}.")


def _inner(kind: Any) -> type[msgspec.Struct] | None:
    """The table that a type holds, itself or in a list or a dict."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next((found for arg in typing.get_args(kind) if (found := _inner(arg)) is not None), None)


def _kind(kind: Any, inner: type[msgspec.Struct] | None) -> str:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if inner is not None:
        text = str(kind)
        return "table by source" if "dict[" in text else "list of tables" if "tuple[" in text else "table"
    if origin is typing.Annotated:
        return _kind(args[0], None)
    if origin is typing.Literal:
        return " or ".join(f"`{value!r}`".replace("'", '"') for value in args)
    if origin is tuple:
        return f"list of {_kind(args[0], None)}"
    if args:  # a union
        return " or ".join(_kind(arg, None) for arg in args if arg not in (type(None), msgspec.UnsetType))
    return {str: "text", int: "whole number", float: "number", bool: "true or false"}.get(kind, "table")


def _default(field: Any, inner: type[msgspec.Struct] | None) -> str:
    if field.required:
        return "needed"
    if inner is not None or field.default is None or field.default is msgspec.UNSET:
        return ""
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return f"`{msgspec.json.encode(value).decode()}`" if value not in ("", (), {}) else ""


def _description(kind: Any) -> str | None:
    found = [arg.description for arg in typing.get_args(kind) if isinstance(arg, msgspec.Meta) and arg.description]
    return found[0] if found else next((text for arg in typing.get_args(kind) if (text := _description(arg))), None)


def _docstrings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Field -> the string that stands below it in the source."""
    texts: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if issubclass(base, msgspec.Struct) and base.__module__.startswith("corpusbuild"):
            try:
                body = ast.parse(inspect.getsource(base)).body[0]
            except (OSError, TypeError):  # one that was made, not written
                continue
            assert isinstance(body, ast.ClassDef)
            for field, below in zip(body.body, body.body[1:], strict=False):
                match field, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        texts[name] = text
    return texts
