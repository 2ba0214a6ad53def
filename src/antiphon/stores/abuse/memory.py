"""Cases in memory: the reference driver."""

from __future__ import annotations

from datetime import datetime

from antiphon.core.abuse import Case
from antiphon.core.errors import Conflict
from antiphon.core.ids import TenantId, UserId
from antiphon.stores.conversations.base import Owner
from antiphon.stores.memory import MemoryState


class MemoryAbuseCases:
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def open(self) -> tuple[Case, ...]:
        return tuple(self._state.abuse_cases.values())

    async def of_tenant(self, tenant_id: TenantId) -> tuple[Case, ...]:
        own = [case for case in self._state.abuse_cases.values() if case.tenant_id == tenant_id]
        return tuple(sorted(own, key=lambda case: (case.since, case.user_id), reverse=True))

    async def get(self, tenant_id: TenantId, user_id: UserId) -> Case | None:
        return self._state.abuse_cases.get((tenant_id, user_id))

    async def put(self, case: Case, by: Owner, action: str, *, now: datetime, by_server: bool = False) -> None:
        before = self._state.abuse_cases.get((case.tenant_id, case.user_id))
        if (0 if before is None else before.version) != case.version - 1:
            raise Conflict
        self._state.abuse_cases[case.tenant_id, case.user_id] = case
        self._state.add_audit(by, action, case.user_id, now, by_server=by_server)
