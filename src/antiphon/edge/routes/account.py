"""Who the caller is, and leaving."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from antiphon.core.errors import Forbidden
from antiphon.edge.access import SIGNED_IN, Caller, GuardedRoute, Services, app_state, guarded
from antiphon.edge.answers import MeAnswer, me_answer
from antiphon.edge.api_document import refuses
from antiphon.stores.conversations.base import Owner

router = APIRouter(prefix="/v1", tags=["account"], route_class=GuardedRoute)


@router.get("/me")
@guarded(SIGNED_IN)
async def me(caller: Caller) -> MeAnswer:
    """The caller, as this server sees it."""
    return me_answer(caller)


@router.delete("/me", status_code=204, responses=refuses(409))
@guarded(SIGNED_IN)
async def leave(caller: Caller, request: Request, services: Services) -> Response:
    """End the caller's account, with all conversations, keys and sessions. In a browser's session only: no key may do this."""
    if caller.key_id is not None:
        raise Forbidden("An account is ended in the browser, not with a key.")
    owner = Owner(caller.tenant_id, caller.user_id)
    now = services.clock.now()
    await services.accounts.delete_user(caller.user_id)
    await services.personal.forget(owner)
    await services.custody.record(owner, "user.delete", caller.user_id, now=now)
    running = await services.conversations.delete_all(owner, now=now)
    app_state(request).forget_credentials()
    services.background.cancel(owner)
    await services.runner.stop_and_wait(running)
    return Response(status_code=204)
