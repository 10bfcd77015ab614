"""Stop a build at every disk operation, for good or by a fault: the next run puts it right, and nothing incomplete ever stands under its key."""

import errno
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from conftest import copy_sample
from disk import Killed, struck
from projects import ROOT, doit, doit_here, jsonl, make_project, story, stuck_in_shard, tree

from corpusbuild.model import Key
from corpusbuild.staging import CONTENTS
from corpusbuild.store import Store

DATED = (".tmp-", "LEDGER.jsonl", "raw", "store/fetch", ".doit.json", "downloads", "staging", "runs")
LIMIT = 400
"""Operations that a slow loop strikes at most: of all kinds, spread by a seed."""


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """A small project in which nothing is built."""
    folder = tmp_path_factory.mktemp("empty")
    sources = {
        "a": ("a.jsonl", jsonl([story(i) + " Mail ana@example.com." for i in range(4)]), ""),
        "b": ("b.jsonl", jsonl([story(3), story(9)]), ""),
    }
    make_project(folder, sources, extra="[shard]\nshard_rows = 3")
    return folder


@pytest.fixture(scope="module")
def whole(empty, tmp_path_factory):
    """The same project, built without interruption, and how many disk operations that took."""
    folder = tmp_path_factory.mktemp("whole") / "project"
    shutil.copytree(empty, folder)
    with pytest.MonkeyPatch.context() as patch, struck(patch, None) as seen:
        assert doit_here(folder, "build:tiny", "--executor", "serial") == 0
    assert len(seen) > 150
    return left(folder), len(seen)


def left(folder):
    """What a build leaves that must be the same, but for writes that were cut short, which ``doit clean`` removes."""
    return {name: data for name, data in tree(folder / "cache", skip=DATED).items() if "/.tmp-" not in name}


def points(n, some):
    """``some`` of the operations 1 to ``n``, the same every time, the first and last among them."""
    chosen = sorted(random.Random(n).sample(range(1, n + 1), min(some, n)))
    return sorted({1, *chosen, n})


def nothing_incomplete(cache):
    """Every entry under its key is whole."""
    store = Store(cache)
    for page in (cache / "store").glob(f"*/*/{CONTENTS}"):
        store.check(page.parent.parent.name, Key(page.parent.name))
    assert not [p for p in (cache / "store").glob("*/*") if not (p / CONTENTS).exists()]


def survive(empty, whole, folder, monkeypatch, capfd, at):
    shutil.copytree(empty, folder)
    with struck(monkeypatch, at) as seen, suppress(Killed):
        doit_here(folder, "build:tiny", "--executor", "serial")
    assert len(seen) >= at - 5, "a build may take a few operations less than the one that was counted"
    nothing_incomplete(folder / "cache")
    capfd.readouterr()
    assert doit_here(folder, "build:tiny", "--executor", "serial") == 0, f"killed at operation {at}: {capfd.readouterr().err}"
    assert left(folder) == whole[0], f"killed at operation {at}"


def test_a_kill_at_some_operations_heals(empty, whole, tmp_path, monkeypatch, capfd):
    for at in points(whole[1], 20):
        survive(empty, whole, tmp_path / str(at), monkeypatch, capfd, at)


@pytest.mark.slow
def test_a_kill_at_hundreds_of_operations_heals(empty, whole, tmp_path, monkeypatch, capfd):
    for at in points(whole[1], LIMIT):
        survive(empty, whole, tmp_path / str(at), monkeypatch, capfd, at)
        shutil.rmtree(tmp_path / str(at))


def fault(empty, whole, folder, monkeypatch, capfd, at, code, times):
    """A fault of the disk at one operation ends in one clear line and 75, or is survived; the next run finishes right."""
    shutil.copytree(empty, folder)
    capfd.readouterr()
    with struck(monkeypatch, at, code, times):
        exit_code = doit_here(folder, "build:tiny", "--executor", "serial")
    err = capfd.readouterr().err
    assert exit_code in (0, 75), (at, times, err)
    assert "Traceback" not in err, (at, times, err)
    if exit_code:
        lines = [line for line in err.splitlines() if line.startswith("corpusbuild: ")]
        assert lines
        assert all("run again" in line for line in lines), lines
    nothing_incomplete(folder / "cache")
    assert doit_here(folder, "build:tiny", "--executor", "serial") == 0, (at, times)
    assert left(folder) == whole[0], (at, times)


@pytest.mark.parametrize(("code", "times"), [(errno.ENOSPC, None), (errno.EIO, 1), (errno.EROFS, None)])
def test_a_failing_disk_at_some_operations_is_told_in_a_line(empty, whole, tmp_path, monkeypatch, capfd, code, times):
    for at in points(whole[1], 6):
        fault(empty, whole, tmp_path / str(at), monkeypatch, capfd, at, code, times)


@pytest.mark.slow
@pytest.mark.parametrize("times", [None, 1])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failing_disk_at_many_operations_is_told_in_a_line(empty, whole, tmp_path, monkeypatch, capfd, code, times):
    for at in points(whole[1], LIMIT // 4):
        fault(empty, whole, tmp_path / str(at), monkeypatch, capfd, at, code, times)
        shutil.rmtree(tmp_path / str(at))


def test_an_entry_gets_its_name_only_when_all_of_it_would_outlive_a_power_cut(empty, tmp_path, monkeypatch):
    """Replay against the strictest disk: what was not fsynced is lost. At each rename into the store every byte and name of the entry is durable."""
    folder = tmp_path / "project"
    shutil.copytree(empty, folder)
    durable, listed, renamed = {}, {}, []
    real_fsync, real_rename = os.fsync, os.rename

    def state(path):
        return (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())

    def fsync(descriptor):
        real_fsync(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.isdir(path):
            listed[os.stat(path).st_ino] = set(os.listdir(path))
        else:
            durable[os.fstat(descriptor).st_ino] = state(type(folder)(path))

    def rename(source, target):
        if "/store/" in str(target) and os.path.isdir(source):
            names = set(os.listdir(source))
            assert listed.get(os.stat(source).st_ino) == names, f"names of {target} would be lost"
            for name in names:
                path = type(folder)(source) / name
                assert durable.get(path.stat().st_ino) == state(path), f"bytes of {target}/{name} would be lost"
            renamed.append(str(target))
        real_rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    assert doit_here(folder, "build:tiny", "--executor", "serial") == 0
    assert len(renamed) == len(json.loads((folder / "cache" / "builds" / "tiny.json").read_text())["steps"]) > 10


def test_two_builds_at_once_build_each_step_once(tmp_path):
    make_project(tmp_path)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "doit", "build:tiny"], cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert doit(tmp_path, "build:tiny").stdout == "build:tiny: nothing to be done\n"
    store = tmp_path / "cache" / "store"
    assert all(len(list(stage.iterdir())) == (2 if stage.name in ("fetch", "filter", "scrub", "sign") else 1) for stage in store.iterdir())
    assert len((tmp_path / "cache" / "LEDGER.jsonl").read_text().splitlines()) == 2
    assert not list((tmp_path / "cache" / "staging").glob("*/*"))


@pytest.mark.slow
def test_a_hundred_random_kills_of_the_sample_with_workers(sample, tmp_path):
    """kill -9 of the whole process group at seeded random moments, again and again, until each build has ended."""
    rng = random.Random(20261201)
    expected = tree(sample[0] / "cache", skip=DATED)
    kills, round_ = 0, 0
    while kills < 100:
        round_ += 1
        folder = copy_sample(tmp_path / str(round_))
        while True:
            process = subprocess.Popen(
                [sys.executable, "-m", "doit", "build:sample", "--workers", "2"],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            try:
                _, err = process.communicate(timeout=rng.uniform(0.4, 6.0))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                kills += 1
                nothing_incomplete(folder / "cache")
            else:
                assert process.returncode == 0, err
                break
        assert tree(folder / "cache", skip=DATED) == expected, f"round {round_}"
        assert doit(folder, "clean").returncode == 0
        assert not list((folder / "cache" / "staging").glob("*/*"))
        shutil.rmtree(folder)


def test_workers_die_with_the_build(tmp_path):
    """A killed build leaves no process behind that could still write."""
    make_project(tmp_path)
    process, worker = stuck_in_shard(tmp_path)
    process.kill()
    process.communicate()
    for _ in range(200):
        if not os.path.exists(f"/proc/{worker}"):
            break
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{worker}")
    run = doit(tmp_path, "build:tiny")
    assert run.returncode == 0, run.stderr
    assert [line.split()[0] for line in run.stdout.splitlines()[:3]] == ["shard", "ledger", "tokenize"], "finished steps are not run again"
    assert json.loads((tmp_path / "cache" / "builds" / "tiny.json").read_text())["name"] == "tiny"
