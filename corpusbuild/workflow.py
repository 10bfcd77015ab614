"""The build as a durable workflow, for any engine: three stages in order, keyed by the configuration's content, undone once if they do not all end well.

The workflow orders, keys and undoes; the stages, one activity each, do the work (see ``activity``). An engine gives the ``Runtime``: it answers an
activity that has ended from its history, and runs one that has not. So this module does no I/O, knows no time, and imports nothing heavy.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self

from corpusbuild import hashing
from corpusbuild.errors import ConfigError, IntegrityError
from corpusbuild.model import Record

STAGES = ("fetch", "shard", "tokenize")
"""The activities of a build: it is cut where what is made lies on disk under a name."""

STAGE_ACTIVITY = "corpus.stage"
CLEANUP_ACTIVITY = "corpus.cleanup"
CLEANUP = "cleanup"

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


class StageOptions(Record):
    """How an engine should go about an activity. Times are in seconds; ``heartbeat`` is None where none is awaited."""

    id: str
    """The activity's id; behind the workflow's id it makes its idempotency key."""
    heartbeat: float | None
    start_to_close: float
    attempts: int


class Result(Record):
    """What a build gives. Paths are relative to the root."""

    dataset: str
    version: str
    config_sha256: str
    manifest: str
    tokens: tuple[str, ...]
    stages: dict[str, tuple[str, ...]]
    """Stage -> its outputs."""


class Runtime(Protocol):
    """What an engine gives a workflow."""

    def activity(self, name: str, payload: Mapping[str, Any], options: StageOptions) -> list[str]:
        """Run an activity to its end, or answer it from history, and give its outputs.

        Raises when it failed for good or the workflow is cancelled. A crash of the worker raises nothing: the workflow is run again from its start.
        """
        ...

    def detached(self) -> Self:
        """A runtime whose activities run although the workflow is cancelled."""
        ...


class Saga:
    """What is to be undone if the workflow does not end well: the last registered first, each once."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def add(self, compensation: Callable[[], object]) -> None:
        self._undo.append(compensation)

    def compensate(self, cause: Exception) -> None:
        """Run what was registered. One that fails keeps none of the others from running; it is noted on ``cause``, which stays what is raised."""
        while self._undo:
            compensation = self._undo.pop()
            try:
                compensation()
            except Exception as error:  # noqa: BLE001 - whatever an engine raises must not hide why the workflow ended
                cause.add_note(f"and a compensation failed: {error}")


def config_sha256(config: Mapping[str, Any]) -> str:
    """The hash of what a configuration says, whatever its spelling, in hex. ``[run]`` says how, not what, and is left out.

    >>> config_sha256({"version": "v1", "dataset": "tinystories", "tokenizer": {"id": "bytes"}})
    'a03711ec959b2a8fb6cf51d9445bee90fcb69a103cfa033483b52f836269c0a6'
    """
    _check(config)
    try:
        return hashing.config_sha256({name: value for name, value in config.items() if name != "run"})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the configuration has no hash: {error}") from None


def workflow_id(config: Mapping[str, Any]) -> str:
    """``corpus/<dataset>/<version>/<first 12 hex of the hash>``: the same configuration is the same workflow, and a changed one another."""
    digest = config_sha256(config)
    return hashing.build_id(config["dataset"], config["version"], digest)


def stage_options(stage: str) -> StageOptions:
    """The options of an activity: fetch has the network to wait for, and clean-up should not give up."""
    if stage == CLEANUP:
        return StageOptions(id=CLEANUP, heartbeat=None, start_to_close=600.0, attempts=10)
    if stage not in STAGES:
        raise ConfigError(f"there is no stage {stage!r}: use {', '.join(STAGES)} or {CLEANUP}")
    return StageOptions(id=stage, heartbeat=120.0, start_to_close=7200.0, attempts=8 if stage == "fetch" else 5)


def corpus_build(rt: Runtime, config: Mapping[str, Any]) -> Result:
    """The workflow. ``ConfigError`` before any activity for a configuration that names no dataset, version or tokenizer.

    The compensation is registered before shard, which may leave something when it is interrupted, and not before fetch: a fetch that fails leaves
    nothing of this build, and undoing would take an earlier build away.
    """
    digest = config_sha256(config)
    dataset, version, tokenizer = config["dataset"], config["version"], config["tokenizer"]["id"]
    undo = {"dataset": dataset, "version": version, "tokenizer_id": tokenizer, "config_sha256": digest}
    saga = Saga()
    outputs: dict[str, tuple[str, ...]] = {}
    try:
        for stage in STAGES:
            if stage == "shard":
                saga.add(lambda: rt.detached().activity(CLEANUP_ACTIVITY, undo, stage_options(CLEANUP)))
            payload = {"stage": stage, "config_sha256": digest, "config": config}
            outputs[stage] = tuple(rt.activity(STAGE_ACTIVITY, payload, stage_options(stage)))
        manifest = next((name for name in outputs["shard"] if name.endswith("/_MANIFEST.json")), None)
        if manifest is None:
            raise IntegrityError(f"the shard stage named no manifest among its outputs: {', '.join(outputs['shard']) or 'none'}")
    except Exception as cause:  # a cancel is one; what ends the process, or unwinds a workflow that will be replayed, is none
        saga.compensate(cause)
        raise
    return Result(dataset=dataset, version=version, config_sha256=digest, manifest=manifest, tokens=outputs["tokenize"], stages=outputs)


def _check(config: Any) -> None:
    """Refuse what has no id. All else is checked by the stages, before they write."""
    if not isinstance(config, Mapping):
        raise ConfigError(f"the configuration must be an object, not {type(config).__name__}")
    tokenizer = config.get("tokenizer")
    wanted = {"dataset": config.get("dataset"), "version": config.get("version")}
    wanted["tokenizer.id"] = tokenizer.get("id") if isinstance(tokenizer, Mapping) else None
    wrong = [name for name, value in wanted.items() if not isinstance(value, str) or not _NAME.fullmatch(value)]
    if wrong:
        raise ConfigError(*(f"{name}: must be a name of lower-case letters, digits, dots, dashes and underscores" for name in wrong))
