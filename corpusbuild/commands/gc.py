"""``doit gc``: remove store entries that no configuration, lock, published name or running build reaches."""

import re
from typing import Any

from doit.cmd_base import DoitCmdBase

from corpusbuild.commands.base import OPTIONS, USAGE, Ours, fail
from corpusbuild.commands.clean import DRY
from corpusbuild.progress import size
from corpusbuild.reach import unreached, unreached_downloads

KEEP = {"name": "keep", "long": "keep", "type": int, "default": 0, "help": "also keep what the last N runs of each build made"}
OLDER = {"name": "older_than", "long": "older-than", "type": str, "default": "", "help": "only what is older: 12h, 30d, 8w"}
DOWNLOADS = {
    "name": "downloads",
    "long": "downloads",
    "type": bool,
    "default": False,
    "help": "downloads of sources that no configuration names, too",
}

SECONDS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


class Gc(Ours, DoitCmdBase):  # type: ignore[misc]  # doit has no types
    name = "gc"
    doc_purpose = "remove what no configuration, lock or published corpus reaches"
    doc_usage = ""
    doc_description = "Raw documents stay. It is safe beside a running build: what that uses is reached."
    cmd_options = (DRY, KEEP, OLDER, DOWNLOADS, *OPTIONS)

    def execute(self, params: Any, args: list[str]) -> int:
        if args:
            return fail("gc takes no build: it looks at all of them (doit clean build:NAME removes one build's corpus)", USAGE)
        age = re.fullmatch(r"(\d+)([hdw])", params["older_than"] or "0h")
        if age is None:
            return fail(f"--older-than {params['older_than']}: write a number and h, d or w, for instance 30d", USAGE)
        with self.open(params) as session:
            project, verb, freed = session.project, "would remove" if params["dry"] else "removed", 0
            broken = [b.name for b in project.builds.values() if b.plan is None]
            if broken:
                return fail(f"{', '.join(broken)} cannot be read, so what it reaches is not known: mend or remove it first", 65)
            for entry in unreached(project, params["keep"], float(age[1]) * SECONDS[age[2]]):
                if not params["dry"]:
                    with project.store.try_lock(entry.key) as ours:
                        if not ours:
                            continue
                        project.store.discard(entry.stage, entry.key)
                freed += entry.bytes
                session.say(f"{verb} {entry.label} {entry.key[:12]} ({size(entry.bytes)})")
            for folder in unreached_downloads(project) if params["downloads"] else []:
                bytes_here = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
                if not params["dry"]:
                    project.store.discard_folder(folder)
                freed += bytes_here
                session.say(f"{verb} downloads/{folder.name} ({size(bytes_here)})")
            session.say(f"gc: {verb} {size(freed)}" if freed else "gc: nothing to remove")
        return 0
