"""Is it alive, is it ready, what are its numbers."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from antiphon.edge.access import METRICS, PUBLIC, GuardedRoute, Services, guarded
from antiphon.edge.metrics import CONTENT_TYPE

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
