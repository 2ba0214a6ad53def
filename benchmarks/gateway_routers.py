"""What gateways add in front of one OpenAI-compatible engine: ours, vLLM's and SGLang's, beside a connection straight to it, in turn.

Ours does more for a request (limits, line, usage, a durable count of it); what is compared is the time to the first token that a
client sees, and the processor time of a batch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gateway_added import TOKENS, cpu_seconds, wave
from benchmarks.gateway_people import config
from benchmarks.lean_http import LeanClient
from benchmarks.peers.routers import ROUTERS, routed, upstream
from benchmarks.report import Report, median, percentile, progress
from benchmarks.served import served

STREAMS = 60
"""At once: of somebody else's server ours asks for 64 answers at most."""


@dataclass(slots=True)
class Way:
    """One way to the engine: the processes on it, and what was heard there."""

    client: LeanClient
    pids: tuple[int, ...] = ()
    rounds: list[list[float]] = field(default_factory=list[list[float]])
    batches: int = 0
    cpu_s: float = 0.0

    @property
    def ttfts(self) -> list[float]:
        return [ttft for one in self.rounds for ttft in one]

    def asking(self) -> Callable[[str], Awaitable[float]]:
        async def ask(prompt: str) -> float:
            body = {"model": "small", "messages": [{"role": "user", "content": prompt}], "stream": True, "max_tokens": TOKENS}
            heard = await self.client.ask(body)
            self.batches += heard.batches
            return heard.ttft_s

        return ask

    async def play(self, count: int, seed: int) -> None:
        before = sum(cpu_seconds(pid) for pid in self.pids)
        self.rounds.append(await wave(self.asking(), count, seed, streams=STREAMS))
        self.cpu_s += sum(cpu_seconds(pid) for pid in self.pids) - before


def openai_config(address: str) -> str:
    """The gateway benchmark's plans, before a server that is not ours."""
    engine = f'engine = "openai"\nmodel = "small"\nurl = "{address}/v1"\ncontext_tokens = 8192'
    lines = config(blocks=0, limit=400).replace('engine = "reference"', engine).splitlines()
    return "\n".join(line for line in lines if not line.startswith(("output_tokens_per_s", "prefill_tokens_per_s", "blocks")))


def children(pid: int) -> tuple[int, ...]:
    return tuple(int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


async def routers(report: Report, quick: bool) -> None:
    count, rounds = (150, 1) if quick else (300, 3)
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(upstream())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="antiphon-bench-")))
        server = stack.enter_context(served(openai_config(address)))
        ways = {
            "direct": Way(LeanClient(address, "")),
            "antiphon": Way(LeanClient(server.url, server.key), (server.pid, *children(server.pid))),
        }
        for router in ROUTERS:
            there, pid = await stack.enter_async_context(routed(router, address, folder / f"{router.name}.log"))
            ways[router.name] = Way(LeanClient(there, ""), (pid, *children(pid)))
        for way in ways.values():
            await wave(way.asking(), 60, 900, streams=STREAMS)
            way.batches = 0
        for number in range(rounds):
            order = list(ways.values())
            for way in order if number % 2 == 0 else reversed(order):
                await way.play(count, number)
            progress(f"routers, round {number + 1}: " + ", ".join(f"{name} {1e3 * median(way.ttfts):.1f} ms" for name, way in ways.items()))
    tell(report, ways, quick=quick)


def tell(report: Report, ways: dict[str, Way], *, quick: bool) -> None:
    direct = ways.pop("direct")
    for name, way in ways.items():
        report.n += len(way.ttfts)
        report.results[f"{name}_before_openai_added_ttft_ms_p50"] = round(1e3 * (median(way.ttfts) - median(direct.ttfts)), 2)
        if not quick:
            p99 = percentile(way.ttfts, 0.99) - percentile(direct.ttfts, 0.99)
            report.results[f"{name}_before_openai_added_ttft_ms_p99"] = round(1e3 * p99, 2)
        report.results[f"{name}_before_openai_cpu_ms_per_batch"] = round(1e3 * way.cpu_s / way.batches, 3)
    for router in ROUTERS:
        pairs = zip(ways[router.name].rounds, direct.rounds, strict=True)
        each = [1e3 * (median(theirs) - median(bare)) for theirs, bare in pairs]
        report.peers[router.name] = {"version": router.version, "rounds": len(each), "min": round(min(each), 2), "max": round(max(each), 2)}
    progress(f"routers: {report.results}")
