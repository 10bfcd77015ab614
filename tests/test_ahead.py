"""Steps that do not wait for each other are built at the same time, each is told in its order, and none begins before what it needs."""

import threading

import pytest

from corpusbuild.ahead import Ahead
from corpusbuild.errors import Cancelled, StageError
from corpusbuild.model import Tally
from corpusbuild.stage import Stage, Step
from corpusbuild.store import Store
from corpusbuild.workshop import Workshop

KEYS = {name: name * 64 for name in "abcdef"}


class Gate:
    """Stages that say when they begin and end only when they are let."""

    def __init__(self):
        self.begun, self.over, self.go = [], [], {name: threading.Event() for name in KEYS}
        self.started = {name: threading.Event() for name in KEYS}

    def step(self, name, *below, fails=None):
        def build(job):
            self.begun.append(name)
            self.started[name].set()
            assert self.go[name].wait(10)
            if fails:
                raise fails
            job.put("x", b"")
            self.over.append(name)
            return {name: Tally()}

        return Step(Stage("test", 1, build), None, {"in": below}, KEYS[name], f"test:{name}")

    def let(self, names):
        for name in names:
            self.go[name].set()


@pytest.fixture
def gate():
    return Gate()


def workshop(tmp_path, executor="local"):
    return Workshop(Store(tmp_path), executor, 2, 1 << 30, print)


def test_steps_that_are_ready_run_together(tmp_path, gate):
    a, b = gate.step("a"), gate.step("b")
    ahead = Ahead(workshop(tmp_path), [a, b])
    threading.Thread(target=lambda: (gate.started["b"].wait(10), gate.let("ab"))).start()  # b begins while a has not ended
    assert [ahead.take(s).contents.label for s in (a, b)] == ["test:a", "test:b"]


def test_none_begins_before_what_it_needs(tmp_path, gate):
    a, b = gate.step("a"), gate.step("b")
    c = gate.step("c", a, b)
    d = gate.step("d", c)
    gate.let("abcd")
    ahead = Ahead(workshop(tmp_path), [a, b, c, d])
    for step in (a, b, c, d):
        ahead.take(step)
    assert gate.begun.index("c") > max(gate.begun.index("a"), gate.begun.index("b"))
    assert gate.over[-1] == "d"


def test_each_tells_its_own_failure(tmp_path, gate):
    a, b = gate.step("a", fails=StageError("test", "a", "no")), gate.step("b")
    gate.let("ab")
    ahead = Ahead(workshop(tmp_path), [a, b])
    with pytest.raises(StageError, match="no"):
        ahead.take(a)
    assert ahead.take(b).contents.label == "test:b"


def test_before_is_told_of_each_in_the_thread_that_asks(tmp_path, gate):
    told = []
    a, b, c = gate.step("a"), gate.step("b"), gate.step("c")
    gate.let("abc")
    ahead = Ahead(workshop(tmp_path), [a, b, c], before=lambda step: told.append((step.label, threading.current_thread())))
    for step in (a, b, c):
        ahead.take(step)
    assert told == [(f"test:{name}", threading.main_thread()) for name in "abc"]


def test_only_what_the_run_wants_is_built(tmp_path, gate):
    a, b = gate.step("a"), gate.step("b")
    gate.let("ab")
    Ahead(workshop(tmp_path), [a]).take(a)
    assert gate.begun == ["a"]
    assert not Store(tmp_path).has("test", b.key)


def test_one_after_the_other_where_there_is_one_process(tmp_path, gate):
    a, b = gate.step("a"), gate.step("b")
    gate.let("ab")
    ahead = Ahead(workshop(tmp_path, "serial"), [a, b])
    ahead.take(a)
    assert gate.begun == ["a"]


def test_closing_ends_a_step_that_waits_for_another_process(tmp_path, gate):
    a, b = gate.step("a"), gate.step("b")
    shop = workshop(tmp_path)
    ahead = Ahead(shop, [a, b])
    gate.let("a")
    with Store(tmp_path).lock(b.key):  # as another process would
        ahead.take(a)
        ahead.close()
    assert gate.begun == ["a"]
    with pytest.raises(Cancelled):
        ahead.take(b)
