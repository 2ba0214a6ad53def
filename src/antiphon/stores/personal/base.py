"""The port of what a user wants in every conversation: instructions, and things to remember."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from antiphon.core.ids import MemoryId
from antiphon.core.prompts import Memory
from antiphon.stores.conversations.base import Owner


@dataclass(frozen=True, slots=True)
class Personal:
    """``memories`` stand in order of creation."""

    instructions: str = ""
    memories: tuple[Memory, ...] = ()


class PersonalTexts(Protocol):
    """Every method may raise ``StoreUnavailable`` or ``DiskFull``; what is written is durable on return."""

    async def get(self, owner: Owner) -> Personal: ...

    async def put_instructions(self, owner: Owner, text: str) -> None:
        """Replace the instructions; the empty text removes them."""
        ...

    async def add_memory(self, owner: Owner, memory: Memory, *, at_most: int) -> None:
        """Remember one thing more; raises ``Conflict`` where there are ``at_most`` already."""
        ...

    async def change_memory(self, owner: Owner, memory_id: MemoryId, text: str) -> Memory:
        """Raises ``NotFound``."""
        ...

    async def forget_memory(self, owner: Owner, memory_id: MemoryId) -> None:
        """Raises ``NotFound``."""
        ...

    async def forget(self, owner: Owner) -> None:
        """Remove the owner's instructions and all memories."""
        ...
