"""A project: the configurations of a folder, what each plans, and the sources that they share."""

from dataclasses import dataclass, field
from pathlib import Path

from corpusbuild import licenses
from corpusbuild.config import load
from corpusbuild.errors import ConfigError, LicenseError
from corpusbuild.ledger import LEDGER_NAME, read_rows
from corpusbuild.plan import Plan, plan
from corpusbuild.sources import fetch_identity
from corpusbuild.stage import Step
from corpusbuild.stages import ledger
from corpusbuild.store import Store


@dataclass(frozen=True)
class Options:
    """What the command line and the environment say for one run."""

    cache: Path = Path("cache")
    configs: Path = Path("configs")
    overrides: tuple[str, ...] = ()
    limit: int | None = None
    workers: int | None = None
    executor: str | None = None
    offline: bool = False
    resume_only: bool = False
    retry_quarantined: bool = False


@dataclass(frozen=True)
class Build:
    """A configuration by its name, and its plan or what is wrong with it."""

    name: str
    path: Path
    plan: Plan | None
    problem: ConfigError | LicenseError | None = None

    def shown_problem(self) -> str:
        """What is wrong, in a line that does not name the file; empty when nothing is."""
        first, *more = str(self.problem or "").splitlines() or [""]
        return first.removeprefix(f"{self.path}: ") + (f" (and {len(more)} more)" if more else "")


@dataclass(frozen=True)
class Project:
    store: Store
    builds: dict[str, Build]
    sources: dict[str, Step] = field(default_factory=dict)
    """Source id -> its fetch step, over all sound configurations."""


def open_project(options: Options) -> Project:
    """Read every ``configs/*.toml``. One that is broken stops only itself."""
    revoked = revoked_in(options.cache)
    builds = {path.stem: open_build(path, options, revoked) for path in sorted(options.configs.glob("*.toml"))}
    builds = _refuse_clashes(builds)
    sources: dict[str, Step] = {}
    for build in builds.values():
        for step in build.plan.steps if build.plan else ():
            if step.stage.name == "fetch":
                sources.setdefault(step.source, step)
    return Project(Store(options.cache), builds, sources)


def refused(plan: Plan) -> LicenseError | None:
    """What policy says against a plan, before anything is fetched for it."""
    params: ledger.Params = plan.corpus.params
    planned = {source.id: (source.license_spdx, 1) for source in params.sources}
    problems = licenses.verify(params.policy, params.sources, planned, params.use)
    return LicenseError(*(f"{plan.loaded.path}: {problem}" for problem in problems)) if problems else None


def revoked_in(cache: Path) -> dict[str, str]:
    """What the ledger of a cache takes back, and why; nothing where there is no cache yet."""
    return licenses.revoked_by(read_rows(cache / LEDGER_NAME) if cache.is_dir() else ())


def open_build(path: Path, options: Options, revoked: dict[str, str]) -> Build:
    """One configuration by itself, wherever it lies."""
    try:
        made = plan(load(path, options.overrides, options.limit, revoked, options.cache))
    except ConfigError as error:
        return Build(path.stem, path, None, error)
    return Build(path.stem, path, made, refused(made))


def _refuse_clashes(builds: dict[str, Build]) -> dict[str, Build]:
    """Two configurations that would publish the same corpus, or pin one source id to different things, are both wrong."""
    corpora: dict[tuple[str, str], str] = {}
    pins: dict[str, tuple[str, object]] = {}
    problems: dict[str, list[str]] = {}

    def clash(one: str, other: str, what: str) -> None:
        for name in (one, other):
            problems.setdefault(name, []).append(f"{builds[one].path} and {builds[other].path} {what}")

    for name, build in builds.items():
        if build.plan is None:
            continue
        corpus = build.plan.loaded.corpus
        other = corpora.setdefault((corpus.dataset, corpus.version), name)
        if other != name:
            clash(other, name, f"both publish {corpus.dataset} {corpus.version}: change dataset or version in one")
        for source in build.plan.loaded.sources:
            first, identity = pins.setdefault(source.id, (name, fetch_identity(source)))
            if identity != fetch_identity(source):
                clash(first, name, f"pin the source {source.id!r} to different files, formats or separators: rename it in one")
    return {n: Build(n, b.path, None, ConfigError(*problems[n])) if n in problems else b for n, b in builds.items()}
