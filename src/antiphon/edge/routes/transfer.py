"""Conversations in and out: import, export, and everything an account holds."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from antiphon.core.errors import Forbidden
from antiphon.core.tenancy import Principal, Scope
from antiphon.edge.access import CHAT, UPLOAD, Caller, GuardedRoute, Handoff, OwnerOf, Responses, Services, app_state, guarded
from antiphon.edge.answers import ImportAnswer
from antiphon.edge.api_document import refuses
from antiphon.edge.paths import conversation_id as parse_conversation_id
from antiphon.edge.transferring import Download
from antiphon.orchestrator.transfer.account import archive_of, person_of
from antiphon.orchestrator.transfer.exporting import Exporter, Format, written

router = APIRouter(prefix="/v1", tags=["transfer"], route_class=GuardedRoute)

_MEDIA_TYPES = {
    Format.ANTIPHON: ("application/x-ndjson; charset=utf-8", "antiphon-export.jsonl"),
    Format.MARKDOWN: ("text/markdown; charset=utf-8", "antiphon-export.md"),
    Format.JSON: ("application/json", "antiphon-export.json"),
}
_EXPORTED: Responses = {
    200: {"description": "The file, as it is made.", "content": {kind: {} for kind, _ in _MEDIA_TYPES.values()}},
    **refuses(404),
}
_ARCHIVE: Responses = {200: {"description": "A ZIP, as it is made.", "content": {"application/zip": {}}}}
_IMPORTED: Responses = {200: {"description": "What became of each conversation.", "model": ImportAnswer}}
_FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {"type": "object", "required": ["file"], "properties": {"file": {"type": "string", "format": "binary"}}}
            }
        },
    }
}


@router.get("/export", response_model=None, responses=_EXPORTED)
@guarded(CHAT)
async def export(
    owner: OwnerOf,
    services: Services,
    form: Annotated[Format, Query(alias="format")] = Format.ANTIPHON,
    conversation_id: Annotated[str | None, Query()] = None,
) -> Response:
    """All conversations that are listed, or one, in a format that comes back whole, or one for people or programs."""
    exporter = Exporter(services.conversations, services.transfers)
    found = exporter.all(owner) if conversation_id is None else await exporter.one(owner, parse_conversation_id(conversation_id))
    await services.custody.record(owner, "conversations.export", conversation_id or owner.user_id, now=services.clock.now())
    media_type, name = _MEDIA_TYPES[form]
    return Handoff(Download(written(found, form), media_type=media_type, name=name))


@router.post("/import", response_model=None, responses=_IMPORTED, openapi_extra=_FORM)
@guarded(UPLOAD)
async def import_file(owner: OwnerOf, request: Request) -> Response:
    """Import ChatGPT's, Open WebUI's or LibreChat's export, or our own. What is here already is skipped; nothing new at all: 422."""
    return Handoff(app_state(request).imports.answer(owner))


@router.get("/me/export", response_model=None, responses=_ARCHIVE)
@guarded(CHAT)
async def export_account(caller: Caller, owner: OwnerOf, services: Services) -> Response:
    """Everything the caller has here: conversations, feedback, shares, keys without their secrets, the account."""
    _check_whole_account(caller)
    await services.custody.record(owner, "account.export", caller.user_id, now=services.clock.now())
    person = await person_of(services.accounts, services.shares, caller)
    pieces = archive_of(person, Exporter(services.conversations, services.transfers), owner)
    return Handoff(Download(pieces, media_type="application/zip", name="antiphon-account.zip"))


def _check_whole_account(caller: Principal) -> None:
    """A stolen key that may only chat must not learn of the others."""
    if caller.key_id is not None and Scope.ADMIN not in caller.scopes:
        raise Forbidden("This needs the scope admin.")
