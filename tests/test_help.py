"""Everything that a person may type is told, with options that exist and examples that parse."""

import shlex

import pytest
from projects import ROOT, doit_here

from corpusbuild.commands.help import EXAMPLES, OVERVIEW, of_verb
from corpusbuild.scaffold import PLUGINS

VERBS = {verb: target for verb, target in PLUGINS["command"].items() if verb != "help"}


def command(verb):
    module, _, name = VERBS[verb].partition(":")
    return getattr(__import__(module, fromlist=[name]), name)


def test_every_verb_of_ours_is_in_the_overview_and_has_examples():
    told = {verb for _, verbs in OVERVIEW for verb, _ in verbs}
    assert {verb for verb in VERBS if verb != "run"} <= told
    assert set(EXAMPLES) == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_is_told_and_the_examples_use_what_there_is(verb):
    text = "\n".join(of_verb(command(verb)))
    longs = {option["long"] for option in command(verb).cmd_options}
    for example in EXAMPLES[verb]:
        for word in shlex.split(example):
            if word.startswith("--"):
                assert word[2:].split("=")[0] in longs, example
                assert word.split("=")[0] in text


def test_help_is_reached_in_each_way(capfd):
    assert doit_here(ROOT, "help") == 0
    overview = capfd.readouterr().out
    assert "doit build:NAME" in overview
    assert "strace" not in overview
    assert doit_here(ROOT, "help", "gc") == 0
    assert doit_here(ROOT, "gc", "--help") == 0
    one, other = capfd.readouterr().out.split("doit gc [OPTIONS]")[1:]
    assert one.strip() == other.strip()
    assert doit_here(ROOT, "build:sample", "--help") == 0
    assert doit_here(ROOT, "help", "nothing") == 2
