"""GPT-2 ids as such: the same as the tokenizer's own library gives for every document, and in memory that does not grow with their number."""

import hashlib
import json
from pathlib import Path
from typing import Any

import corpora
import numpy as np
import ours
from corpora import Text
from harness import Bench, Section
from measured import Ran

from corpusbuild.binfile import read

SETTINGS = {**ours.OFF, "stages.tokenize": True, "shard.val_permille": 0, "shard.row_group_bytes": 8 << 20}
"""Small row groups, so that ten million ids are cut as a thousand million are."""
END = 50256
FEW_MEGABYTES, MANY_IDS = 30, 10**9
MOST_GROWTH = 1.05


def measure(bench: Bench) -> Section:
    section = Section("GPT-2 ids: whether they are right, and what they hold", axis="MB held")
    equal(bench, section)
    memory(bench, section)
    return section


def equal(bench: Bench, section: Section) -> None:
    """Every id of the corpus against those that ``tokenizers`` gives for the same shards, in a process that knows nothing of us."""
    project = built(bench, bench.jsonl(), ours.WORKERS)[0]
    (shards,), (entry,) = project.entries("shard"), project.entries("tokenize")
    theirs = bench.rival("encoders", "rivals/encode.py", "tokenizers", shards, bench.folder("ids"), bench.gpt2()).told
    digest, n = moved(entry)
    documents = project.kept("tokenize")
    section.say(
        f"{documents:,} documents, {n:,} ids with separators: {'every id is' if digest == theirs['md5'] else 'NOT every id is'} the one that `tokenizers` gives "
        "(read back from the `.bin` files, against a run of `rivals/encode.py`)."
    )
    section.claim("ids equal to those of tokenizers on every document", float(digest == theirs["md5"] and n == theirs["ids"]), 1, "")
    project.destroy()


def moved(entry: Path) -> tuple[str, int]:
    """The MD5 of all ids with the separators after the documents, where the other side puts them; and how many."""
    digest, n, first = hashlib.md5(), 0, True
    for file in json.loads((entry / "_MANIFEST.json").read_text())["files"]:
        ids = read(entry / file["name"])[1]
        digest.update(np.ascontiguousarray(ids[1:] if first and len(ids) else ids).data)
        n, first = n + len(ids), first and not len(ids)
    digest.update(np.array([END], np.uint16).tobytes())
    return digest.hexdigest(), n


def memory(bench: Bench, section: Section) -> None:
    rows: list[tuple[Any, ...]] = []
    few = bench.jsonl(FEW_MEGABYTES)
    for text in sizes(bench, few):
        project, ran = built(bench, text, workers=1, exact=True)
        ids = sum(tally["also"]["train_tokens"] for page in project.contents("tokenize") for tally in page["counts"].values())
        rows.append((ids, text.megabytes, ran.seconds, text.megabytes / ran.seconds, ran.peak / 1e6))
        section.chart[f"{ids / 1e6:,.0f} million ids"] = ran.peak / 1e6
        project.destroy()
        if text.path != few.path and text.path != bench.jsonl().path:
            text.path.unlink()
            text.path.with_name(f"{text.path.name}.json").unlink()
    section.say("One worker; all processes together, shared pages divided, ten times a second. The larger texts are the first respelled.")
    section.table(("ids", "MB of text", "s", "MB/s", "peak MB"), rows)
    section.claim(f"memory of {rows[-1][0]:,} ids, of that of {rows[0][0]:,}", rows[-1][-1] / rows[0][-1], MOST_GROWTH, most=True)


def sizes(bench: Bench, few: Text) -> list[Text]:
    """Some ten million ids, what the corpus has, and a thousand million."""
    if bench.quick:
        return [few, bench.jsonl()]
    whole = bench.jsonl()
    times = -(-MANY_IDS // int(whole.megabytes * 1e6 / 2.8))  # a token of this text has about 2.9 bytes
    return [few, whole, corpora.jsonl(bench.work, times)]


def built(bench: Bench, text: Text, workers: int, exact: bool = False) -> tuple[ours.Project, Ran]:
    project = ours.Project(bench.folder("tokens"), {"text": text}, {**SETTINGS, **bench.tokenizer()})
    project.run("shard")
    return project, project.run(workers=workers, exact=exact)
