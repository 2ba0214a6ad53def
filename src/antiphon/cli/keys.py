"""``antiphon keys``: API keys of users."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from antiphon.cli.arguments import add_config_flags, add_json_flag, administer, config_of, print_rows
from antiphon.core.clock import rfc3339
from antiphon.core.tenancy import Band, Scope

if TYPE_CHECKING:
    from antiphon.cli.arguments import Commands, Row
    from antiphon.core.tenancy import ApiKey

_DEFAULT_SCOPES = frozenset({Scope.CHAT, Scope.USAGE})


def add(commands: Commands) -> None:
    actions = commands.add_parser("keys", help="API keys").add_subparsers(metavar="ACTION", required=True)
    create = actions.add_parser("create", help="print a new key; it is shown only now", allow_abbrev=False)
    create.add_argument("--name", required=True, help="what the key is for")
    create.add_argument("--user", help="whose key, by name or id (the owner's)")
    create.add_argument("--scopes", type=_scopes, default=_DEFAULT_SCOPES, help="comma-separated: chat, usage, admin, metrics")
    create.add_argument(
        "--priority", choices=[band.name.lower() for band in Band], help="where its requests wait, at most as its user's plan says"
    )
    create.set_defaults(run=_create)
    listing = actions.add_parser("list", help="keys, revoked ones too", allow_abbrev=False)
    listing.add_argument("--user", help="only of this user")
    add_json_flag(listing)
    listing.set_defaults(run=_list)
    revoke = actions.add_parser("revoke", help="a running server refuses the key within 5 s", allow_abbrev=False)
    revoke.add_argument("key", metavar="KEY_ID")
    revoke.set_defaults(run=_revoke)
    for parser in (create, listing, revoke):
        add_config_flags(parser)


def _create(arguments: argparse.Namespace) -> int:
    config = config_of(arguments)
    unused = config.store.scheme == "sqlite" and not config.store.sqlite_path.exists()
    band = None if arguments.priority is None else Band[arguments.priority.upper()]
    key = administer(config, lambda admin: admin.create_key(arguments.name, user=arguments.user, scopes=arguments.scopes, band=band))
    if unused and arguments.data is None and not os.environ.get("ANTIPHON_DATA"):
        folder = config.store.sqlite_path.parent
        print(f"antiphon: {folder} is new; the key is for a server with this data folder (--data names another)", file=sys.stderr)
    print(key)
    return 0


def _list(arguments: argparse.Namespace) -> int:
    keys = administer(config_of(arguments), lambda admin: admin.keys(user=arguments.user))
    print_rows([_row(key) for key in keys], as_json=arguments.json)
    return 0


def _revoke(arguments: argparse.Namespace) -> int:
    administer(config_of(arguments), lambda admin: admin.revoke_key(arguments.key))
    return 0


def _row(key: ApiKey) -> Row:
    return {
        "id": key.id,
        "name": key.name,
        "user_id": key.user_id,
        "scopes": sorted(key.scopes),
        "priority": None if key.band is None else key.band.name.lower(),
        "last4": key.last4,
        "created_at": rfc3339(key.created_at),
        "revoked_at": None if key.revoked_at is None else rfc3339(key.revoked_at),
    }


def _scopes(text: str) -> frozenset[Scope]:
    known = ", ".join(Scope)
    try:
        return frozenset(Scope(name.strip()) for name in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"scopes are {known}") from None
