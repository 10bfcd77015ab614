"""``python -m corpusbuild``: what is not a build and needs no project. Building is doit's: see ``doit help``."""

import argparse
import json
import sys

from corpusbuild import __version__
from corpusbuild.errors import CorpusError


def main(argv: list[str] | None = None) -> int:
    """Run one verb and give its exit code."""
    parser = argparse.ArgumentParser(prog="corpusbuild", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    schema = verbs.add_parser("schema", help="print the JSON Schema of a configuration, for editors, or of a line of LEDGER.jsonl")
    schema.add_argument("of", nargs="?", choices=("configuration", "ledger"), default="configuration")
    schema.set_defaults(run=_schema)
    args = parser.parse_args(argv)
    try:
        args.run(args)
    except CorpusError as error:
        print(f"corpusbuild: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _schema(args: argparse.Namespace) -> None:
    from corpusbuild.config import schema
    from corpusbuild.licenses import LedgerRow, row_schema

    print(json.dumps(row_schema(LedgerRow) if args.of == "ledger" else schema(), indent=1, sort_keys=True))


if __name__ == "__main__":
    sys.exit(main())
