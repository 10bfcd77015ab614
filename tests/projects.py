"""Small projects for tests: a folder with sources, a configuration and the policy, and the commands run in it as a person would."""

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SENTENCES = [
    "The boat that we took to the island had a red sail and a small engine.",
    "In the morning the wind came from the west and the water was grey.",
    "He told the story of the lighthouse to the children with great care.",
    "They have to be at the harbour before the last of the bells has rung.",
    "A woman with a basket of bread walked along the wall to the church.",
    "Nobody in the village could say where the road to the north began.",
    "It was the second winter that the river did not freeze at the bridge.",
    "The old man kept the letters in a box and read them to the cat.",
    "When the rain stopped we went out to see what the storm had taken.",
    "She had a garden with apple trees and a gate that would never close.",
]


def story(seed, sentences=8):
    """A text of sentences that no other seed gives in this order; it passes the default filters."""
    words = [f"On day {seed} of the journey number {seed * 7 + 3} this is what happened to the crew of ship {seed * 31 % 1009}."]
    words += [f"{SENTENCES[(seed * (k + 3) + k * k) % len(SENTENCES)][:-1]} for the time {seed * 100 + k}." for k in range(sentences)]
    return " ".join(words)


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
