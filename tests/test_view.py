"""What a person sees of a build while it runs: all that fails stays to be seen, and a machine gets every event."""

import io
import json
import os
import pty

import pytest
from hypothesis import given
from hypothesis import strategies as st
from projects import doit, doit_here, make_project

from corpusbuild.commands import view as view_module
from corpusbuild.commands.view import Events, Lines, Live, Quiet, Row, View, choose, tree
from corpusbuild.executors.base import Progress
from corpusbuild.progress import Event, Meter

ROWS = st.builds(
    Row,
    label=st.text("abc:", min_size=1, max_size=8),
    source=st.sampled_from(["", "a", "b", "c", "d"]),
    state=st.sampled_from(list(view_module.MARKS)),
    note=st.text(max_size=5),
)


@given(st.lists(ROWS, max_size=60), st.integers(4, 50))
def test_the_tree_fits_its_room_and_hides_no_failure_that_fits(rows, room):
    lines = tree(rows, Meter(), 0.0, room)
    assert len(lines) <= room
    failed = [row for row in rows if row.state == "failed"]
    shown = [text for text, style in lines if style == "bold red"]
    if len(lines) < room or len(rows) < room // 2:
        assert len(shown) >= min(len(failed), room - 1) or any("more lines" in text for text, _ in lines)


def test_a_source_whose_steps_wait_is_one_line_and_one_at_work_shows_its_steps():
    rows = [Row("filter:a", "a", "running"), Row("sign:a", "a", "waiting"), Row("filter:b", "b", "waiting"), Row("shard", "", "waiting")]
    assert [text for text, _ in tree(rows, Meter(), 3.0, 20)] == [
        "a",
        "  ● filter                3 s",
        "  · sign",
        "· b  0 of 1 steps",
        "· shard",
    ]


def test_lines_say_now_and_then_what_is_under_way():
    said, now = [], [0.0]
    view = Lines(said.append, clock=lambda: now[0])
    view.plan("x", [("filter:a", "a", False)])
    view.begin("filter:a", 8_000_000)
    for second in range(25):
        now[0] = float(second)
        view.progress("filter:a", Progress(second, 0, 0, 1, 40))
    assert len(said) == 2
    assert said[0] == "... 0 of 1 steps built, 0 reused, 10 s; filter:a 10 of 40 parts, 200.0 kB/s, 30 s left"


def test_a_machine_gets_every_event_of_a_build(tmp_path):
    make_project(tmp_path)
    ran = doit(tmp_path, "build:tiny", "--json")
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[0] == "plan"
    assert kinds[-1] == "summary"
    planned = [step["step"] for step in events[0]["steps"]]
    assert sorted(event["step"] for event in events if event["event"] == "built") == sorted(planned)
    assert all(event["docs_in"] == event["kept"] + sum(event["dropped"].values()) + sum(event["rejected"].values()) for event in events if event["event"] == "built")  # fmt: skip
    assert events[-1]["kept"] > 0


def test_quiet_shows_failures_only(tmp_path):
    make_project(tmp_path)
    ran = doit(tmp_path, "build:tiny", "-q")
    assert (ran.returncode, ran.stdout) == (0, "")
    config = tmp_path / "configs" / "tiny.toml"
    config.write_text(config.read_text().replace("CC0-1.0", "NONE"))
    ran = doit(tmp_path, "build:tiny", "-q")
    assert (ran.returncode, ran.stdout) == (65, "")
    assert "NONE" in ran.stderr


def test_verbose_names_what_is_reused(tmp_path, capfd):
    make_project(tmp_path)
    assert doit_here(tmp_path, "build:tiny", "--executor", "serial") == 0
    capfd.readouterr()
    assert doit_here(tmp_path, "build:tiny", "--executor", "serial", "-v", "--set", "shard.val_permille=7") == 0
    said = capfd.readouterr().out.splitlines()
    assert any(line.split() == ["near_dedup", "reused"] for line in said)
    assert any(line.split() == ["shard", "begins"] for line in said)


def test_a_terminal_gets_the_tree_and_a_pipe_lines(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert type(choose(False, False, False)) is Lines
    assert type(choose(True, False, False)) is Events
    assert type(choose(False, True, False)) is Quiet
    _, slave = pty.openpty()
    monkeypatch.setattr(view_module.sys, "stdout", os.fdopen(slave, "w"))
    assert type(choose(False, False, False)) is Live
    monkeypatch.setenv("TERM", "dumb")
    assert type(choose(False, False, False)) is Lines


@pytest.mark.parametrize("no_color", [True, False])
def test_colours_honour_no_color(monkeypatch, no_color):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    out = Terminal()
    monkeypatch.setattr(view_module.sys, "stdout", out)
    view = Live()
    view.plan("x", [("filter:a", "a", False)])
    view.failed("filter:a", "a fault", 65)
    view.close()
    assert ("\x1b[31m" in out.getvalue()) != no_color
    assert "filter:a: a fault" in out.getvalue()


def test_a_file_that_is_tried_again_is_told_by_every_view_but_quiet():
    said = []
    view = View(said.append)
    view.fetching(Event("retry", "tales", "a.txt", note="HTTP 503, again in 1 s"))
    assert said == ["fetch:tales: a.txt HTTP 503, again in 1 s"]
