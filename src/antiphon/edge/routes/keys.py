"""API keys of the caller. A key with less than the scope ``admin`` cannot make or see keys: a stolen one must not multiply."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from antiphon.core.errors import Forbidden, NotFound
from antiphon.core.tenancy import ApiKey, Band, Principal, Scope
from antiphon.edge.access import SIGNED_IN, Caller, GuardedRoute, Services, app_state, guarded
from antiphon.edge.auth import new_api_key
from antiphon.edge.key_answers import KeysAnswer, NewKeyAnswer, key_answer, new_key_answer
from antiphon.edge.paths import KeyPath
from antiphon.edge.schemas import NewKey

router = APIRouter(prefix="/v1/keys", tags=["keys"], route_class=GuardedRoute)


@router.post("", status_code=201)
@guarded(SIGNED_IN)
async def create_key(body: NewKey, caller: Caller, services: Services) -> NewKeyAnswer:
    """A new key; its text is in this answer and nowhere else."""
    _check_may_manage(caller)
    scopes = frozenset({Scope.CHAT} if body.scopes is None else (Scope(scope) for scope in body.scopes))
    if not scopes <= caller.scopes:
        raise Forbidden("A key cannot do more than its maker.")
    key_id, text, sha256, last4 = new_api_key(services.ids)
    key = ApiKey(
        id=key_id,
        tenant_id=caller.tenant_id,
        user_id=caller.user_id,
        name=body.name,
        scopes=scopes,
        last4=last4,
        created_at=services.clock.now(),
        band=None if body.priority is None else Band[body.priority.upper()],
    )
    await services.accounts.create_key(key, sha256)
    return new_key_answer(key, text)


@router.get("")
@guarded(SIGNED_IN)
async def list_keys(caller: Caller, services: Services) -> KeysAnswer:
    """The caller's keys, revoked ones too, oldest first."""
    _check_may_manage(caller)
    keys = await services.accounts.keys(caller.tenant_id, caller.user_id)
    return KeysAnswer([key_answer(key) for key in keys])


@router.delete("/{key_id}", status_code=204)
@guarded(SIGNED_IN)
async def revoke_key(key_id: KeyPath, caller: Caller, request: Request, services: Services) -> Response:
    """End a key; at once on this server, within 5 s everywhere."""
    _check_may_manage(caller)
    own = await services.accounts.keys(caller.tenant_id, None if Scope.ADMIN in caller.scopes else caller.user_id)
    if all(key.id != key_id for key in own):
        raise NotFound
    await services.accounts.revoke_key(caller.tenant_id, key_id, now=services.clock.now())
    app_state(request).forget_credentials()
    return Response(status_code=204)


def _check_may_manage(caller: Principal) -> None:
    if caller.key_id is not None and Scope.ADMIN not in caller.scopes:
        raise Forbidden("This needs the scope admin.")
