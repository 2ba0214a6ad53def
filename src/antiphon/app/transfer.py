"""Imports and exports as the commands do them: on the data folder, whether or not a server runs on it."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from antiphon.app.admin import Admin
from antiphon.app.config import Config
from antiphon.app.system import SystemClock, SystemIds
from antiphon.app.wiring import Stores, open_stores
from antiphon.core.errors import NotFound
from antiphon.core.ids import ConversationId, IdKind, is_id
from antiphon.orchestrator.transfer.exporting import Exporter, Format, written
from antiphon.orchestrator.transfer.importing import Importer, Report
from antiphon.stores.conversations.base import Owner


async def import_file(config: Config, path: Path, *, user: str | None) -> Report:
    """Import ``path`` for ``user`` (by name or id; the owner). Raises ``OSError`` for a file that cannot be read, ``NotFound``."""
    with path.open("rb") as file:
        async with open_stores(config) as stores:
            return await Importer(stores.transfers, SystemClock(), SystemIds()).run(await _owner(config, stores, user), file)


async def export_to(config: Config, sink: IO[bytes], form: Format, *, user: str | None, conversation: str | None) -> None:
    """Write one conversation, or all of ``user``'s, to ``sink``. Raises ``NotFound``, ``OSError``."""
    async with open_stores(config) as stores:
        owner = await _owner(config, stores, user)
        exporter = Exporter(stores.conversations, stores.transfers)
        found = exporter.all(owner) if conversation is None else await exporter.one(owner, _conversation_id(conversation))
        async for piece in written(found, form):
            sink.write(piece)


def _conversation_id(text: str) -> ConversationId:
    if not is_id(text, IdKind.CONVERSATION):
        raise NotFound(f"There is no conversation {text!r}.")
    return ConversationId(text)


async def _owner(config: Config, stores: Stores, user: str | None) -> Owner:
    admin = Admin(stores.accounts, config, SystemClock(), SystemIds())
    holder = await admin.owner() if user is None else await stores.accounts.user_by_name(user)
    return Owner(holder.tenant_id, holder.id)
