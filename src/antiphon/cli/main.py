"""``antiphon``: the parser, and how errors become exit codes: 0 done, 1 failed, 2 usage or configuration, 130 interrupted."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from antiphon.cli import backup, chat, cost, doctor, exporting, importing, keys, link, migrate, models, serve, tenants, top, users, version
from antiphon.core.errors import AntiphonError, ConfigErrors

_COMMANDS = (serve, chat, keys, users, tenants, link, models, importing, exporting, migrate, backup, top, cost, doctor, version)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except ConfigErrors as error:
        print(error, file=sys.stderr)
        return 2
    except AntiphonError as error:
        print(f"antiphon: {error}", file=sys.stderr)
        return 2 if error.code == "data_folder_in_use" else 1
    except BrokenPipeError:
        # The reader of our output is gone; nobody wants the traceback that flushing at exit would print.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"antiphon: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="antiphon", description="A complete, self-hosted ChatGPT.", allow_abbrev=False)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add(commands)
    return parser
