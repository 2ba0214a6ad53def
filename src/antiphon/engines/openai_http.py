"""Any OpenAI-compatible server as an ``Engine``: Ollama, vLLM, llama.cpp, OpenAI, or another Antiphon.

The prompt goes as messages and comes back as text. aiohttp reads the stream: an HTTP client's cost per chunk is this engine's cost
per token. Closing the iterator closes the connection, which is how such servers learn that nobody wants the rest. No answer leads
elsewhere: redirects are not followed. And none goes on for ever: what is more than was asked for is cut, who says nothing is given up.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import cast

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from antiphon.core.clock import Clock
from antiphon.core.errors import EngineFailed
from antiphon.core.generation import FinishReason
from antiphon.core.messages import Role
from antiphon.engines.base import SILENCE_S, EngineEvent, EngineRequest, EngineUsage, Finished, Prefilling, PromptMessage, Tokens
from antiphon.engines.transcript import THINK, THOUGHT, TranscriptTokenizer, messages_of, text_of

DEFAULT_CONTEXT_TOKENS = 8192
_CONNECT_S = 10.0
_TOKEN_CHARACTERS = 64
"""So long a token may be on average, where a server writes more than it was asked for."""
_MOST_TOKENS = 1 << 31
_LINE_BYTES = 1 << 20
_LIST_BYTES = 4 << 20
_PIECE_BYTES = 1 << 16
_DETAIL_CHARACTERS = 300
_NAME_CHARACTERS = 300
_FINISH = {reason.value: reason for reason in FinishReason}
_CONTINUES_A_LAST_MESSAGE = frozenset({"llamacpp", "library"})
"""``owned_by`` of the servers (llama.cpp, Ollama) that go on with a last message of the assistant's."""
_GO_ON = "Go on exactly where your last message broke off. Repeat nothing of it."

JsonObject = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the server is. ``url`` ends before ``/chat/completions``; ``key`` may be empty."""

    url: str
    model: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class _Chunk:
    """What one line of an answer brings; ``began``: nothing yet, but the server has taken the request."""

    thought: str = ""
    piece: str = ""
    ended: FinishReason | None = None
    usage: JsonObject | None = None
    began: bool = False


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What a server says of one of its models; 0 tokens of context where it does not say."""

    name: str
    owned_by: str
    context_tokens: int


class OpenAiEngine:
    """Implements ``Engine``. One event loop; ``close`` at the end."""

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._tokenizer = TranscriptTokenizer()
        self._owned_by = ""
        self._reasons = False  # a model that thinks before it answers: its parameters have other names, and no temperature
        headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=SILENCE_S)
        self._session = aiohttp.ClientSession(
            headers=headers, timeout=timeout, connector=aiohttp.TCPConnector(limit=0), read_bufsize=_LINE_BYTES
        )

    async def close(self) -> None:
        await self._session.close()

    async def models(self) -> tuple[ServedModel, ...]:
        """What the server offers, under names that can be shown. Raises ``EngineFailed``, one sentence that names the address."""
        with _clear_failures(self._endpoint):
            async with asyncio.timeout(_CONNECT_S), self._session.get(f"{self._endpoint.url}/models", allow_redirects=False) as answer:
                if answer.status != 200:
                    raise _refused(self._endpoint, answer.status, await _error_text(answer))
                listed = _object(json.loads(await _whole(self._endpoint, answer))).get("data")
        entries = cast("list[object]", listed) if isinstance(listed, list) else []
        served = (_served(_object(entry)) for entry in entries)
        return tuple(model for model in served if 0 < len(model.name) <= _NAME_CHARACTERS and model.name.isprintable())

    async def probe(self) -> ServedModel:
        """The endpoint's model as the server lists it. Raises ``EngineFailed`` also where it is not among those listed."""
        models = await self.models()
        for model in models:
            if model.name in {self._endpoint.model, f"{self._endpoint.model}:latest"}:
                self._owned_by = model.owned_by
                return model
        names = ", ".join(model.name for model in models[:20]) or "none"
        raise EngineFailed(f"{self._endpoint.url} does not serve {self._endpoint.model!r}; it lists: {names}.")

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineEvent]:
        """As ``Engine.generate``. The ids of the answer carry its text; ``usage`` is the server's own where it reports any."""
        started = self._clock.monotonic()
        prompt_tokens, already = len(request.prompt_ids), len(request.already_ids)
        text = self._tokenizer.text_stream(request.sampling.stop)
        for token_id in request.already_ids:
            text.push(token_id)
        first_at: float | None = None
        produced, thinking = 0, False
        reported: JsonObject = {}
        reason: FinishReason | None = None
        measure = _Measure(self._most(request))
        async with aclosing(self._chunks(request)) as chunks:
            async for chunk in chunks:
                if chunk.began:
                    yield Prefilling(0, prompt_tokens)
                reported, reason = chunk.usage or reported, chunk.ended or reason
                if (chunk.thought or chunk.piece) and not text.stopped:
                    first_at = first_at or self._clock.monotonic()
                if chunk.thought and not text.stopped:
                    ids = (*(() if thinking else (THINK,)), *self._tokenizer.encode(chunk.thought))
                    produced, thinking = produced + len(ids), True
                    yield Tokens(ids, "")
                if chunk.piece and not text.stopped:
                    ids = (*((THOUGHT,) if thinking else ()), *self._tokenizer.encode(chunk.piece))
                    produced, thinking = produced + len(ids), False
                    yield Tokens(ids, "".join(text.push(token_id) for token_id in ids if not text.stopped))
                if measure.full(chunk):
                    reason = reason or FinishReason.LENGTH
                    break
        if reason is None:
            raise EngineFailed(f"{self._endpoint.url} broke off in the middle of an answer.")
        now = self._clock.monotonic()
        usage = EngineUsage(
            prompt_tokens=_count(reported.get("prompt_tokens"), prompt_tokens),
            cached_tokens=_count(_object(reported.get("prompt_tokens_details")).get("cached_tokens"), 0),
            output_tokens=already + _count(reported.get("completion_tokens"), produced),
            queued_ms=0,
            prefill_ms=round(1000 * ((first_at or now) - started)),
            decode_ms=round(1000 * (now - (first_at or now))),
            accelerator_ms=0,
        )
        yield Finished(reason, usage, text.finish())

    async def _chunks(self, request: EngineRequest) -> AsyncGenerator[_Chunk]:
        """One that ``began`` once the server has taken the request; then what each ``data:`` line brings, until ``[DONE]`` or the end."""
        loop = asyncio.get_running_loop()
        with _clear_failures(self._endpoint):
            async with await self._ask(request) as answer:
                if answer.content_type == "application/json":
                    raise EngineFailed(f"{self._endpoint.url} does not stream: {await _error_text(answer)}")
                yield _Chunk(began=True)
                deadline = loop.time() + SILENCE_S
                while line := await _line(answer, deadline):
                    data = line.strip().removeprefix(b"data:").strip()
                    if data == b"[DONE]":
                        return
                    if line.startswith(b"data:") and data:
                        chunk = self._chunk(data)
                        yield chunk
                        if chunk != _Chunk():  # an empty one, again and again, is silence
                            deadline = loop.time() + SILENCE_S

    async def _ask(self, request: EngineRequest) -> aiohttp.ClientResponse:
        """The open stream. Raises ``EngineFailed`` for every status but 200."""
        while True:
            address, body = f"{self._endpoint.url}/chat/completions", self._body(request)
            async with asyncio.timeout(SILENCE_S):
                answer = await self._session.post(address, json=body, allow_redirects=False)
            if answer.status == 200:
                return answer
            async with answer:
                complaint = await _error_text(answer)
            if answer.status != 400 or self._reasons or "max_completion_tokens" not in complaint:
                raise _refused(self._endpoint, answer.status, complaint)
            self._reasons = True

    def _chunk(self, data: bytes) -> _Chunk:
        try:
            chunk = _object(json.loads(data))
        except (ValueError, RecursionError) as error:
            raise EngineFailed(f"{self._endpoint.url} sent something that is not JSON.") from error
        if chunk.get("error") or chunk.get("object") == "error":
            raise EngineFailed(f"{self._endpoint.url}: {_complaint(chunk)}")
        thought, piece, ended = _choice(chunk)
        return _Chunk(thought, piece, ended, _object(chunk.get("usage")) or None)

    def _most(self, request: EngineRequest) -> int:
        """How many tokens it may still write."""
        return max(1, request.sampling.max_tokens - len(request.already_ids))

    def _body(self, request: EngineRequest) -> dict[str, object]:
        sampling, most = request.sampling, self._most(request)
        body: dict[str, object] = {"model": self._endpoint.model, "stream": True, "stream_options": {"include_usage": True}}
        if self._reasons:
            body["max_completion_tokens"] = most
        else:
            body |= {"max_tokens": most, "temperature": sampling.temperature, "top_p": sampling.top_p, "seed": sampling.seed % (1 << 31)}
            body |= {"stop": list(sampling.stop)} if sampling.stop else {}
        messages = _messages(request)
        if messages[-1].role is Role.ASSISTANT:
            if self._owned_by == "vllm":
                body |= {"continue_final_message": True, "add_generation_prompt": False}
            elif self._owned_by not in _CONTINUES_A_LAST_MESSAGE:
                messages.append(PromptMessage(Role.USER, _GO_ON))
        return body | {"messages": [{"role": message.role.value, "content": message.content} for message in messages]}


class _Measure:
    """Of an answer that may have ``most`` tokens, which come one to a chunk at the least."""

    def __init__(self, most: int) -> None:
        self._chunks = most
        self._characters = most * _TOKEN_CHARACTERS

    def full(self, chunk: _Chunk) -> bool:
        """Whether with ``chunk`` it is longer than it may be."""
        self._chunks -= 1 if chunk.thought or chunk.piece else 0
        self._characters -= len(chunk.thought) + len(chunk.piece)
        return self._chunks < 0 or self._characters < 0


async def _line(answer: aiohttp.ClientResponse, deadline: float) -> bytes:
    """The next one; empty at the end. Raises ``TimeoutError`` at ``deadline``, by the loop's time."""
    async with asyncio.timeout_at(deadline):
        return await answer.content.readline()


def _messages(request: EngineRequest) -> list[PromptMessage]:
    """The conversation; the last message is the assistant's where its answer has begun."""
    messages = list(messages_of(request.prompt_ids))
    begun = text_of(request.already_ids)
    if begun and messages[-1].role is Role.ASSISTANT:
        begun = messages.pop().content + begun
    return [*messages, PromptMessage(Role.ASSISTANT, begun)] if begun else messages


def _choice(chunk: JsonObject) -> tuple[str, str, FinishReason | None]:
    """Thought, text and end of the first choice; none of them in a chunk that only reports usage."""
    choices = chunk.get("choices")
    if not isinstance(choices, list) or not choices:
        return "", "", None
    choice = _object(cast("list[object]", choices)[0])
    delta = _object(choice.get("delta"))
    content, thought = delta.get("content"), delta.get("reasoning_content", delta.get("reasoning"))
    reason = choice.get("finish_reason")
    ended = None if reason is None else _FINISH.get(str(reason), FinishReason.STOP)
    return _text(thought), _text(content), ended


def _text(value: object) -> str:
    """The text that it is, without halves of characters."""
    if not isinstance(value, str) or value.isascii():
        return value if isinstance(value, str) else ""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _served(entry: JsonObject) -> ServedModel:
    """vLLM, llama.cpp and Antiphon say how long a context may be, each in words of its own."""
    meta = _object(entry.get("meta"))
    lengths = (entry.get("max_model_len"), entry.get("context_tokens"), meta.get("n_ctx"), meta.get("n_ctx_train"))
    context = next((_count(length, 0) for length in lengths if _count(length, 0)), 0)
    return ServedModel(_text(entry.get("id")), _text(entry.get("owned_by")), context)


@contextmanager
def _clear_failures(endpoint: Endpoint) -> Iterator[None]:
    """What goes wrong on the way becomes ``EngineFailed``, a sentence that names the address and never the key."""
    try:
        yield
    except TimeoutError as error:
        raise EngineFailed(f"{endpoint.url} does not answer.") from error
    except aiohttp.ClientPayloadError as error:
        raise EngineFailed(f"{endpoint.url} broke off in the middle of an answer.") from error
    except (aiohttp.ClientError, OSError) as error:
        raise EngineFailed(f"{endpoint.url} cannot be reached: {_reason(error)}.") from error
    except (HttpProcessingError, ValueError, RecursionError) as error:
        raise EngineFailed(f"{endpoint.url} sent what no such server sends: {type(error).__name__}.") from error


def _reason(error: Exception) -> str:
    """In the system's words; asyncio puts its own, with the address as a tuple, in their place."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "there is no such host"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return type(error).__name__


def _refused(endpoint: Endpoint, status: int, complaint: str) -> EngineFailed:
    known = {
        401: "refuses the key",
        403: "refuses the key",
        404: f"does not know {endpoint.model!r}, or its address ends differently",
        429: "has too much to do, or the key's quota is used up",
    }
    return EngineFailed(f"{endpoint.url} {known.get(status, f'answered {status}')}: {complaint or 'it gave no reason'}")


async def _whole(endpoint: Endpoint, answer: aiohttp.ClientResponse) -> bytes:
    """The answer's body, which no honest server makes long: whoever adds a server names any address. Raises ``EngineFailed``."""
    pieces, length = list[bytes](), 0
    async for piece in answer.content.iter_chunked(_PIECE_BYTES):
        pieces.append(piece)
        length += len(piece)
        if length > _LIST_BYTES:
            raise EngineFailed(f"{endpoint.url} lists more models than can be.")
    return b"".join(pieces)


async def _error_text(answer: aiohttp.ClientResponse) -> str:
    """The server's own sentence, cut."""
    async with asyncio.timeout(_CONNECT_S):
        text = (await answer.content.read(65_536)).decode(errors="replace")
    try:
        return _complaint(_object(json.loads(text)))
    except (ValueError, RecursionError):
        return text.strip()[:_DETAIL_CHARACTERS]


def _complaint(content: JsonObject) -> str:
    error = content.get("error", content.get("detail", content))
    said = _object(error).get("message", error)
    return _text(str(said)[:_DETAIL_CHARACTERS])


def _object(value: object) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _count(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS else default
