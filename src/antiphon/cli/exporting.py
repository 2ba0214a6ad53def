"""``antiphon export``: conversations as a file, on stdout unless one is named."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

from antiphon.cli.arguments import add_config_flags, config_of

if TYPE_CHECKING:
    from antiphon.cli.arguments import Commands


def add(commands: Commands) -> None:
    parser = commands.add_parser("export", help="write conversations to a file or to stdout", allow_abbrev=False)
    parser.add_argument(
        "--format", choices=["antiphon", "markdown", "json"], default="antiphon", help="antiphon (comes back whole), markdown, json"
    )
    parser.add_argument("--conversation", metavar="ID", help="only this one")
    parser.add_argument("--user", help="whose conversations, by name or id (the owner's)")
    parser.add_argument("--output", metavar="FILE", type=Path, help="the file to write; there must be none yet")
    add_config_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    import asyncio

    from antiphon.app.transfer import export_to
    from antiphon.orchestrator.transfer.exporting import Format

    config, form = config_of(arguments), Format(arguments.format)

    def write(sink: IO[bytes]) -> None:
        asyncio.run(export_to(config, sink, form, user=arguments.user, conversation=arguments.conversation))

    if arguments.output is None:
        write(sys.stdout.buffer)
        sys.stdout.flush()
    else:
        with arguments.output.open("xb") as file:
            write(file)
    return 0
