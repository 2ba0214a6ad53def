"""``antiphon users``: people who may sign in."""

from __future__ import annotations

import argparse
import getpass
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

from antiphon.cli.arguments import add_config_flags, add_json_flag, administer, config_of, print_rows
from antiphon.core.clock import rfc3339
from antiphon.core.tenancy import UserRole

if TYPE_CHECKING:
    from antiphon.cli.arguments import Commands, Row
    from antiphon.core.abuse import Case
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
    suspects = actions.add_parser("suspects", help="what is held against accounts", allow_abbrev=False)
    add_json_flag(suspects)
    suspects.set_defaults(run=_suspects)
    review = actions.add_parser("review", help="decide on an account under suspicion", allow_abbrev=False)
    review.add_argument("user", metavar="USER", help="name or id")
    verdict = review.add_mutually_exclusive_group(required=True)
    verdict.add_argument("--clear", action="store_true", help="nothing is held against it, for some days")
    verdict.add_argument("--throttle", action="store_true", help="slowed until it is cleared")
    review.add_argument(
        "--days", type=int, default=7, choices=range(1, 366), metavar="1…365", help="how long who is cleared is trusted (7)"
    )
    review.set_defaults(run=_review)
    for parser in (create, listing, disable, enable, password, suspects, review):
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


def _suspects(arguments: argparse.Namespace) -> int:
    import asyncio

    from antiphon.app.suspicions import suspicions

    rows = [_case_row(case, user) for case, user in asyncio.run(suspicions(config_of(arguments)))]
    print_rows(rows, as_json=arguments.json)
    return 0


def _review(arguments: argparse.Namespace) -> int:
    import asyncio

    from antiphon.app.suspicions import decide_case

    trust = timedelta(days=arguments.days)
    asyncio.run(decide_case(config_of(arguments), arguments.user, throttled=arguments.throttle, trust=trust))
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


def _case_row(case: Case, user: User) -> Row:
    return {
        "user_id": user.id,
        "name": user.name,
        "state": case.state.value,
        "score": f"{case.score:.2f}",
        "signals": [f"{signal.name} {signal.level:.2f}" for signal in case.signals],
        "since": rfc3339(case.since),
        "reviewed_by": case.reviewed_by,
        "trusted_until": None if case.trusted_until is None else rfc3339(case.trusted_until),
    }
