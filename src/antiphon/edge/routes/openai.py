"""OpenAI's chat completions on the same gateway, plans and prompt as the chat; nothing is stored."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from antiphon.core.clock import to_ms
from antiphon.core.errors import FieldFault, InvalidRequest, MessageTooLarge
from antiphon.core.generation import TurnParams
from antiphon.core.messages import Role
from antiphon.edge.access import CHAT, Caller, GuardedRoute, Handoff, Responses, Services, guarded
from antiphon.edge.api_document import refuses
from antiphon.edge.completing import CompletionAnswer
from antiphon.edge.schemas import MAX_MESSAGE_BYTES, ChatCompletion, ChatMessage
from antiphon.engines.base import PromptMessage
from antiphon.orchestrator.completion import CompletionRequest

router = APIRouter(prefix="/v1/chat/completions", tags=["openai"], route_class=GuardedRoute)

_ROLES = {"system": Role.SYSTEM, "developer": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT}
_ANSWERS: Responses = {
    200: {"description": "A completion, or its chunks.", "content": {"application/json": {}, "text/event-stream": {}}},
    **refuses(409, 429),
}


@router.post("", response_model=None, responses=_ANSWERS)
@guarded(CHAT)
async def complete(body: ChatCompletion, caller: Caller, services: Services) -> Response:
    """Answer a conversation. The work stops within a second of the client's leaving."""
    request = CompletionRequest(
        messages=tuple(_prompt_message(message, index) for index, message in enumerate(body.messages)),
        model=body.model,
        params=_params(body),
    )
    completion = await services.completions.open(caller, request)
    created = to_ms(services.clock.now()) // 1000
    with_usage = body.stream_options is not None and body.stream_options.include_usage
    return Handoff(CompletionAnswer(completion, created=created, streamed=bool(body.stream), with_usage=with_usage))


def _prompt_message(message: ChatMessage, index: int) -> PromptMessage:
    text = message.text
    if len(text.encode("utf-8")) > MAX_MESSAGE_BYTES:
        raise MessageTooLarge
    if message.role == "user" and not text.strip():
        raise InvalidRequest([FieldFault(f"messages.{index}.content", "Takes some text where the role is user, but got none.")])
    return PromptMessage(_ROLES[message.role], text)


def _params(body: ChatCompletion) -> TurnParams:
    if body.max_tokens is not None and body.max_completion_tokens not in {None, body.max_tokens}:
        reason = f"Takes what max_completion_tokens says, which is {body.max_completion_tokens}, but got {body.max_tokens}."
        raise InvalidRequest([FieldFault("max_tokens", reason)])
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    return TurnParams(
        max_tokens=body.max_completion_tokens or body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        seed=body.seed,
        stop=stop,
    )
