"""``python -m corpusbuild``: what is not a build and needs no project. Building is doit's: see ``doit help``."""

import argparse
import json
import os
import sys
from pathlib import Path

from corpusbuild import __version__
from corpusbuild.errors import ConfigError, CorpusError
from corpusbuild.workflow import STAGES

UNTIL = "fetch|filter|decontaminate|scrub|sign|exact_dedup|near_dedup|shard|tokenize".split("|")
ALIASES = "dedup_exact|dedup_near|pii".split("|")


def main(argv: list[str] | None = None) -> int:
    """Run one verb and give its exit code."""
    args = _parser().parse_args(argv)
    try:
        args.do(args)
    except CorpusError as error:
        for line in str(error).splitlines():
            print(f"corpusbuild: {line}", file=sys.stderr)
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="corpusbuild", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    schema = verbs.add_parser("schema", help="print the JSON Schema of a configuration, for editors, or of a line of LEDGER.jsonl")
    schema.add_argument("of", nargs="?", choices=("configuration", "ledger"), default="configuration")
    schema.set_defaults(do=_schema)

    reference = verbs.add_parser("reference", help="print what every key of a configuration means, as Markdown")
    reference.set_defaults(do=_reference)

    run = verbs.add_parser("run", help="build a configuration that lies anywhere, or one stage of it as an activity of a durable engine")
    _takes_config(run, required=False)
    run.add_argument("--until", choices=[*UNTIL, *ALIASES], default="tokenize", metavar="STAGE", help=f"stop after: {', '.join(UNTIL)}")
    run.add_argument("--workers", type=int, metavar="N", help="worker processes [default: run.workers, or the cores]")
    run.add_argument("--stage", choices=STAGES, help="the one stage to run, as an activity")
    _takes_spec(run, required=False)
    run.set_defaults(do=lambda args: _run(args, run))

    cleanup = verbs.add_parser("cleanup", help="undo what a workflow made from shard on, as an activity of a durable engine")
    _takes_spec(cleanup, required=True)
    cleanup.set_defaults(do=_cleanup)

    ledger = verbs.add_parser("ledger", help="judge the ledger and the corpus against the policy")
    verify = ledger.add_subparsers(required=True, metavar="VERB").add_parser("verify", help="say every problem; exit 65 if there is any")
    _takes_config(verify, required=True)
    verify.set_defaults(do=_verify)

    init = verbs.add_parser("init", help="make a folder a project that builds as it stands")
    init.add_argument("folder", type=Path, metavar="DIR")
    init.add_argument("--from", dest="sources", nargs="+", default=[], metavar="URL", help="files to make the first corpus of, pinned now")
    _takes_source(init)
    init.set_defaults(do=_init)

    add = verbs.add_parser("add", help="add a source to a configuration: download it, see what it is, pin it")
    add.add_argument("url", metavar="URL")
    add.add_argument("--to", metavar="NAME", help="the configuration configs/NAME.toml [default: the only one]")
    add.add_argument("--id", metavar="ID", help="what the source is called [default: the file's name]")
    add.add_argument("--format", metavar="F", help="jsonl, text, parquet, csv, tsv or warc [default: what it looks like]")
    _takes_source(add)
    add.set_defaults(do=_add)

    completion = verbs.add_parser("completion", help="print the script that makes a shell complete what comes after doit")
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    completion.set_defaults(do=_completion)
    names = verbs.add_parser("names", help="print what may come next after some words of doit, for the completion")
    names.add_argument("words", nargs="*")
    names.set_defaults(do=_names)

    check = verbs.add_parser("verify", help="check every file of an exported corpus against its manifests")
    check.add_argument("folder", type=Path, metavar="DIR", help="the folder that doit export made, or a copy of it")
    check.set_defaults(do=_verify_export)

    sheet = verbs.add_parser("datasheet", help="print the datasheet of a built configuration")
    _takes_config(sheet, required=True)
    sheet.add_argument("--out", type=Path, metavar="FILE", help="write the datasheet there instead")
    sheet.set_defaults(do=_datasheet)
    return parser


def _takes_config(parser: argparse.ArgumentParser, required: bool) -> None:
    parser.add_argument("--config", type=Path, required=required, metavar="C", help="the configuration, a TOML file")
    parser.add_argument("--cache-dir", metavar="DIR", help="folder for everything built [default: $CORPUSBUILD_CACHE or cache]")


def _takes_spec(parser: argparse.ArgumentParser, required: bool) -> None:
    parser.add_argument("--spec", type=Path, required=required, metavar="S", help="what the activity is told, a JSON file")
    parser.add_argument("--progress", type=Path, required=required, metavar="P", help="where the activity tells how far it is")


def _takes_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--license", metavar="SPDX", help="the licence, as CC-BY-4.0; asked for when it is not given")
    parser.add_argument("--cache-dir", metavar="DIR", help="folder for downloads [default: $CORPUSBUILD_CACHE or cache]")


def _schema(args: argparse.Namespace) -> None:
    from corpusbuild.config import schema
    from corpusbuild.licenses import LedgerRow, row_schema

    print(json.dumps(row_schema(LedgerRow) if args.of == "ledger" else schema(), indent=1, sort_keys=True))


def _reference(args: argparse.Namespace) -> None:
    from corpusbuild.reference import page

    print(page(), end="")


def _run(args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    if (args.config is None) == (args.stage is None):
        parser.error("give either --config C, or --stage with --spec and --progress")
    if args.stage is None:
        from corpusbuild import cli

        with cli.signals_kept():
            cli.run(args.config, args.until, cli.options_from(dict(os.environ), args.cache_dir, args.workers))
        return
    if args.spec is None or args.progress is None:
        parser.error("--stage needs --spec and --progress")
    parent = os.getppid()
    from corpusbuild import activity, cli

    with cli.signals_kept(), cli.signals_cancel():
        activity.end_with(parent)
        activity.run(args.stage, args.spec, args.progress, os.environ)


def _cleanup(args: argparse.Namespace) -> None:
    from corpusbuild import activity

    activity.cleanup(args.spec, args.progress, os.environ)


def _verify(args: argparse.Namespace) -> None:
    from corpusbuild import cli

    cli.verify_ledger(args.config, cli.options_from(dict(os.environ), args.cache_dir, None))


def _ask(question: str, seen: str) -> str:
    """Ask the person at the terminal; ``ConfigError`` where there is none."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError(f"{question} Nobody can be asked here: say it with --license, --format or in the configuration")
    print(seen)
    while not (answer := input(f"{question} ").strip()):
        pass
    return answer


def _cache_of(args: argparse.Namespace) -> Path:
    return Path(args.cache_dir or os.environ.get("CORPUSBUILD_CACHE") or "cache")


def _init(args: argparse.Namespace) -> None:
    from corpusbuild.scaffold import init

    for line in init(args.folder, args.sources, args.license, _cache_of(args), _ask):
        print(line)


def _add(args: argparse.Namespace) -> None:
    from corpusbuild.scaffold import add

    there = sorted(path.stem for path in Path("configs").glob("*.toml"))
    if args.to is None and len(there) != 1:
        raise ConfigError(
            f"configs/ holds {', '.join(there) or 'no configuration'}: name one with --to NAME"
            + ("" if there else ", or begin with corpusbuild init DIR")
        )
    name = args.to or there[0]
    if name not in there:
        raise ConfigError(f"configs/{name}.toml does not exist: there is {', '.join(there) or 'no configuration'}")
    found = add(Path("configs", f"{name}.toml"), args.url, args.id, args.license, args.format, _cache_of(args), _ask)
    print(f"{found}\nconfigs/{name}.toml: added; look at it, then doit build:{name}")


def _completion(args: argparse.Namespace) -> None:
    from corpusbuild.completion import script

    print(script(args.shell), end="")


def _names(args: argparse.Namespace) -> None:
    from corpusbuild.commands.help import EXAMPLES, options_of
    from corpusbuild.completion import names

    verb = next((word for word in args.words if not word.startswith("-")), "")
    for name in names(args.words, [*EXAMPLES, "help"], options_of(verb if verb in EXAMPLES else "run"), Path("configs")):
        print(name)


def _verify_export(args: argparse.Namespace) -> None:
    from corpusbuild import export

    corpus = export.opened(args.folder)
    corpus.check()
    tokens = sum(file["n_tokens"] for file in (corpus.token_manifest or {}).get("files", ()))
    print(f"{args.folder}: {len(corpus):,} documents, {tokens:,} tokens; every file is what its manifest says")


def _datasheet(args: argparse.Namespace) -> None:
    from corpusbuild import cli

    cli.datasheet(args.config, args.out, cli.options_from(dict(os.environ), args.cache_dir, None))


if __name__ == "__main__":
    sys.exit(main())
