"""``antiphon doctor``: is this machine, is this installation fit to serve?"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from antiphon.cli.arguments import add_config_flags, add_json_flag, config_of, print_rows

if TYPE_CHECKING:
    from antiphon.cli.arguments import Commands


def add(commands: Commands) -> None:
    parser = commands.add_parser("doctor", help="check this machine and this installation", allow_abbrev=False)
    add_config_flags(parser)
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from antiphon.app.doctor import examine

    checks = examine(config_of(arguments))
    if arguments.json:
        print_rows([{"state": check.state, "name": check.name, "detail": check.detail} for check in checks], as_json=True)
    else:
        for check in checks:
            print(f"{check.state:<4} {check.name:<14} {check.detail}")
    return 1 if any(check.state == "fail" for check in checks) else 0
