"""Small projects for tests: a folder with sources, a configuration and the policy, and the commands run in it as a person would."""

import gzip
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

from doit.doit_cmd import DoitMain

ROOT = Path(__file__).parent.parent
NOUNS = (
    "boat island sail engine morning wind water lighthouse child harbour bell woman basket bread wall church village road winter river bridge "
    "letter box cat rain storm garden apple tree gate stone window lamp candle forest mountain valley horse cart market miller baker sailor "
    "captain rope anchor map star moon sun cloud field wheat barn fence dog crow spring autumn song drum flute dance story king"
).split()
VERBS = "took carried found lost saw heard built broke painted followed remembered sold bought opened closed watched left reached cleaned mended".split()


def story(seed, sentences=8):
    """A text like no other seed's; it passes the default filters."""
    rng = random.Random(seed)
    out = []
    for _ in range(sentences):
        a, b, c, d = rng.sample(NOUNS, 4)
        out.append(
            f"{rng.choice(['The', 'A', 'That', 'His', 'Her'])} {a} {rng.choice(VERBS)} the {b} and {rng.choice(VERBS)} a {c} with her {d}."
        )
    return " ".join(out)


def jsonl(texts):
    return "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts).encode()


def write_source(folder, name, data):
    """Put a source file in place and give its digest."""
    path = Path(folder) / "configs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def make_project(folder, sources=None, extra="", name="tiny", head=""):
    """A project in ``folder``. ``sources`` maps an id to (file name, bytes, further TOML lines)."""
    folder = Path(folder)
    (folder / "configs").mkdir(parents=True, exist_ok=True)
    for file in ("dodo.py", "pyproject.toml"):
        shutil.copyfile(ROOT / file, folder / file)
    shutil.copytree(ROOT / "configs" / "policy", folder / "configs" / "policy", dirs_exist_ok=True)
    if sources is None:
        texts = [story(i) for i in range(30)]
        sources = {
            "stories": ("stories.jsonl", jsonl(texts), ""),
            "notes": ("notes.txt.gz", gzip.compress("\n\n".join(story(i) for i in range(25, 50)).encode(), mtime=0), 'format = "text"'),
        }
    toml = [f'dataset = "{name}"', 'version = "v1"', head]
    for id, (file, data, lines) in sources.items():
        digest = write_source(folder, file, data)
        licence = "" if "license_spdx" in lines else 'license_spdx = "CC0-1.0"\n'
        toml.append(f'[[sources]]\nid = "{id}"\nurl = "{file}"\nsha256 = "{digest}"\n{licence}{lines}\n')
    toml.append(extra if "[shard]" in extra else f"[shard]\nshard_rows = 20\n{extra}")
    toml.append('[tokenizer]\nid = "bytes"\n' if "[tokenizer]" not in extra else "")
    path = folder / "configs" / f"{name}.toml"
    path.write_text("\n".join(toml))
    return path


def doit(folder, *args, env=None, timeout=120):
    """Run ``doit`` in a project and give the finished process with its text output."""
    return subprocess.run(
        [sys.executable, "-m", "doit", *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def doit_here(folder, *args):
    """Run ``doit`` in a project within this process, so that a test can put a fault into it; gives the exit code."""
    before = os.getcwd()
    os.chdir(folder)
    sys.modules.pop("dodo", None)
    try:
        return DoitMain().run(list(args))
    finally:
        os.chdir(before)
        sys.modules.pop("dodo", None)


def tree(folder, skip=()):
    """Relative path -> bytes (or link target) of everything below a folder, but for the named top folders."""
    folder, out = Path(folder), {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if relative.parts[0] in skip or str(relative.parent / relative.name).startswith(tuple(skip) or ("\0",)):
            continue
        if path.is_symlink():
            out[str(relative)] = f"-> {os.readlink(path)}"
        elif path.is_file():
            out[str(relative)] = path.read_bytes()
    return out


def stuck_in_shard(folder, *args):
    """Start a build whose shard stage never ends, and give the process and its worker's id once the worker waits there."""
    (folder / "slow").mkdir()
    (folder / "slow" / "slow_shards.py").write_text(
        "import time, os, pathlib\nfrom corpusbuild.stages import shard\n"
        "def wait(task, out):\n    pathlib.Path('worker.pid').write_text(str(os.getpid()))\n    time.sleep(600)\n"
    )
    (folder / "slow" / "sitecustomize.py").write_text("import slow_shards\nslow_shards.shard.write_shard = slow_shards.wait\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "doit", "build:tiny", *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder / 'slow'}:{ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    pid = folder / "worker.pid"
    for _ in range(1200):
        if pid.exists() and pid.read_text():
            return process, pid.read_text()
        time.sleep(0.05)
    raise AssertionError(f"the build never reached its shards: {process.communicate()}")
