"""Compiled kernels are made once for a machine, and said when they are."""

import subprocess
import sys

import pytest

from corpusbuild import kernels, machinecode
from corpusbuild.errors import StageError
from corpusbuild.kernels import Kernels


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kernels, "MODULES", ("law",))
    return tmp_path / "cache" / "corpusbuild"


def test_it_is_made_once_and_said_once(home):
    said = []
    first, again = machinecode.make_ready(said.append), machinecode.make_ready(said.append)
    assert first == again
    assert first.form == "compiled"
    assert len(said) == 1


def test_what_older_sources_left_is_taken_away(home, monkeypatch):
    machinecode.make_ready(print)
    monkeypatch.setattr(machinecode, "_identity", lambda: "of newer sources")
    machinecode.make_ready(print)
    assert [path.name.split("-", 1)[1] for path in home.iterdir() if path.is_dir()] == ["of newer sources"]


def test_a_folder_that_cannot_be_written_is_replaced(home, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("no folder")
    monkeypatch.setattr(machinecode.tempfile, "gettempdir", lambda: str(tmp_path))
    assert machinecode.make_ready(print).folder.startswith(f"{tmp_path}/corpusbuild-")


def test_a_compiler_that_fails_is_a_line_with_the_remedy(home, monkeypatch):
    monkeypatch.setattr(machinecode.sys, "executable", "/bin/false")
    with pytest.raises(StageError, match=r'run\.kernels = "reference"'):
        machinecode.make_ready(print)
    assert not list(home.glob(f"*/{machinecode.READY}"))


def test_the_references_run_unless_somebody_says_otherwise():
    assert not kernels.compiled()
    with kernels.using(Kernels("compiled")):
        assert kernels.compiled()
    assert not kernels.compiled()


def test_the_package_loads_no_compiler():
    code = "import corpusbuild, corpusbuild.workshop, corpusbuild.drive, sys; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
