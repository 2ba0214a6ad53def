"""The real clock, ids and randomness; everything else takes them as arguments."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime

import uuid_utils

from antiphon.core.clock import truncate_to_ms
from antiphon.core.ids import IdKind


class SystemClock:
    def now(self) -> datetime:
        return truncate_to_ms(datetime.now(UTC))

    def monotonic(self) -> float:
        return time.monotonic()


class SystemIds:
    """UUIDv7 ids, monotone within this process."""

    def new(self, kind: IdKind) -> str:
        return f"{kind.value}_{uuid_utils.uuid7()}"

    def secret(self, random_bytes: int) -> str:
        return secrets.token_urlsafe(random_bytes)
