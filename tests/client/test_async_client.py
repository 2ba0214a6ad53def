"""The asynchronous client: the same cursor, another transport."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from antiphon.client import ApiError, ClientError, ConnectionLost, Done
from antiphon.client.async_client import AsyncAnswer, AsyncClient, AsyncTransport
from antiphon.client.cursor import Opening
from tests.client.scripted_server import Scene, scripted
from tests.client.test_answer import TEXTS, WHIMS
from tests.client.whimsical_server import Whim, whimsical


async def at_once(_: float) -> None:
    pass


async def told(url: str) -> str:
    transport = AsyncTransport(url, "ak_1", timeout_s=5)
    answer = AsyncAnswer(transport, Opening("/v1/conversations/conv_1/messages", {"content": "hi"}, "key-1"), sleep=at_once)
    try:
        events = [event async for event in answer]
    finally:
        await transport.close()
    assert isinstance(events[-1], Done)
    assert sum(isinstance(event, Done) for event in events) == 1
    return answer.text


@given(texts=TEXTS, whims=WHIMS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_every_character_once(texts: list[str], whims: list[Whim]) -> None:
    import asyncio

    with whimsical() as (url, story):
        story.texts, story.whims, story.cursors = texts, [Whim(cut=400), *whims], []
        assert asyncio.run(told(url)) == "".join(texts)


async def test_refusals_and_absent_servers(free_port: int) -> None:
    with scripted(Scene(b'{"code":"unauthenticated","detail":"Sign in."}', 401, "application/problem+json")) as server:
        async with AsyncClient(server.url, "ak_1") as client:
            with pytest.raises(ApiError, match="unauthenticated"):
                await client.me()
    async with AsyncClient(f"http://127.0.0.1:{free_port}", "ak_1") as client:
        with pytest.raises(ConnectionLost):
            await client.models()
    with pytest.raises(ClientError):
        AsyncClient("ftp://x", "ak_1")


async def test_a_page_and_a_path() -> None:
    page = Scene(b'{"data":[{"id":"conv_1","title":"T"}],"next":"c"}', media="application/json")
    path = Scene(
        b'{"data":[{"id":"msg_1","role":"user","content":"hi","status":"complete"}],"siblings":{"msg_1":["msg_1","msg_2"]},"next":null}'
    )
    with scripted(page, path) as server:
        async with AsyncClient(server.url, "ak_1") as client:
            assert (await client.conversations(limit=1)).data[0].id == "conv_1"
            assert (await client.path("conv_1")).siblings["msg_1"] == ("msg_1", "msg_2")
    assert [request.path for request in server.requests] == ["/v1/conversations?limit=1", "/v1/conversations/conv_1/messages?limit=100"]
