"""``antiphon users``: people who may sign in."""

from __future__ import annotations

import argparse
import getpass
import sys
from typing import TYPE_CHECKING

from antiphon.cli.arguments import add_config_flags, add_json_flag, administer, config_of, print_rows
from antiphon.core.clock import rfc3339
from antiphon.core.tenancy import UserRole

if TYPE_CHECKING:
    from antiphon.cli.arguments import Commands, Row
    from antiphon.core.tenancy import User


def add(commands: Commands) -> None:
    actions = commands.add_parser("users", help="people who may sign in").add_subparsers(metavar="ACTION", required=True)
    create = actions.add_parser("create", help="print the new user's id", allow_abbrev=False)
    create.add_argument("name", metavar="NAME")
    create.add_argument("--tenant", help="by name or id (the owner's)")
    create.add_argument("--plan", help="a plan of the configuration (the default one)")
    create.add_argument("--role", choices=[role.value for role in UserRole], default=UserRole.MEMBER.value)
    create.set_defaults(run=_create)
    listing = actions.add_parser("list", help="all users", allow_abbrev=False)
    listing.add_argument("--tenant", help="only of this tenant")
    add_json_flag(listing)
    listing.set_defaults(run=_list)
    disable = actions.add_parser("disable", help="ends sessions and keys within 5 s", allow_abbrev=False)
    disable.add_argument("user", metavar="USER", help="name or id")
    disable.set_defaults(run=_disable)
    enable = actions.add_parser("enable", help="lets a disabled user in again", allow_abbrev=False)
    enable.add_argument("user", metavar="USER", help="name or id")
    enable.set_defaults(run=_enable)
    password = actions.add_parser("password", help="set a password: asked for, or one line on stdin", allow_abbrev=False)
    password.add_argument("user", metavar="USER", nargs="?", help="name or id (the owner)")
    password.set_defaults(run=_password)
    for parser in (create, listing, disable, enable, password):
        add_config_flags(parser)


def _create(arguments: argparse.Namespace) -> int:
    role = UserRole(arguments.role)
    config = config_of(arguments)
    print(administer(config, lambda admin: admin.create_user(arguments.name, tenant=arguments.tenant, plan=arguments.plan, role=role)))
    return 0


def _list(arguments: argparse.Namespace) -> int:
    users = administer(config_of(arguments), lambda admin: admin.users(tenant=arguments.tenant))
    print_rows([_row(user) for user in users], as_json=arguments.json)
    return 0


def _disable(arguments: argparse.Namespace) -> int:
    administer(config_of(arguments), lambda admin: admin.disable_user(arguments.user))
    return 0


def _enable(arguments: argparse.Namespace) -> int:
    administer(config_of(arguments), lambda admin: admin.enable_user(arguments.user))
    return 0


def _password(arguments: argparse.Namespace) -> int:
    config = config_of(arguments)
    password = _read_password()
    if password is None:
        print("antiphon: the two passwords differ", file=sys.stderr)
        return 1
    administer(config, lambda admin: admin.set_password(password, user=arguments.user))
    return 0


def _read_password() -> str | None:
    """Never an argument: others on the machine could read it. ``None`` where the second one typed differs."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    password = getpass.getpass("Password: ")
    return password if getpass.getpass("Once more: ") == password else None


def _row(user: User) -> Row:
    return {
        "id": user.id,
        "name": user.name,
        "tenant_id": user.tenant_id,
        "role": user.role.value,
        "plan": user.plan,
        "disabled": user.disabled,
        "created_at": rfc3339(user.created_at),
    }
