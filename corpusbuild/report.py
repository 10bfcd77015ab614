"""What a person reads of a build, as text. Pure: numbers come from the record, nothing from a clock."""

from collections.abc import Sequence
from pathlib import Path

from corpusbuild.model import Contents, Tally, total
from corpusbuild.pii import ALL_KINDS
from corpusbuild.progress import size
from corpusbuild.publish import BuildRecord, StepRecord
from corpusbuild.quality import RULES
from corpusbuild.undo import Undone

DECIDING = ("filter", "decontaminate", "scrub", "exact_dedup", "near_dedup")


def step_line(label: str, contents: Contents) -> str:
    """
    >>> from corpusbuild.model import Key
    >>> tally = Tally(docs_in=3, kept=1, dropped={"lang": 2})
    >>> step_line("filter:a", Contents(key=Key(""), stage="filter", version=1, label="filter:a", files=(), counts={"a": tally}))
    'filter:a                      3 documents, 1 kept, 2 dropped (lang 2)'
    """
    tally = total(list(contents.counts.values()))
    text = f"{label:<28}  {tally.docs_in:,} documents"
    if tally.kept != tally.docs_in:
        text += f", {tally.kept:,} kept"
    for word, reasons in (("dropped", tally.dropped), ("rejected", tally.rejected)):
        if sum(reasons.values()):
            text += f", {sum(reasons.values()):,} {word} ({', '.join(f'{rule} {n:,}' for rule, n in reasons.items() if n)})"
    return text


def summary(record: BuildRecord, cache: Path) -> str:
    """The end of a build: documents in and kept by source, why the others are gone, tokens, licences, where it all lies, what to try next."""
    sources = list(record.licenses)
    raw = {s: _tally(record, f"fetch:{s}", s) for s in sources}
    filtered = {s: _tally(record, f"filter:{s}", s) for s in sources}
    kept = {s: _tally(record, "shard", s) for s in sources}
    rows: list[tuple[str, ...]] = [("source", "documents", "text in", "kept", "text kept", "licence")]
    for s in sources:
        rows.append(_row(s, filtered[s].docs_in, filtered[s].also.get("text_bytes_in", 0), kept[s], record.licenses[s]))
    rows.append(_row("all", *_sums(filtered), total(list(kept.values())), ""))
    lines = [f"{record.dataset} {record.version}  {record.id}", "", *table(rows, right=(1, 2, 3, 4)), ""]

    reasons = [("dropped by", *sources, "all")]
    for name, by_source in _reasons(record, sources, raw).items():
        reasons.append((name, *(f"{n:,}" if n else "-" for n in by_source), f"{sum(by_source):,}"))
    lines += [*table(reasons, right=tuple(range(1, len(sources) + 2))), ""]

    tokenize = record.step("tokenize")
    tokens = total(list(tokenize.counts.values())).also if tokenize else {}
    all_kept = total(list(kept.values()))
    for split in ("train", "val"):
        words = f"{all_kept.also.get(split, 0):,} documents"
        if tokenize:
            words += f", {tokens.get(f'{split}_tokens', 0):,} tokens ({record.tokenizer})"
        lines.append(f"{split:<7}{words}")
    replaced = [f"{kind} {all_kept.also.get(kind, 0):,}" for kind in ALL_KINDS if all_kept.also.get(kind, 0)]
    lines += [f"personal data replaced: {', '.join(replaced) or 'none'}", ""]

    corpus = cache / "corpus" / record.dataset / record.version
    lines.append(f"corpus  {corpus}  (shards, _MANIFEST.json, ATTRIBUTION.md, DATASHEET.md, croissant.json, ledger.jsonl)")
    if tokenize:
        lines.append(f"tokens  {cache / 'tokens' / (record.tokenizer or '') / record.dataset}  (train-*.bin, val-*.bin, index.parquet)")
        left_out = {source: n for source, tally in tokenize.counts.items() if (n := tally.dropped.get("mix", 0))}
        if left_out:
            lines.append(f"        left out by [mix]: {', '.join(f'{source} {n:,}' for source, n in left_out.items())}")
    lines += [
        "",
        f"next: doit list {record.name} shows every step; doit info build:{record.name} shows this again;",
        f"      change a value in configs/{record.name}.toml and run doit build:{record.name}: only what it touches runs.",
    ]
    return "\n".join(lines)


def undone_lines(undone: Undone, cancelled: bool) -> list[str]:
    """What an undo did, in three lines: what is gone, what stands, what a rerun reuses.

    >>> print("\\n".join(undone_lines(Undone(build="a", stages=("shard",), bytes=2_000_000, restored=False), True)))
    a: cancelled; undone: shard, 2.0 MB
    a: no corpus or tokens stand under its names, as before this run
    a: kept: downloads, raw documents, filtered documents, decisions and signatures; doit build:a goes on from there
    """
    what = f"undone: {', '.join(undone.stages) or 'nothing but what was begun'}, {size(undone.bytes)}"
    stands = "the corpus and tokens of its last build stand again" if undone.restored else "no corpus or tokens stand under its names"
    return [
        f"{undone.build}: {'cancelled' if cancelled else 'failed for good'}; {what}",
        f"{undone.build}: {stands}, as before this run",
        f"{undone.build}: kept: downloads, raw documents, filtered documents, decisions and signatures; doit build:{undone.build} goes on from there",
    ]


def _tally(record: BuildRecord, label: str, source: str) -> Tally:
    step = record.step(label)
    return step.counts.get(source, Tally()) if step else Tally()


def _sums(tallies: dict[str, Tally]) -> tuple[int, int]:
    whole = total(list(tallies.values()))
    return whole.docs_in, whole.also.get("text_bytes_in", 0)


def _row(name: str, docs_in: int, bytes_in: int, kept: Tally, licence: str) -> tuple[str, ...]:
    return (name, f"{docs_in:,}", size(bytes_in), f"{kept.kept:,}", size(kept.also.get("text_bytes", 0)), licence)


def _reasons(record: BuildRecord, sources: Sequence[str], raw: dict[str, Tally]) -> dict[str, list[int]]:
    """``stage.rule`` -> documents by source, in the order in which they are judged."""
    found: dict[str, dict[str, int]] = {}
    for source in sources:
        for reason, n in raw[source].rejected.items():
            found.setdefault(f"fetch.{reason}", {})[source] = n
    for stage in DECIDING:
        for step in (s for s in record.steps if s.stage == stage):
            _add(found, step)
    names = sorted((name for name, by in found.items() if any(by.values())), key=_place)
    return {name: [found[name].get(source, 0) for source in sources] for name in names}


def _place(reason: str) -> tuple[int, int]:
    """Where a reason is judged: stages in their order, and within filter its rules in theirs."""
    stage, rule = reason.split(".", 1)
    stages = ("fetch", *DECIDING)
    return stages.index(stage), RULES.index(rule) if rule in RULES else -1 if rule == "empty" else len(RULES)


def _add(found: dict[str, dict[str, int]], step: StepRecord) -> None:
    for source, tally in step.counts.items():
        for rule, n in tally.dropped.items():
            by = found.setdefault(f"{step.stage}.{rule}", {})
            by[source] = by.get(source, 0) + n


def table(rows: Sequence[tuple[str, ...]], right: tuple[int, ...]) -> list[str]:
    """Rows as aligned lines; the columns ``right`` are numbers."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(f"{cell:>{w}}" if i in right else f"{cell:<{w}}" for i, (cell, w) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]
