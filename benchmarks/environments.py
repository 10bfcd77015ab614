"""Environments of their own for the tools that we are measured against, made where they are missing: one a tool, so that none changes another's versions.

``environments/NAME.txt`` pins everything that stands in one. The pins were taken from an environment that worked, with ``pip freeze``.
"""

import shutil
import subprocess
import venv
from pathlib import Path

PINS = Path(__file__).parent / "environments"
NAMES = tuple(sorted(path.stem for path in PINS.glob("*.txt")))


def python(name: str, work: Path) -> Path:
    """The interpreter of an environment, which is made now if it is missing or was made from other pins."""
    pins = (PINS / f"{name}.txt").read_text()
    home = work / "envs" / name
    made_from = home / "pins.txt"
    if not made_from.exists() or made_from.read_text() != pins:
        print(f"making the environment {name}", flush=True)
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True)
        subprocess.run([home / "bin" / "python", "-m", "pip", "install", "--quiet", "-r", PINS / f"{name}.txt"], check=True)
        made_from.write_text(pins)
    return home / "bin" / "python"


def version(name: str, package: str) -> str:
    """The pinned version of a package of an environment."""
    lines = (PINS / f"{name}.txt").read_text().splitlines()
    return next(line.split("==")[1] for line in lines if line.lower().replace("_", "-").startswith(f"{package.lower()}=="))
