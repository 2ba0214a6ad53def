"""Ids and secrets that are the same in every run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from antiphon.core.ids import IdKind


@dataclass(slots=True)
class CountingIds:
    """An ``IdSource`` that counts: valid UUIDv7 forms, each greater than the one before. ``salt`` keeps two sources apart."""

    salt: int = 0
    made: int = 0

    def new(self, kind: IdKind) -> str:
        self.made += 1
        return f"{kind.value}_01900000-0000-7000-8{self.salt:03x}-{self.made:012x}"

    def secret(self, random_bytes: int) -> str:
        self.made += 1
        return hashlib.sha256(f"{self.salt}:{self.made}".encode()).hexdigest()[: max(16, random_bytes * 4 // 3)]
