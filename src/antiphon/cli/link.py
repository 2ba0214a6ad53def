"""``antiphon link``: a new sign-in link."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from antiphon.cli.arguments import add_config_flags, administer, config_of

if TYPE_CHECKING:
    from antiphon.cli.arguments import Commands


def add(commands: Commands) -> None:
    parser = commands.add_parser("link", help="print a link that signs in once, within a day", allow_abbrev=False)
    parser.add_argument("--user", help="who signs in, by name or id (the owner)")
    add_config_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from antiphon.app.admin import server_url

    config = config_of(arguments)
    url = server_url(config)
    print(administer(config, lambda admin: admin.link(user=arguments.user, url=url)))
    return 0
