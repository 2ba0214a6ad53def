"""The authorisation matrix is as the table says; and with a hole planted it is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from fastapi import APIRouter, Request
from starlette.types import Scope

from antiphon.core.generation import Generation
from antiphon.core.ids import ConversationId, GenerationId
from antiphon.edge import access
from antiphon.edge.access import PUBLIC, GuardedRoute, guarded
from antiphon.edge.routes import ROUTERS
from antiphon.inference.gateway import Gateway
from antiphon.stores.accounts.memory import MemoryAccounts
from antiphon.stores.conversations.base import Owner
from antiphon.stores.generations.memory import MemoryGenerations
from antiphon.stores.transfers.base import WholeConversation
from antiphon.stores.transfers.memory import MemoryTransfers
from tests.edge.access_table import RULES
from tests.edge.matrix import Matrix
from tests.edge.site import Site


@pytest.fixture
async def elsewhere(gateway: Gateway) -> AsyncIterator[Site]:
    """A server that other machines reach: nothing is open because the caller is on this one."""
    site = Site(gateway, loopback=False)
    await site.open()
    try:
        yield site
    finally:
        await site.close()


@pytest.mark.timeout(180)
async def test_every_route_lets_in_whom_the_table_names_and_nobody_else(elsewhere: Site) -> None:
    matrix = Matrix(elsewhere)
    assert await matrix.judge() == []
    assert matrix.covered == RULES.keys()
    assert matrix.asked > 30 * len(matrix.covered)


async def test_a_route_that_no_rule_names_fails(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    router = APIRouter(route_class=GuardedRoute)

    @router.get("/v1/forgotten")
    @guarded(PUBLIC)
    async def forgotten() -> dict[str, str]:
        return {}

    monkeypatch.setattr("antiphon.edge.http.ROUTERS", (*ROUTERS, router))
    assert await _holes(gateway, "GET /v1/forgotten") == ["GET /v1/forgotten: is in no rule"]


async def test_a_route_without_a_check_fails(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    real = access._admit

    async def admit(state: access.AppState, scope: Scope, guard: access.Guard) -> None:
        await real(state, scope, PUBLIC if scope["path"] == "/v1/admin/plans" else guard)

    monkeypatch.setattr(access, "_admit", admit)
    found = await _holes(gateway, "GET /v1/admin/plans")
    assert "GET /v1/admin/plans: anonymous gets 200, not [401]" in found
    assert "GET /v1/admin/plans: member, bearer gets 200, not [403]" in found


async def test_a_foreign_stream_fails(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    async def get_anybodys(self: MemoryGenerations, owner: Owner, generation_id: GenerationId) -> Generation:
        return self._state.generations[generation_id]

    monkeypatch.setattr(MemoryGenerations, "get", get_anybodys)
    found = await _holes(gateway, "GET /v1/generations/{generation_id}/stream")
    assert any("other tenant, bearer gets 200, not [404]" in finding for finding in found)
    assert any("same tenant's admin, cookie gets 200, not [404]" in finding for finding in found)


async def test_a_key_that_is_taken_from_a_query_fails(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    real = access._admit

    async def admit(state: access.AppState, scope: Scope, guard: access.Guard) -> None:
        key = Request(scope).query_params.get("api_key")
        if key is not None:
            scope["headers"] = [*scope["headers"], (b"authorization", f"Bearer {key}".encode())]
        await real(state, scope, guard)

    monkeypatch.setattr(access, "_admit", admit)
    assert await _holes(gateway, "GET /v1/me") == ["GET /v1/me: key in ?api_key= gets 200, not [401]"]


async def test_a_session_that_outlives_its_sign_out_fails(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget_nothing(self: MemoryAccounts, token_sha256: bytes) -> None: ...

    monkeypatch.setattr(MemoryAccounts, "end_session", forget_nothing)
    assert await _holes(gateway, "GET /v1/me") == ["GET /v1/me: ended session, cookie gets 200, not [401]"]


async def test_an_import_into_a_foreign_conversation_fails(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    real = MemoryTransfers.import_conversation

    async def import_by_source(self: MemoryTransfers, whole: WholeConversation) -> ConversationId | None:
        assert whole.origin is not None
        known = self._state.conversations.get(ConversationId(whole.origin.source_id))
        if known is None:
            return await real(self, whole)
        self._state.conversations[known.id] = replace(known, title=whole.head.title)
        return known.id

    monkeypatch.setattr(MemoryTransfers, "import_conversation", import_by_source)
    found = await _holes(gateway, "POST /v1/import")
    assert "what belongs to the victim has changed" in found
    assert any("imports into the victim's conversation" in finding for finding in found)


async def _holes(gateway: Gateway, route: str) -> list[str]:
    site = Site(gateway, loopback=False)
    await site.open()
    try:
        return await Matrix(site, only=lambda one: one == route).judge()
    finally:
        await site.close()
