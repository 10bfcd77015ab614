"""Our side of every comparison: a project of its own, built by the command that a person types, with as many workers as every other tool gets."""

import json
import shutil
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import measured
from corpora import Text
from measured import Ran

ROOT = Path(__file__).parent.parent
WORKERS = 2
LANGS = ["de", "en", "es", "fr", "it", "nl", "pt"]
OFF = {f"stages.{name}": False for name in ("filter", "scrub", "exact_dedup", "near_dedup", "tokenize")}
BANDS = {"dedup.num_perm": 125, "dedup.bands": 25}
"""What ``dedup_quality.md`` recommends."""


class Project:
    """One configuration, its sources and its cache. ``settings`` are keys of the configuration with dots -> values."""

    def __init__(
        self, folder: Path, sources: Mapping[str, Text], settings: Mapping[str, Any], also: Mapping[str, Mapping[str, Any]] | None = None
    ):
        """``also`` are further keys of a source."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(ROOT / "configs" / "policy", folder / "configs" / "policy")
        self.folder, self.cache, self.config = folder, folder / "cache", folder / "configs" / "speed.toml"
        self.sources = dict(sources)
        self.config.write_text(
            _toml(self.sources, {"dedup.max_removed": 1.0, "shard.shard_rows": 10_000, "tokenizer.id": "bytes", **settings}, also or {})
        )

    @property
    def megabytes(self) -> float:
        return sum(text.megabytes for text in self.sources.values())

    def run(self, until: str = "tokenize", workers: int = WORKERS, exact: bool = False, under: list[str | Path] | None = None) -> Ran:
        """``corpusbuild run`` up to a stage, from what is in the cache already. ``under`` is a profiler's command to put before it."""
        verb = ["-m", "corpusbuild", "run", "--config", self.config, "--until", until, "--workers", str(workers), "--cache-dir", self.cache]
        env = {"PYTHONPATH": str(ROOT)}
        return measured.run([*(under or []), sys.executable, *verb], self.folder / "log.txt", self.folder, env, exact)

    def again(self, until: str, keep: Collection[str], **how: Any) -> Ran:
        """The same after everything is forgotten but the entries of the stages ``keep``."""
        self.forget(keep)
        return self.run(until, **how)

    def forget(self, keep: Collection[str] = ()) -> None:
        for path in self.cache.iterdir() if self.cache.exists() else ():
            if path.name == "store":
                for stage in path.iterdir():
                    if stage.name not in keep:
                        shutil.rmtree(stage)
            elif path.name not in ("raw", "downloads", "objects", "LEDGER.jsonl") or "fetch" not in keep:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def entries(self, stage: str) -> list[Path]:
        return sorted((self.cache / "store" / stage).glob("*"))

    def contents(self, stage: str) -> list[dict[str, Any]]:
        return [json.loads((entry / "contents.json").read_text()) for entry in self.entries(stage)]

    def kept(self, stage: str) -> int:
        return sum(tally["kept"] for page in self.contents(stage) for tally in page["counts"].values())

    def size(self, stage: str, suffix: str = "") -> int:
        """Bytes on disk of the entries of a stage, or of those files that end in ``suffix``."""
        return sum(
            path.stat().st_size
            for entry in self.entries(stage)
            for path in entry.rglob("*")
            if path.is_file() and path.name.endswith(suffix)
        )

    def destroy(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _toml(sources: Mapping[str, Text], settings: Mapping[str, Any], also: Mapping[str, Mapping[str, Any]]) -> str:
    lines = ['dataset = "speed"', 'version = "v1"']
    lines += [f"{key} = {_value(value)}" for key, value in sorted(settings.items())]
    for id, text in sources.items():
        what = {"id": id, "url": str(text.path), "sha256": text.sha256, "license_spdx": "CC0-1.0", "allow_empty": True, **also.get(id, {})}
        lines += ["", "[[sources]]", *(f"{key} = {_value(value)}" for key, value in what.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    return f"{{ {', '.join(f'{key} = {_value(v)}' for key, v in value.items())} }}" if isinstance(value, dict) else json.dumps(value)
