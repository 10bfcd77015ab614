"""``doit pin NAME``: download sources that have no digest yet, show what they hold, and write ``sha256`` and ``size`` into the configuration."""

from typing import Any

from doit.cmd_base import DoitCmdBase
from doit.exceptions import InvalidCommand

from corpusbuild.commands.base import OPTIONS, USAGE, Ours, fail, unknown
from corpusbuild.commands.run import cancelled_by_sigterm
from corpusbuild.durable import disk

SOURCE = {"name": "source", "long": "source", "type": str, "default": "", "help": "only this source [default: all that have no digest]"}


class Pin(Ours, DoitCmdBase):  # type: ignore[misc]  # doit has no types
    name = "pin"
    doc_purpose = "find the digest of sources that have none, and write it into the configuration"
    doc_usage = "NAME"
    doc_description = (
        "Downloads each source without a sha256, shows its size, digest, first lines, format, compression and what it says of a licence, and writes "
        "sha256 and size into configs/NAME.toml, keeping every comment. Look at what it shows before you build: the digest is what you trust."
    )
    cmd_options = (SOURCE, *OPTIONS)

    def execute(self, params: Any, args: list[str]) -> int:
        if len(args) != 1:
            return fail("pin takes one build: doit pin NAME", USAGE)
        import asyncio

        from corpusbuild.pin import pin

        with self.open(params) as session:
            name = args[0].removeprefix("build:")
            build, root = session.project.builds.get(name), session.project.store.root
            if build is None:
                raise InvalidCommand(unknown(args[0], session.project))
            with disk(root), cancelled_by_sigterm():
                root.mkdir(parents=True, exist_ok=True)
                found = asyncio.run(pin(build.path, root, source=params["source"] or None))
            for pinned in found:
                session.say(str(pinned))
            written = f"{build.path}: {len(found)} digests written; look at them, then doit build:{name}"
            session.say(written if found else f"{build.path}: every source is pinned")
        return 0
