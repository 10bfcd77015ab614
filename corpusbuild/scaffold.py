"""A new project, and a new source in a configuration: what a person would otherwise copy, guess or look up.

``init`` writes a project that builds as it stands. ``add`` downloads a file, sees what it is, and writes the source with its digest; it asks only for what
no file says: under which licence it is, and what nobody could tell apart.
"""

import asyncio
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import tomlkit

from corpusbuild.config import schema
from corpusbuild.durable import disk, write_atomic
from corpusbuild.errors import ConfigError
from corpusbuild.pin import Pinned, pin
from corpusbuild.project import Options, open_build
from corpusbuild.sources import file_names, is_local, local_path

FORMATS = ("jsonl", "text", "parquet", "csv", "tsv", "warc")
PACKAGE = Path(__file__).parent

PLUGINS = {
    "command": {
        "run": "corpusbuild.commands.run:Run",
        "list": "corpusbuild.commands.list:List",
        "info": "corpusbuild.commands.info:Info",
        "clean": "corpusbuild.commands.clean:Clean",
        "explain": "corpusbuild.commands.explain:Explain",
        "lock": "corpusbuild.commands.lock:Lock",
        "verify": "corpusbuild.commands.verify:Verify",
        "gc": "corpusbuild.commands.gc:Gc",
        "log": "corpusbuild.commands.log:Log",
        "plan": "corpusbuild.commands.plan:Plan",
        "why": "corpusbuild.commands.why:Why",
        "diff": "corpusbuild.commands.diff:Diff",
        "export": "corpusbuild.commands.export:Export",
        "help": "corpusbuild.commands.help:Help",
        "show": "corpusbuild.commands.show:Show",
        "pin": "corpusbuild.commands.pin:Pin",
    },
    "reporter": {
        "steps": "corpusbuild.commands.reporter:Steps",
    },
    "backend": {
        "atomic_json": "corpusbuild.commands.database:AtomicJson",
    },
}
"""What doit is told of this package, in a project's ``pyproject.toml`` under ``[tool.doit.plugins]``."""

DODO = '''"""What doit runs here: a task for each source, step and build of ``configs/``."""

from corpusbuild.commands.tasks import load

DOIT_CONFIG, task_fetch, task_build = load()
'''

HEAD = """#:schema ./schema.json

# {what}
# Change a value and run doit build:{name} again: only the steps that depend on it run a second time.

dataset = "{name}"
version = "v1"

[shard]
shard_rows = 100000
val_permille = 5

[tokenizer]
id = "bytes"
"""

TEXTS = (
    "The ferry leaves the small harbour every morning before the sun is over the hill, and the people who have work on the other shore are on it with their "
    "bread and their newspapers. It takes half an hour when the water is calm, and twice as long in winter, when the captain has to go around the ice that "
    "comes down the river.",
    "A garden that has been left alone for ten years does not look empty. The roses have climbed over the wall, the apple trees have grown into one "
    "another, and in the middle of the path there is a small birch that nobody planted. To make it a garden again you do not begin with the flowers but with "
    "the paths.",
    "When the library was moved to the new building, the books were carried by the people of the town. They stood in a line that went from one door to the "
    "other, and they gave the books from hand to hand for two days. Nobody had to be asked twice, and of all that was lent out that week not one volume was "
    "lost.",
    "To bake bread you need flour, water, salt and time, and of these the time is what most people do not have. The dough wants to rest in the evening and "
    "to be folded in the night, and it will be ready in the morning whether you are awake or not. That is why bakers go to bed with the children.",
    "The old clock on the market square has been wrong for as long as anyone can remember, and it is always wrong by the same eleven minutes. Visitors miss "
    "their trains because of it. Those who live in the town have learned to add the minutes, and when it was repaired for a week they were all late.",
)
"""Written for this; the configuration says CC0."""


def init(folder: Path, sources: list[str], license_spdx: str | None, cache: Path, ask: Callable[[str, str], str]) -> list[str]:
    """Make ``folder`` a project, with a corpus of its own, or of the files at ``sources``, pinned. Gives what to tell the person.

    ``ConfigError`` where a project stands already; nothing of it is touched then.
    """
    for name in ("dodo.py", "configs"):
        if (folder / name).exists():
            raise ConfigError(f"{folder / name} is there already: name another folder, or add to it with corpusbuild add URL")
    with disk(folder):
        configs = folder / "configs"
        (configs / "policy").mkdir(parents=True)
        shutil.copyfile(PACKAGE / "policy" / "licenses.toml", configs / "policy" / "licenses.toml")
        write_atomic(configs / "schema.json", msgspec.json.format(msgspec.json.encode(schema()), indent=1) + b"\n")
        write_atomic(folder / "dodo.py", DODO.encode())
        _append(folder / ".gitignore", "/cache/\n__pycache__/\n")
        _plugins(folder / "pyproject.toml")
        config = configs / "first.toml"
        write_atomic(config, HEAD.format(name="first", what="A first corpus.").encode())
        if not sources:
            short, again = "Too short.", TEXTS[0]
            write_atomic(configs / "first.jsonl", b"".join(msgspec.json.encode({"text": t}) + b"\n" for t in (*TEXTS, short, again)))
            add(config, "first.jsonl", "texts", "CC0-1.0", None, folder / cache, ask)
    told = [f"{folder}: a project with configs/first.toml"]
    for url in sources:
        told.append(str(add(config, url, None, license_spdx, None, folder / cache, ask)))
    return [*told, f"next: cd {folder} && doit build:first"]


def add(
    config: Path, url: str, id: str | None, license_spdx: str | None, format: str | None, cache: Path, ask: Callable[[str, str], str]
) -> Pinned:
    """Write a source for the file at ``url`` into ``config``, with digest, size, format and licence, keeping its every comment.

    ``ask(question, what was seen)`` is asked for what is not given and cannot be found out. The configuration is written in one step, when it is whole
    and sound; ``ConfigError`` otherwise.
    """
    text = config.read_text(encoding="utf-8")
    taken = {str(entry.get("id")) for entry in tomlkit.parse(text).get("sources", [])}
    source = id or _name(url, taken)
    if source in taken:
        raise ConfigError(f"{config} has a source {source} already: name it otherwise with --id")
    aside = config.with_name(f".{config.stem}.adding")
    try:
        write_atomic(aside, _with_source(text, {"id": source, "url": url}).encode())
        (found,) = asyncio.run(pin(aside, cache, source=source))
        facts = {
            "license_spdx": license_spdx or ask("Under which licence is it (an SPDX expression, as CC-BY-4.0)?", str(found)),
            **_format(found, format, config, cache, source, ask),
        }
        document = tomlkit.parse(aside.read_text(encoding="utf-8"))
        document["sources"][-1].update(facts)
        write_atomic(aside, tomlkit.dumps(document).encode())
        checked = aside.with_name(f"{aside.name}.toml")
        aside.rename(checked)
        aside = checked
        problem = open_build(aside, Options(cache=cache), {}).problem
        if problem is not None:
            raise ConfigError(*(line.replace(str(aside), str(config)) for line in str(problem).splitlines()))
        if config.read_text(encoding="utf-8") != text:
            raise ConfigError(f"{config} was changed meanwhile: run it again, the download is kept")
        write_atomic(config, aside.read_bytes())
    finally:
        aside.unlink(missing_ok=True)
    return found


def _with_source(text: str, entry: dict[str, Any]) -> str:
    document = tomlkit.parse(text)
    table = tomlkit.table()
    table.update(entry)
    if "sources" in document:
        document["sources"].append(table)
    else:
        document.add(tomlkit.nl())
        document["sources"] = tomlkit.aot()
        document["sources"].append(table)
    return tomlkit.dumps(document)


def _format(found: Pinned, given: str | None, config: Path, cache: Path, source: str, ask: Callable[[str, str], str]) -> dict[str, Any]:
    """The format, and of a table the column with the text."""
    format = given or (found.format if found.format in FORMATS else ask(f"Which format has it ({', '.join(FORMATS)})?", str(found)))
    if format not in FORMATS:
        raise ConfigError(f"{found.url} looks like {format!r}, which is none of {', '.join(FORMATS)}: name one with --format")
    facts: dict[str, Any] = {} if format == "jsonl" else {"format": format}
    if format == "parquet":
        path = (
            Path(local_path(found.url, str(config.parent)))
            if is_local(found.url)
            else cache / "downloads" / source / file_names([found.url])[0]
        )
        columns = pq.read_schema(path).names
        if "text" not in columns:
            facts["text_field"] = ask(f"Which column holds the text ({', '.join(columns)})?", str(found))
    return facts


def _name(url: str, taken: set[str]) -> str:
    """An id made of a file's name that is not taken.

    >>> _name("https://example.org/a/Some%20Poems.jsonl.zst?x=1", {"some-20poems"})
    'some-20poems-2'
    """
    last = url.split("?")[0].split("#")[0].rstrip("/").rsplit("/", 1)[-1]
    base = re.sub(r"[^a-z0-9._-]+", "-", last.split(".")[0].lower()).strip("-._") or "source"
    n = 1
    while (name := base if n == 1 else f"{base}-{n}") in taken:
        n += 1
    return name


def _append(path: Path, lines: str) -> None:
    before = path.read_text() if path.exists() else ""
    missing = "".join(line for line in lines.splitlines(keepends=True) if line not in before)
    write_atomic(path, (before + ("" if not before or before.endswith("\n") else "\n") + missing).encode())


def _plugins(path: Path) -> None:
    """Tell doit, in a ``pyproject.toml``, of the commands: in a new one, or in one that is there and says nothing of doit."""
    document = tomlkit.parse(path.read_text(encoding="utf-8")) if path.exists() else tomlkit.document()
    tool = document.setdefault("tool", tomlkit.table(True))
    if "doit" in tool:
        raise ConfigError(f"{path} speaks of doit already: start in another folder, or merge [tool.doit.plugins] by hand")
    tool["doit"] = {"plugins": PLUGINS}
    write_atomic(path, tomlkit.dumps(document).encode())
