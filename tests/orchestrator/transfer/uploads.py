"""Files as people send them, and what becomes of them in memory stores."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from antiphon.core.clock import ManualClock
from antiphon.core.ids import ConversationId, TenantId, UserId
from antiphon.orchestrator.transfer.archive import DEFAULT_BOUNDS, Bounds
from antiphon.orchestrator.transfer.exporting import Exporter, Format, written
from antiphon.orchestrator.transfer.importing import Importer, Line, Report
from antiphon.stores.conversations.base import Owner
from antiphon.stores.conversations.memory import MemoryConversations
from antiphon.stores.memory import MemoryState
from antiphon.stores.transfers.base import WholeConversation
from antiphon.stores.transfers.memory import MemoryTransfers
from tests.ids import CountingIds

FIXTURES = Path(__file__).parent / "fixtures"
ME = Owner(TenantId("tenant_1"), UserId("user_1"))
YOU = Owner(TenantId("tenant_1"), UserId("user_2"))


def fixture(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()


def as_zip(**members: bytes | str) -> bytes:
    """A ZIP; ``__`` in a name stands for a dot."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "."), content)
    return packed.getvalue()


def chatgpt(source_id: str, *texts: str, **fields: object) -> dict[str, object]:
    """One conversation of ChatGPT's: ``texts`` by turns of a user and an assistant."""
    mapping: dict[str, object] = {"root": {"id": "root", "message": None, "parent": None, "children": []}}
    for number, text in enumerate(texts):
        mapping[f"n{number}"] = {
            "id": f"n{number}",
            "parent": f"n{number - 1}" if number else "root",
            "children": [],
            "message": {
                "author": {"role": "assistant" if number % 2 else "user"},
                "create_time": 1_700_000_000 + number,
                "content": {"content_type": "text", "parts": [text]},
            },
        }
    return {"conversation_id": source_id, "title": source_id, "mapping": mapping, "current_node": f"n{len(texts) - 1}", **fields}


def as_json(conversations: Iterable[object]) -> bytes:
    return json.dumps(list(conversations)).encode()


class Place:
    """One server's conversations, in memory."""

    def __init__(self, salt: int = 0, *, bounds: Bounds = DEFAULT_BOUNDS) -> None:
        self.state = MemoryState()
        self.clock = ManualClock(datetime(2030, 1, 1, tzinfo=UTC))
        self.conversations = MemoryConversations(self.state)
        self.transfers = MemoryTransfers(self.state)
        self.importer = Importer(self.transfers, self.clock, CountingIds(salt), bounds)
        self.exporter = Exporter(self.conversations, self.transfers)

    async def take(self, file: bytes, owner: Owner = ME) -> Report:
        return await self.importer.run(owner, io.BytesIO(file))

    async def whole(self, line: Line, owner: Owner = ME) -> WholeConversation:
        assert line.conversation_id is not None, line
        return await self.transfers.whole(owner, line.conversation_id)

    async def give(self, form: Format = Format.ANTIPHON, owner: Owner = ME, only: ConversationId | None = None) -> bytes:
        found = self.exporter.all(owner) if only is None else await self.exporter.one(owner, only)
        return b"".join([piece async for piece in written(found, form)])


def tree_of(whole: WholeConversation) -> list[tuple[int | None, str, str]]:
    """Messages in order: the place of the parent, the role, the text."""
    places = {message.id: place for place, message in enumerate(whole.messages)}
    return [(None if m.parent_id is None else places[m.parent_id], m.role.value, m.content) for m in whole.messages]
