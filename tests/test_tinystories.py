"""The TinyStories configurations: pinned as published, and the same path walked over a stand-in of the same format behind the same redirects."""

import hashlib
import json
import shutil

import polars as pl
import pytest
import tomlkit
from projects import ROOT, doit, story
from servers import reply, running, served

NAMES = ("tinystories-v1", "tinystories-valid")
PINS = {
    "tinystories-v1": ("TinyStoriesV2-GPT4-train.txt", 2_227_753_162, "6418d412de72888f52b5142c761ac21a582f7d1166f0bfbdb5f03ccfdec90443"),
    "tinystories-valid": ("TinyStoriesV2-GPT4-valid.txt", 22_502_601, "6874bae9a4c1a4e7edcf0e53b86c17817e9cf881fc75ff2368da457b80c0585d"),
}
REVISION = "f54c09fd23315a6f9c86f9dc80f725de7d8f9c64"


@pytest.fixture
def project(tmp_path):
    (tmp_path / "configs").mkdir()
    for name in ("dodo.py", "pyproject.toml", *(f"configs/{n}.toml" for n in NAMES)):
        shutil.copyfile(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "configs" / "policy", tmp_path / "configs" / "policy")
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_the_published_files_are_pinned(name):
    config = tomlkit.parse((ROOT / "configs" / f"{name}.toml").read_text()).unwrap()
    [source] = config["sources"]
    file, size, sha256 = PINS[name]
    assert source["url"].endswith(f"/datasets/roneneldan/TinyStories/resolve/{REVISION}/{file}")
    assert (source["size"], source["sha256"]) == (size, sha256)
    assert (source["license_spdx"], source["format"], source["separator"]) == ("CDLA-Sharing-1.0", "text", "<|endoftext|>")


@pytest.mark.parametrize("name", NAMES)
def test_without_a_network_they_end_with_75_and_one_line(project, name):
    run = doit(project, f"build:{name}", "--offline")
    assert run.returncode == 75, (run.stdout, run.stderr)
    [line] = run.stderr.strip().splitlines()
    assert line.startswith("corpusbuild: stories")


def stand_in():
    """Stories as the published file has them: separated by a line, some beginning with a blank line, paragraphs on single newlines."""
    stories = []
    for i in range(120):
        text = story(i).replace(". ", ".\n", 2)
        stories.append(("\n" if i % 5 == 0 else "") + (text.replace(".\n", ".\n\n", 1) if i % 7 == 0 else text))
    stories[60] = stories[10]
    stories[61] = "Too short."
    return "\n<|endoftext|>\n".join(stories).encode() + b"\n<|endoftext|>\n"


def test_a_stand_in_behind_a_redirect_builds_through_the_same_path(project):
    body = stand_in()
    file = PINS["tinystories-valid"][0]
    with running() as hub, running() as cdn:
        signed = "/cdn/file?Expires=1&Signature=a%2Fb"
        cdn.on(signed, served(body, ETag='"abc"'))
        url = hub.on(f"/datasets/roneneldan/TinyStories/resolve/{REVISION}/{file}", reply(302, Location=cdn.url(signed)))
        config = project / "configs" / "tinystories-valid.toml"
        document = tomlkit.parse(config.read_text())
        document["sources"][0].update({"url": url, "sha256": hashlib.sha256(body).hexdigest(), "size": len(body)})
        config.write_text(tomlkit.dumps(document))
        run = doit(project, "build:tinystories-valid")
        assert [r.path for r in cdn.requests] == [signed]
    assert run.returncode == 0, run.stderr
    corpus = project / "cache" / "corpus" / "tinystories-valid" / "v1"
    rows = pl.read_parquet(str(corpus / "*.parquet"))
    assert len(rows) == 118, "of 120 one is too short and one stands twice"
    first = rows.row(0, named=True)
    assert first["url"] == f"{url}#2"
    assert first["text"].startswith(story(0).split(".")[0])
    assert not any("endoftext" in text for text in rows.get_column("text"))
    [row] = [json.loads(line) for line in (project / "cache" / "LEDGER.jsonl").read_text().splitlines()]
    assert (row["url"], row["n_docs"]) == (url, 120)
