"""Sending, editing, regenerating, continuing; feedback on answers."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Header, Request
from starlette.responses import JSONResponse, Response

from antiphon.core.errors import FieldFault, InvalidRequest, MessageTooLarge
from antiphon.core.generation import TurnParams
from antiphon.core.ids import MessageId
from antiphon.core.tenancy import Principal
from antiphon.edge.access import CHAT, Caller, Exchange, GuardedRoute, Handoff, OwnerOf, Responses, Services, app_state, guarded
from antiphon.edge.answers import AcceptedAnswer, accepted_answer
from antiphon.edge.api_document import refuses
from antiphon.edge.body import check_text, fingerprint
from antiphon.edge.paths import ConversationPath, MessagePath, message_id
from antiphon.edge.rate_headers import rate_headers
from antiphon.edge.schemas import MAX_MESSAGE_BYTES, ContinueMessage, NewFeedback, NewMessage, Params
from antiphon.edge.viewing import viewer_of
from antiphon.orchestrator.acceptance import ContinueRequest, SendMessage
from antiphon.stores.conversations.base import Feedback
from antiphon.stores.generations.base import Accepted, CurrentLeaf

router = APIRouter(prefix="/v1", tags=["messages"], route_class=GuardedRoute)

_KEY = re.compile(r"[ -~]{1,255}\Z")
_ANSWERS: Responses = {
    200: {"description": "The event stream.", "content": {"text/event-stream": {}}},
    202: {"description": "With `Accept: application/json`: the ids.", "model": AcceptedAnswer},
    **refuses(409, 429),
}

IdempotencyHeader = Annotated[str | None, Header(alias="Idempotency-Key")]


@router.post("/conversations/{conversation_id}/messages", response_model=None, responses=_ANSWERS)
@guarded(CHAT)
async def send_message(
    conversation_id: ConversationPath,
    body: NewMessage,
    caller: Caller,
    services: Services,
    request: Request,
    idempotency: IdempotencyHeader = None,
) -> Response:
    """Send, edit (an explicit parent) or regenerate (no content under a user message); the answer is the stream."""
    message = SendMessage(
        conversation_id=conversation_id,
        content=_checked_content(body.content),
        parent=_parent(body),
        model=body.model,
        params=turn_params(body.params),
        idempotency_key=_idempotency_key(body.idempotency_key, idempotency),
        fingerprint=_fingerprint(request),
    )
    return _answer(await services.desk.send(caller, message), caller, request)


@router.post("/messages/{message_id}/continue", response_model=None, responses=_ANSWERS)
@guarded(CHAT)
async def continue_message(
    message_id: MessagePath,
    caller: Caller,
    services: Services,
    request: Request,
    body: ContinueMessage | None = None,
    idempotency: IdempotencyHeader = None,
) -> Response:
    """Go on writing an answer that was stopped, cut at its length or interrupted; the first event is a snapshot."""
    wanted = body or ContinueMessage()
    continued = ContinueRequest(
        message_id=message_id,
        params=turn_params(wanted.params),
        idempotency_key=_idempotency_key(wanted.idempotency_key, idempotency),
        fingerprint=_fingerprint(request),
    )
    return _answer(await services.desk.continue_message(caller, continued), caller, request)


@router.put("/messages/{message_id}/feedback", status_code=204)
@guarded(CHAT)
async def put_feedback(message_id: MessagePath, body: NewFeedback, owner: OwnerOf, services: Services) -> Response:
    """Keep or replace the caller's feedback on an answer; rating 0 removes it."""
    feedback = Feedback(rating=body.rating, reasons=tuple(body.reasons or ()), comment=body.comment or "")
    await services.conversations.put_feedback(owner, message_id, feedback, now=services.clock.now())
    return Response(status_code=204)


def turn_params(params: Params | None) -> TurnParams:
    """What was asked for, in the core's words."""
    if params is None:
        return TurnParams()
    return TurnParams(
        max_tokens=params.max_tokens,
        temperature=params.temperature,
        top_p=params.top_p,
        seed=params.seed,
        stop=tuple(params.stop or ()),
    )


def _answer(accepted: Accepted, caller: Principal, request: Request) -> Response:
    """202 with the ids where JSON was asked for, else the stream from its start."""
    headers = ((b"idempotency-replayed", b"true"),) if accepted.replayed else rate_headers(accepted.standings)
    accepts = request.headers.get("accept", "").lower()
    if "application/json" in accepts and "text/event-stream" not in accepts:
        response = JSONResponse(accepted_answer_body(accepted), status_code=202)
        response.raw_headers.extend(headers)
        return response
    viewer = viewer_of(request, caller, accepted.generation_id, cursor=None)
    return Handoff(app_state(request).streams.stream(viewer, headers), watches_itself=True)


def accepted_answer_body(accepted: Accepted) -> dict[str, str | None]:
    """The 202 body."""
    answer = accepted_answer(accepted)
    return {
        "conversation_id": answer.conversation_id,
        "user_message_id": answer.user_message_id,
        "message_id": answer.message_id,
        "generation_id": answer.generation_id,
        "stream_url": answer.stream_url,
    }


def _checked_content(content: str | None) -> str | None:
    if content is None:
        return None
    if len(content.encode("utf-8")) > MAX_MESSAGE_BYTES:
        raise MessageTooLarge
    if not content.strip():
        raise InvalidRequest([FieldFault("content", "A message needs some text.")])
    return content


def _parent(body: NewMessage) -> MessageId | None | CurrentLeaf:
    if "parent_message_id" not in body.model_fields_set:
        return CurrentLeaf()
    return None if body.parent_message_id is None else message_id(body.parent_message_id)


def _idempotency_key(in_body: str | None, in_header: str | None) -> str | None:
    """The key, from either place; a header may be bare or a quoted string (IETF draft -06)."""
    if in_header is None:
        return in_body
    text = check_text(in_header)
    if len(text) > 1 and text.startswith('"') and text.endswith('"'):
        text = text[1:-1]
    if _KEY.match(text) is None:
        raise InvalidRequest([FieldFault("Idempotency-Key", "Send 1 to 255 printable ASCII characters.")])
    if in_body not in {None, text}:
        raise InvalidRequest([FieldFault("idempotency_key", "The header names another key.")])
    return text


def _fingerprint(request: Request) -> str:
    """Of the parsed body and the address; the key itself is not part of what is compared."""
    body = Exchange.of(request.scope).body
    if isinstance(body, dict):
        body = {name: value for name, value in body.items() if name != "idempotency_key"}
    return fingerprint(f"{request.method} {request.url.path}", body)
