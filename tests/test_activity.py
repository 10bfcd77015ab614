"""A stage as a subprocess activity: what it reads, writes, holds and ends with; and the verbs for a configuration that lies anywhere."""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from itertools import pairwise

import pytest
from projects import ROOT, doit, jsonl, make_project, story, tree
from suites.executor import gone, until

from corpusbuild import activity, ahead, cli, drive
from corpusbuild.__main__ import ALIASES, UNTIL, main
from corpusbuild.activity import Progress
from corpusbuild.errors import ConfigError, DiskError, StageError

ID = "corpus/tiny/v1/abc"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    make_project(
        folder,
        {"one": ("one.jsonl", jsonl([story(i) for i in range(10)]), "")},
        extra='[shard]\nshard_rows = 4\n[run]\nexecutor = "serial"\n',
    )
    return folder


@pytest.fixture(scope="module")
def built(project, tmp_path_factory):
    """A cache in which the project was built by ``run --config``."""
    cache = tmp_path_factory.mktemp("built") / "cache"
    assert main(["run", "--config", str(project / "configs" / "tiny.toml"), "--cache-dir", str(cache)]) == 0
    return cache


@pytest.fixture
def work(project, tmp_path, monkeypatch):
    """Runs an activity in this process, under a root of its own; gives its exit code."""
    config = tomllib.loads((project / "configs" / "tiny.toml").read_text())
    root = tmp_path / "root"
    monkeypatch.setenv("TL_ARTIFACTS", str(root))
    monkeypatch.setenv("CORPUSBUILD_CONFIGS", str(project / "configs"))
    monkeypatch.setattr(activity, "end_with", lambda parent: None)

    def run(stage, spec=config, key=None):
        monkeypatch.setenv("TL_IDEMPOTENCY_KEY", key or f"{ID}/{stage}")
        (tmp_path / "spec.json").write_text(spec if isinstance(spec, str) else json.dumps(spec))
        arguments = ["cleanup"] if stage == "cleanup" else ["run", "--stage", stage]
        return main([*arguments, "--spec", str(tmp_path / "spec.json"), "--progress", str(tmp_path / "progress.jsonl")])

    run.root, run.config, run.progress = root, config, tmp_path / "progress.jsonl"
    return run


def told(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_progress_line_and_a_done_page_by_the_byte(tmp_path):
    progress = Progress(tmp_path / "p.jsonl", clock=lambda: 1760000000.0)
    progress.done(["runs/train-1/ckpt/step-001000"])
    assert (tmp_path / "p.jsonl").read_bytes() == b'{"ts":1760000000.0,"kind":"done","outputs":["runs/train-1/ckpt/step-001000"]}\n'
    activity._write_done(tmp_path, ["runs/train-1/ckpt/step-001000"])
    assert len((tmp_path / "DONE.json").read_bytes()) == 45


def test_a_torn_last_line_is_taken_away(tmp_path):
    (tmp_path / "p.jsonl").write_bytes(b'{"ts":1.0,"kind":"step","step":1}\n{"ts":2.0,"ki')
    Progress(tmp_path / "p.jsonl").done([])
    assert [line["kind"] for line in told(tmp_path / "p.jsonl")] == ["step", "done"]


def test_there_is_never_a_long_silence(tmp_path, monkeypatch):
    monkeypatch.setattr(activity, "ALIVE_SECONDS", 0.01)
    progress, path = Progress(tmp_path / "p.jsonl"), tmp_path / "p.jsonl"
    progress.step()
    with activity.beating(progress):
        until(lambda: len(told(path)) > 3)
    lines = told(path)
    assert {(line["kind"], line["step"]) for line in lines} == {("step", 1)}
    assert told(path) == lines


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_metric_that_is_no_number_is_refused(tmp_path, value):
    progress = Progress(tmp_path / "p.jsonl")
    with pytest.raises(ValueError, match=r"the metric corpus\.kept"):
        progress.metric("corpus.kept", value)
    assert (tmp_path / "p.jsonl").read_bytes() == b""


@pytest.mark.parametrize("key", ["../x", "a//b", "a/./b", "/a", "a b", " "])
def test_a_key_that_is_no_path_of_names_is_refused(work, key):
    assert work("fetch", key=key) == 65
    assert not work.root.exists()


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "must be a JSON object"),
        ('{"dataset": "tiny"}', "version"),
        ("licence", "NOASSERTION"),
    ],
)
@pytest.mark.parametrize("stage", ["fetch", "shard"])
def test_a_wrong_specification_is_refused_before_anything_is_written(work, spec, says, stage, capsys):
    if spec == "licence":
        spec = work.config | {"sources": [work.config["sources"][0] | {"license_spdx": "NOASSERTION"}]}
    assert work(stage, spec) == 65
    assert says in capsys.readouterr().err
    assert not work.root.exists()
    assert not work.progress.exists()


def test_the_stages_over_the_same_store_as_doit(work, project, built, capfd):
    """Fetch, shard, and then there is nothing for doit to do but tokenize; the bytes are those of a build without activities."""
    assert [work("fetch"), work("shard")] == [0, 0]
    folder = work.root / "activities" / ID
    assert json.loads((folder / "fetch" / "DONE.json").read_text()) == {"outputs": ["LEDGER.jsonl"]}
    assert json.loads((folder / "shard" / "DONE.json").read_text()) == {"outputs": ["corpus/tiny/v1/_MANIFEST.json"]}
    assert (work.root / "corpus/tiny/v1/_MANIFEST.json").exists()
    run = doit(project, "build:tiny", "--cache-dir", str(work.root))
    assert run.returncode == 0, run.stderr
    assert [line.split()[0] for line in run.stdout.splitlines() if " documents" in line and not line.startswith(" ")][:1] == ["tokenize"]
    assert "filter:one   " not in run.stdout
    for name in ("corpus/tiny/v1", "tokens/bytes/tiny"):
        assert tree((work.root / name).resolve()) == tree((built / name).resolve())
    before = tree(work.root, skip=("activities", "runs"))
    assert work("tokenize") == 0
    assert told(work.progress)[-1]["outputs"] == ["tokens/bytes/tiny"]
    assert before.items() <= tree(work.root, skip=("activities", "runs")).items()
    assert work("cleanup", {"dataset": "tiny", "version": "v1", "tokenizer_id": "bytes"}) == 0  # what doit built and recorded is doit's
    assert before.items() <= tree(work.root, skip=("activities", "runs")).items()


def test_a_finished_activity_does_no_work_while_its_outputs_stand(work):
    assert [work("fetch"), work("shard")] == [0, 0]
    first = told(work.progress)
    before = tree(work.root)
    assert work("shard") == 0
    assert [line["kind"] for line in told(work.progress)[len(first) :]] == ["done"]
    assert tree(work.root) == before
    (work.root / "corpus/tiny/v1").unlink()
    assert work("shard") == 0
    assert (work.root / "corpus/tiny/v1/_MANIFEST.json").exists()


def test_the_progress_tells_steps_entries_and_numbers(work):
    assert [work("fetch"), work("shard")] == [0, 0]
    lines = told(work.progress)
    assert {line["kind"] for line in lines} == {"step", "ckpt", "metric", "done"}
    assert all((work.root / line["ckpt"] / "contents.json").exists() for line in lines if line["kind"] == "ckpt")
    assert {"ts", "kind", "name", "value"} == next(set(line) for line in lines if line["kind"] == "metric")
    assert [line["value"] for line in lines if line.get("name") == "corpus.ledger.kept"] == [10]
    steps = [line["step"] for line in lines if "step" in line]
    assert all(b > a or b <= 2 for a, b in pairwise(steps))


def test_a_held_lock_is_75(work, capsys):
    folder = work.root / "activities" / ID / "fetch"
    folder.mkdir(parents=True)
    with (folder / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert work("fetch") == 75
    assert "another attempt" in capsys.readouterr().err
    assert not (work.root / "store").exists()


def test_a_source_that_may_come_later_is_75_and_one_that_will_not_is_65(work):
    source = work.config["sources"][0]
    assert work("fetch", work.config | {"sources": [source | {"url": "http://127.0.0.1:9/one.jsonl"}], "run": {"attempts": 1}}) == 75
    assert work("fetch", work.config | {"sources": [source | {"sha256": "0" * 64}]}) == 65
    assert not (work.root / "activities" / ID / "fetch" / "DONE.json").exists()


def test_clean_up_removes_what_its_hash_published_and_nothing_else(work):
    assert [work("fetch"), work("shard"), work("tokenize")] == [0, 0, 0]
    other = {"dataset": "tiny", "version": "v1", "tokenizer_id": "bytes", "config_sha256": "f" * 64}
    assert work("cleanup", other) == 0
    assert (work.root / "corpus/tiny/v1").exists()
    assert work("cleanup", {name: value for name, value in other.items() if name != "config_sha256"}) == 0
    assert not (work.root / "corpus/tiny/v1").is_symlink()
    assert not (work.root / "tokens/bytes/tiny").is_symlink()
    assert not list(work.root.glob("store/shard/*"))
    assert list(work.root.glob("store/fetch/*"))
    assert list(work.root.glob("raw/*/*"))
    assert work("cleanup", {"dataset": "tiny"}) == 65


def test_a_build_that_is_complete_is_an_earlier_good_build_to_the_next(work):
    assert [work("fetch"), work("shard"), work("tokenize")] == [0, 0, 0]
    before = tree((work.root / "corpus/tiny/v1").resolve())
    for stage in ("fetch", "shard"):  # the same workflow, begun anew
        (work.root / "activities" / ID / stage / "DONE.json").unlink()
    assert [work("fetch"), work("shard")] == [0, 0]
    assert work("cleanup", {"dataset": "tiny", "version": "v1", "tokenizer_id": "bytes"}) == 0
    assert tree((work.root / "corpus/tiny/v1").resolve()) == before


def activity_process(work, project, tmp_path, **more):
    (tmp_path / "spec.json").write_text(json.dumps(work.config))
    return [sys.executable, "-m", "corpusbuild", "run", "--stage", "fetch", "--spec", str(tmp_path / "spec.json"), "--progress", str(work.progress)], {
        **os.environ, "PYTHONPATH": str(ROOT), "TL_IDEMPOTENCY_KEY": f"{ID}/fetch", **more,
    }  # fmt: skip


@pytest.mark.parametrize("how", ["SIGTERM", "its parent ended"])
def test_a_cancel_is_130_and_leaves_no_done(work, project, tmp_path, how):
    """The server takes the call and never answers, so the activity waits until it is cancelled."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/one.jsonl"
        work.config = work.config | {"sources": [work.config["sources"][0] | {"url": url}]}
        command, env = activity_process(work, project, tmp_path)
        if how == "SIGTERM":
            with subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL) as process:
                silent.accept()
                process.send_signal(signal.SIGTERM)
                assert process.wait(30) == 130
        else:
            shell = f"import subprocess, sys; p = subprocess.Popen({command!r}); print(p.pid, flush=True); sys.stdin.read()"
            pipe = subprocess.PIPE
            with subprocess.Popen([sys.executable, "-c", shell], env=env, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as parent:
                pid = int(parent.stdout.readline())
                silent.accept()
                parent.kill()
            until(lambda: gone(pid), 30)
    assert (work.root / "activities" / ID / "fetch" / ".lock").exists()
    assert not (work.root / "activities" / ID / "fetch" / "DONE.json").exists()


KEYS = (
    "dataset version stage filters exact_dropped near_dropped decontaminated pii_redactions n_docs n_shards train_tokens val_tokens output_sha256"
).split()


def last_line(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_the_last_line_is_one_object_whatever_the_workers(project, built, tmp_path, capsys, monkeypatch):
    config = str(project / "configs" / "tiny.toml")
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--config", config, "--cache-dir", str(built)]) == 0
    said = last_line(capsys)
    assert list(said) == KEYS
    assert (said["dataset"], said["version"], said["stage"], said["n_docs"], said["n_shards"]) == ("tiny", "v1", "tokenize", 10, 3)
    assert main(["run", "--config", config, "--cache-dir", "elsewhere", "--workers", "2"]) == 0
    assert last_line(capsys) == said


@pytest.mark.parametrize(
    ("until", "stages"),
    [("fetch", ["fetch"]), ("filter", ["fetch", "filter"]), ("dedup_exact", ["exact_dedup", "fetch", "filter", "scrub", "sign"])],
)
def test_a_run_stops_after_a_stage(project, tmp_path, until, stages, capsys):
    assert main(["run", "--config", str(project / "configs" / "tiny.toml"), "--cache-dir", str(tmp_path / "cache"), "--until", until]) == 0
    assert last_line(capsys)["stage"] == until
    assert sorted(p.name for p in (tmp_path / "cache" / "store").iterdir()) == stages
    assert not (tmp_path / "cache" / "corpus").exists()


@pytest.mark.parametrize(("moment", "stages"), [("shard", []), ("tokenize", ["shard", "ledger"])])
@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (StageError("it", "one", "is not to be had"), 65), (DiskError("full"), 75)]
)
def test_a_run_that_is_cancelled_or_fails_for_good_is_undone_as_doit_undoes(
    project, tmp_path, monkeypatch, capsys, moment, stages, error, code
):
    def realise(step, shop, real=ahead.realise):
        if step.label == moment:
            raise error
        return real(step, shop)

    monkeypatch.setattr(ahead, "realise", realise)
    handlers = [signal.getsignal(number) for number in cli.SIGNALS]
    cache = tmp_path / "cache"
    assert main(["run", "--config", str(project / "configs" / "tiny.toml"), "--cache-dir", str(cache)]) == code
    assert [signal.getsignal(number) for number in cli.SIGNALS] == handlers
    kept = stages if code == 75 else []
    assert [stage for stage in ("shard", "ledger", "tokenize") if list(cache.glob(f"store/{stage}/*"))] == kept
    assert list(cache.glob("store/near_dedup/*"))
    assert not list(cache.glob("corpus/*/*"))
    assert not list(cache.glob("runs/active/*"))
    assert ("undone" in capsys.readouterr().err) == (code != 75)


def test_a_configuration_without_a_policy_beside_it_has_the_packages(project, tmp_path, capsys):
    shutil.copytree(project / "configs", tmp_path / "c", ignore=shutil.ignore_patterns("policy"))
    assert main(["run", "--config", str(tmp_path / "c" / "tiny.toml"), "--cache-dir", str(tmp_path / "cache"), "--until", "fetch"]) == 0
    (tmp_path / "c" / "policy").mkdir()
    assert main(["run", "--config", str(tmp_path / "c" / "tiny.toml"), "--cache-dir", str(tmp_path / "cache"), "--until", "fetch"]) == 65
    assert "licenses.toml" in capsys.readouterr().err
    shipped = ROOT / "corpusbuild" / "policy" / "licenses.toml"
    assert shipped.read_bytes() == (ROOT / "configs" / "policy" / "licenses.toml").read_bytes()


def test_the_ledger_is_verified(project, built, capsys, tmp_path):
    config = str(project / "configs" / "tiny.toml")
    assert main(["ledger", "verify", "--config", config, "--cache-dir", str(built)]) == 0
    assert last_line(capsys) == {"dataset": "tiny", "version": "v1", "sources": 1, "built": True, "problems": []}
    assert main(["ledger", "verify", "--config", config, "--cache-dir", str(tmp_path / "none")]) == 65
    assert "has no row" in capsys.readouterr().out


def test_the_datasheet_is_printed_or_written(project, built, capsys, tmp_path):
    config = str(project / "configs" / "tiny.toml")
    assert main(["datasheet", "--config", config, "--cache-dir", str(built)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# Datasheet: tiny v1\n")
    assert json.loads(out.splitlines()[-1])["dataset"] == "tiny"
    assert main(["datasheet", "--config", config, "--cache-dir", str(built), "--out", str(tmp_path / "sheet.md")]) == 0
    assert (tmp_path / "sheet.md").read_bytes() == (built / "corpus/tiny/v1/DATASHEET.md").read_bytes()
    assert main(["datasheet", "--config", config, "--cache-dir", str(tmp_path / "none")]) == 65


@pytest.mark.parametrize(
    "arguments",
    [["run"], ["run", "--stage", "fetch"], ["run", "--stage", "publish"], ["cleanup"], ["run", "--config", "x", "--until", "never"]],
)
def test_a_wrong_command_line_is_2(arguments):
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2


def test_the_command_line_offers_what_there_is():
    assert {*UNTIL, *ALIASES} <= set(drive.UNTIL)


def test_a_fetch_that_failed_leaves_nothing_to_undo(work):
    assert work("fetch", work.config | {"sources": [work.config["sources"][0] | {"sha256": "0" * 64}]}) == 65
    assert not (work.root / "runs" / "active").exists()


def test_a_missing_configuration_is_65(tmp_path, capsys):
    assert main(["run", "--config", str(tmp_path / "none.toml")]) == 65
    assert "there is no such file" in capsys.readouterr().err
    with pytest.raises(ConfigError):
        activity.places(tmp_path, {"TL_IDEMPOTENCY_KEY": ".."})
