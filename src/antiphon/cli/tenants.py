"""``antiphon tenants``: organisations."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from antiphon.cli.arguments import add_config_flags, add_json_flag, administer, config_of, print_rows
from antiphon.core.clock import rfc3339

if TYPE_CHECKING:
    from antiphon.cli.arguments import Commands


def add(commands: Commands) -> None:
    actions = commands.add_parser("tenants", help="organisations").add_subparsers(metavar="ACTION", required=True)
    create = actions.add_parser("create", help="print the new tenant's id", allow_abbrev=False)
    create.add_argument("name", metavar="NAME")
    create.set_defaults(run=_create)
    listing = actions.add_parser("list", help="all tenants", allow_abbrev=False)
    add_json_flag(listing)
    listing.set_defaults(run=_list)
    for parser in (create, listing):
        add_config_flags(parser)


def _create(arguments: argparse.Namespace) -> int:
    print(administer(config_of(arguments), lambda admin: admin.create_tenant(arguments.name)))
    return 0


def _list(arguments: argparse.Namespace) -> int:
    tenants = administer(config_of(arguments), lambda admin: admin.tenants())
    rows = [{"id": tenant.id, "name": tenant.name, "created_at": rfc3339(tenant.created_at)} for tenant in tenants]
    print_rows(rows, as_json=arguments.json)
    return 0
