"""People of the caller's tenant: inviting, changing, disabling. An admin manages members; an owner manages everybody."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from fastapi import APIRouter, Request

from antiphon.core.clock import rfc3339
from antiphon.core.errors import Conflict, FieldFault, Forbidden, InvalidRequest, NotFound
from antiphon.core.ids import IdKind, UserId
from antiphon.core.tenancy import Principal, User, UserRole, may_manage
from antiphon.edge.access import ADMIN, Caller, GuardedRoute, Services, app_state, guarded
from antiphon.edge.api_document import refuses
from antiphon.edge.auth import new_token
from antiphon.edge.paths import UserPath
from antiphon.edge.schemas import Invitation, UserPatch
from antiphon.edge.services import EdgeServices
from antiphon.stores.accounts.base import UserChange
from antiphon.stores.conversations.base import Owner

router = APIRouter(prefix="/v1/admin/users", tags=["admin"], route_class=GuardedRoute)

INVITATION_LIFETIME = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class UserAnswer:
    id: str
    name: str
    role: str
    plan: str
    disabled: bool
    created_at: str


@dataclass(frozen=True, slots=True)
class UsersAnswer:
    data: list[UserAnswer]


@dataclass(frozen=True, slots=True)
class InvitationAnswer:
    """``url`` signs in once, within a week; it is shown only now."""

    user: UserAnswer
    url: str


@router.get("")
@guarded(ADMIN)
async def list_users(caller: Caller, services: Services) -> UsersAnswer:
    """Everybody of the tenant, oldest first."""
    return UsersAnswer([_answer(user) for user in await services.accounts.users(caller.tenant_id)])


@router.post("", status_code=201, responses=refuses(409))
@guarded(ADMIN)
async def invite(body: Invitation, caller: Caller, request: Request, services: Services) -> InvitationAnswer:
    """A new user and the link that lets them in; they set a password once inside."""
    role = UserRole(body.role)
    _check_may_manage(caller, role)
    plan = _known_plan(services, body.plan or services.default_plan)
    now = services.clock.now()
    user = User(UserId(services.ids.new(IdKind.USER)), caller.tenant_id, body.name, role, plan, disabled=False, created_at=now)
    await services.accounts.create_user(user)
    await services.custody.record(_by(caller), "user.invite", user.id, now=now)
    return InvitationAnswer(_answer(user), await _link(services, request, user))


@router.post("/{user_id}/link", status_code=201, responses=refuses(409))
@guarded(ADMIN)
async def invite_again(user_id: UserPath, caller: Caller, request: Request, services: Services) -> InvitationAnswer:
    """Another link for somebody who lost theirs, or their password."""
    user = await managed(services, caller, user_id)
    if user.disabled:
        raise Conflict("This user is disabled.")
    await services.custody.record(_by(caller), "user.link", user.id, now=services.clock.now())
    return InvitationAnswer(_answer(user), await _link(services, request, user))


@router.patch("/{user_id}", responses=refuses(409))
@guarded(ADMIN)
async def change_user(user_id: UserPath, body: UserPatch, caller: Caller, request: Request, services: Services) -> UserAnswer:
    """Change role or plan; disable (sessions and streams end within 5 s, keys sleep) or enable again."""
    await managed(services, caller, user_id)
    role = None if body.role is None else UserRole(body.role)
    if role is not None:
        _check_may_manage(caller, role)
    plan = None if body.plan is None else _known_plan(services, body.plan)
    changed = await services.accounts.change_user(caller.tenant_id, user_id, UserChange(role, plan, body.disabled))
    await services.custody.record(_by(caller), "user.change", user_id, now=services.clock.now())
    app_state(request).forget_credentials()
    return _answer(changed)


async def managed(services: EdgeServices, caller: Principal, user_id: UserId) -> User:
    """The user, whom the caller may manage. Raises ``NotFound``, ``Forbidden``."""
    user = await services.accounts.user(user_id)
    if user.tenant_id != caller.tenant_id:
        raise NotFound
    _check_may_manage(caller, user.role)
    return user


def _check_may_manage(caller: Principal, role: UserRole) -> None:
    if not may_manage(caller.role, role):
        raise Forbidden(f"A user with the role {caller.role.value} does not manage one with the role {role.value}.")


def _known_plan(services: EdgeServices, plan: str) -> str:
    if plan not in services.plans:
        raise InvalidRequest([FieldFault("plan", "There is no such plan.")])
    return plan


async def _link(services: EdgeServices, request: Request, user: User) -> str:
    token, digest = new_token(services.ids)
    await services.accounts.create_link(digest, user.id, expires_at=services.clock.now() + INVITATION_LIFETIME)
    base = services.public_url or str(request.base_url).rstrip("/")
    return f"{base}/?token={token}"


def _by(caller: Principal) -> Owner:
    return Owner(caller.tenant_id, caller.user_id)


def _answer(user: User) -> UserAnswer:
    return UserAnswer(user.id, user.name, user.role.value, user.plan, user.disabled, rfc3339(user.created_at))
