"""The sample corpus is what it is said to be, and the oracle, which shares no code with the package, agrees with the published examples."""

import ast
import json
import tomllib
from hashlib import sha256
from pathlib import Path

import numpy as np
import oracle
import pytest

HERE = Path(__file__).parent
CONFIGS = HERE.parent / "configs"
GOLDEN = json.loads((HERE / "golden" / "sample.json").read_text("utf-8"))
"""Renew it after a change that was meant, and read the difference: ``python tests/oracle.py configs/sample.toml > tests/golden/sample.json``."""


@pytest.fixture(scope="module")
def answer() -> oracle.Answer:
    return oracle.build(CONFIGS / "sample.toml")


def test_oracle_imports_nothing_of_the_package() -> None:
    tree = ast.parse((HERE / "oracle.py").read_text("utf-8"))
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert names
    assert not [name for name in names if name.split(".")[0] == "corpusbuild"]


def test_oracle_gives_the_golden_numbers(answer: oracle.Answer) -> None:
    assert answer.summary() == GOLDEN


def test_oracle_knows_the_published_examples() -> None:
    assert oracle.blocks("The cat sat.\nIt purred.\n\n  \nA dog ran.\n\n\nEnd\n") == ["The cat sat.\nIt purred.", "A dog ran.", "End"]
    assert oracle.language("The cat and the dog sat in a box.") == ("en", 5 / 7)
    assert oracle.language("de de") == ("es", 0.25)
    failed = [rule for rule, passed in oracle.gopher("Buy now. #deal #sale #wow ...", {}) if not passed]
    assert failed == ["gopher_words", "gopher_symbol_ratio", "gopher_ellipsis_lines", "gopher_stopwords"]
    assert oracle.repetition("the cat sat the cat sat down", {"max_frac": 18 / 22})
    assert not oracle.repetition("the cat sat the cat sat down", {"max_frac": 17.9 / 22})
    text = "Mail ana@example.com or call (212) 555-0123; card 4111 1111 1111 1111."
    assert oracle.personal_data(text) == [("email", 5, 20), ("phone", 29, 43), ("card", 50, 69)]
    assert oracle.permutations(2, 42) == ([0xA15C02B7, 0xBA1D3331], [0x7B47F409, 0x83D2F293])
    assert [sha256(p.encode()).hexdigest()[:8] for p in oracle.paragraphs("The cat sat.\n \t\nThe dog ran.\n\n\n")] == [
        "84549cfa",
        "0ea960d6",
    ]


LOOKALIKES = (
    *("978-0-14-243724-7", "0-19-853453-1", "v1.2.3.4", "1.2.3.4.5", "react@18.3.1", "12:34:56", "123e4567-e89b-12d3-a456-426614174000"),
    *("3f786850e387550fdab836ed7e6dc881de23001b", "a[1::2]", "::1", "root@localhost", "555-0123", "4111111111111112", "1696867200123"),
    *("7992739871300", "tl_matmul_f32", "sk-learn"),
)


@pytest.mark.parametrize("text", LOOKALIKES)
def test_oracle_leaves_what_only_looks_personal(text: str) -> None:
    assert oracle.personal_data(f"see {text} there") == []


@pytest.mark.parametrize(("text", "residue"), [("Tom has a red ball.", 697), ("Mia naps.", 248), ("Hi", 147), ("é", 51), ("ok", 814)])
def test_oracle_splits_as_published(text: str, residue: int) -> None:
    for permille, split in ((residue, "train"), (residue + 1, "val")):
        document = oracle.Document("a:0", "a", text)
        oracle.publish(document, permille)
        assert document.split == split


def test_every_stage_and_every_rule_has_something_to_do(answer: oracle.Answer) -> None:
    found = {document.removed for document in answer.documents if document.removed}
    rules = ["empty", "length", "lang", "repetition"]
    rules += [
        f"gopher_{rule}"
        for rule in ("words", "mean_word_len", "symbol_ratio", "bullet_lines", "ellipsis_lines", "alpha_words", "stopwords")
    ]
    expected = {("filter", rule) for rule in rules}
    expected |= {("decontaminate", "ngram"), ("scrub", "pii"), ("exact_dedup", "paragraphs"), ("near_dedup", "jaccard")}
    assert found == expected
    assert all(answer.pii().values())
    assert all(answer.kept(source) for source in answer.sources)
    assert {document.split for document in answer.kept()} == {"train", "val"}
    assert any(document.cuts for document in answer.kept())
    assert answer.skipped_pairs, "no bucket is larger than its cap"


def test_near_duplicates_lean_only_on_what_is_kept(answer: oracle.Answer) -> None:
    place = {document.id: (i, document) for i, document in enumerate(answer.documents)}
    gone = [document for document in answer.documents if document.removed == ("near_dedup", "jaccard")]
    for document in gone:
        i, survivor = place[document.survivor]
        assert survivor.removed is None
        assert i < place[document.id][0]
        assert document.similarity >= 0.8
    # a chain of edits: a link survives because the one before it, which it resembles, did not
    chain = [document for document in gone if document.survivor.startswith("edits:")]
    assert chain


def test_the_sample_is_small_and_every_file_is_pinned_and_credited() -> None:
    config = tomllib.loads((CONFIGS / "sample.toml").read_text("utf-8"))
    files = {CONFIGS / source["url"]: source["sha256"] for source in config["sources"]}
    notice = (CONFIGS / "sample" / "NOTICE").read_text("utf-8")
    for path, digest in files.items():
        assert sha256(path.read_bytes()).hexdigest() == digest
        assert path.name in notice
    folder = list((CONFIGS / "sample").glob("*.*"))
    assert {path for path in folder if path.suffix not in (".py", ".pyc")} == {*files, CONFIGS / "sample" / "eval.jsonl"}
    assert sum(path.stat().st_size for path in folder) < 2_500_000
    assert 3_000_000 < sum(len(oracle.decompressed(path.read_bytes())) for path in files) < 6_000_000


def test_the_token_files_hold_the_texts_end_to_end(sample: tuple[Path, str], answer: oracle.Answer) -> None:
    for split in ("train", "val"):
        path = sample[0] / "cache" / "tokens" / "bytes" / "sample" / f"{split}-00000.bin"
        header = np.fromfile(path, "<i4", 256)
        tokens = np.fromfile(path, "<u2", offset=1024)
        assert header[:4].tolist() == [20240520, 1, len(tokens), 256]
        assert tokens.astype(np.uint8).tobytes() == b"".join(d.final.encode() for d in answer.kept() if d.split == split)
