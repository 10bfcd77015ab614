"""A build as a workflow of DBOS, whose history is one SQLite file here: ``python examples/durable_dbos.py build|cancel CONFIG ROOT``.

``build`` starts the workflow of a configuration, or goes on with it if it was killed, and prints its result as JSON. ``cancel`` cancels it from another
terminal. Everything that is built lies under ROOT, which is also the cache of ``doit --cache-dir ROOT``.
"""

import json
import sys
import threading
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from dbos import DBOS, DBOSClient, SetWorkflowID
from dbos._error import DBOSAwaitedWorkflowCancelledError, DBOSWorkflowCancelledError

from corpusbuild.errors import Cancelled, ConfigError
from corpusbuild.runner import ActivityFailed, run_activity
from corpusbuild.workflow import CLEANUP, CLEANUP_ACTIVITY, StageOptions, config_sha256, corpus_build, stage_options, workflow_id

POLL_SECONDS = 0.5

running = threading.Lock()
"""Held while the workflow runs here: DBOS tells of a cancel at once, and its clean-up comes after what was under way has ended."""


class Runtime:
    """Each activity is a step: DBOS writes its outputs down when it has ended, and answers it from there when the workflow is run again."""

    def __init__(self, id: str, root: str, configs: str):
        self.id, self.root, self.configs = id, root, configs

    def activity(self, name: str, payload: Mapping[str, Any], options: StageOptions) -> list[str]:
        arguments = ["run", "--stage", str(payload["stage"])]
        try:
            return DBOS.run_step(_step(options), attempt, arguments, payload["config"], self.id, options.id, self.root, self.configs)
        except DBOSWorkflowCancelledError as error:
            raise Cancelled(f"{self.id}: cancelled") from error

    def detached(self) -> "Detached":
        return Detached(self.id, self.root, self.configs)


class Detached(Runtime):
    """A cancelled workflow of DBOS runs no step any more. What undoes it is a workflow of its own, of which there is one by its id."""

    def activity(self, name: str, payload: Mapping[str, Any], options: StageOptions) -> list[str]:
        outcome: list[Any] = []

        def aside() -> None:  # in a thread, which DBOS takes for no part of the cancelled workflow
            with SetWorkflowID(f"{self.id}/{options.id}"):
                handle = DBOS.start_workflow(clean_up, dict(payload), self.id, self.root, self.configs)
            try:
                outcome.append(handle.get_result())
            except Exception as error:  # noqa: BLE001 - it is raised below, in the thread that asked
                outcome.append(error)

        thread = threading.Thread(target=aside)
        thread.start()
        thread.join()
        if isinstance(outcome[0], Exception):
            raise outcome[0]
        return list(outcome[0])


@DBOS.workflow()
def build(config: dict[str, Any], root: str, configs: str) -> dict[str, Any]:
    with running:
        result = corpus_build(Runtime(workflow_id(config), root, configs), config)
    return dict(msgspec.to_builtins(result))


@DBOS.workflow()
def clean_up(payload: dict[str, Any], id: str, root: str, configs: str) -> list[str]:
    return DBOS.run_step(_step(stage_options(CLEANUP)), attempt, [CLEANUP], payload, id, CLEANUP, root, configs)


def attempt(arguments: list[str], spec: dict[str, Any], id: str, activity: str, root: str, configs: str) -> list[str]:
    """One attempt. Only a build is asked whether it was cancelled, not its clean-up, which has another id."""
    options = stage_options(activity)
    asked = time.monotonic()

    def cancelled() -> bool:
        nonlocal asked
        if activity == CLEANUP or time.monotonic() - asked < POLL_SECONDS:
            return False
        asked = time.monotonic()
        status = DBOS.get_workflow_status(id)
        return status is not None and status.status == "CANCELLED"

    return run_activity(
        arguments,
        spec,
        f"{id}/{activity}",
        Path(root),
        heartbeat=options.heartbeat,
        start_to_close=options.start_to_close,
        cancelled=cancelled,
        environ={"CORPUSBUILD_CONFIGS": configs},
    )


def _step(options: StageOptions) -> Any:
    return {
        "name": options.id,
        "retries_allowed": True,
        "max_attempts": options.attempts,
        "interval_seconds": 1.0,
        "backoff_rate": 2.0,
        "should_retry": lambda error: isinstance(error, ActivityFailed) and error.retryable,
    }


def finish_cancelled(root: str, configs: str) -> None:
    """Clean up after workflows that were cancelled while nobody ran them, or whose process was killed between the cancel and its clean-up."""
    for flow in DBOS.list_workflows(status="CANCELLED", name=build.__qualname__):
        id = flow.workflow_id
        _, dataset, version, _ = id.split("/")
        config = flow.input["args"][0]
        payload = {"dataset": dataset, "version": version, "tokenizer_id": config["tokenizer"]["id"]}
        shard = Path(root, "activities", id, "shard")
        if shard.exists():  # nothing was made before shard, and nothing is to be undone
            Detached(id, root, configs).activity(
                CLEANUP_ACTIVITY, payload | {"config_sha256": config_sha256(config)}, stage_options(CLEANUP)
            )


def main(verb: str, file: str, folder: str) -> int:
    root, path = Path(folder).absolute(), Path(file).absolute()
    root.mkdir(parents=True, exist_ok=True)
    history = f"sqlite:///{root / 'workflows.sqlite'}"
    config = tomllib.loads(path.read_text())
    try:
        id = workflow_id(config)
    except ConfigError as error:
        print(f"corpusbuild: {error}", file=sys.stderr)
        return error.exit_code
    if verb == "cancel":
        client = DBOSClient(system_database_url=history)
        client.cancel_workflow(id)
        client.destroy()
        return 0
    # The version of the application is fixed, so that a workflow that one process began may be gone on with by another.
    DBOS(config={"name": "corpusbuild", "system_database_url": history, "application_version": "1", "log_level": "ERROR"})
    DBOS.launch()  # goes on with every workflow that was killed
    try:
        finish_cancelled(str(root), str(path.parent))
        with SetWorkflowID(id):
            handle = DBOS.start_workflow(build, config, str(root), str(path.parent))
        print(json.dumps(handle.get_result()))
    except (Cancelled, DBOSAwaitedWorkflowCancelledError):
        with running:
            finish_cancelled(str(root), str(path.parent))
        print(f"corpusbuild: {id} was cancelled", file=sys.stderr)
        return 130
    except ActivityFailed as error:
        print(f"corpusbuild: {error}", file=sys.stderr)
        return 65
    finally:
        DBOS.destroy()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
