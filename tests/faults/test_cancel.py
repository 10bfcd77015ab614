"""A cancel or a final failure leaves nothing of the build from shard on, and an earlier build as it was; what is shared stays."""

import json
import os
import shutil
import signal

import pytest
from projects import doit, doit_here, make_project, stuck_in_shard, tree

from corpusbuild import ahead
from corpusbuild.errors import StageError
from corpusbuild.publish import replace_link

SHARED = ("fetch", "filter", "scrub", "sign", "exact_dedup", "near_dedup")
OWN = ("shard", "ledger", "tokenize")
MOMENTS = [f"{when} {stage}" for stage in ("sign:notes", "near_dedup", *OWN) for when in ("before", "after")] + ["between links"]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """A project with a good build, whose configuration then changed."""
    folder = tmp_path_factory.mktemp("earlier")
    path = make_project(folder)
    assert doit(folder, "build:tiny").returncode == 0
    path.write_text(path.read_text().replace("shard_rows = 20", "shard_rows = 9") + "\n[dedup]\nshingle = 4\n")
    return folder


@pytest.fixture(scope="module")
def whole(earlier, tmp_path_factory):
    """The changed configuration, built without interruption."""
    folder = tmp_path_factory.mktemp("whole") / "project"
    shutil.copytree(earlier, folder, symlinks=True)
    assert doit(folder, "build:tiny").returncode == 0
    return published(folder)


@pytest.fixture(params=["no earlier build", "an earlier build"])
def project(request, earlier, tmp_path):
    folder = tmp_path / "project"
    shutil.copytree(earlier, folder, symlinks=True)
    if request.param == "no earlier build":
        shutil.rmtree(folder / "cache")
    return folder


def published(folder):
    """What a reader sees of a project: the corpora, tokens and records by name."""
    return {
        name: tree(path.resolve())
        for pattern in ("corpus/*/*", "tokens/*/*")
        for path in (folder / "cache").glob(pattern)
        for name in [str(path.relative_to(folder))]
    }


def entries(folder, stages):
    return sorted(p.name for stage in stages for p in (folder / "cache" / "store" / stage).glob("*"))


def strike(monkeypatch, moment, error):
    """Raise ``error`` at one moment of the next build, once."""
    when, _, label = moment.partition(" ")
    struck = []

    def realise(step, shop):
        if step.label == label and when == "before" and not struck:
            struck.append(1)
            raise error
        contents = real(step, shop)
        if step.label == label and when == "after" and not struck:
            struck.append(1)
            raise error
        return contents

    def link(path, target):
        if struck:
            raise error
        struck.append(1)
        replace_link(path, target)

    if moment == "between links":
        monkeypatch.setattr("corpusbuild.publish.replace_link", link)
    else:
        real = ahead.realise
        monkeypatch.setattr(ahead, "realise", realise)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_cancel_undoes_from_shard_on_and_a_rerun_ends_as_if_nothing_was(project, whole, monkeypatch, capfd, moment):
    before, own, record = published(project), entries(project, OWN), project / "cache" / "builds" / "tiny.json"
    recorded = record.read_bytes() if record.exists() else None
    with monkeypatch.context() as fault:
        strike(fault, moment, KeyboardInterrupt())
        assert doit_here(project, "build:tiny", "--executor", "serial") == 130
    said = capfd.readouterr().out
    assert published(project) == before
    assert entries(project, OWN) == own
    assert (record.read_bytes() if record.exists() else None) == recorded
    assert not list((project / "cache" / "runs" / "active").iterdir())
    lines = [line for line in said.splitlines() if line.startswith("tiny: ")]
    assert len(lines) == 3
    assert lines[0].startswith("tiny: cancelled; undone: ")
    assert ("stand again" in lines[1]) == (recorded is not None)
    kept = entries(project, SHARED)
    assert doit_here(project, "build:tiny", "--executor", "serial") == 0
    said = capfd.readouterr().out
    assert published(project) == whole
    assert set(kept) <= set(entries(project, SHARED)), "nothing shared was taken away"
    if "shard" in moment or "ledger" in moment or "tokenize" in moment or "links" in moment:
        ran = [line.split()[0] for line in said.splitlines()[:4]]
        assert ran == ["shard", "ledger", "tokenize", "tiny"], "only what was undone ran again"


@pytest.mark.parametrize("moment", ["before near_dedup", "after shard", "before ledger", "before tokenize"])
def test_a_final_failure_undoes_in_the_same_way(project, whole, monkeypatch, capfd, moment):
    before, own = published(project), entries(project, OWN)
    with monkeypatch.context() as fault:
        strike(fault, moment, StageError("test", "s", "a fault for good"))
        assert doit_here(project, "build:tiny", "--executor", "serial") == 65
    said = capfd.readouterr()
    assert "test: s: a fault for good" in said.err
    assert published(project) == before
    assert entries(project, OWN) == own
    assert doit_here(project, "build:tiny", "--executor", "serial") == 0
    assert published(project) == whole


def test_a_failed_fetch_undoes_nothing_and_keeps_the_sources_that_arrived(project):
    path = project / "configs" / "tiny.toml"
    path.write_text(
        path.read_text().replace('url = "stories.jsonl"', 'url = "http://127.0.0.1:9/stories.jsonl"') + "\n[run]\nattempts = 1\n"
    )
    for name in ("store/fetch", "downloads"):
        shutil.rmtree(project / "cache" / name, ignore_errors=True)
    before = published(project)
    run = doit(project, "build:tiny")
    assert run.returncode == 75
    assert "undone" not in run.stdout
    assert published(project) == before
    assert len(entries(project, ("fetch",))) == 1


def test_an_undo_that_is_itself_killed_is_finished_by_whoever_comes_next(project, whole, monkeypatch, capfd):
    before, own = published(project), entries(project, OWN)

    class Killed(BaseException):
        pass

    def discard(*_):
        raise Killed

    with monkeypatch.context() as fault:
        strike(fault, "before tokenize", KeyboardInterrupt())
        fault.setattr("corpusbuild.store.Store.discard", discard)
        fault.setattr("corpusbuild.undo.owner_token", lambda: f"{_boot()}-999999-1")
        with pytest.raises(Killed):
            doit_here(project, "build:tiny", "--executor", "serial")
    assert len(list((project / "cache" / "runs" / "active").iterdir())) == 1
    capfd.readouterr()
    assert doit_here(project, "clean") == 0
    assert "tiny: cancelled; undone: shard, ledger" in capfd.readouterr().out
    assert published(project) == before
    assert entries(project, OWN) == own
    assert doit_here(project, "build:tiny", "--executor", "serial") == 0
    assert published(project) == whole


def test_a_kill_is_no_cancel_the_next_run_goes_on(project, whole, monkeypatch, capfd):
    class Killed(BaseException):
        pass

    with monkeypatch.context() as fault:
        strike(fault, "before tokenize", Killed())
        fault.setattr("corpusbuild.undo.owner_token", lambda: f"{_boot()}-999999-1")
        with pytest.raises(Killed):
            doit_here(project, "build:tiny", "--executor", "serial")
    capfd.readouterr()
    assert doit_here(project, "build:tiny", "--executor", "serial") == 0
    assert capfd.readouterr().out.splitlines()[0].startswith("tokenize ")
    assert published(project) == whole


def _boot():
    from corpusbuild.staging import owner_token

    return owner_token().rsplit("-", 2)[0]


def test_what_another_build_refers_to_stays(project, monkeypatch):
    """Two configurations that make the same shards: undoing one leaves them to the other."""
    text = (project / "configs" / "tiny.toml").read_text()
    assert doit_here(project, "build:tiny", "--executor", "serial") == 0
    (project / "configs" / "tiny.toml").rename(project / "configs" / "first.toml")
    (project / "configs" / "second.toml").write_text(text.replace('id = "bytes"', 'id = "bytes2"'))
    (project / "configs" / "first.toml").unlink()
    own = entries(project, ("shard", "ledger"))
    with monkeypatch.context() as fault:
        strike(fault, "before tokenize", KeyboardInterrupt())
        assert doit_here(project, "build:second", "--executor", "serial") == 130
    assert entries(project, ("shard", "ledger")) == own


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_process_its_workers_and_the_build(tmp_path, number):
    make_project(tmp_path)
    process, worker = stuck_in_shard(tmp_path, "--executor", "local:2")
    process.send_signal(number)
    out, err = process.communicate(timeout=10)
    assert process.returncode == 130, (out, err)
    assert "tiny: cancelled; undone" in out
    assert "Traceback" not in err
    assert not os.path.exists(f"/proc/{worker}")
    assert not list((tmp_path / "cache" / "store").glob("shard/*"))
    assert not list((tmp_path / "cache" / "staging").glob("*/*/out/shard-*"))
    assert json.loads((tmp_path / "cache" / "LEDGER.jsonl").read_text().splitlines()[0])["source_id"] == "stories"
    again = doit(tmp_path, "build:tiny")
    assert again.returncode == 0, again.stderr
    assert [line.split()[0] for line in again.stdout.splitlines()[:3]] == ["shard", "ledger", "tokenize"]
