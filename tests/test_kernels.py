"""Compiled kernels and their references build the same store, byte for byte: one test a stage."""

import json
import random

import pytest
from projects import ROOT, doit, make_project, story, tree

CLOCK = """
import corpusbuild.fetch
class Clock:
    def now(self): return 1_767_225_600.0
corpusbuild.fetch.SystemClock = Clock
"""
SETTINGS = """
[filters]
min_chars = 20
langs = ["en", "de"]
lang_min_conf = 0.4
gopher = { min_words = 5 }
repetition = { n = 2, max_frac = 0.3 }
[pii]
kinds = ["email", "phone", "card", "ip", "iban"]
[decontam]
protected = ["protected.txt"]
ngram = 6
[dedup]
shingle = 3
max_removed = 1.0
[shard]
shard_rows = 40
val_permille = 100
[tokenizer]
id = "bytes"
"""
HARD = [
    "",
    " \r\n\x00\ufeff ",
    "The e\u0301te\u0301 \u212b of\u00a0that\u2028and the \U0001f469\u200d\U0001f4bb, \uac00\u11a8 with the Ünïcode \u0327\u0301 we have.",
    "Der Mann und die Frau gehen nicht in das Haus, das auf dem Berg steht \u2026 und es ist für sie.",
    "это не тот язык, и это не те слова " * 5,
    "中文没有空格" * 30,
    "aİ İn ΟΔΟΣ K " * 12,
    "- the\n* of it...\n• and that…\n\n\n \n‣ to be\n◦ with # # ## ### the",
    "the same words again " * 40,
    "x" * 5000,
    "Write to the man of that house: jane.doe@example.org or +44 20 7946 0958, card 4111 1111 1111 1111, from 192.0.2.17 and be well with it.",
    "Pay the fee of that to DE89 3704 0044 0532 0130 00, and write to the bank at a@b.example with it.",
]


def texts(first: int) -> list[str]:
    """Stories, of which some repeat each other in whole, in part or nearly, among what is hard."""
    rng = random.Random(first)
    made = [story(i) for i in range(first, first + 60)]
    for i in range(12):
        words = made[i].split(" ")
        words[rng.randrange(len(words))] = "otherwise"
        made.append(" ".join(words))
        made.append(f"{story(1000 + first + i)}\n\n{made[i]}\r\n\r\n{made[i + 1]}  ")
    return made + made[:6] + HARD


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """The stores that the two forms built: relative path -> bytes."""
    found = {}
    for form in ("compiled", "reference"):
        folder = tmp_path_factory.mktemp(form)
        sources = {
            name: (
                f"{name}.jsonl",
                "".join(
                    json.dumps({"id": f"n{i}", "text": text, "k": i}, ensure_ascii=bool(i % 2)) + "\n" for i, text in enumerate(made)
                ).encode(),
                f'keep = ["k"]\npii_policy = "{policy}"\n{lines}',
            )
            for name, made, policy, lines in [
                ("one", texts(0), "scrub", 'id_field = "id"'),
                ("two", texts(30), "drop", ""),
                ("odd", [*HARD, story(500)], "none", ""),
            ]
        }
        make_project(folder, sources, f'{SETTINGS}[run]\nkernels = "{form}"\n')
        (folder / "configs" / "protected.txt").write_text(story(3))
        (folder / "clock").mkdir()
        (folder / "clock" / "sitecustomize.py").write_text(CLOCK)
        run = doit(folder, "build:tiny", env={"PYTHONPATH": f"{folder / 'clock'}:{ROOT}"}, timeout=300)
        assert run.returncode == 0, run.stderr
        found[form] = tree(folder / "cache" / "store")
    return found["compiled"], found["reference"]


@pytest.mark.parametrize(
    "stage", ["fetch", "filter", "decontaminate", "scrub", "sign", "exact_dedup", "near_dedup", "shard", "ledger", "tokenize"]
)
def test_both_forms_write_the_same(stores, stage):
    compiled, reference = ({name: data for name, data in store.items() if name.startswith(f"{stage}/")} for store in stores)
    assert compiled
    assert sorted(compiled) == sorted(reference)
    assert [name for name in compiled if compiled[name] != reference[name]] == []


def test_every_stage_is_compared(stores):
    compiled, _ = stores
    covered = {"fetch", "filter", "decontaminate", "scrub", "sign", "exact_dedup", "near_dedup", "rails", "shard", "ledger", "tokenize"}
    assert {name.split("/")[0] for name in compiled} == covered
