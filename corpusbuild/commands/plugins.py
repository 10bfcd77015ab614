"""What doit is told of this package, in a project's ``pyproject.toml`` under ``[tool.doit.plugins]``."""

PLUGINS = {
    "command": {
        "run": "corpusbuild.commands.run:Run",
        "list": "corpusbuild.commands.list:List",
        "info": "corpusbuild.commands.info:Info",
        "clean": "corpusbuild.commands.clean:Clean",
        "explain": "corpusbuild.commands.explain:Explain",
        "lock": "corpusbuild.commands.lock:Lock",
        "verify": "corpusbuild.commands.verify:Verify",
        "gc": "corpusbuild.commands.gc:Gc",
        "log": "corpusbuild.commands.log:Log",
        "plan": "corpusbuild.commands.plan:Plan",
        "why": "corpusbuild.commands.why:Why",
        "diff": "corpusbuild.commands.diff:Diff",
        "export": "corpusbuild.commands.export:Export",
        "show": "corpusbuild.commands.show:Show",
        "pin": "corpusbuild.commands.pin:Pin",
    },
    "reporter": {
        "steps": "corpusbuild.commands.reporter:Steps",
    },
    "backend": {
        "atomic_json": "corpusbuild.commands.database:AtomicJson",
    },
}
