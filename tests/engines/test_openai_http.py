"""What servers of other makes answer, as they document it; ours is asked for real in ``tests/system``."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from antiphon.app.system import SystemClock
from antiphon.core.errors import EngineFailed
from antiphon.core.generation import FinishReason, Sampling
from antiphon.core.ids import TenantId
from antiphon.core.messages import Role
from antiphon.engines.base import EngineEvent, EngineRequest, Finished, PromptMessage, Tokens
from antiphon.engines.openai_http import Endpoint, OpenAiEngine
from antiphon.engines.transcript import THINK, THOUGHT, TranscriptTokenizer, text_of

TOKENIZER = TranscriptTokenizer()
Body = dict[str, object]
Answerer = Callable[[web.Request, Body], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def engine(answer: Answerer, owned_by: str = "") -> AsyncGenerator[OpenAiEngine]:
    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m", "owned_by": owned_by, "max_model_len": 900}]})

    async def complete(request: web.Request) -> web.StreamResponse:
        return await answer(request, await request.json())

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/chat/completions", complete)
    async with TestServer(app, host="127.0.0.1") as server:
        made = OpenAiEngine(Endpoint(f"http://127.0.0.1:{server.port}/v1", "m", "secret"), SystemClock())
        try:
            await made.probe()
            yield made
        finally:
            await made.close()


async def sse(request: web.Request, *chunks: object, done: bool = True) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for chunk in chunks:
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
    if done:
        await response.write(b"data: [DONE]\n\n")
    return response


def delta(text: str, reason: str | None = None) -> Body:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]}


def request(*, begun: str = "", stop: tuple[str, ...] = ()) -> EngineRequest:
    ids = TOKENIZER.prompt([PromptMessage(Role.SYSTEM, "be kind"), PromptMessage(Role.USER, "hi")])
    return EngineRequest("r", TenantId("t"), tuple(ids), Sampling(50, stop=stop), already_ids=tuple(TOKENIZER.encode(begun)))


async def told(made: OpenAiEngine, asked: EngineRequest) -> tuple[str, Finished]:
    events: list[EngineEvent] = [event async for event in made.generate(asked)]
    last = events[-1]
    assert isinstance(last, Finished)
    return "".join(event.text for event in events if isinstance(event, Tokens)) + last.text, last


async def test_text_reason_and_the_servers_own_counts() -> None:
    usage: Body = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 5}}}
    seen: list[Body] = []

    async def answer(asked: web.Request, body: Body) -> web.StreamResponse:
        assert asked.headers["Authorization"] == "Bearer secret"
        seen.append(body)
        return await sse(asked, delta("Hé"), delta("llo ✨"), delta("", "length"), usage)

    async with engine(answer) as made:
        text, end = await told(made, request())
    assert (text, end.reason) == ("Héllo ✨", FinishReason.LENGTH)
    assert (end.usage.prompt_tokens, end.usage.cached_tokens, end.usage.output_tokens) == (7, 5, 2)
    assert seen[0]["messages"] == [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}]
    assert (seen[0]["max_tokens"], seen[0]["stream"]) == (50, True)


@pytest.mark.parametrize(("owned_by", "extra"), [("vllm", 0), ("library", 0), ("openai", 1)])
async def test_an_answer_that_has_begun_goes_on(owned_by: str, extra: int) -> None:
    seen: list[Body] = []

    async def answer(asked: web.Request, body: Body) -> web.StreamResponse:
        seen.append(body)
        return await sse(asked, delta(" more"), delta("", "stop"))

    async with engine(answer, owned_by) as made:
        text, _ = await told(made, request(begun="Once"))
    assert text == " more"
    messages = seen[0]["messages"]
    assert isinstance(messages, list)
    assert messages[2] == {"role": "assistant", "content": "Once"}
    assert len(messages) == 3 + extra
    assert ("continue_final_message" in seen[0]) is (owned_by == "vllm")


async def test_thoughts_come_between_their_marks() -> None:
    async def answer(asked: web.Request, _: Body) -> web.StreamResponse:
        thoughts = [{"choices": [{"delta": {"reasoning_content": part}}]} for part in ("hm", "m")]
        return await sse(asked, *thoughts, delta("yes"), delta("!", "stop"))

    async with engine(answer) as made:
        events = [event async for event in made.generate(request())]
    tokens = [event for event in events if isinstance(event, Tokens)]
    assert "".join(event.text for event in tokens) == "yes!"
    ids = [token_id for event in tokens for token_id in event.token_ids]
    assert ids == [THINK, *TOKENIZER.encode("hm"), *TOKENIZER.encode("m"), THOUGHT, *TOKENIZER.encode("yes"), *TOKENIZER.encode("!")]
    assert text_of(ids) == "yes!"


async def test_a_stop_string_that_the_server_lets_through_ends_the_text() -> None:
    async def answer(asked: web.Request, _: Body) -> web.StreamResponse:
        return await sse(asked, delta("one EN"), delta("D two"), delta("", "stop"))

    async with engine(answer) as made:
        assert (await told(made, request(stop=("END",))))[0] == "one "


async def test_a_model_that_thinks_is_asked_in_its_words() -> None:
    seen: list[Body] = []

    async def answer(asked: web.Request, body: Body) -> web.StreamResponse:
        seen.append(body)
        if "max_tokens" in body:
            return web.json_response({"error": {"message": "Use 'max_completion_tokens' instead."}}, status=400)
        return await sse(asked, delta("ok", "stop"))

    async with engine(answer) as made:
        assert (await told(made, request()))[0] == "ok"
        assert (await told(made, request()))[0] == "ok"
    assert ["max_completion_tokens" in body for body in seen] == [False, True, True]
    assert "temperature" not in seen[1]


@pytest.mark.parametrize(
    ("status", "content", "said"),
    [
        (401, {"error": {"message": "bad key"}}, "refuses the key: bad key"),
        (404, {"error": "no such model"}, "does not know 'm'"),
        (429, {"error": {"message": "quota"}}, "quota"),
        (500, {"detail": "boom"}, "answered 500: boom"),
    ],
)
async def test_refusals_are_a_sentence(status: int, content: Body, said: str) -> None:
    async def answer(_: web.Request, __: Body) -> web.StreamResponse:
        return web.json_response(content, status=status)

    async with engine(answer) as made:
        with pytest.raises(EngineFailed, match=said) as failure:
            await told(made, request())
    assert "secret" not in failure.value.detail


async def test_an_error_in_the_stream_and_a_stream_without_an_end() -> None:
    async def failing(asked: web.Request, _: Body) -> web.StreamResponse:
        return await sse(asked, delta("Hel"), {"error": {"message": "out of memory"}})

    async def cut(asked: web.Request, _: Body) -> web.StreamResponse:
        return await sse(asked, delta("Hel"), done=False)

    async with engine(failing) as made:
        with pytest.raises(EngineFailed, match="out of memory"):
            await told(made, request())
    async with engine(cut) as made:
        with pytest.raises(EngineFailed, match="broke off"):
            await told(made, request())


async def test_a_server_that_is_not_there(free_port: int) -> None:
    made = OpenAiEngine(Endpoint(f"http://127.0.0.1:{free_port}/v1", "m"), SystemClock())
    try:
        with pytest.raises(EngineFailed, match="cannot be reached"):
            await told(made, request())
    finally:
        await made.close()
