"""A credential that ends under a request that goes on: whatever the request is, it ends too, and changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import httpx
import pytest

from tests.edge.site import Person, Site

COMPLETION = {"model": "slow", "max_tokens": 500, "messages": [{"role": "user", "content": "hello"}]}
WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Guest:
    """A client with a key that ``revoke`` ends."""

    http: httpx.AsyncClient
    ada: Person
    key_id: str

    async def revoke(self) -> None:
        assert (await self.ada.http.delete(f"/v1/keys/{self.key_id}")).status_code == 204


@pytest.fixture
async def guest(ada: Person, site: Site, monkeypatch: pytest.MonkeyPatch) -> Guest:
    monkeypatch.setattr("antiphon.edge.standing.RECHECK_SECONDS", 0.1)
    for module in ("standing", "access"):
        monkeypatch.setattr(f"antiphon.edge.{module}.JOIN_SECONDS", 0.05)
    made = (await ada.http.post("/v1/keys", json={"name": "short"})).json()
    return Guest(site.client(Authorization=f"Bearer {made['key']}"), ada, made["id"])


async def test_a_streamed_completion_is_cut(guest: Guest) -> None:
    async with asyncio.timeout(WITHIN_S), guest.http.stream("POST", "/v1/chat/completions", json={**COMPLETION, "stream": True}) as answer:
        lines = answer.aiter_lines()
        assert (await anext(lines)).startswith("data: ")
        await guest.revoke()
        with pytest.raises(httpx.RemoteProtocolError):
            while True:
                assert await anext(lines) != "data: [DONE]"


async def test_a_whole_completion_is_refused(guest: Guest) -> None:
    asked = asyncio.create_task(guest.http.post("/v1/chat/completions", json=COMPLETION))
    await asyncio.sleep(0.3)
    await guest.revoke()
    answer = await asyncio.wait_for(asked, WITHIN_S)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthenticated")


async def _slowly(*pieces: bytes) -> AsyncGenerator[bytes]:
    for piece in pieces:
        yield piece
        await asyncio.sleep(0.4)


@pytest.mark.parametrize("path", ["/v1/conversations", "/v1/chat/completions"])
async def test_a_body_that_comes_too_late_does_nothing(guest: Guest, path: str) -> None:
    body = _slowly(b'{"title"', b': "late"', b"}")
    asked = asyncio.create_task(guest.http.post(path, content=body, headers={"Content-Type": "application/json"}))
    await asyncio.sleep(0.2)
    await guest.revoke()
    assert (await asyncio.wait_for(asked, WITHIN_S)).status_code == 401
    listed = (await guest.ada.http.get("/v1/conversations?limit=100")).json()["data"]
    assert "late" not in {conversation["title"] for conversation in listed}


async def test_an_upload_is_cut_and_imports_nothing(guest: Guest) -> None:
    line = b'{"title": "late upload", "messages": [{"role": "user", "content": "x"}]}\n'
    part = b'--B\r\nContent-Disposition: form-data; name="file"; filename="x.jsonl"\r\n\r\n' + line
    body = _slowly(part, b"\n", b"\n", b"\r\n--B--\r\n")
    asked = asyncio.create_task(guest.http.post("/v1/import", content=body, headers={"Content-Type": "multipart/form-data; boundary=B"}))
    await asyncio.sleep(0.2)
    await guest.revoke()
    assert (await asyncio.wait_for(asked, WITHIN_S)).status_code == 401
    assert (await guest.ada.http.get("/v1/search?q=upload")).json()["data"] == []
