"""``antiphon top`` against a scripted server."""

from __future__ import annotations

import json

from tests.cli.conftest import Antiphon
from tests.client.scripted_server import Scene, scripted

TROUBLE = "The model had not finished loading after 60 s, so its process was ended."
POOLS = [
    {
        "name": "large",
        "queue": [{"band": "high", "waiting": 2}, {"band": "low", "waiting": 7}],
        "replicas": [
            {
                "id": "large-0",
                "pid": 7,
                "state": "ready",
                "running": 5,
                "waiting": 1,
                "blocks": {"free": 3, "held": 4, "cached": 9},
                "tok_s": 81.5,
                "circuit": "half_open",
            }
        ],
        "load": "full",
        "wait_ms": 900,
        "shed": 11,
        "downgraded": 6,
        "presence": "leaving",
        "trouble": None,
    },
    {
        "name": "small",
        "queue": [],
        "replicas": [],
        "load": "high",
        "wait_ms": 2600,
        "shed": 0,
        "downgraded": 0,
        "presence": "absent",
        "trouble": TROUBLE,
    },
]


def test_top_shows_every_pool_and_replica(antiphon: Antiphon) -> None:
    with scripted(Scene(json.dumps(POOLS).encode(), 200, "application/json")) as server:
        outcome = antiphon("top", "--url", server.url, "--key", "ak_1", "--once")
    assert outcome.code == 0
    first, *_, last, trouble = outcome.out.splitlines()
    assert first.endswith("makes room, answers in about 1 s")
    assert last.startswith("small ")
    assert last.endswith("not in memory, answers in about 3 s")
    assert trouble == f"  ! {TROUBLE}"
    for part in ("large", "high 2  low 7", "load full", "refused 11", "downgraded 6", "large-0", "half_open", "81.5", "3/4/9"):
        assert part in outcome.out
    with scripted(Scene(json.dumps(POOLS).encode(), 200, "application/json")) as server:
        assert json.loads(antiphon("top", "--url", server.url, "--key", "ak_1", "--json").out) == POOLS


def test_without_a_key_or_a_server_top_says_so(antiphon: Antiphon) -> None:
    assert antiphon("top", "--once").code == 2
    assert antiphon("top", "--once", "--url", "http://127.0.0.1:9", "--key", "ak_1").code == 1
