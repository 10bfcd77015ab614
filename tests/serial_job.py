"""A build of one stage in a folder, without plan or store: tasks run one after another, and their files get their names when they return."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from corpusbuild.model import Contents, File, Key
from corpusbuild.parts import DOCUMENTS, part_name, write_arrow
from corpusbuild.stage import Input, Job, Out, Stage, Task


class FolderOut(Out):
    def __init__(self, home: Path, task: str):
        self._home, self._task = home, task
        self._files: list[Path] = []

    def path(self, suffix: str, folder: str = "") -> Path:
        (self._home / "out" / folder).mkdir(parents=True, exist_ok=True)
        return self._open(self._home / "out" / folder / f"{self._task}{suffix}")

    def scratch(self, suffix: str) -> Path:
        return self._open(self._home / "scratch" / f"{self._task}{suffix}")

    def finish(self) -> None:
        for final in self._files:
            assert not final.exists(), f"two tasks wrote {final.name}"
            final.with_name(f"{final.name}.tmp").rename(final)

    def _open(self, final: Path) -> Path:
        self._files.append(final)
        return final.with_name(f"{final.name}.tmp")


def run(
    stage: Stage,
    params: Any,
    inputs: Mapping[str, Sequence[Input]],
    home: Path,
    *,
    source: str = "",
    memory: int = 1 << 30,
    backwards: bool = False,
    said: list[str] | None = None,
) -> Input:
    """Build ``stage`` in ``home`` and give the entry it makes. ``backwards`` runs the tasks of each map in the reverse order.

    ``said`` takes what the build tells whoever waits for it.
    """
    for folder in ("out", "scratch"):
        (home / folder).mkdir(parents=True)

    def one(fn: Callable[[Any, Out], Any], task: Task) -> Any:
        task = msgspec.msgpack.decode(msgspec.msgpack.encode(task), type=type(task))  # nothing but plain data may travel
        out = FolderOut(home, task.name)
        value = fn(task, out)
        out.finish()
        encoded = msgspec.json.encode(value)
        assert str(home).encode() not in encoded, f"{task.name} gives a path"
        return msgspec.json.decode(encoded)

    def serial(fn: Callable[[Any, Out], Any], tasks: Iterable[Task]) -> list[Any]:
        todo = list(tasks)
        assert len({task.name for task in todo}) == len(todo), "task names repeat"
        order = list(reversed(todo)) if backwards else todo
        values = {task.name: one(fn, task) for task in order}
        return [values[task.name] for task in todo]

    job = Job(
        params=params,
        key=Key("0" * 64),
        inputs={role: tuple(entries) for role, entries in inputs.items()},
        map=serial,
        scratch=home / "scratch",
        put=lambda name, data: _put(home / "out" / name, data),
        memory=memory,
        say=(said if said is not None else []).append,
    )
    counts = stage.build(job)
    assert all(tally.adds_up() for tally in counts.values())
    return _entry(home / "out", stage, source, counts)


def _put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def documents(home: Path, source: str, parts: Sequence[Sequence[str]]) -> Input:
    """An entry of documents of one source with these texts, a list a part. Ids count through the source, by ten, so that they are no rows."""
    home.mkdir(parents=True)
    k = 0
    for i, texts in enumerate(parts):
        rows = []
        for text in texts:
            rows.append({"id": f"{source}:{k * 10}", "text": text, "file": 0, "place": str(k + 1), "lang": "en", "lang_conf": 1.0})
            k += 1
        write_arrow(home / f"{part_name(i)}.docs.arrow", pa.Table.from_pylist(rows, schema=DOCUMENTS))
    return _entry(home, Stage("filter", version=1, build=lambda job: {}), source, {})


def _entry(folder: Path, stage: Stage, source: str, counts: Any) -> Input:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    files = tuple(File(path=name, size=(folder / name).stat().st_size, blake3="") for name in names)
    return Input(
        path=folder,
        source=source,
        contents=Contents(key=Key("0" * 64), stage=stage.name, version=1, label=stage.name, files=files, counts=counts),
    )
