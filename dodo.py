"""doit's view of the project: one task a step, up to date when its key is in the store. Nothing else is decided here.

No task has targets: builds share the steps that they have in common, and doit lets a target belong to one task only.
"""

from corpusbuild.commands.session import current

SESSION = current()
PROJECT = SESSION.project
DOIT_CONFIG = {
    "backend": "atomic_json",
    "dep_file": str(PROJECT.store.root / ".doit.json"),
    "verbosity": 2,
    "reporter": "steps",
}


def task_fetch():
    """fetch a source"""
    yield {"basename": "fetch", "name": None, "doc": "fetch every source of every configuration"}
    for source, step in PROJECT.sources.items():
        yield {
            "name": source,
            "doc": step.params.url or step.params.files[0].url,
            "actions": [(SESSION.fetch, [step])],
            "uptodate": [(SESSION.is_fetched, [step])],
        }


def task_build():
    """build a corpus"""
    yield {"basename": "build", "name": None, "doc": "build every configuration"}
    for name, build in PROJECT.builds.items():
        if build.problem is not None:
            yield {"name": name, "doc": f"{build.path} cannot be used", "actions": [(SESSION.refuse, [build])]}
            continue
        steps = [step for step in build.plan.steps if step.stage.name != "fetch"]
        for step in steps:
            yield {
                "name": f"{name}:{step.label}",
                "doc": f"a step of {build.path}",
                "actions": [(SESSION.realise, [build, step])],
                "task_dep": [_task(name, below) for by in (*step.inputs.values(), step.follows) for below in by],
                "uptodate": [(SESSION.is_built, [step])],
            }
        yield {
            "name": name,
            "doc": f"build what {build.path} describes",
            "actions": [(SESSION.publish, [build])],
            "task_dep": [_task(name, step) for step in build.plan.steps],
            "uptodate": [(SESSION.is_published, [build])],
        }


def _task(build, step):
    return step.label if step.stage.name == "fetch" else f"build:{build}:{step.label}"
