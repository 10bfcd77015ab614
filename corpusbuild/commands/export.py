"""``doit export NAME DIR``: a corpus as plain files, to hand on or upload."""

from pathlib import Path
from typing import Any

from doit.cmd_base import DoitCmdBase

from corpusbuild.commands.base import OPTIONS, USAGE, Ours, build_names, fail
from corpusbuild.errors import ConfigError
from corpusbuild.progress import size
from corpusbuild.publish import read_record


class Export(Ours, DoitCmdBase):  # type: ignore[misc]  # doit has no types
    name = "export"
    doc_purpose = "copy a corpus with its tokens and papers to a folder"
    doc_usage = "NAME DIR"
    doc_description = (
        "Shards, manifest, attribution and datasheet, and the tokens in DIR/tokens; no links. DIR appears when everything in it was checked; "
        "corpusbuild verify DIR checks it anywhere."
    )
    cmd_options = OPTIONS

    def execute(self, params: Any, args: list[str]) -> int:
        if len(args) != 2:
            return fail("export takes a build and a folder: doit export sample /where/to", USAGE)
        with self.open(params) as session:
            from corpusbuild.export import export

            (name,) = build_names(session, args[:1])
            store, target = session.project.store, Path(args[1])
            record = read_record(store, name)
            if record is None:
                raise ConfigError(f"build:{name} was not built in {store.root}: run doit build:{name}")
            corpus = export(record, store, target)
            files = [path for path in target.rglob("*") if path.is_file()]
            session.say(
                f"{target}: {len(corpus):,} documents, {len(files)} files, {size(sum(p.stat().st_size for p in files))}, every digest checked"
            )
            session.say(f"check it anywhere: corpusbuild verify {target}")
        return 0
