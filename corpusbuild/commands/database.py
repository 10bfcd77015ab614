"""doit's own database, which holds nothing that is needed: JSON, written in one step, and begun anew when it cannot be read."""

from pathlib import Path
from typing import Any

from doit.dependency import DatabaseException, JsonDB

from corpusbuild.durable import disk, write_atomic


class AtomicJson(JsonDB):  # type: ignore[misc]  # doit has no types
    desc = "JSON, written atomically"

    def _load(self) -> Any:
        try:
            return super()._load()
        except DatabaseException:
            return {}

    def dump(self) -> None:
        path = Path(self.name)
        with disk(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, self.codec.encode(self._db).encode())
