"""Verify: does the store hold what its contents pages, manifests, records and locks say; and does building again give the same bytes?"""

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from corpusbuild.arrow import read_table
from corpusbuild.durable import disk
from corpusbuild.errors import CorpusError, IntegrityError
from corpusbuild.hashing import file_blake3, file_sha256, sums_line
from corpusbuild.model import Contents, Counts, total
from corpusbuild.parts import read_arrow
from corpusbuild.plan import Plan
from corpusbuild.publish import BuildRecord, StepRecord, read_record
from corpusbuild.stages.shard import MANIFEST, MANIFEST_SHA256
from corpusbuild.staging import CONTENTS, owner_token
from corpusbuild.store import Store
from corpusbuild.workshop import Workshop, check_counts, realise

DECIDING = ("filter", "decontaminate", "scrub", "exact_dedup", "near_dedup")
ASIDE = "rebuild"
"""The folder of ``staging/`` in which builds are built again; what a killed one leaves there ``doit clean`` removes."""


@dataclass
class Checked:
    """What was looked at, and what is wrong, a line with its remedy each."""

    entries: int = 0
    files: int = 0
    bytes: int = 0
    builds: int = 0
    problems: tuple[str, ...] = ()

    def found(self, problems: Iterable[str]) -> None:
        self.problems += tuple(p for p in problems if p not in self.problems)


def verify(store: Store, names: list[str], deep: bool) -> Checked:
    """Check the entries of the builds ``names``, or every entry and build there is: sizes, contents pages, counts; ``deep``, every digest and row."""
    seen = Checked()
    records = [
        r for n in names or sorted(p.stem for p in (store.root / "builds").glob("*.json")) if (r := read_record(store, n)) is not None
    ]
    entries = {store.path(s.stage, s.key): None for r in records for s in r.steps}
    if not names:
        entries |= dict.fromkeys(sorted((store.root / "store").glob("*/*")))
    broken: set[Path] = set()
    for entry in entries:
        problems = list(_entry_problems(entry, deep, seen))
        seen.found(problems)
        broken |= {entry} if problems else set()
    for record in records:
        seen.builds += 1
        seen.found(_record_problems(record, store, broken, deep))
    return seen


def _entry_problems(entry: Path, deep: bool, seen: Checked) -> Iterator[str]:
    """What of an entry is not as its contents page says."""
    again = _remedy(entry)
    if not entry.is_dir():
        yield f"{entry} is missing: {again.partition(' and ')[2]}"
        return
    try:
        contents = msgspec.json.decode((entry / CONTENTS).read_bytes(), type=Contents)
    except FileNotFoundError:
        yield f"{entry / CONTENTS} is missing: {again}"
        return
    except msgspec.DecodeError as error:
        yield f"{entry / CONTENTS} cannot be read ({error}): {again}"
        return
    if (contents.stage, contents.key) != (entry.parent.name, entry.name):
        yield f"{entry / CONTENTS} speaks of {contents.stage} {contents.key[:12]}: {again}"
        return
    seen.entries += 1
    for file in contents.files:
        path = entry / file.path
        seen.files += 1
        seen.bytes += file.size
        if not path.is_file():
            yield f"{path} is missing: {again}"
        elif path.stat().st_size != file.size:
            yield f"{path} has {path.stat().st_size} bytes, not {file.size}: {again}"
        elif deep and file_blake3(path) != file.blake3:
            yield f"{path} changed since it was committed: {again}"
    known = {entry / name for name in (CONTENTS, *(file.path for file in contents.files))}
    known |= {folder for path in known for folder in path.parents}
    for stranger in sorted(path for path in entry.rglob("*") if path not in known and path.parent in known):
        yield f"{stranger} does not belong there: move it away"
    try:
        check_counts(contents.label, contents.counts, [])
    except CorpusError as error:
        yield f"{entry / CONTENTS}: {error}"
    if contents.stage in ("ledger", "tokenize"):
        yield from _manifest_problems(entry, deep, again)


def _manifest_problems(entry: Path, deep: bool, again: str) -> Iterator[str]:
    """What of a corpus or of tokens is not as its manifest says, and whether the manifest is as its sum says."""
    try:
        data, line = (entry / MANIFEST).read_bytes(), (entry / MANIFEST_SHA256).read_bytes()
        manifest = msgspec.json.decode(data)
    except FileNotFoundError:
        return  # told as a missing file already, if it belongs there
    except msgspec.DecodeError:
        yield f"{entry / MANIFEST} cannot be read: {again}"
        return
    if line != sums_line(data, MANIFEST):
        yield f"{entry / MANIFEST} is not what {MANIFEST_SHA256} says: {again}"
    named = [*manifest.get("shards", ()), *manifest.get("files", ()), *manifest.get("formats", ())]
    named += [manifest[table] for table in ("index", "sequences", "refused") if table in manifest]
    for file in named if deep else ():
        path = entry / file["name"]
        if path.is_file() and file_sha256(path) != file["sha256"]:
            yield f"{path} has not the sha256 that {MANIFEST} says: {again}"


def _record_problems(record: BuildRecord, store: Store, broken: Collection[Path], deep: bool) -> Iterator[str]:
    """What is wrong between the steps of a build: counts that one step gave and the next did not take, and rows that are not as counted."""
    counts = {step.label: step.counts for step in record.steps}
    again = f"run doit build:{record.name}, and report this if it stays"
    for step in record.steps:
        entry = store.path(step.stage, step.key)
        if not store.has(step.stage, step.key):
            continue
        try:
            page = store.contents(step.stage, step.key)
            if step.stage != "fetch" and page.counts != step.counts:
                yield f"{entry / CONTENTS} has other counts than builds/{record.name}.json: {again}"
            check_counts(step.label, _own(step.counts, step.label), [_own(counts[label], label) for label in step.follows])
        except CorpusError as error:
            yield f"build:{record.name}: {error}"
        if deep and entry not in broken:
            yield from _recount(step, entry, again)
    links = {store.root / "corpus" / record.dataset / record.version: record.step("ledger")}
    if record.tokenizer:
        links[store.root / "tokens" / record.tokenizer / record.dataset] = record.step("tokenize")
    for link, published in links.items():
        if published is not None and link.resolve() != store.path(published.stage, published.key).resolve():
            yield f"{link} does not stand for what build:{record.name} made: run doit build:{record.name}"


def _own(counts: Counts, label: str) -> Counts:
    """The counts of a step under its own source: raw documents may have been fetched under another source's id."""
    stage, _, source = label.partition(":")
    return {source: total(list(counts.values()))} if stage == "fetch" else counts


def _recount(step: StepRecord, entry: Path, again: str) -> Iterator[str]:
    """Count the rows of a step's tables and compare them with its counts."""
    expected: dict[tuple[str, str], int] = {}
    found: dict[tuple[str, str], int] = {}
    for source, tally in step.counts.items():
        expected |= {(source, rule): n for rule, n in tally.dropped.items() if n}
        expected |= {(source, "kept"): tally.kept} if step.stage in ("filter", "ledger", "tokenize") and tally.kept else {}
    try:
        if step.stage in DECIDING:
            _add(found, [read_table(path, columns=["source", "rule"]) for path in sorted(entry.glob("*.removed.parquet"))])
        if step.stage == "filter":
            (source,) = step.counts
            _add_kept(found, source, sum(len(read_arrow(path, ["file"])) for path in sorted(entry.glob("*.docs.arrow"))))
        if step.stage == "ledger":
            for path in sorted(entry.glob("shard-*.parquet")):
                for source, n in _counted(read_table(path, columns=["source_id"]).column("source_id")):
                    _add_kept(found, source, n)
        if step.stage == "tokenize":
            import pyarrow.compute as pc  # here, for it costs 30 ms that nobody else need spend

            ids = read_table(entry / "index.parquet", columns=["id"]).column("id")  # a document may be cut, or drawn again
            expected = {("", "kept"): sum(tally.kept for tally in step.counts.values())}
            _add_kept(found, "", pc.count_distinct(ids).as_py())
    except (OSError, pa.ArrowInvalid) as error:
        yield f"{entry}: a table of {step.label} cannot be read ({error}): {_remedy(entry)}"
        return
    for at in sorted({*expected, *found}):
        if expected.get(at, 0) != found.get(at, 0):
            source, rule = at
            yield f"{entry}: {step.label} counts {expected.get(at, 0)} {rule} of {source or 'all'}, its tables hold {found.get(at, 0)}: {again}"


def _add(found: dict[tuple[str, str], int], tables: list[pa.Table]) -> None:
    for table in tables:
        for row in table.group_by(["source", "rule"]).aggregate([([], "count_all")]).to_pylist():
            at = row["source"], row["rule"]
            found[at] = found.get(at, 0) + row["count_all"]


def _add_kept(found: dict[tuple[str, str], int], source: str, n: int) -> None:
    if n:
        found[source, "kept"] = found.get((source, "kept"), 0) + n


def _counted(column: pa.ChunkedArray) -> Iterator[tuple[str, int]]:
    for pair in column.value_counts().to_pylist():
        yield pair["values"], pair["counts"]


def _remedy(entry: Path) -> str:
    then = "fetch again" if entry.parent.name == "fetch" else "build again"
    return f"delete {entry} and {then}"


def rebuild(plan: Plan, store: Store, shop: Callable[[Store], Workshop], tell: Callable[[str, Contents], None]) -> list[str]:
    """Build a plan again in a cache of its own, from the raw documents that are there, and give every difference in its trees, a line each.

    ``IntegrityError`` when the plan was not built. ``tell`` hears of each step that was built again. The other cache is removed, whatever happens.
    """
    missing = [step.label for step in plan.steps if not store.has(step.stage.name, step.key)]
    if missing:
        raise IntegrityError(
            f"{missing[0]} is not built as {plan.loaded.path} says, so there is nothing to compare: run doit build:{plan.name} first"
        )
    root = store.root / "staging" / ASIDE / owner_token()
    aside = Store(root)
    try:
        for step in plan.steps:
            if step.stage.name == "fetch":
                store.check(step.stage.name, step.key)
                link = aside.path(step.stage.name, step.key)
                with disk(link):
                    link.parent.mkdir(parents=True, exist_ok=True)
                    if not link.exists():
                        link.symlink_to(store.path(step.stage.name, step.key).resolve(), target_is_directory=True)
        problems: list[str] = []
        with shop(aside) as opened:
            for step in plan.steps:
                if step.stage.name != "fetch":
                    tell(step.label, realise(step, opened))
                    problems += differences(store.path(step.stage.name, step.key), aside.path(step.stage.name, step.key), step.label)
        return problems
    finally:
        shutil.rmtree(root, ignore_errors=True)
        with suppress(OSError):  # another process may build there too
            root.parent.rmdir()


def differences(one: Path, other: Path, label: str) -> list[str]:
    """Every file in which two trees differ: it is in only one of them, or its bytes are others."""
    ours, theirs = _tree(one), _tree(other)
    lines = []
    for name in sorted({*ours, *theirs}):
        if name not in theirs:
            lines.append(f"{label}: {one / name} is not made again")
        elif name not in ours:
            lines.append(f"{label}: {one / name} is missing; building again makes it")
        elif ours[name] != theirs[name]:
            lines.append(f"{label}: {one / name} ({ours[name]}) comes out otherwise ({theirs[name]})")
    return lines


def _tree(folder: Path) -> dict[str, str]:
    """Relative path -> size and digest of every file below a folder."""
    return {
        os.path.relpath(path, folder): f"{path.stat().st_size} bytes, blake3 {file_blake3(path)[:12]}"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
