"""Keys, tokens, cookies and the cache's bound on a revocation's delay."""

from __future__ import annotations

from datetime import timedelta

import pytest

from antiphon.core.clock import ManualClock
from antiphon.core.errors import Unauthenticated
from antiphon.core.ids import IdKind, TenantId, UserId, is_id
from antiphon.core.tenancy import ApiKey, Scope, Tenant, User, UserRole
from antiphon.edge.auth import Authenticator, CookiePolicy, new_api_key, new_token, parse_api_key, token_sha256
from antiphon.stores.accounts.memory import MemoryAccounts
from antiphon.stores.memory import MemoryState
from tests.ids import CountingIds


def test_a_key_can_be_read_back(ids: CountingIds) -> None:
    key_id, text, sha256, last4 = new_api_key(ids)
    assert text.startswith("ak_")
    assert is_id(key_id, IdKind.KEY)
    assert parse_api_key(text) == (key_id, sha256)
    assert text.endswith(last4)
    assert sha256 not in text.encode()


def test_a_mistyped_key_is_no_key(ids: CountingIds) -> None:
    text = new_api_key(ids)[1]
    for index in range(len(text)):
        wrong = text[:index] + ("a" if text[index] != "a" else "b") + text[index + 1 :]
        assert parse_api_key(wrong) is None
    for wrong in ("", "ak_", text[:-1], text + "0", text + "\n", " " + text, text.upper(), "\u0660" * len(text)):
        assert parse_api_key(wrong) is None


def test_tokens(ids: CountingIds) -> None:
    text, sha256 = new_token(ids)
    assert token_sha256(text) == sha256
    for wrong in ("", "x", text + "=", text + "\n", "x" * 500):
        assert token_sha256(wrong) is None


@pytest.mark.parametrize("secure", [False, True])
def test_cookies_are_read_by_their_exact_name(secure: bool) -> None:
    policy = CookiePolicy(secure)
    assert policy.read([(b"cookie", f"a=b; {policy.name}=token; c".encode())]) == ("token",)
    assert policy.read([(b"cookie", b"a=b"), (b"cookie", f"{policy.name}=token".encode())]) == ("token",)
    several = "; ".join(f"{policy.name}={number}" for number in (1, 2, 1, 3))
    assert policy.read([(b"cookie", several.encode())]) == ("1", "2", "3")
    assert len(policy.read([(b"cookie", "; ".join(f"{policy.name}={number}" for number in range(100)).encode())])) == 8
    for other in ("xantiphon_session=token", "ANTIPHON_SESSION=token", "antiphon_sessionx=token", "="):
        assert policy.read([(b"cookie", other.encode())]) == ()
    assert (b"Secure" in policy.set("t")) is secure
    assert b"Max-Age=0" in policy.clear()


async def test_a_revoked_key_works_for_three_seconds_at_most(clock: ManualClock, ids: CountingIds) -> None:
    accounts = MemoryAccounts(MemoryState())
    tenant = Tenant(TenantId(ids.new(IdKind.TENANT)), "t", clock.now())
    user = User(UserId(ids.new(IdKind.USER)), tenant.id, "u", UserRole.MEMBER, "free", False, clock.now())
    await accounts.create_tenant(tenant)
    await accounts.create_user(user)
    key_id, text, sha256, last4 = new_api_key(ids)
    await accounts.create_key(ApiKey(key_id, tenant.id, user.id, "k", frozenset(Scope), last4, clock.now()), sha256)
    authenticator = Authenticator(accounts, clock, public_url="")
    headers = [(b"authorization", f"Bearer {text}".encode())]
    principal = await authenticator.authenticate("GET", headers)
    assert principal.scopes == {Scope.CHAT, Scope.USAGE}, "a key of a member never holds what a member may not"
    assert principal.key_id == key_id

    await accounts.revoke_key(tenant.id, key_id, now=clock.now())
    clock.advance(3.1)
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate("GET", headers)


async def test_a_key_with_another_secret_is_refused(clock: ManualClock, ids: CountingIds) -> None:
    accounts = MemoryAccounts(MemoryState())
    authenticator = Authenticator(accounts, clock, public_url="")
    _, text, *_ = new_api_key(ids)
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate("GET", [(b"authorization", f"Bearer {text}".encode())])


async def test_an_expired_session(clock: ManualClock, ids: CountingIds) -> None:
    accounts = MemoryAccounts(MemoryState())
    tenant = Tenant(TenantId(ids.new(IdKind.TENANT)), "t", clock.now())
    user = User(UserId(ids.new(IdKind.USER)), tenant.id, "u", UserRole.OWNER, "free", False, clock.now())
    await accounts.create_tenant(tenant)
    await accounts.create_user(user)
    (_, link), (session, session_sha256) = new_token(ids), new_token(ids)
    later = clock.now() + timedelta(seconds=60)
    await accounts.create_link(link, user.id, expires_at=later)
    assert await accounts.redeem_link(link, session_sha256, now=clock.now(), expires_at=later)
    authenticator = Authenticator(accounts, clock, public_url="")
    cookie = [(b"cookie", f"antiphon_session={session}".encode())]
    assert (await authenticator.authenticate("GET", cookie)).user_id == user.id
    clock.advance(64)
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate("GET", cookie)
