"""The contract of gates: a burst, then a wait that is true; and nobody comes in while tries cannot be counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.app.system import SystemClock
from antiphon.core.clock import ManualClock
from antiphon.core.errors import StoreUnavailable
from antiphon.edge.sign_in_gate import LocalGate, SharedGate, SignInGate
from antiphon.edge.sign_in_pace import SignInPace, Try, TryLater
from antiphon.inference.gateway import Gateway
from antiphon.stores.limits.fallback import FallbackLimiter
from antiphon.stores.limits.memory import MemoryLimiter
from antiphon.stores.limits.redis import RedisLimiter
from tests.contracts.limiters import TENANT, TOKENS, reservation
from tests.edge.site import Site
from tests.edge.test_passwords import QUICK, SECRET, sign_in, with_password
from tests.ids import CountingIds
from tests.redis_server import RedisServer


@pytest.fixture(params=["local", "shared, memory", "shared, redis"])
async def gate(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock, ids: CountingIds) -> AsyncIterator[SignInGate]:
    if request.param == "local":
        yield LocalGate(SignInPace(), clock)
    elif request.param == "shared, memory":
        yield SharedGate(MemoryLimiter(clock), ids)
    else:
        server = RedisServer(tmp_path)
        server.start()
        limiter = RedisLimiter.connect(server.url, SystemClock())
        yield SharedGate(limiter, ids)
        await limiter.close()
        server.stop()


async def test_a_name_from_one_address_has_ten_tries_and_others_have_theirs(gate: SignInGate) -> None:
    tries = await asyncio.gather(*(gate.ask("ada", "192.0.2.1") for _ in range(30)))
    assert tries.count(Try()) == 10
    late = await gate.ask("ada", "192.0.2.1")
    assert isinstance(late, TryLater)
    assert 0 < late.retry_after_s <= 300
    assert await gate.ask("bob", "192.0.2.1") == Try()
    assert await gate.ask("ada", "198.51.100.7") == Try()
    await gate.check_open()
    gate.check()


async def test_a_networks_addresses_are_one_and_share_what_it_has(gate: SignInGate) -> None:
    tries = await asyncio.gather(*(gate.ask(f"name {number}", f"2001:db8::{number:x}") for number in range(130)))
    assert tries.count(Try()) == 100


@pytest.mark.timeout(60)
async def test_while_redis_is_gone_nobody_signs_in_and_who_is_in_goes_on_with_a_share(gateway: Gateway, tmp_path: Path) -> None:
    server, clock = RedisServer(tmp_path), ManualClock()
    server.start()
    shared = RedisLimiter.connect(server.url, SystemClock())
    limiter = FallbackLimiter(shared, MemoryLimiter(clock), clock, share=0.25)
    site = Site(gateway, passwords_hasher=QUICK, sign_in_gate=SharedGate(shared, CountingIds()))
    await site.open()
    try:
        person, browser = await with_password(site, "ada")
        assert (await sign_in(site, "ada", SECRET))[0].status_code == 204
        link = await site.link(person.user)
        server.stop()
        for closed in (await sign_in(site, "ada", SECRET), await sign_in(site, "ada", "wrong"), await sign_in(site, "nobody", SECRET)):
            assert (closed[0].status_code, closed[0].json()["code"]) == (503, "store_unavailable")
        by_link = await site.client().post("/v1/session", json={"token": link})
        assert by_link.status_code == 503
        assert (await browser.get("/v1/me")).status_code == 200
        shares = [await limiter.reserve(reservation(str(number), TOKENS, tokens=250)) for number in range(3)]
        assert [type(verdict).__name__ for verdict in shares] == ["Granted", "Exhausted", "Exhausted"]
        with pytest.raises(StoreUnavailable):
            await shared.standings(TENANT, ())
        server.start()
        assert (await sign_in(site, "ada", SECRET))[0].status_code == 204
        assert (await site.client().post("/v1/session", json={"token": link})).status_code == 204, "a closed door burns no link"
    finally:
        await site.close()
        await limiter.close()
        server.stop()
