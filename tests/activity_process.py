"""Attempts of activities in processes of their own, forked from one that has imported everything, so that they can be killed at any line."""

import json
import multiprocessing
import os
import signal
import sys
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["corpusbuild.activity", "corpusbuild.cli", "corpusbuild.fetch", "corpusbuild.transfer"])


def attempt(arguments, spec, key, root, configs, strike=None):
    """One attempt; gives (exit code or -signal, outputs, stderr). ``strike`` is (number of a progress line, signal to get just before it)."""
    work = Path(root, "activities", *key.split("/"))
    work.mkdir(parents=True, exist_ok=True)
    (work / "spec.json").write_text(json.dumps(spec))
    environ = {"TL_ARTIFACTS": str(root), "TL_IDEMPOTENCY_KEY": key, "CORPUSBUILD_CONFIGS": str(configs)}
    process = CONTEXT.Process(target=_run, args=(arguments, str(work), environ, strike))
    process.start()
    process.join(60)
    assert process.exitcode is not None
    done = work / "DONE.json"
    outputs = json.loads(done.read_text())["outputs"] if process.exitcode == 0 else []
    return process.exitcode, outputs, (work / "stderr").read_text()


def lines(root, key):
    """The progress of all attempts of a key, as they were written."""
    path = Path(root, "activities", *key.split("/"), "progress.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _run(arguments, work, environ, strike):
    from corpusbuild import activity
    from corpusbuild.__main__ import main

    os.environ |= environ
    sys.stderr.flush()
    os.dup2(os.open(f"{work}/stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    activity.end_with = lambda parent: None
    activity.BEAT_SECONDS = 0.0
    if strike is not None:
        number, which = strike
        write, written = activity.Progress._write, 0

        def struck(self, kind, **fields):
            nonlocal written
            written += 1
            if written == number:
                os.kill(os.getpid(), which)
            write(self, kind, **fields)

        activity.Progress._write = struck
    code = main([*arguments, "--spec", f"{work}/spec.json", "--progress", f"{work}/progress.jsonl"])
    sys.stderr.flush()
    os._exit(code)


KILL, TERM = signal.SIGKILL, signal.SIGTERM
