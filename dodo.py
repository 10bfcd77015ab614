"""What doit runs here: a task for each source, step and build of ``configs/``."""

from corpusbuild.commands.tasks import load

DOIT_CONFIG, task_fetch, task_build = load()
