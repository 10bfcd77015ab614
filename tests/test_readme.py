"""The README's two commands, and that CI calls the second."""

import re
import subprocess

from projects import ROOT


def commands():
    return re.findall(r"^ +\$ (.+)$", (ROOT / "README.md").read_text(), re.M)


def test_two_commands_do_all_the_set_up():
    first, second = commands()
    for command in (first, second):
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt -e ")
    assert first.endswith(".venv/bin/doit build:sample")
    assert second.endswith(".venv/bin/pytest -q -n auto --dist loadfile")


def test_ci_calls_the_second():
    """What CI's last line evaluates is the second command, to the letter."""
    last = (ROOT / ".ci" / "run").read_text().splitlines()[-1]
    expression = last.removeprefix('eval "$(').removesuffix(')"')
    out = subprocess.run(["sh", "-c", expression], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    assert out == commands()[1]


def test_every_file_and_verb_that_the_readme_names_exists():
    text = (ROOT / "README.md").read_text()
    for name in re.findall(r"\]\(([A-Za-z0-9_./-]+)\)", text):
        assert (ROOT / name).exists(), name
    plugins = (ROOT / "pyproject.toml").read_text()
    for verb in re.findall(r"^ +doit ([a-z]+)(?: |$)", text, re.M):
        assert re.search(rf"^{verb} = \"corpusbuild\.commands", plugins, re.M), verb


def test_every_test_that_the_map_names_exists():
    named = re.findall(r"`(tests/[A-Za-z0-9_/]+\.py)`", (ROOT / "ARCHITECTURE.md").read_text())
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []
