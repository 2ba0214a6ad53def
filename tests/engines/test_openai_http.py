"""What servers of other makes answer, as they document it; ours is asked for real in ``tests/system``."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from antiphon.app.system import SystemClock
from antiphon.core.errors import EngineFailed
from antiphon.core.generation import FinishReason, Sampling
from antiphon.core.ids import TenantId
from antiphon.core.messages import Role
from antiphon.engines import openai_http
from antiphon.engines.base import EngineEvent, EngineRequest, Finished, PromptMessage, Tokens
from antiphon.engines.openai_http import Endpoint, OpenAiEngine, ServedModel
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


async def written(asked: web.Request, *pieces: bytes) -> web.StreamResponse:
    """A stream of just these bytes."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(asked)
    for piece in pieces:
        await response.write(piece)
    return response


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"data: {broken\n\n", "not JSON"),
        (b'data: {"choices": [{"delta": {"content": "half', "not JSON"),
        (b"data: " + b"[" * 200_000 + b"\n\n", "not JSON"),
        (b"data: " + b"x" * 3_000_000, "no such server sends"),
        (b'data: {"object": "error", "message": "no memory \\ud800"}\n\n', "no memory"),
        (b"\xff\xfe\x00garbage\n" * 50, "broke off"),
        (b"data: [DONE]\n\n", "broke off"),
        (b'data: {"choices": "none"}\n\ndata: [1]\n\ndata: 7\n\n', "broke off"),
    ],
)
async def test_garbage_is_a_failure_in_a_sentence(body: bytes, said: str) -> None:
    async def answer(asked: web.Request, _: Body) -> web.StreamResponse:
        return await written(asked, body)

    async with engine(answer) as made:
        with pytest.raises(EngineFailed, match=said) as failure:
            await told(made, request())
    failure.value.detail.encode()


async def test_a_two_hundred_with_an_error_inside_and_a_way_elsewhere() -> None:
    async def failing(_: web.Request, __: Body) -> web.StreamResponse:
        return web.json_response({"error": {"message": "the model is not there"}})

    async def elsewhere(_: web.Request, __: Body) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect("/v1/models")

    async with engine(failing) as made:
        with pytest.raises(EngineFailed, match="does not stream: the model is not there"):
            await told(made, request())
    async with engine(elsewhere) as made:
        with pytest.raises(EngineFailed, match="answered 307"):
            await told(made, request())


async def test_what_is_more_than_was_asked_for_is_cut_and_counts_beyond_measure_are_not_believed() -> None:
    async def for_ever(asked: web.Request, _: Body) -> web.StreamResponse:
        response = await sse(asked, delta("first "), done=False)
        with suppress(ConnectionError):
            while True:
                await response.write(b"data: " + json.dumps(delta("more ")).encode() + b"\n\n")
        return response

    async def boasts(asked: web.Request, _: Body) -> web.StreamResponse:
        usage: Body = {"prompt_tokens": True, "completion_tokens": 10**30, "prompt_tokens_details": [1]}
        chunk = delta("a\ud83d", "stop") | {"usage": usage, "error": None}
        return await sse(asked, chunk)

    async with engine(for_ever) as made:
        text, end = await told(made, request())
    assert (end.reason, text) == (FinishReason.LENGTH, "first " + 50 * "more ")
    async with engine(boasts) as made:
        text, end = await told(made, request())
    assert (text, end.usage.output_tokens, end.usage.prompt_tokens) == ("a\ufffd", 2, len(request().prompt_ids))


async def test_who_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_http, "SILENCE_S", 0.5)

    async def hangs(_: web.Request, __: Body) -> web.StreamResponse:
        await asyncio.sleep(30)
        raise web.HTTPNotFound

    async def breathes(asked: web.Request, _: Body) -> web.StreamResponse:
        response = await sse(asked, delta("one"), done=False)
        with suppress(ConnectionError):
            while True:
                await response.write(b": still there\n\n" + b"data: " + json.dumps(delta("")).encode() + b"\n\n")
                await asyncio.sleep(0.02)
        return response

    for answer in (hangs, breathes):
        async with engine(answer) as made:
            with pytest.raises(EngineFailed, match="does not answer"):
                await told(made, request())


async def test_a_server_that_is_not_there(free_port: int) -> None:
    made = OpenAiEngine(Endpoint(f"http://127.0.0.1:{free_port}/v1", "m"), SystemClock())
    try:
        with pytest.raises(EngineFailed, match=r"cannot be reached: Connection refused\.$"):
            await told(made, request())
    finally:
        await made.close()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"[" * 200_000, "sent what no such server sends: RecursionError"),
        (b'{"data": [' + b" " * (5 << 20) + b"]}", "lists more models than can be"),
        (b"\xff", "sent what no such server sends: UnicodeDecodeError"),
    ],
)
async def test_a_list_of_models_that_is_none(content: bytes, told: str) -> None:
    async with listing(content) as made:
        with pytest.raises(EngineFailed, match=told):
            await made.models()


async def test_a_packed_list_is_not_unpacked_without_bound() -> None:
    packed = gzip.compress(b" " * (200 << 20))
    tracemalloc.start()
    try:
        async with listing(packed, {"Content-Encoding": "gzip"}) as made:
            with pytest.raises(EngineFailed, match=r"lists more models than can be|sent what no such server sends"):
                await made.models()
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


async def test_names_that_cannot_be_shown_are_none() -> None:
    odd: list[object] = ["\x00", "\x1b[31m", "\u202e", "x" * 301, "", 5, None, [], {}, "good:7b"]
    entries = [{"id": name, "owned_by": {}, "max_model_len": 2**70} for name in odd] + [{"id": "half \ud800", "max_model_len": "x"}]
    async with listing(json.dumps({"data": entries}).encode()) as made:
        assert await made.models() == (ServedModel("good:7b", "", 0), ServedModel("half \N{REPLACEMENT CHARACTER}", "", 0))


@asynccontextmanager
async def listing(content: bytes, headers: Mapping[str, str] | None = None) -> AsyncGenerator[OpenAiEngine]:
    """An engine before a server that lists ``content``."""

    async def models(_: web.Request) -> web.Response:
        return web.Response(body=content, headers=headers)

    app = web.Application()
    app.router.add_get("/v1/models", models)
    async with TestServer(app, host="127.0.0.1") as server:
        made = OpenAiEngine(Endpoint(f"http://127.0.0.1:{server.port}/v1", "m"), SystemClock())
        try:
            yield made
        finally:
            await made.close()
