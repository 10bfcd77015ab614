"""``doit log [BUILD]``: the last runs: when, how long, what ran, what was reused, what failed and why."""

from typing import Any

from doit.cmd_base import DoitCmdBase

from corpusbuild.commands.base import OPTIONS, Ours, build_names
from corpusbuild.journal import runs
from corpusbuild.progress import duration, size

MOST = {"name": "most", "short": "n", "long": "most", "type": int, "default": 10, "help": "runs to show [default: %(default)s]"}


class Log(Ours, DoitCmdBase):  # type: ignore[misc]  # doit has no types
    name = "log"
    doc_purpose = "show the last runs of a build, or of all"
    doc_usage = "[BUILD]"
    doc_description = "Each run: when it began, how it ended, what it built and reused, and how long each step took."
    cmd_options = (MOST, *OPTIONS)

    def execute(self, params: Any, args: list[str]) -> int:
        with self.open(params) as session:
            wanted = build_names(session, args) if args else None
            shown = 0
            for path, events in runs(session.project.store):
                if wanted is not None and events[0]["build"] not in wanted:
                    continue
                if shown == params["most"]:
                    break
                shown += 1
                for line in lines(events):
                    session.say(line)
                session.say(f"  {path}\n")
            if not shown:
                session.say("no run yet" + (f" of {', '.join(wanted)}" if wanted else ""))
        return 0


def lines(events: list[dict[str, Any]]) -> list[str]:
    """A run as a person wants to read it. A run without an end was killed, or is still at work.

    >>> begin = {"event": "begin", "build": "a", "id": "corpus/a/v1/0", "at": "2026-01-01T00:00:00Z", "to_build": ["shard"], "reused": ["sign"]}
    >>> print("\\n".join(lines([begin])))
    2026-01-01T00:00:00Z  a  corpus/a/v1/0  did not end: killed, or still at work
      reused 1 of 2 steps, built 0
    """
    begin, steps = events[0], [e for e in events if e["event"] == "step"]
    end = next((e for e in events if e["event"] == "end"), None)
    how = f"{end['how']} in {duration(end['seconds'])}" if end else "did not end: killed, or still at work"
    whole = len(begin["to_build"]) + len(begin["reused"])
    out = [
        f"{begin['at']}  {begin['build']}  {begin['id']}  {how}",
        f"  reused {len(begin['reused'])} of {whole} steps, built {len(steps)}",
    ]
    for step in steps:
        out.append(
            f"  {step['label']:<28}{step['seconds']:>8.1f} s  {step['docs_in']:>10,} in  {step['kept']:>10,} kept  {size(step['bytes']):>9}"
        )
    out += [f"  failed: {e['label']}: {e['message']}" for e in events if e["event"] == "failed"]
    out += [f"  undone: {', '.join(e['stages']) or 'what was begun'}, {size(e['bytes'])}" for e in events if e["event"] == "undone"]
    return out
