"""The contract of accounts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from antiphon.core.errors import Conflict, NotFound
from antiphon.core.ids import IdKind, KeyId, TenantId, UserId
from antiphon.core.tenancy import ApiKey, Band, Identity, Scope, Tenant, User, UserRole
from antiphon.stores.accounts.base import Password, Session, UserChange
from tests.contracts.scene import Scene

DAY = timedelta(days=1)


def new_key(scene: Scene, user: User, name: str = "laptop") -> ApiKey:
    scopes = frozenset({Scope.CHAT, Scope.USAGE})
    return ApiKey(KeyId(scene.ids.new(IdKind.KEY)), user.tenant_id, user.id, name, scopes, "wxyz", scene.clock.now(), band=Band.LOW)


async def test_the_first_owner_is_made_once_and_stays(scene: Scene) -> None:
    tenant = Tenant(TenantId("tenant_1"), "home", scene.clock.now())
    first = scene.new_user(tenant, "me", UserRole.OWNER)
    assert await scene.accounts.ensure_owner(tenant, first) == first
    scene.clock.advance(1)
    other = Tenant(TenantId("tenant_2"), "elsewhere", scene.clock.now())
    assert await scene.accounts.ensure_owner(other, scene.new_user(other, "other", UserRole.OWNER)) == first
    assert await scene.accounts.tenants() == (tenant,)
    assert await scene.accounts.users(None) == (first,)


async def test_a_member_is_no_owner(scene: Scene) -> None:
    tenant = await scene.tenant()
    await scene.user(tenant, "member")
    owner = scene.new_user(tenant, "boss", UserRole.OWNER)
    assert await scene.accounts.ensure_owner(tenant, owner) == owner


async def test_users_are_listed_oldest_first_by_tenant(scene: Scene) -> None:
    acme, other = await scene.tenant("acme"), await scene.tenant("other")
    ann = await scene.user(acme, "ann")
    scene.clock.advance(1)
    bob, eve = await scene.user(acme, "bob"), await scene.user(other, "eve")
    assert await scene.accounts.users(acme.id) == (ann, bob)
    assert await scene.accounts.users(None) == (ann, bob, eve)


async def test_names_are_unique_within_a_tenant(scene: Scene) -> None:
    acme, other = await scene.tenant("acme"), await scene.tenant("other")
    await scene.user(acme, "ann")
    with pytest.raises(Conflict):
        await scene.user(acme, "ann")
    with pytest.raises(Conflict):
        await scene.tenant("acme")
    await scene.user(other, "ann")


async def test_unknown_tenants_and_users_are_not_found(scene: Scene) -> None:
    ghost = Tenant(TenantId("tenant_ghost"), "ghost", scene.clock.now())
    with pytest.raises(NotFound):
        await scene.user(ghost)
    with pytest.raises(NotFound):
        await scene.accounts.user(UserId("user_ghost"))
    with pytest.raises(NotFound):
        await scene.accounts.disable_user(UserId("user_ghost"))
    with pytest.raises(NotFound):
        await scene.accounts.create_link(b"t", UserId("user_ghost"), expires_at=scene.clock.now() + DAY)


async def test_a_user_is_found_by_name_or_id_unless_the_name_is_ambiguous(scene: Scene) -> None:
    acme, other = await scene.tenant("acme"), await scene.tenant("other")
    ann = await scene.user(acme, "ann")
    assert await scene.accounts.user_by_name("ann") == ann
    assert await scene.accounts.user_by_name(ann.id) == ann
    assert await scene.accounts.user(ann.id) == ann
    await scene.user(other, "ann")
    for name in ("ann", "nobody"):
        with pytest.raises(NotFound):
            await scene.accounts.user_by_name(name)


async def test_a_link_opens_one_session_once(scene: Scene) -> None:
    ann = await scene.user(await scene.tenant())
    now = scene.clock.now()
    await scene.accounts.create_link(b"link", ann.id, expires_at=now + DAY)
    assert await scene.accounts.redeem_link(b"other", b"session", now=now, expires_at=now + DAY) is None
    assert await scene.accounts.redeem_link(b"link", b"session", now=now, expires_at=now + DAY) == ann
    assert await scene.accounts.redeem_link(b"link", b"second", now=now, expires_at=now + DAY) is None
    session = await scene.accounts.session(b"session", now=now)
    assert session is not None
    assert (session.user, session.expires_at) == (ann, now + DAY)
    assert await scene.accounts.session(b"second", now=now) is None


async def test_links_and_sessions_end_at_their_time(scene: Scene) -> None:
    ann = await scene.user(await scene.tenant())
    now = scene.clock.now()
    for token in (b"early", b"late"):
        await scene.accounts.create_link(token, ann.id, expires_at=now + DAY)
    just_before = now + DAY - timedelta(milliseconds=1)
    assert await scene.accounts.redeem_link(b"early", b"session", now=just_before, expires_at=now + DAY) == ann
    assert await scene.accounts.redeem_link(b"late", b"other", now=now + DAY, expires_at=now + 2 * DAY) is None
    assert await scene.accounts.session(b"session", now=just_before) is not None
    assert await scene.accounts.session(b"session", now=now + DAY) is None


async def test_an_ended_session_is_gone(scene: Scene) -> None:
    ann = await scene.user(await scene.tenant())
    now = scene.clock.now()
    await scene.accounts.create_link(b"link", ann.id, expires_at=now + DAY)
    await scene.accounts.redeem_link(b"link", b"session", now=now, expires_at=now + DAY)
    await scene.accounts.end_session(b"session")
    await scene.accounts.end_session(b"never was")
    assert await scene.accounts.session(b"session", now=now) is None


async def test_a_disabled_user_has_no_way_in(scene: Scene) -> None:
    ann = await scene.user(await scene.tenant())
    now = scene.clock.now()
    key = new_key(scene, ann)
    await scene.accounts.create_key(key, b"secret")
    for token in (b"used", b"unused"):
        await scene.accounts.create_link(token, ann.id, expires_at=now + DAY)
    await scene.accounts.redeem_link(b"used", b"session", now=now, expires_at=now + DAY)
    await scene.accounts.disable_user(ann.id)
    assert (await scene.accounts.user(ann.id)).disabled
    assert await scene.accounts.session(b"session", now=now) is None
    assert await scene.accounts.redeem_link(b"unused", b"other", now=now, expires_at=now + DAY) is None
    assert await scene.accounts.key(b"secret") is None


async def test_a_key_is_found_until_it_is_revoked(scene: Scene) -> None:
    tenant = await scene.tenant()
    ann = await scene.user(tenant)
    key = new_key(scene, ann)
    await scene.accounts.create_key(key, b"secret")
    found = await scene.accounts.key(b"secret")
    assert found is not None
    assert (found.user, found.key, found.secret_sha256) == (ann, key, b"secret")
    revoked_at = scene.clock.now()
    await scene.accounts.revoke_key(tenant.id, key.id, now=revoked_at)
    scene.clock.advance(5)
    await scene.accounts.revoke_key(tenant.id, key.id, now=scene.clock.now())
    assert await scene.accounts.key(b"secret") is None
    assert [one.revoked_at for one in await scene.accounts.keys(tenant.id, None)] == [revoked_at]


async def test_keys_are_listed_by_tenant_and_user(scene: Scene) -> None:
    acme, other = await scene.tenant("acme"), await scene.tenant("other")
    ann, bob, eve = await scene.user(acme, "ann"), await scene.user(acme, "bob"), await scene.user(other, "eve")
    keys = [new_key(scene, user) for user in (ann, bob, eve)]
    for number, key in enumerate(keys):
        await scene.accounts.create_key(key, bytes([number]))
    assert await scene.accounts.keys(acme.id, None) == tuple(keys[:2])
    assert await scene.accounts.keys(acme.id, bob.id) == (keys[1],)
    assert await scene.accounts.keys(acme.id, eve.id) == ()


async def test_a_foreign_key_is_not_found(scene: Scene) -> None:
    acme, other = await scene.tenant("acme"), await scene.tenant("other")
    key = new_key(scene, await scene.user(acme))
    await scene.accounts.create_key(key, b"secret")
    with pytest.raises(NotFound):
        await scene.accounts.revoke_key(other.id, key.id, now=scene.clock.now())
    with pytest.raises(Conflict):
        await scene.accounts.create_key(key, b"again")
    assert await scene.accounts.key(b"secret") is not None
    assert await scene.accounts.key(b"again") is None


async def test_a_password_is_found_by_the_one_enabled_user_of_that_name(scene: Scene) -> None:
    acme, other = await scene.tenant("acme"), await scene.tenant("other")
    ann, namesake = await scene.user(acme, "ann"), await scene.user(other, "ann")
    assert await scene.accounts.password_of("ann", None) is None
    await scene.accounts.set_password(ann.id, "hash 1", keep=None)
    await scene.accounts.set_password(ann.id, "hash 2", keep=None)
    assert await scene.accounts.password_of("ann", None) == Password(ann, "hash 2")
    await scene.accounts.set_password(namesake.id, "hash 3", keep=None)
    assert await scene.accounts.password_of("ann", None) is None, "two of that name"
    assert await scene.accounts.password_of("ann", "other") == Password(namesake, "hash 3")
    assert await scene.accounts.password_of("bob", None) is None
    assert (await scene.accounts.password(ann.id), await scene.accounts.password(UserId("user_x"))) == ("hash 2", None)
    await scene.accounts.disable_user(namesake.id)
    assert await scene.accounts.password_of("ann", None) == Password(ann, "hash 2")
    with pytest.raises(NotFound):
        await scene.accounts.set_password(UserId("user_x"), "hash", keep=None)


async def test_a_new_password_ends_every_other_way_in(scene: Scene) -> None:
    tenant = await scene.tenant()
    ann, bob = await scene.user(tenant, "ann"), await scene.user(tenant, "bob")
    now = scene.clock.now()
    kept, ended, bobs = (Session(name, user.id, now, now + DAY, "Browser") for name, user in ((b"a", ann), (b"b", ann), (b"c", bob)))
    for session in (kept, ended, bobs):
        await scene.accounts.open_session(session)
    await scene.accounts.create_link(b"link", ann.id, expires_at=now + DAY)
    assert await scene.accounts.sessions(ann.id, now=now) == (kept, ended)
    await scene.accounts.set_password(ann.id, "hash", keep=b"a")
    assert await scene.accounts.sessions(ann.id, now=now) == (kept,)
    assert await scene.accounts.sessions(bob.id, now=now) == (bobs,)
    assert await scene.accounts.sessions(bob.id, now=now + DAY) == ()
    assert await scene.accounts.redeem_link(b"link", b"d", now=now, expires_at=now + DAY) is None


async def test_an_account_that_is_enabled_again_has_no_old_session(scene: Scene) -> None:
    tenant = await scene.tenant()
    await scene.user(tenant, "boss")
    ann = await scene.user(tenant, "ann")
    now = scene.clock.now()
    await scene.accounts.open_session(Session(b"a", ann.id, now, now + DAY))
    assert (await scene.accounts.change_user(tenant.id, ann.id, UserChange(disabled=True))).disabled
    with pytest.raises(NotFound):
        await scene.accounts.open_session(Session(b"b", ann.id, now, now + DAY))
    changed = await scene.accounts.change_user(tenant.id, ann.id, UserChange(role=UserRole.ADMIN, plan="pro", disabled=False))
    assert (changed.role, changed.plan, changed.disabled) == (UserRole.ADMIN, "pro", False)
    assert await scene.accounts.user(ann.id) == changed
    assert await scene.accounts.session(b"a", now=now) is None
    other = await scene.tenant("other")
    with pytest.raises(NotFound):
        await scene.accounts.change_user(other.id, ann.id, UserChange(disabled=True))


async def test_an_owner_is_always_left(scene: Scene) -> None:
    tenant = await scene.tenant()
    owner = scene.new_user(tenant, "boss", UserRole.OWNER)
    await scene.accounts.create_user(owner)
    for change in (UserChange(disabled=True), UserChange(role=UserRole.MEMBER)):
        with pytest.raises(Conflict):
            await scene.accounts.change_user(tenant.id, owner.id, change)
    second = scene.new_user(tenant, "second", UserRole.OWNER)
    await scene.accounts.create_user(second)
    await scene.accounts.change_user(tenant.id, owner.id, UserChange(role=UserRole.MEMBER))
    with pytest.raises(Conflict):
        await scene.accounts.disable_user(second.id)


async def test_an_identity_is_one_users_for_ever(scene: Scene) -> None:
    tenant = await scene.tenant()
    here, there = Identity("https://one.example", "42"), Identity("https://two.example", "42")
    ann, bob = scene.new_user(tenant, "ann", UserRole.MEMBER), scene.new_user(tenant, "bob", UserRole.MEMBER)
    assert await scene.accounts.user_of_identity(here) is None
    await scene.accounts.create_user_of_identity(ann, here)
    await scene.accounts.create_user_of_identity(bob, there)
    assert await scene.accounts.user_of_identity(here) == ann
    assert await scene.accounts.user_of_identity(there) == bob, "a subject means nothing without its issuer"
    assert (await scene.accounts.identities(ann.id), await scene.accounts.identities(UserId("usr_nobody"))) == ((here,), ())
    for new in (scene.new_user(tenant, "eve", UserRole.MEMBER), scene.new_user(tenant, "ann", UserRole.MEMBER)):
        with pytest.raises(Conflict):
            await scene.accounts.create_user_of_identity(new, here)
    with pytest.raises(Conflict):
        await scene.accounts.create_user_of_identity(scene.new_user(tenant, "ann", UserRole.MEMBER), Identity("https://one.example", "43"))
    assert await scene.accounts.users(tenant.id) == (ann, bob), "a refused identity leaves no user behind"
    await scene.accounts.disable_user(ann.id)
    disabled = await scene.accounts.user_of_identity(here)
    assert disabled is not None and disabled.disabled, "no second account for somebody who was disabled"
    await scene.accounts.delete_user(bob.id)
    assert await scene.accounts.user_of_identity(there) is None
    assert await scene.accounts.identities(bob.id) == ()
