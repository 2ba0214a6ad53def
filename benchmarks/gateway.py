"""What the gateway adds, and what it protects: the whole product over HTTP, before the reference engine.

Added time: the same requests over ``/v1/chat/completions`` and straight to a replica over its own socket. Overload: three
plans, open loop, from below what the pool can take to ten times that. Obedient clients: 200 that come back when they are
told. Flooder: eight users of whom one sends twenty times as much, and the same before a line in order of arrival, which
must fail. A load that swings, before a pool with a smaller one beside it. Cancels in all phases. And routers of other projects
beside ours, in front of one server.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable

from benchmarks.gateway_added import added
from benchmarks.gateway_downgrade import downgrade
from benchmarks.gateway_flooder import flooder
from benchmarks.gateway_load import cancels, obedient, overload
from benchmarks.gateway_routers import routers
from benchmarks.report import Report

Part = Callable[[Report, bool], Awaitable[None]]
PARTS: dict[str, Part] = {
    "added": added,
    "routers": routers,
    "overload": overload,
    "obedient": obedient,
    "flooder": flooder,
    "downgrade": downgrade,
    "cancels": cancels,
}


async def measure(report: Report, parts: list[str], *, quick: bool) -> None:
    for part in parts:
        await PARTS[part](report, quick)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench NAME=gateway")
    parser.add_argument("--quick", action="store_true", help="fewer requests and shorter loads; no p99")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="comma-separated parts; the line then lacks the others' keys")
    asked = parser.parse_args()
    report = Report("gateway", "reference", asked.seed)
    asyncio.run(measure(report, asked.only.split(",") if asked.only else list(PARTS), quick=asked.quick))
    report.print_json()


if __name__ == "__main__":
    main()
