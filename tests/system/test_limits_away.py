"""A real server whose Redis is killed: the door closes, who is in goes on with a share, and what they used is told afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.redis_server import RedisServer
from tests.system.served import Server, eventually
from tests.system.test_limits import asked, config, limits

PLAN = '[[plans]]\nname = "free"\ntokens_per_minute = 100000\nrequests_per_minute = 8\nconcurrency = 4\nmax_output_tokens = 64\n'


def signed_in(server: Server) -> httpx.Response:
    """By a link of its own."""
    token = server.command("link").partition("?token=")[2]
    with httpx.Client(base_url=server.url, trust_env=False) as browser:
        return browser.post("/v1/session", json={"token": token})


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(120)
def test_a_server_whose_redis_is_gone_lets_nobody_in_and_grants_a_share(make_server: Callable[[str], Server], tmp_path: Path) -> None:
    redis = RedisServer(tmp_path)
    redis.start()
    server = make_server(f'[limits]\nurl = "{redis.url}"\nlocal_share = 0.5\n{config(PLAN)}')
    try:
        with server.person().http as http:
            for _ in range(3):
                assert asked(http).status_code == 200
            assert limits(http)["requests_per_minute"]["used"] == 3
            assert signed_in(server).status_code == 204
            redis.stop()
            statuses = [asked(http).status_code for _ in range(6)]
            assert statuses[:4] == [200] * 4, "half of eight a minute"
            assert 429 in statuses[4:]
            refused = signed_in(server)
            assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
            assert limits(http)["requests_per_minute"]["limit"] == 4
            redis.start()
            eventually(lambda: limits(http)["requests_per_minute"]["limit"] == 8, within_s=10, what="the shared limits")
            assert asked(http).status_code == 200
            assert int(str(limits(http)["requests_per_minute"]["used"])) >= 4, "it was told what it had missed"
            assert signed_in(server).status_code == 204
        server.stop()
    finally:
        redis.stop()
