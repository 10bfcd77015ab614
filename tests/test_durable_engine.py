"""The workflow under an existing engine: killed in the middle and gone on with, cancelled and undone once."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib

import pytest
from projects import ROOT, jsonl, make_project, story, tree

from corpusbuild.__main__ import main
from corpusbuild.workflow import workflow_id

pytestmark = pytest.mark.slow
EXAMPLE = ROOT / "examples" / "durable_dbos.py"


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    sources = {f"s{n}": (f"s{n}.jsonl", jsonl([story(100 * n + i) for i in range(20)]), "") for n in range(6)}
    return make_project(folder, sources, extra='[shard]\nshard_rows = 9\n[run]\nexecutor = "serial"\n')


def start(verb, config, root):
    return subprocess.Popen(
        [sys.executable, str(EXAMPLE), verb, str(config), str(root)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def until_shard_is_under_way(config, root, process):
    """Waits until the third step of the shard stage is in the store; gives the folder of its work."""
    work = root / "activities" / workflow_id(tomllib.loads(config.read_text())) / "shard"
    deadline = time.monotonic() + 120
    while not (work / "progress.jsonl").exists() or (work / "progress.jsonl").read_bytes().count(b'"ckpt"') < 3:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return work


def made(root):
    return {
        str(p.relative_to(root)): tree(p.resolve()) for kind in ("corpus", "tokens") for p in root.glob(f"{kind}/*/*") if p.is_symlink()
    }


def test_a_workflow_that_is_killed_in_the_middle_goes_on_to_the_same_bytes(config, tmp_path):
    root = tmp_path / "root"
    process = start("build", config, root)
    work = until_shard_is_under_way(config, root, process)
    os.killpg(process.pid, signal.SIGKILL)  # the engine and the activity at once
    process.communicate()
    assert not (work / "DONE.json").exists()
    fetched = (work.parent / "fetch" / "progress.jsonl").read_bytes()

    process = start("build", config, root)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    result = json.loads(out)
    assert (result["manifest"], result["tokens"]) == ("corpus/tiny/v1/_MANIFEST.json", ["tokens/bytes/tiny"])
    assert (work.parent / "fetch" / "progress.jsonl").read_bytes() == fetched
    told = [line["ckpt"] for line in map(json.loads, (work / "progress.jsonl").read_text().splitlines()) if line["kind"] == "ckpt"]
    assert len(told) == len(set(told))
    assert not (work.parent / "cleanup").exists()

    assert main(["run", "--config", str(config), "--cache-dir", str(tmp_path / "whole")]) == 0
    assert made(root) == made(tmp_path / "whole")


def test_a_workflow_that_is_cancelled_is_undone_once(config, tmp_path):
    root = tmp_path / "root"
    process = start("build", config, root)
    work = until_shard_is_under_way(config, root, process)
    cancel = start("cancel", config, root)
    assert cancel.wait(60) == 0, cancel.communicate()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    told = (work.parent / "cleanup" / "progress.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in told] == ["done"]
    assert made(root) == {}
    assert not any(list(root.glob(f"store/{stage}/*")) for stage in ("shard", "ledger", "tokenize"))
    assert len(list(root.glob("raw/*/*"))) == 6

    process = start("build", config, root)  # it stays cancelled, and is not undone again
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert (work.parent / "cleanup" / "progress.jsonl").read_text().splitlines() == told
