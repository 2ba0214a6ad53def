"""Who the caller is."""

from __future__ import annotations

from fastapi import APIRouter

from antiphon.edge.access import SIGNED_IN, Caller, GuardedRoute, guarded
from antiphon.edge.answers import MeAnswer, me_answer

router = APIRouter(prefix="/v1", tags=["account"], route_class=GuardedRoute)


@router.get("/me")
@guarded(SIGNED_IN)
async def me(caller: Caller) -> MeAnswer:
    """The caller, as this server sees it."""
    return me_answer(caller)
