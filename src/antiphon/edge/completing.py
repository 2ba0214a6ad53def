"""One answer of ``/v1/chat/completions``, whole or in chunks, as a plain ASGI handler in OpenAI's shapes."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec
import structlog
from starlette.types import Receive, Scope, Send

from antiphon.core.errors import EngineFailed
from antiphon.edge import sse
from antiphon.edge.connection import ClientGone, Connection, HeaderList
from antiphon.edge.problems import INTERNAL, openai_body, problem_of
from antiphon.edge.rate_headers import rate_headers
from antiphon.engines.base import EngineUsage, Finished, Tokens
from antiphon.orchestrator.completion import CompletionStream
from antiphon.orchestrator.thinking import Spoken

_DONE = b"data: [DONE]\n\n"

_log = structlog.get_logger(__name__)


class _Delta(msgspec.Struct, omit_defaults=True):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None


class _ChunkChoice(msgspec.Struct):
    index: int
    delta: _Delta
    finish_reason: str | None
    logprobs: None = None


class _CachedTokens(msgspec.Struct):
    cached_tokens: int


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: _CachedTokens


class _Chunk(msgspec.Struct):
    id: str
    object: str
    created: int
    model: str
    choices: list[_ChunkChoice]
    usage: _Usage | None | msgspec.UnsetType = msgspec.UNSET


class _Message(msgspec.Struct):
    """``reasoning_content`` is the name that servers of reasoning models agree on; OpenAI's own shape has none."""

    role: str
    content: str
    refusal: None = None
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET


class _Choice(msgspec.Struct):
    index: int
    message: _Message
    finish_reason: str
    logprobs: None = None


class _Completion(msgspec.Struct):
    id: str
    object: str
    created: int
    model: str
    choices: list[_Choice]
    usage: _Usage


class CompletionAnswer:
    """Answers one request. ``created`` is seconds since 1970; ``with_usage`` adds OpenAI's last chunk with the counts."""

    def __init__(self, completion: CompletionStream, *, created: int, streamed: bool, with_usage: bool) -> None:
        self._completion = completion
        self._created = created
        self._streamed = streamed
        self._with_usage = with_usage
        self._id = f"chatcmpl-{completion.generation_id.removeprefix('gen_')}"
        self._headers: HeaderList = (
            (b"x-antiphon-generation", completion.generation_id.encode("ascii")),
            *rate_headers(completion.standings),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises what ends the completion before the answer began; after that it is told inside the stream."""
        answering: asyncio.Task[None] | None = None

        def stop() -> None:
            if answering is not None:
                answering.cancel()

        async with self._completion:
            connection = Connection(scope, receive, send, on_gone=stop)
            answering = asyncio.create_task(self._answer(connection), name="completion")
            try:
                await asyncio.wait({answering})
            finally:
                if not answering.done():
                    answering.cancel()
                    await asyncio.wait({answering})
        with suppress(ClientGone):
            if not answering.cancelled():
                answering.result()

    async def _answer(self, connection: Connection) -> None:
        async with connection.watching():
            if self._streamed:
                await self._chunks(connection)
            else:
                await self._whole(connection)

    async def _whole(self, connection: Connection) -> None:
        text, thoughts = "", ""
        finished: Finished | None = None
        async for event in self._completion:
            if isinstance(event, Tokens | Finished):
                spoken = self._completion.spoken(event)
                text, thoughts = text + spoken.text, thoughts + spoken.reasoning
            if isinstance(event, Finished):
                finished = event
        if finished is None:
            raise EngineFailed("The answer was cut short.")
        message = _Message("assistant", text, reasoning_content=thoughts or msgspec.UNSET)
        choice = _Choice(0, message, finished.reason.value)
        completion = _Completion(self._id, "chat.completion", self._created, self._completion.model, [choice], _usage(finished.usage))
        body = msgspec.json.encode(completion)
        length = (b"content-length", str(len(body)).encode("ascii"))
        await connection.start(200, ((b"content-type", b"application/json"), length, *self._headers))
        await connection.finish(body)

    async def _chunks(self, connection: Connection) -> None:
        await connection.start(200, (*sse.HEADERS, *self._headers))
        await connection.write(self._chunk(_Delta(role="assistant", content="")))
        last = b""
        try:
            async for event in self._completion:
                if isinstance(event, Tokens | Finished):
                    await self._say(connection, self._completion.spoken(event))
                if isinstance(event, Finished):
                    last = self._last_chunks(event)
        except ClientGone:
            raise
        except Exception as error:  # noqa: BLE001 - the answer has begun, so whatever it is goes into the stream
            last = b"data: " + self._failure(error) + b"\n\n"
        await connection.finish(last + _DONE)

    async def _say(self, connection: Connection, spoken: Spoken) -> None:
        if spoken.reasoning:
            await connection.write(self._chunk(_Delta(reasoning_content=spoken.reasoning)))
        if spoken.text:
            await connection.write(self._chunk(_Delta(content=spoken.text)))

    def _failure(self, error: Exception) -> bytes:
        problem = problem_of(error)
        if problem is INTERNAL:
            _log.exception("completion_broke", generation_id=self._completion.generation_id)
        return openai_body(problem)

    def _last_chunks(self, finished: Finished) -> bytes:
        last = self._chunk(_Delta(), finished.reason.value)
        if self._with_usage:
            last += self._frame([], _usage(finished.usage))
        return last

    def _chunk(self, delta: _Delta, finish_reason: str | None = None) -> bytes:
        return self._frame([_ChunkChoice(0, delta, finish_reason)], None if self._with_usage else msgspec.UNSET)

    def _frame(self, choices: list[_ChunkChoice], usage: _Usage | None | msgspec.UnsetType) -> bytes:
        chunk = _Chunk(self._id, "chat.completion.chunk", self._created, self._completion.model, choices, usage)
        return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _usage(usage: EngineUsage) -> _Usage:
    return _Usage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.prompt_tokens + usage.output_tokens,
        prompt_tokens_details=_CachedTokens(usage.cached_tokens),
    )
