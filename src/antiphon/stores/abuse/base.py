"""The port of cases: what is held against accounts, changed together with the audit.

Every method may raise ``StoreUnavailable`` or ``DiskFull``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from antiphon.core.abuse import Case
from antiphon.core.ids import TenantId, UserId
from antiphon.stores.conversations.base import Owner


class AbuseCases(Protocol):
    async def open(self) -> tuple[Case, ...]:
        """Of all tenants: what is flagged, slowed or trusted now, or was once."""
        ...

    async def of_tenant(self, tenant_id: TenantId) -> tuple[Case, ...]:
        """Newest first."""
        ...

    async def get(self, tenant_id: TenantId, user_id: UserId) -> Case | None: ...

    async def put(self, case: Case, by: Owner, action: str, *, now: datetime, by_server: bool = False) -> None:
        """Keep a case in place of the one with the version before, and its audit entry. Raises ``Conflict`` where there is another."""
        ...
