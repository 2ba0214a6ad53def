"""Is it alive, is it ready, what are its numbers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from antiphon.edge.access import METRICS, PUBLIC, GuardedRoute, Handoff, Responses, Services, guarded
from antiphon.edge.connection import Connection
from antiphon.edge.metrics import CONTENT_TYPE
from antiphon.edge.sse import HEADERS

PIECES_APART_S = 0.4
_PIECES: Responses = {200: {"description": "Two comments, a moment apart.", "content": {"text/event-stream": {}}}}

router = APIRouter(tags=["health"], route_class=GuardedRoute)


@dataclass(frozen=True, slots=True)
class Checks:
    store: bool
    log: bool
    pools: bool


@dataclass(frozen=True, slots=True)
class ReadyAnswer:
    ready: bool
    checks: Checks


@router.get("/healthz")
@guarded(PUBLIC)
async def healthz() -> dict[str, str]:
    """200 for as long as the event loop lives."""
    return {"status": "ok"}


@router.get("/healthz/stream", response_model=None, responses=_PIECES)
@guarded(PUBLIC)
async def stream_health() -> Response:
    """Two pieces, a moment apart, as answers are streamed: whoever reads them together sits behind a proxy that holds streams back."""
    return Handoff(_two_pieces)


async def _two_pieces(scope: Scope, receive: Receive, send: Send) -> None:
    connection = Connection(scope, receive, send, on_gone=lambda: None)
    async with connection.watching():
        await connection.start(200, HEADERS)
        await connection.write(b": one\n\n")
        await asyncio.sleep(PIECES_APART_S)
        await connection.write(b": two\n\n")
        await connection.finish()


@router.get("/readyz", responses={503: {"description": "Not yet, or not any more.", "model": ReadyAnswer}})
@guarded(PUBLIC)
async def readyz(services: Services, response: Response) -> ReadyAnswer:
    """200 when turns are taken; 503 until the first model is loaded and from the beginning of a drain."""
    state = services.state
    store = state.store_ready and await state.store_takes_writes()
    checks = Checks(store=store, log=state.log_ready, pools=services.gateway.ready)
    ready = checks.store and checks.log and checks.pools and not state.draining
    response.status_code = 200 if ready else 503
    return ReadyAnswer(ready, checks)


@router.get("/metrics", response_class=PlainTextResponse)
@guarded(METRICS)
async def metrics(services: Services) -> Response:
    """Prometheus' text format."""
    return Response(services.telemetry.render(), headers={"content-type": CONTENT_TYPE.decode("ascii")})
