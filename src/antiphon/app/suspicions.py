"""Accounts under suspicion, as the commands see them: short writers beside a server that may be running."""

from __future__ import annotations

from datetime import timedelta

from antiphon.app.admin import Admin
from antiphon.app.config import Config
from antiphon.app.system import SystemClock, SystemIds
from antiphon.app.wiring import open_stores
from antiphon.core.abuse import Case
from antiphon.core.tenancy import User
from antiphon.governance.review import review
from antiphon.stores.conversations.base import Owner


async def suspicions(config: Config) -> tuple[tuple[Case, User], ...]:
    """What is held against accounts, and whose they are; newest first."""
    async with open_stores(config) as stores:
        found = sorted(await stores.cases.open(), key=lambda case: case.since, reverse=True)
        return tuple([(case, await stores.accounts.user(case.user_id)) for case in found])


async def decide_case(config: Config, user: str, *, throttled: bool, trust: timedelta) -> None:
    """Decide on the account with that name or id, as the installation's owner. Raises ``NotFound``."""
    clock = SystemClock()
    async with open_stores(config) as stores:
        owner = await Admin(stores.accounts, config, clock, SystemIds()).owner()
        holder = await stores.accounts.user_by_name(user)
        by = Owner(holder.tenant_id, owner.id)
        await review(stores.cases, holder, by, throttled=throttled, trust=trust, now=clock.now())
