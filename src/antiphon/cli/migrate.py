"""``antiphon migrate``: bring the database up to date, after a copy of an SQLite one is safe."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from antiphon.cli.arguments import add_config_flags, config_of

if TYPE_CHECKING:
    from antiphon.cli.arguments import Commands


def add(commands: Commands) -> None:
    parser = commands.add_parser("migrate", help="bring the database up to date; of SQLite a copy is kept", allow_abbrev=False)
    add_config_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    import asyncio

    from antiphon.app.wiring import migrate

    config = config_of(arguments)
    done = asyncio.run(migrate(config))
    if done.before == done.after:
        print(f"{config.store.place} is up to date (schema {done.after}).")
    elif done.before is None:
        print(f"{config.store.place} is new (schema {done.after}).")
    else:
        kept = f"; as it was before: {done.backup}" if done.backup else ""
        print(f"{config.store.place} went from schema {done.before} to {done.after}{kept}")
    return 0
