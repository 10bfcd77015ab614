"""How well the detectors do on the labelled sentences, by kind. ``python tests/pii_quality.py`` prints the table of both halves.

``data/pii_labelled.jsonl`` has one sentence a line: its text, the (kind, start, end) of the personal data in it, and where it comes from: ``mail``,
a line of real mail whose names, hosts, addresses and numbers were replaced by made-up ones, or ``own``. It was labelled by the definitions, before
any detector was measured on it.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import NamedTuple

from corpusbuild.pii import ALL_KINDS, KINDS, detect

LABELLED = Path(__file__).parent / "data" / "pii_labelled.jsonl"


class Score(NamedTuple):
    right: int
    wrong: int  # found, but not labelled
    missed: int

    @property
    def precision(self) -> float:
        return self.right / max(1, self.right + self.wrong)

    @property
    def recall(self) -> float:
        return self.right / max(1, self.right + self.missed)


def sentences(half):
    """The sentences of one half: ``tune``, to look at, or ``held out``. A sentence's half is a bit of its text's SHA-256."""
    for line in LABELLED.read_text("utf-8").split("\n"):
        if line:
            row = json.loads(line)
            if (hashlib.sha256(row["text"].encode()).digest()[0] & 1 == 0) == (half == "tune"):
                yield row


def mistakes(half, kinds):
    """(kind, what, text, start, end) of every span that detector and label do not share."""
    for row in sentences(half):
        found, labelled = set(map(tuple, detect(row["text"], kinds))), {tuple(s) for s in row["spans"] if s[0] in kinds}
        for what, spans in (("wrong", found - labelled), ("missed", labelled - found)):
            for kind, start, end in sorted(spans):
                yield kind, what, row["text"], start, end


def scores(half, kinds):
    labelled = [s[0] for row in sentences(half) for s in row["spans"]]
    bad = [(kind, what) for kind, what, *_ in mistakes(half, kinds)]
    out = {}
    for kind in kinds:
        missed = bad.count((kind, "missed"))
        out[kind] = Score(labelled.count(kind) - missed, bad.count((kind, "wrong")), missed)
    return out


def table():
    lines = [
        "| kinds in use | kind | tune: spans | precision | recall | held out: spans | precision | recall |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, kinds in (("the five", KINDS), ("all", ALL_KINDS)):
        tune, held = scores("tune", kinds), scores("held out", kinds)
        for kind in kinds:
            cells = [f"{s.right + s.missed} | {s.precision:.3f} | {s.recall:.3f}" for s in (tune[kind], held[kind])]
            lines.append(f"| {name} | {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
