"""Plug-ins: functions of a person's own, named ``package.module:function``, found in the project's folder or where Python looks.

A rule judges documents. Of one document it says None to keep it, or what it measured to drop it: a number, or the pair (number, threshold).
It comes in two shapes, told by how many parameters it takes:

- ``rule(text, meta)``: one document. ``text`` is normalised; ``meta`` holds ``id``, ``source_id``, ``lang``, ``lang_conf`` and the columns that the
  source keeps.
- ``rule(batch)``: many, as a ``pyarrow.RecordBatch`` of ``COLUMNS``; it gives an answer for each, in order, as a list, an Arrow or a numpy array.

How documents are grouped into batches is no promise, so an answer may rest on nothing but its own document.
"""

import ast
import importlib
import inspect
import math
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from corpusbuild.arrow import meet_pandas
from corpusbuild.errors import ConfigError, StageError
from corpusbuild.hashing import file_sha256, key_digest
from corpusbuild.quality import Failure

COLUMNS = pa.schema(
    [
        ("id", pa.string()),
        ("source_id", pa.string()),
        ("text", pa.large_string()),  # normalised
        ("lang", pa.string()),
        ("lang_conf", pa.float64()),
        ("meta", pa.string()),  # JSON object of the columns that the source keeps, or null
    ]
)

Rows = Sequence[dict[str, Any]]
"""Documents as dictionaries of ``COLUMNS``."""


def digest(name: str, folder: Path) -> str:
    """SHA-256 over the sources that decide what the plug-in does: its module and every module beside it that those import, and so on.

    Beside it is what lies in ``folder`` for a module found there, and else what belongs to its package. ``ConfigError`` when there is no such module.
    """
    module = name.partition(":")[0]
    root = folder.resolve()
    path = _file(root, module)
    if path is None:
        path = _installed(module)
        if path is None:
            raise ConfigError(f"no module {module!r} lies in {folder} or can be imported; put it there, install it or mend the name")
        root = path.parents[module.count(".") + (path.name == "__init__.py")]
        within = root / module.partition(".")[0]
    else:
        within = root
    found: dict[str, Path] = {}
    pending = [module]
    while pending:
        here = pending.pop()
        source = _file(root, here)
        if source is None or here in found or not (source == path or source.is_relative_to(within)):
            continue
        found[here] = source
        pending += [m for m in _imports(here, source) if m not in found]
    return key_digest("plugin", {module: file_sha256(source) for module, source in found.items()} | {module: file_sha256(path)})


def load(name: str, folder: str) -> Callable[..., Any]:
    """The function that ``name`` names, imported. ``ConfigError`` when it cannot be."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except Exception as error:
        raise ConfigError(f"{name} cannot be loaded: {_what(error, '')}") from error
    meet_pandas()
    if not callable(found):
        raise ConfigError(f"{name} is not a function; name a function after the colon")
    return found  # type: ignore[no-any-return]  # what a person named


def judge(name: str, rule: Callable[..., Any], documents: Rows) -> list[Failure | None]:
    """What a rule says of each document: None, or how it failed. ``StageError`` names the rule and the document."""
    if _parameters(name, rule) == 2:
        answers = [_called(name, d["id"], rule, d["text"], _meta(d)) for d in documents]
    else:
        batch = pa.RecordBatch.from_pylist(list(documents), schema=COLUMNS)
        where = f"a batch of {len(documents)} documents from {documents[0]['id']}" if documents else ""
        told = _called(name, where, rule, batch) if documents else []
        answers = list(told.to_pylist() if hasattr(told, "to_pylist") else told.tolist() if hasattr(told, "tolist") else told)
        if len(answers) != len(documents):
            raise StageError("filter", where, f"{name} gave {len(answers)} answers; it must give one for each document")
    return [_failure(name, d["id"], answer) for d, answer in zip(documents, answers, strict=True)]


def measure(name: str, function: Callable[..., Any], id: str, text: str) -> float:
    """The number that a model gives for a text. ``StageError`` names the model and the document."""
    value = _called(name, id, function, text)
    if not _is_number(value):
        raise StageError("filter", id, f"{name} gave {value!r}; it must give a number")
    return float(value)


def _parameters(name: str, rule: Callable[..., Any]) -> int:
    taken = [
        p
        for p in inspect.signature(rule).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(taken) not in (1, 2):
        raise ConfigError(f"filters.rules: {name} takes {len(taken)} parameters; a rule takes (text, meta), or (batch)")
    return len(taken)


def _meta(document: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = msgspec.json.decode(document["meta"]) if document["meta"] else {}
    return kept | {name: document[name] for name in ("id", "source_id", "lang", "lang_conf")}


def _failure(name: str, id: str, answer: Any) -> Failure | None:
    if answer is None:
        return None
    value, threshold = answer if isinstance(answer, list | tuple) and len(answer) == 2 else (answer, None)
    if not _is_number(value) or not (threshold is None or _is_number(threshold)):
        raise StageError("filter", id, f"{name} gave {answer!r}; it must give None to keep, or a number or (number, threshold) to drop")
    return Failure(name, float(value), None if threshold is None else float(threshold))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _called(name: str, where: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        raise StageError(
            "filter", where, f"{name} raised {_what(error, function.__code__.co_filename if hasattr(function, '__code__') else '')}"
        ) from error


def _what(error: Exception, file: str) -> str:
    """An error in one line, with the last line of ``file`` that it passed through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    place = f" (line {lines[-1]} of {Path(file).name})" if lines else ""
    return f"{type(error).__name__}: {error}".replace("\n", " ") + place


def _file(root: Path, module: str) -> Path | None:
    """The file of a module below ``root``, found without importing anything."""
    base = root.joinpath(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def _installed(module: str) -> Path | None:
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec and spec.origin and Path(spec.origin).is_file() else None


def _imports(module: str, source: Path) -> Iterator[str]:
    """The modules that a source may import, and the packages that hold them: every name that might be one."""
    try:
        tree = ast.parse(source.read_bytes())
    except (SyntaxError, ValueError):
        return  # what is no Python is told when it is loaded; its own bytes are in the digest
    package = module if source.name == "__init__.py" else module.rpartition(".")[0]
    names: list[str] = [module]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            names += [base, *(f"{base}.{alias.name}" if base else alias.name for alias in node.names)]
    for name in names:
        pieces = name.split(".")
        yield from (".".join(pieces[: i + 1]) for i in range(len(pieces)) if pieces[0])
