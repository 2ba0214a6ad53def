"""``antiphon backup`` and ``restore``: one file, which is the SQLite database as it was at one moment, and a way back from it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.cli.arguments import add_config_flags, config_of

if TYPE_CHECKING:
    from antiphon.cli.arguments import Commands


def add(commands: Commands) -> None:
    parser = commands.add_parser("backup", help="copy everything into one new file, while a server runs or not", allow_abbrev=False)
    parser.add_argument("file", metavar="FILE", type=Path)
    add_config_flags(parser)
    parser.set_defaults(run=_backup)
    parser = commands.add_parser("restore", help="go back to a backup, while no server has the data folder", allow_abbrev=False)
    parser.add_argument("file", metavar="FILE", type=Path)
    add_config_flags(parser)
    parser.set_defaults(run=_restore)


def _backup(arguments: argparse.Namespace) -> int:
    import asyncio

    from antiphon.app.wiring import backup

    asyncio.run(backup(config_of(arguments), arguments.file))
    print(arguments.file)
    return 0


def _restore(arguments: argparse.Namespace) -> int:
    import asyncio

    from antiphon.app.wiring import restore

    config = config_of(arguments)
    kept = asyncio.run(restore(config, arguments.file))
    print(f"{config.store.place} is as it was in {arguments.file}." + (f" What was there before: {kept}" if kept else ""))
    return 0
