"""A shell offers what may come next: what the folder holds, as it stands."""

import os
import shutil
import subprocess
import sys

import pytest
from projects import ROOT, make_project

from corpusbuild.__main__ import main
from corpusbuild.completion import SHELLS


def offered(capsys, *words):
    assert main(["names", "--", *words]) == 0
    return capsys.readouterr().out.split()


@pytest.fixture
def project(tmp_path, monkeypatch):
    make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_verbs_builds_and_sources_come_first(project, capsys):
    names = offered(capsys)
    assert {"plan", "list", "explain", "help", "build:tiny", "fetch:stories", "fetch:notes"} <= set(names)
    assert "run" not in names


def test_a_verb_is_followed_by_what_it_takes(project, capsys):
    names = offered(capsys, "show")
    assert names[0] == "tiny"
    assert "--dropped" in names
    assert "--always-execute" not in offered(capsys, "build:tiny")
    assert "build:tiny" in offered(capsys, "fetch:notes")
    assert "--json" in offered(capsys, "build:tiny")


def test_a_broken_configuration_is_passed_over(project, capsys):
    (project / "configs" / "broken.toml").write_text("[")
    names = offered(capsys)
    assert "build:broken" in names
    assert "fetch:stories" in names


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_its_script(shell, capsys):
    assert main(["completion", shell]) == 0
    assert "corpusbuild names" in capsys.readouterr().out


def test_bash_completes(project, tmp_path):
    bash = shutil.which("bash")
    assert bash, "the tests need bash"
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "corpusbuild"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m corpusbuild "$@"\n')
    tool.chmod(0o755)
    asked = 'eval "$(corpusbuild completion bash)"; COMP_WORDS=(doit show t); COMP_CWORD=2; _corpusbuild_doit; echo "${COMPREPLY[@]}"'
    env = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([bash, "-c", asked], capture_output=True, text=True, env=env, cwd=project)
    assert ran.stdout.split() == ["tiny"], ran.stderr
