"""One connection for many callers: each gets their own answer, whoever goes, whatever is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from antiphon.stores.limits.redis_link import TIMEOUT_S, RedisAddress, RedisLink, RedisLost, RedisRefusal
from tests.awake import awake_s
from tests.redis_server import RedisServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    started = RedisServer(tmp_path)
    started.start()
    yield started
    started.stop()


@pytest.fixture
async def link(server: RedisServer) -> AsyncIterator[RedisLink]:
    opened = RedisLink(RedisAddress.parse(server.url))
    yield opened
    await opened.close()


async def test_each_of_many_callers_gets_their_own_answer_over_one_connection(link: RedisLink) -> None:
    answers = await asyncio.gather(*(link.call("ECHO", str(number)) for number in range(3000)))
    assert answers == [str(number).encode() for number in range(3000)]
    clients = await link.call("CLIENT", "LIST")
    assert isinstance(clients, bytes)
    assert clients.count(b"\n") == 1


async def test_who_is_cancelled_takes_nobody_elses_answer(link: RedisLink) -> None:
    await link.call("PING")
    callers = [asyncio.create_task(link.call("ECHO", str(number))) for number in range(200)]
    await asyncio.sleep(0)
    for caller in callers[::2]:
        caller.cancel()
    await asyncio.wait(callers)
    assert [caller.result() for caller in callers[1::2]] == [str(number).encode() for number in range(1, 200, 2)]
    assert await link.call("ECHO", "last") == b"last"


async def test_who_is_cancelled_while_it_connects_leaves_the_connection_to_others(link: RedisLink) -> None:
    first, second = asyncio.create_task(link.call("ECHO", "1")), asyncio.create_task(link.call("ECHO", "2"))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == b"2"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_an_error_of_redis_is_its_callers_alone(link: RedisLink) -> None:
    wrong, right = await asyncio.gather(link.call("NOSUCH"), link.call("PING"), return_exceptions=True)
    assert isinstance(wrong, RedisRefusal)
    assert right == b"PONG"


async def test_a_lost_connection_is_made_again_and_a_gone_redis_told_at_once(link: RedisLink, server: RedisServer) -> None:
    await link.call("PING")
    server.stop()
    server.start()
    assert await link.call("PING") == b"PONG"
    server.stop()
    begun = awake_s()
    outcomes = await asyncio.gather(*(link.call("PING") for _ in range(50)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {RedisLost}
    assert awake_s() - begun < 1


async def test_a_redis_that_hangs_holds_nobody_for_longer_than_two_tries(link: RedisLink, server: RedisServer) -> None:
    await link.call("PING")
    assert server._process is not None
    os.kill(server._process.pid, signal.SIGSTOP)
    try:
        begun = awake_s()
        outcomes = await asyncio.gather(*(link.call("PING") for _ in range(20)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {RedisLost}
        assert awake_s() - begun < 2 * TIMEOUT_S + 1
    finally:
        os.kill(server._process.pid, signal.SIGCONT)
    assert await link.call("ECHO", "again") == b"again"


async def test_more_than_may_wait_are_refused_and_nobody_waits_after_a_close(link: RedisLink) -> None:
    await link.call("PING")
    outcomes = await asyncio.gather(*(link.call("PING") for _ in range(9000)), return_exceptions=True)
    assert outcomes.count(b"PONG") == 8192
    assert sum(isinstance(outcome, RedisLost) for outcome in outcomes) == 808
    waiting = [asyncio.create_task(link.call("BLPOP", "nothing", 5)) for _ in range(3)]
    await asyncio.sleep(0.05)
    await link.close()
    begun = awake_s()
    done = await asyncio.gather(*waiting, link.call("PING"), return_exceptions=True)
    assert {type(outcome) for outcome in done} == {RedisLost}
    assert awake_s() - begun < 0.5


async def test_a_password_and_a_database_are_given(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, None, "--requirepass", "s3 cret")
    server._answers = lambda: _listening(server.port)  # type: ignore[method-assign]
    server.start()
    try:
        right = RedisLink(RedisAddress.parse(f"redis://:s3%20cret@127.0.0.1:{server.port}/3"))
        await right.call("SET", "there", "1")
        assert b"db3:keys=1" in await right.call("INFO", "keyspace")  # type: ignore[operator]
        await right.close()
        wrong = RedisAddress.parse(f"redis://:s3%20cret@127.0.0.1:{server.port}")
        link = RedisLink(replace(wrong, password="other"))
        with pytest.raises(RedisLost, match="WRONGPASS"):
            await link.call("PING")
        await link.close()
        assert "s3 cret" not in repr(wrong)
    finally:
        server.stop()


def _listening(port: int) -> bool:
    import socket

    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
