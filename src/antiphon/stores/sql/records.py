"""The audit's rows, written inside the transaction of what they tell."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from antiphon.core.clock import to_ms
from antiphon.stores.conversations.base import Owner
from antiphon.stores.sql.prepared import Prepared
from antiphon.stores.sql.tables import audit

_insert = Prepared(audit.insert(), columns=("tenant_id", "user_id", "action", "subject", "at"))


def add_audit(tx: sa.Connection, owner: Owner, action: str, subject: str, now: datetime, *, by_server: bool = False) -> None:
    """``owner``, or the server on its own, did ``action`` to the thing with the id ``subject``. Never users' text."""
    actor = None if by_server else owner.user_id
    values = {"tenant_id": owner.tenant_id, "user_id": actor, "action": action, "subject": subject, "at": to_ms(now)}
    _insert.run(tx, values)
