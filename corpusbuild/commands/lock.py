"""``doit lock NAME ...``: write ``configs/NAME.lock``, which says for git what the build must give."""

from typing import Any

from doit.cmd_base import DoitCmdBase

from corpusbuild.commands.base import OPTIONS, USAGE, Ours, build_names, fail
from corpusbuild.commands.session import Session
from corpusbuild.errors import ConfigError, IntegrityError
from corpusbuild.lock import differences, lock_of, lock_path, read_lock, write_lock


class Lock(Ours, DoitCmdBase):  # type: ignore[misc]  # doit has no types
    name = "lock"
    doc_purpose = "write configs/NAME.lock: what a build must give from now on"
    doc_usage = "NAME ..."
    doc_description = (
        "The lock holds the digests of the manifests and of the rows, and the key of every step; it belongs into git. "
        "A build under a lock that gives another result stops with what differs, and what was published stays."
    )
    cmd_options = OPTIONS

    def execute(self, params: Any, args: list[str]) -> int:
        if not args:
            return fail("lock takes the names of builds: doit lock sample", USAGE)
        with self.open(params) as session:
            for name in build_names(session, args):
                _lock(session, name)
        return 0


def _lock(session: Session, name: str) -> None:
    build, store = session.project.builds[name], session.project.store
    if build.plan is None or build.problem is not None:
        assert build.problem is not None
        raise build.problem
    missing = [step.label for step in build.plan.steps if not store.has(step.stage.name, step.key)]
    if missing:
        raise ConfigError(f"{name} cannot be locked, as {missing[0]} is not built as {build.path} says: run doit build:{name} first")
    path, given = lock_path(build.path), lock_of(build.plan, store)
    try:
        locked = read_lock(path)
    except IntegrityError as error:
        session.say(str(error).split(":")[0] + ", so it is written anew")
        locked = None
    if locked == given:
        session.say(f"{path}: as it is, nothing changed")
        return
    write_lock(path, given)
    session.say(f"{path}: manifest {given.manifest_sha256[:12]}, rows {given.rows_blake3[:12]}, {len(given.steps)} steps; commit it")
    for line in differences(locked, given) if locked else []:
        session.say(f"  was  {line}")
