"""``antiphon version``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from antiphon import __version__

if TYPE_CHECKING:
    from antiphon.cli.arguments import Commands


def add(commands: Commands) -> None:
    parser = commands.add_parser("version", help="print the version")
    parser.set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    print(__version__)
    return 0
