"""Imports run downhill only. The list is the architecture; a module may import what stands above it."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "corpusbuild"

LAYERS = [
    ("nouns", {"errors", "model", "hashing", "stage"}),
    (
        "pure",
        {
            "strict", "text", "language", "quality", "codepoints", "measure", "contamination", "pii", "identifiers", "licenses", "minhash", "unionfind", "split", "sources", "texts", "paragraphs", "resume",
            "kernels", "origins", "progress", "datasheet", "law", "binfile", "permutation", "order", "mix", "rowdigest", "croissant", "workflow",
        },
    ),
    (
        "doors",
        {
            "durable", "staging", "store", "arrow", "parts", "raw", "http", "decompress", "downloads", "transfer", "objects", "trees", "tables",
            "webarchive", "ledger", "segments", "bulk",
            "tokenizer", "executors", "placement", "spool", "repeats", "removals", "signfile", "gather", "encoded", "encoding", "tokentables", "writers", "plugins", "runner", "machinecode",
        },
    ),
    (
        "stages",
        {f"stages.{s}" for s in ("fetch", "filter", "decontaminate", "scrub", "earlier", "sign", "exact_dedup", "near_dedup", "rails", "shard", "ledger", "train_tokenizer", "tokenize")},
    ),
    ("wiring", {"fetch", "child", "pin", "settings", "config", "plan", "workshop", "ahead", "publish", "project", "report", "lock", "corpus", "batches", "torch_dataset", "explain", "likeness", "verify", "undo", "preflight", "journal", "estimate", "compare", "selection", "export", "scaffold", "completion", "reference", "reach", "fetching", "drive", "statement", "activity"}),
    ("commands", {"commands", "cli", "__main__"}),
]  # fmt: skip
ONLY_IN = {
    "doit": ("commands", "dodo"),
    "aiohttp": ("http",),
    "tokenizers": ("tokenizer",),
    "tiktoken": ("tokenizer",),
    "sentencepiece": ("tokenizer",),
    "fastokens": ("tokenizer",),
    "stdnum": ("identifiers",),
    "pycld2": ("language",),
    "numba": ("kernels.jit",),
    "torch": ("torch_dataset",),
    "fcntl": ("machinecode", "store", "ledger", "downloads", "commands.clean", "activity"),
    "sqlite3": (),
}
PURE_AVOIDS = {"os", "shutil", "subprocess", "socket", "tempfile", "time", "random", "asyncio"}


def imports(path):
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names |= {node.module} | {f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.Import):
            names |= {a.name for a in node.names}
    return names


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        if name != "__init__" and path.stat().st_size:
            yield name, path


def layer_of(name):
    for i, (_, members) in enumerate(LAYERS):
        if name in members or name.split(".")[0] in members:
            return i
    return None


def test_every_module_has_a_layer():
    assert [name for name, _ in modules() if layer_of(name) is None] == []


def test_imports_run_downhill():
    wrong = []
    for name, path in modules():
        for target in imports(path):
            inner = target.removeprefix("corpusbuild.")
            if target.startswith("corpusbuild.") and (layer_of(inner) or 0) > (layer_of(name) or 0):
                wrong.append(f"{name} imports {inner}")
    assert wrong == []


def test_a_stage_imports_no_stage_store_or_configuration():
    shared = {("stages.ledger", "stages.shard"), ("stages.tokenize", "stages.shard"), ("stages.near_dedup", "stages.sign")}
    wrong = []
    for name, path in modules():
        if name.startswith("stages."):
            targets = {t.removeprefix("corpusbuild.") for t in imports(path) if t.startswith("corpusbuild.")}
            wrong += [
                (name, t) for t in targets
                if (t in ("store", "staging", "config") or (t.startswith("stages.") and t.count(".") == 1 and t != name)) and (name, t) not in shared
            ]  # fmt: skip
    assert wrong == []


def test_libraries_stay_behind_their_doors():
    wrong = []
    for name, path in [*modules(), ("dodo", PACKAGE.parent / "dodo.py")]:
        for top in {target.split(".")[0] for target in imports(path)}:
            if top in ONLY_IN and not any(name == door or name.startswith(f"{door}.") for door in ONLY_IN[top]):
                wrong.append(f"{name} imports {top}")
    assert wrong == []


def test_pure_modules_touch_no_world():
    pure = dict(LAYERS)["pure"] | {"errors", "model"}
    wrong = [(n, t) for n, path in modules() if n in pure for t in imports(path) if t in PURE_AVOIDS]
    assert wrong == []
