"""What a person waits for who has little text: the sample, its second build, the import, and the compiler once."""

import shutil
import sys
from statistics import median

import measured
from harness import Bench, Section
from measured import Ran
from ours import ROOT

MOST_SAMPLE, MOST_NOTHING, MOST_IMPORT, MOST_COMPILE = 3.0, 0.5, 0.15, 15.0


def measure(bench: Bench) -> Section:
    folder = bench.folder("small")
    for name in ("dodo.py", "pyproject.toml"):
        shutil.copyfile(ROOT / name, folder / name)
    shutil.copytree(ROOT / "configs", folder / "configs")

    def run(*command: str, **env: str) -> Ran:
        return measured.run([sys.executable, *command], bench.work / "logs" / "small.log", folder, {"PYTHONPATH": str(ROOT), **env})

    def build() -> Ran:
        shutil.rmtree(folder / "cache", ignore_errors=True)
        return run("-m", "doit", "build:sample")

    build()
    times = 2 * bench.rounds + 1
    built = median(build().seconds for _ in range(times))
    nothing = median(run("-m", "doit", "build:sample").seconds for _ in range(times))
    bare = median(run("-c", "pass").seconds for _ in range(times))
    imported = median(run("-c", "import corpusbuild").seconds for _ in range(times)) - bare
    code = "from corpusbuild.machinecode import make_ready; make_ready(print)"
    home = str(folder / "kernels")
    with_compiler = run("-c", code, XDG_CACHE_HOME=home).seconds
    compiled = with_compiler - run("-c", code, XDG_CACHE_HOME=home).seconds
    section = Section("Small is instant")
    section.say("Whole commands, with the start of Python, from a warm page cache; the import without it.")
    rows = [
        ("`doit build:sample` from an empty cache folder", built, MOST_SAMPLE),
        ("`doit build:sample` again, with nothing to do", nothing, MOST_NOTHING),
        ("`import corpusbuild`", imported, MOST_IMPORT),
        ("compiling all kernels, once for a machine", compiled, MOST_COMPILE),
    ]
    section.table(("", "s", "at most"), rows)
    for what, value, most in rows:
        section.claim(what.replace("`", ""), value, most, "s", most=True)
    shutil.rmtree(folder)
    return section
