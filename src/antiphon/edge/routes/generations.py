"""Generations: where one stands, its event stream, stopping it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from antiphon.core.errors import BadCursor
from antiphon.core.events import Cursor, Queued, parse_cursor
from antiphon.core.generation import Generation
from antiphon.edge.access import CHAT, Caller, GuardedRoute, Handoff, OwnerOf, Responses, Services, app_state, guarded
from antiphon.edge.answers import GenerationAnswer, Progress, PromptAnswer, generation_answer, prompt_answer
from antiphon.edge.paths import GenerationPath
from antiphon.edge.schemas import Cancel
from antiphon.edge.services import EdgeServices
from antiphon.edge.viewing import viewer_of
from antiphon.stores.conversations.base import Owner

router = APIRouter(prefix="/v1/generations/{generation_id}", tags=["generations"], route_class=GuardedRoute)

_STREAM: Responses = {
    200: {"description": "The event stream.", "content": {"text/event-stream": {}}},
    204: {"description": "The reader has the terminal event already."},
}


@router.get("")
@guarded(CHAT)
async def get_generation(generation_id: GenerationPath, owner: OwnerOf, services: Services) -> GenerationAnswer:
    """Status, place in the queue, text so far, usage."""
    return await _shown(services, owner, await services.generations.get(owner, generation_id))


@router.get("/stream", response_model=None, responses=_STREAM)
@guarded(CHAT)
async def stream_generation(
    generation_id: GenerationPath,
    caller: Caller,
    services: Services,
    request: Request,
    after: Annotated[str | None, Query()] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """The events after ``Last-Event-ID`` (or ``after``), then on to the end."""
    generation = await services.generations.get(Owner(caller.tenant_id, caller.user_id), generation_id)
    await services.runner.settle(generation)
    viewer = viewer_of(request, caller, generation_id, cursor=last_event_id or after)
    streams = app_state(request).streams
    if await streams.already_finished(viewer):
        return Response(status_code=204)
    return Handoff(streams.stream(viewer), watches_itself=True)


@router.get("/prompt")
@guarded(CHAT)
async def get_prompt(generation_id: GenerationPath, owner: OwnerOf, services: Services) -> PromptAnswer:
    """What the model was given to read, part by part, with tokens and cached tokens, and which earlier messages were left out."""
    return prompt_answer(await services.prompts.prompt_of(owner, generation_id))


@router.post("/cancel")
@guarded(CHAT)
async def cancel_generation(
    generation_id: GenerationPath, owner: OwnerOf, services: Services, body: Cancel | None = None
) -> GenerationAnswer:
    """Stop the accelerator; answers within a second with what was kept and what it cost. Stopping twice changes nothing."""
    seen = None if body is None or body.seen_id is None else _place(body.seen_id)
    return await _shown(services, owner, await services.runner.cancel(owner, generation_id, seen))


def _place(seen_id: str) -> Cursor:
    cursor = parse_cursor(seen_id)
    if cursor is None:
        raise BadCursor("This is not the id of an event.")
    return cursor


async def _shown(services: EdgeServices, owner: Owner, generation: Generation) -> GenerationAnswer:
    state = await services.log.state(generation.id)
    # A message that was continued holds more than this generation wrote, so the log is asked first.
    text = state.text if state is not None else (await services.conversations.message(owner, generation.message_id)).content
    if state is not None:
        services.runner.delivered(generation.id, state.seq)
    live = None if generation.status.terminal else services.runner.live(generation.id)
    queued = live.event if live is not None and isinstance(live.event, Queued) else None
    progress = Progress(
        seq=generation.checkpoint_seq if state is None else state.seq,
        last_event_id=None if state is None or state.seq == 0 else f"{state.epoch}-{state.seq}",
        text=text,
        position=None if queued is None else queued.position,
        eta_ms=None if queued is None else queued.eta_ms,
    )
    return generation_answer(generation, progress)
