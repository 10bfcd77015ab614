"""What every row of the speed benchmarks is given and what it gives back."""

import hashlib
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import corpora
import environments
import measured
from corpora import Text
from measured import Ran

HERE = Path(__file__).parent
WIDE = {
    "filters.min_chars": 0, "filters.max_chars": 10**9, "filters.lang_min_conf": 0.0, "filters.repetition": {"n": 3, "max_frac": 1.0},
    "filters.gopher": {
        "min_words": 0, "max_words": 10**9, "min_mean_word_len": 0, "max_mean_word_len": 10**9, "max_symbol_ratio": 10**9, "max_bullet_lines": 1,
        "max_ellipsis_lines": 1, "min_alpha_words": 0, "min_stopwords": 0,
    },
}  # fmt: skip
"""Everything is measured and nearly nothing is dropped, so that no later stage has it easier than its rival."""


@dataclass(frozen=True)
class Bench:
    """``size`` multiplies the first corpus; ``quick`` takes a few megabytes of it, to see that everything runs, and judges nothing."""

    work: Path
    size: int
    rounds: int
    quick: bool

    @property
    def plots(self) -> Path:
        """Where drawings for the report go; those of a quick run are for nobody."""
        path = self.work / "plots" if self.quick else HERE / "plots"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def jsonl(self, megabytes: int | None = None, times: int | None = None) -> Text:
        """The corpus, or a slice of so many megabytes for what is too slow for more."""
        return corpora.jsonl(self.work, *self._which(megabytes, times))

    def zst(self, megabytes: int | None = None, times: int | None = None) -> Text:
        return corpora.zst(self.work, *self._which(megabytes, times))

    def few(self) -> Text:
        """Twenty documents, to see what a tool's start costs."""
        path = self.work / "corpora" / "few.jsonl"
        with self.jsonl().path.open("rb") as file:
            path.write_bytes(b"".join(islice(file, 20)))
        return Text(path, 20, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())

    def _which(self, megabytes: int | None, times: int | None) -> tuple[int, int | None]:
        if self.quick:
            return 1, 10 if megabytes is None else max(1, min(10, megabytes // 4))
        return (1, megabytes) if megabytes is not None else (times or self.size, None)

    def folder(self, name: str) -> Path:
        """An empty folder."""
        path = self.work / "runs" / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def rival(self, environment: str, script: str, *args: object) -> Ran:
        """Run a script in an environment. Nothing it does may ask the network."""
        interpreter = environments.python(environment, self.work)
        log = self.work / "logs" / f"{Path(script).stem}-{'-'.join(str(a) for a in args[:1] if '/' not in str(a))}.log"
        return measured.run(
            [interpreter, HERE / script, *map(str, args)], log, env={"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"}
        )

    def gpt2(self) -> Path:
        """The vocabulary of GPT-2 as a ``tokenizer.json``."""
        path = self.work / "gpt2.json"
        if not path.exists():
            self.rival("encoders", "rivals/encode.py", "tokenizer", self.work)
        return path

    def tokenizer(self) -> dict[str, Any]:
        return {"tokenizer.id": "gpt2", "tokenizer.path": str(self.gpt2()), "tokenizer.doc_sep_id": 50256}


@dataclass(frozen=True)
class Bar:
    """A claim: ``value`` is at least ``bound``, or at most where ``most``."""

    what: str
    value: float
    bound: float
    unit: str = "x"
    most: bool = False

    @property
    def holds(self) -> bool:
        return self.value <= self.bound if self.most else self.value >= self.bound


@dataclass
class Section:
    """A part of the report. ``chart`` holds what is drawn of it: label -> megabytes a second, or what ``axis`` says."""

    title: str
    lines: list[str] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    chart: dict[str, float] = field(default_factory=dict)
    axis: str = "MB/s"

    def say(self, text: str = "") -> None:
        self.lines += [text, ""]

    def claim(self, what: str, value: float, bound: float, unit: str = "x", most: bool = False) -> None:
        self.bars.append(Bar(what, value, bound, unit, most))

    def table(self, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        self.lines += [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
        self.lines += [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
        self.lines.append("")


def _cell(cell: object) -> str:
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:.3g}" if isinstance(cell, float) and abs(cell) < 100 else f"{cell:,.0f}" if isinstance(cell, float) else str(cell)
