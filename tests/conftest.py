"""What several test files share."""

import shutil
import signal

import pytest
from projects import ROOT, doit


def copy_sample(folder):
    """A project in ``folder`` that holds the sample corpus's configuration and data, and nothing built."""
    (folder / "configs").mkdir(parents=True)
    for name in ("dodo.py", "pyproject.toml", "configs/sample.toml"):
        shutil.copyfile(ROOT / name, folder / name)
    for name in ("configs/sample", "configs/policy"):
        shutil.copytree(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def sample(tmp_path_factory):
    """A project in which the sample was built once, and what the build printed. Not to be changed."""
    folder = copy_sample(tmp_path_factory.mktemp("sample") / "project")
    run = doit(folder, "build:sample", timeout=300)
    assert run.returncode == 0, run.stderr
    return folder, run.stdout


def pytest_configure():
    """Hear signals as a terminal's process does: who runs the tests in the background, or by nohup, has some of them ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
