"""The workflow, over a runtime that replays a history and over the real stages, each attempt in a process that can be killed."""

import json
import shutil
import tomllib

import pytest
from activity_process import KILL, TERM, attempt, lines
from hypothesis import given, settings
from hypothesis import strategies as st
from projects import jsonl, make_project, story, tree

from corpusbuild.config import load_decoded
from corpusbuild.errors import Cancelled, ConfigError
from corpusbuild.plan import plan
from corpusbuild.workflow import (
    CLEANUP_ACTIVITY,
    STAGE_ACTIVITY,
    STAGES,
    config_sha256,
    corpus_build,
    stage_options,
    workflow_id,
)

HAND = {"version": "v1", "dataset": "tinystories", "tokenizer": {"id": "bytes"}}
HASH = "a03711ec959b2a8fb6cf51d9445bee90fcb69a103cfa033483b52f836269c0a6"
OWN = ("shard", "ledger", "tokenize")


class Crash(BaseException):
    """The worker of the workflow died: nothing of it runs on."""


class Failed(Exception):
    """An activity that failed for good."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Replaying:
    """A runtime that answers what has ended from ``history`` and asks ``perform`` for the rest.

    ``crashes`` are the moments at which the worker dies: (position, "before" | "unrecorded" | "recorded"), counted over what was not replayed.
    """

    def __init__(self, id, perform, history=None, crashes=(), log=None, lost=False):
        self.id, self.perform, self.history, self.crashes = id, perform, {} if history is None else history, crashes
        self.log = [] if log is None else log
        self.is_detached = lost

    def detached(self):
        return Replaying(self.id, self.perform, self.history, self.crashes, self.log, True)

    def activity(self, name, payload, options):
        key = f"{self.id}/{options.id}"
        if key not in self.history:
            self.crash(options.id, "before")
            self.log.append((name, key, self.is_detached))
            ended = self.perform(name, payload, key, options)
            self.crash(options.id, "unrecorded")
            self.history[key] = ended
            self.crash(options.id, "recorded")
        ended = self.history[key]
        if isinstance(ended, Exception):
            raise ended
        return ended

    def crash(self, id, when):
        if (id, when) in self.crashes:
            self.crashes.remove((id, when))
            raise Crash


def fake(name, payload, key, options):
    return {"fetch": ["LEDGER.jsonl"], "shard": ["corpus/tinystories/v1/_MANIFEST.json"], "tokenize": ["tokens/bytes/tinystories"]}.get(
        options.id, []
    )


def run(rt, config):
    """A worker that is started again whenever it dies."""
    while True:
        try:
            return corpus_build(rt, config)
        except Crash:
            pass


class Real:
    """The activities as they are, under ``root``. ``strikes`` are, by activity, what its next attempts meet: (line, signal)."""

    def __init__(self, root, configs, strikes=None):
        self.root, self.configs, self.strikes = root, configs, strikes or {}

    def __call__(self, name, payload, key, options):
        """Attempts until one ends; a process that was killed is started again, as an engine does."""
        arguments, spec = (("cleanup",), payload) if name == CLEANUP_ACTIVITY else (("run", "--stage", payload["stage"]), payload["config"])
        for _ in range(200):
            waiting = self.strikes.get(options.id, [])
            code, outputs, errors = attempt(arguments, spec, key, self.root, self.configs, waiting.pop(0) if waiting else None)
            if code == 130:
                return Cancelled("cancelled")
            if code == 65:
                return Failed(code, errors)
            if code >= 0:
                assert code == 0, errors
                return outputs
        raise AssertionError("it does not end")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The folder of a small configuration, and the configuration."""
    folder = tmp_path_factory.mktemp("project")
    texts = [story(i) for i in range(12)]
    sources = {"one": ("one.jsonl", jsonl(texts), ""), "two": ("two.jsonl", jsonl([*texts[9:], *(story(90 + i) for i in range(5))]), "")}
    path = make_project(folder, sources, extra='[shard]\nshard_rows = 5\n[run]\nexecutor = "serial"\nheartbeat = 60.0\n')
    return path.parent, tomllib.loads(path.read_text())


@pytest.fixture(scope="module")
def whole(project, tmp_path_factory):
    """The root after an uninterrupted build, and its result."""
    configs, config = project
    root = tmp_path_factory.mktemp("whole") / "root"
    return root, corpus_build(Replaying(workflow_id(config), Real(root, configs)), config)


@pytest.fixture
def earlier(project, whole, tmp_path):
    """A root with a good build of another configuration of the same dataset and version."""
    root = tmp_path / "earlier"
    shutil.copytree(whole[0], root, symlinks=True)
    return root, project[1] | {"shard": {"shard_rows": 3}}


def made(root):
    """What a reader sees, and every entry but those of fetch, whose pages have dates."""
    names = {
        str(p.relative_to(root)): tree(p.resolve()) for kind in ("corpus", "tokens") for p in root.glob(f"{kind}/*/*") if p.is_symlink()
    }
    return names, {str(p.relative_to(root)): tree(p) for p in root.glob("store/*/*") if p.parent.name != "fetch"}


def entries(root, stages=OWN):
    return {p.name for stage in stages for p in root.glob(f"store/{stage}/*")}


def test_hand_example_keys_and_order():
    rt = Replaying(workflow_id(HAND), fake)
    result = corpus_build(rt, HAND)
    assert config_sha256(HAND) == HASH
    assert rt.id == "corpus/tinystories/v1/a03711ec959b"
    assert rt.log == [(STAGE_ACTIVITY, f"corpus/tinystories/v1/a03711ec959b/{stage}", False) for stage in ("fetch", "shard", "tokenize")]
    assert (result.dataset, result.version, result.config_sha256) == ("tinystories", "v1", HASH)
    assert (result.manifest, result.tokens) == ("corpus/tinystories/v1/_MANIFEST.json", ("tokens/bytes/tinystories",))
    assert list(result.stages) == list(STAGES)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=25)
@given(
    more=st.dictionaries(st.text(min_size=1).filter(lambda name: name not in (*HAND, "run")), JSON, max_size=4), indent=st.integers(0, 4)
)
def test_config_hash_is_content_not_spelling(more, indent):
    config = HAND | more
    respelled = json.loads(json.dumps(dict(reversed(config.items())), indent=indent, ensure_ascii=indent % 2 == 0))
    assert workflow_id(respelled) == workflow_id(config)
    assert workflow_id(config | {"run": {"workers": 3}}) == workflow_id(config)
    for name in more:
        assert config_sha256(config | {name: [config[name]]}) != config_sha256(config)
    assert workflow_id(config | {"version": "v2"}) != workflow_id(config)


@pytest.mark.parametrize(
    "config",
    [
        *({name: value for name, value in HAND.items() if name != missing} for missing in HAND),
        HAND | {"tokenizer": {}}, HAND | {"tokenizer": "bytes"}, HAND | {"dataset": ""}, HAND | {"dataset": "a/b"}, HAND | {"version": 1},
        HAND | {"dedup": {"seed": 2**60}}, [HAND], None,
    ],
)  # fmt: skip
def test_bad_config_fails_before_any_activity(config):
    rt = Replaying("x", fake)
    with pytest.raises(ConfigError) as raised:
        corpus_build(rt, config)
    assert raised.value.exit_code == 65
    assert rt.log == []


def test_kill_loop_same_result(project, whole, tmp_path):
    """The worker dies at every position, and each stage at every line of its progress, one death after the other."""
    configs, config = project
    root, moments = tmp_path / "root", [(stage, when) for stage in STAGES for when in ("before", "unrecorded", "recorded")]
    strikes = {stage: [(1, KILL), (2, KILL), (3, KILL)] for stage in STAGES}
    rt = Replaying(workflow_id(config), Real(root, configs, strikes), crashes=moments)
    assert run(rt, config) == whole[1]
    assert moments == []
    assert not any(strikes.values())
    check_undisturbed(root, whole[0], rt, config)


def check_undisturbed(root, whole, rt, config):
    assert made(root) == made(whole)
    assert CLEANUP_ACTIVITY not in {name for name, _, _ in rt.log}
    told = [line["ckpt"] for stage in STAGES for line in lines(root, f"{workflow_id(config)}/{stage}") if line["kind"] == "ckpt"]
    assert len(told) == len(set(told))
    assert not list(root.glob("staging/*/*"))


@pytest.mark.slow
def test_kill_loop_at_every_line_alone(project, whole, tmp_path):
    """As above, with a fresh build for every line of every stage."""
    configs, config = project
    id = workflow_id(config)
    for stage in STAGES:
        for number in range(1, 2 + len(lines(whole[0], f"{id}/{stage}"))):
            root = tmp_path / f"{stage}-{number}"
            rt = Replaying(id, Real(root, configs, {stage: [(number, KILL)]}))
            assert run(rt, config) == whole[1]
            check_undisturbed(root, whole[0], rt, config)


@pytest.mark.parametrize(
    ("before", "moment"),
    [("nothing", ("shard", 9)), ("a good build", ("shard", 2)), ("nothing", ("tokenize", 2)), ("a good build", ("tokenize", 1))],
)
def test_cancel_deletes_partial_shards(project, whole, earlier, tmp_path, moment, before):
    configs, _ = project
    root, config = earlier
    if before == "nothing":
        root = tmp_path / "root"
    names, own = made(root)[0], entries(root)
    stage, number = moment
    rt = Replaying(workflow_id(config), Real(root, configs, {stage: [(number, TERM)]}))
    with pytest.raises(Cancelled):
        run(rt, config)
    assert [entry for entry in rt.log if entry[0] == CLEANUP_ACTIVITY] == [(CLEANUP_ACTIVITY, f"{rt.id}/cleanup", True)]
    assert made(root)[0] == names
    assert entries(root) == own
    keys = {step.key for step in plan(load_decoded(config, configs / "spec", configs)).steps if step.stage.name in OWN}
    assert not [path for path in root.glob("staging/*/*") if path.parent.name in keys]
    assert len(list(root.glob("raw/*/*"))) == 2
    assert len(list(root.glob("store/fetch/*"))) == 2
    if moment == ("shard", 2):  # the same workflow, begun anew: no DONE.json of what was undone is believed
        assert corpus_build(Replaying(rt.id, Real(root, configs)), config).manifest == whole[1].manifest
        assert entries(root) > own


def test_a_crash_during_the_clean_up_still_undoes_once(project, earlier):
    configs, _ = project
    root, config = earlier
    names, own = made(root)[0], entries(root)
    strikes = {"tokenize": [(2, TERM)], "cleanup": [(1, KILL)]}
    crashes = [("cleanup", "before"), ("cleanup", "unrecorded"), ("cleanup", "recorded")]
    with pytest.raises(Cancelled):
        run(Replaying(workflow_id(config), Real(root, configs, strikes), crashes=crashes), config)
    assert crashes == []
    assert (made(root)[0], entries(root)) == (names, own)


def test_failed_stage_compensates(project, earlier):
    configs, _ = project
    root, config = earlier
    config = config | {"filters": {"min_chars": 90_000}}
    names, own = made(root)[0], entries(root)
    rt = Replaying(workflow_id(config), Real(root, configs))
    with pytest.raises(Failed, match="allow_empty") as raised:
        run(rt, config)
    assert raised.value.code == 65
    assert [name for name, _, _ in rt.log] == [STAGE_ACTIVITY, STAGE_ACTIVITY, CLEANUP_ACTIVITY]
    assert (made(root)[0], entries(root)) == (names, own)


def test_a_failed_compensation_does_not_hide_the_failure():
    def perform(name, payload, key, options):
        return (
            Failed(75, "the disk is gone")
            if name == CLEANUP_ACTIVITY
            else Failed(65, "why")
            if options.id == "shard"
            else fake(name, payload, key, options)
        )

    with pytest.raises(Failed, match="why") as raised:
        corpus_build(Replaying("x", perform), HAND)
    assert raised.value.__notes__ == ["and a compensation failed: the disk is gone"]


def test_a_shard_stage_without_a_manifest_is_a_failure():
    rt = Replaying("x", lambda name, payload, key, options: [])
    with pytest.raises(Exception, match="named no manifest"):
        corpus_build(rt, HAND)
    assert rt.log[-1] == (CLEANUP_ACTIVITY, "x/cleanup", True)


def test_fetch_failure_needs_no_cleanup(project, earlier):
    configs, _ = project
    root, config = earlier
    sources = [config["sources"][0], config["sources"][1] | {"id": "three", "sha256": "0" * 64}]
    config = config | {"sources": sources}
    before = made(root)
    rt = Replaying(workflow_id(config), Real(root, configs))
    with pytest.raises(Failed, match="its digest is"):
        run(rt, config)
    assert [key for _, key, _ in rt.log] == [f"{rt.id}/fetch"]
    assert made(root) == before


def test_stage_options():
    for stage in STAGES:
        options = stage_options(stage)
        assert options.id == stage
        assert options.heartbeat == 120 < options.start_to_close == 7200
        assert options.attempts == (8 if stage == "fetch" else 5)
    assert (stage_options("cleanup").start_to_close, stage_options("cleanup").attempts) == (600, 10)
    with pytest.raises(ConfigError, match="no stage"):
        stage_options("publish")
