"""A refusal takes as long whether the key's id or the user is known or not: Welch's t-test over 10,000 interleaved samples."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest
import structlog
from argon2 import PasswordHasher

from antiphon.app.system import SystemClock
from antiphon.core.ids import IdKind, TenantId, UserId
from antiphon.core.tenancy import ApiKey, Scope, Tenant, User, UserRole
from antiphon.edge.auth import _checksum, new_api_key
from antiphon.edge.sign_in_gate import LocalGate
from antiphon.edge.sign_in_pace import Allowance, SignInPace
from antiphon.inference.gateway import Gateway
from antiphon.stores.accounts.sql import SqlAccounts
from antiphon.stores.sql.sqlite import SqliteDatabase
from tests.edge.site import Site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SAMPLES = 10_000
LEAST_P = 0.01
TRIMMED = 0.1


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Without a log line for each of the requests, which would take longer than they do."""
    before = structlog.get_config()["wrapper_class"]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    yield
    structlog.configure(wrapper_class=before)


@pytest.fixture
async def accounts(tmp_path: Path) -> AsyncIterator[SqlAccounts]:
    database = SqliteDatabase(tmp_path / "antiphon.db")
    await database.open()
    yield SqlAccounts(database)
    await database.close()


@pytest.fixture
async def guarded_site(gateway: Gateway, accounts: SqlAccounts, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """The real look-ups, and a hash so quick that it hides nothing; the parameter is how long a refusal takes at least."""
    endless = Allowance(10**9, 1e-9)
    site = Site(
        gateway,
        accounts=accounts,
        refusal_seconds=getattr(request, "param", 0.01),
        passwords_hasher=PasswordHasher(time_cost=1, memory_cost=8, parallelism=1),
        sign_in_gate=LocalGate(SignInPace(name_from_address=endless, name=endless, address=endless), SystemClock()),
    )
    await site.open()
    yield site
    await site.close()


async def test_known_and_unknown_key_ids(guarded_site: Site) -> None:
    site = guarded_site
    user = await _user(site, "ada")
    key_id, known, digest, last4 = new_api_key(site.ids)
    await site.accounts.create_key(ApiKey(key_id, user.tenant_id, user.id, "k", frozenset({Scope.CHAT}), last4, site.clock.now()), digest)
    identity = known[: len("ak_") + 32]

    def request(first: str) -> bytes:
        body = first + site.ids.secret(32)
        return _request("GET", "/v1/me", f"Authorization: Bearer {body + _checksum(body)}\r\n")

    p = await _p(site, lambda: request(identity), lambda: request(f"ak_{site.ids.new(IdKind.KEY).removeprefix('key_').replace('-', '')}"))
    assert p > LEAST_P


async def test_known_and_unknown_users(guarded_site: Site) -> None:
    site = guarded_site
    user = await _user(site, "ada")
    await site.accounts.set_password(user.id, await site.passwords.encode("correct horse battery"), keep=None)

    def request(name: str) -> bytes:
        body = f'{{"name":"{name}","password":"a wrong password"}}'
        return _request("POST", "/v1/session", f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n", body)

    assert await _p(site, lambda: request("ada"), lambda: request("abe")) > LEAST_P


@pytest.mark.parametrize("guarded_site", [0.0], indirect=True)
async def test_a_difference_is_found(guarded_site: Site) -> None:
    """The control: a known name that costs a fifth of a millisecond more, and refusals at once."""
    site = guarded_site
    await _user(site, "ada")
    real = site.accounts.password_of

    async def slower(name: str, tenant: str | None) -> object:
        until = time.perf_counter() + (2e-4 if name == "ada" else 0)
        while time.perf_counter() < until:
            pass
        return await real(name, tenant)

    site.accounts.password_of = slower  # pyright: ignore[reportAttributeAccessIssue]

    def request(name: str) -> bytes:
        body = f'{{"name":"{name}","password":"a wrong password"}}'
        return _request("POST", "/v1/session", f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n", body)

    assert await _p(site, lambda: request("ada"), lambda: request("abe")) < LEAST_P


async def _user(site: Site, name: str) -> User:
    tenant = Tenant(TenantId(site.ids.new(IdKind.TENANT)), "here", site.clock.now())
    await site.accounts.create_tenant(tenant)
    user = User(UserId(site.ids.new(IdKind.USER)), tenant.id, name, UserRole.MEMBER, "free", False, site.clock.now())
    await site.accounts.create_user(user)
    return user


def _request(method: str, path: str, headers: str, body: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n{body}".encode()


async def _p(site: Site, known: Callable[[], bytes], unknown: Callable[[], bytes]) -> float:
    """The chance that refusals of both kinds take equally long, by what was measured on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    order = [True, False] * (SAMPLES // 2)
    random.Random(7).shuffle(order)
    took: dict[bool, list[float]] = {True: [], False: []}
    for is_known in order:
        request = known() if is_known else unknown()
        began = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        took[is_known].append(time.perf_counter() - began)
        assert head.startswith(b"HTTP/1.1 401"), head
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        await reader.readexactly(length)
    writer.close()
    p = welch_p(_trimmed(took[True]), _trimmed(took[False]))
    means = [1e6 * statistics.fmean(_trimmed(took[kind])) for kind in (True, False)]
    print(f"known {means[0]:.1f} us, unknown {means[1]:.1f} us, p = {p:.3f}")
    return p


def _trimmed(values: Sequence[float]) -> list[float]:
    """Without the slowest tenth, where the machine was busy with something else."""
    return sorted(values)[: int(len(values) * (1 - TRIMMED))]


def welch_p(one: Sequence[float], other: Sequence[float]) -> float:
    """Two-sided p of Welch's t; with thousands of degrees of freedom t is normal."""
    error = math.sqrt(statistics.variance(one) / len(one) + statistics.variance(other) / len(other))
    return math.erfc(abs(statistics.fmean(one) - statistics.fmean(other)) / error / math.sqrt(2))
