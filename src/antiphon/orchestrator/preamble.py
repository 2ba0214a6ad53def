"""What a user wants in every conversation, as one text of fixed form. Pure."""

from __future__ import annotations

import hashlib

from antiphon.core.prompts import Preamble
from antiphon.stores.personal.base import Personal


def preamble_of(personal: Personal) -> Preamble | None:
    """The preamble of these instructions and memories; ``None`` where there are none."""
    instructions = personal.instructions.strip()
    memory = "\n".join(f"- {' '.join(memory.text.split())}" for memory in personal.memories)
    if not instructions and not memory:
        return None
    digest = hashlib.sha256(f"{len(instructions)}\n{instructions}\n{memory}".encode()).hexdigest()[:32]
    return Preamble(digest, instructions, memory)
