"""Our engine beside the engines people use: same model, same 16-bit cache, prefix caching on, same request lists.

Ours is the replica process over its own socket. OpenVINO GenAI runs in a process of its own on the same IR, without a wire;
llama.cpp's server over HTTP in the better of two quantisations and the best of three numbers of slots; vLLM's CPU build over
HTTP with ``--vllm``. ``docs/benchmarks/README.md`` has the rules and the meaning of every key.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from antiphon.app.config import Flags, load_config
from antiphon.app.logging import configure_logging
from antiphon.engines.model_source import DEFAULT_MODEL, ModelStore
from antiphon.engines.tokenizer import load_tokenizer
from benchmarks import plots, scenarios
from benchmarks.chats import Chat, ChatMaker, Played, poisson
from benchmarks.duel import Duel, Play, fight, figures, line, pooled_ttfts
from benchmarks.exactness import exact_mismatches
from benchmarks.first_answer import bare_executor
from benchmarks.peers.child import ChildPeer
from benchmarks.peers.files import environment, genai_folder, requantised_gguf, shipped_gguf
from benchmarks.peers.http_peer import llama_server
from benchmarks.peers.vllm import vllm_server
from benchmarks.replica_client import ReplicaClient, bench_spec, replica
from benchmarks.report import Report, median, progress

PEER_BLOCKS = 2048
SMALL_POOL_BYTES = 260 * 2**20
LLAMA_INSTALLS = (("xllamacpp==2026.10.11549",),)
LOADS = {"chat8": (8, 3, 48), "chat16": (16, 2, 32)}
"""Users, turns, output tokens."""


@dataclass(frozen=True, slots=True)
class Asked:
    quick: bool
    seed: int
    vllm: bool
    docs: bool
    only: frozenset[str]


def _asked() -> Asked:
    parser = argparse.ArgumentParser(prog="make bench NAME=engine")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and scenarios; no p99")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--vllm", action="store_true", help="vLLM's CPU build too (some minutes more)")
    parser.add_argument("--docs", action="store_true", help="write the result as docs/benchmarks/engine.md with its charts")
    parser.add_argument("--only", default="", help="comma-separated parts; the line then lacks the others' keys")
    parsed = parser.parse_args()
    return Asked(parsed.quick, parsed.seed, parsed.vllm, parsed.docs, frozenset(filter(None, parsed.only.split(","))))


class Bench:
    """One run: what is measured, and where it is written."""

    def __init__(self, asked: Asked, folder: Path, logs: Path) -> None:
        self.asked = asked
        self.folder = folder
        self.logs = logs
        self.report = Report("engine", DEFAULT_MODEL, asked.seed)
        self.maker = ChatMaker(load_tokenizer(folder))
        self.duels: list[Duel] = []

    def part(self, name: str, *, full_only: bool = False) -> bool:
        """Whether a part is to be measured."""
        if self.asked.only:
            return name in self.asked.only
        return not (full_only and self.asked.quick)

    def duel(self, load: str, peer: str) -> Duel:
        """A new duel; what it comes to counts even when the run is stopped in its middle."""
        self.duels.append(Duel(load, peer))
        return self.duels[-1]

    def lists(self, load: str, rounds: int, *, first: int = 0, turns: int = 0) -> list[list[Chat]]:
        users, all_turns, tokens = LOADS[load]
        numbers = range(first, first + rounds)
        return [self.maker.chats(users, turns or all_turns, tokens, round_number=100 * users + n, seed=self.asked.seed) for n in numbers]

    def results(self, found: dict[str, float]) -> None:
        """Keep figures; those that the contract counts as ratios go there."""
        for key, value in found.items():
            ratio = key in {"intruder_itl_p95", "intruder_ttft", "returning_ttft"}
            (self.report.ratios if ratio else self.report.results)[key] = round(value, 4)
        progress("  " + ", ".join(f"{key} {value:.4g}" for key, value in found.items()))


# --- peers ------------------------------------------------------------------------------------------


@asynccontextmanager
async def genai(bench: Bench) -> AsyncIterator[ChildPeer]:
    folder = await asyncio.to_thread(genai_folder, bench.folder)
    command = (sys.executable, "-m", "benchmarks.peers.genai", str(folder), str(PEER_BLOCKS))
    peer = await asyncio.to_thread(ChildPeer, command, bench.logs / "genai.log")
    try:
        yield peer
    finally:
        await asyncio.to_thread(peer.close)


async def against_genai(bench: Bench, ours: ReplicaClient, peer: ChildPeer) -> None:
    """Both chat loads, then both under open loop at 70 % of the faster one's peak."""
    theirs = partial(asyncio.to_thread, peer.play)
    for load, rounds in (("chat8", 13), ("chat16", 10)):
        await warm(bench, load, ours.play, theirs)
        lists = bench.lists(load, 3 if bench.asked.quick else rounds)
        await fight(bench.duel(load, "openvino_genai"), ours.play, theirs, lists)
        _peer(bench, "openvino_genai", peer.version)
    if bench.part("open", full_only=True):
        await open_loop(bench, ours.play, theirs)


async def warm(bench: Bench, load: str, *plays: Play) -> None:
    """One short round each, so that the system prompt is cached and nothing is compiled in the measured ones."""
    for play in plays:
        await play(bench.lists(load, 1, first=90, turns=1)[0])


async def open_loop(bench: Bench, ours: Play, theirs: Play) -> None:
    """Poisson arrivals of two-turn chats as many as 70 % of the best peer's peak output rate needs."""
    users, turns, tokens = 30, 2, LOADS["chat16"][2]
    peak = max(played.tok_s for duel in bench.duels for played in duel.theirs)
    lists: list[list[Chat]] = []
    for number in range(3):
        chats = bench.maker.chats(users, turns, tokens, round_number=7000 + number, seed=bench.asked.seed)
        lists.append(poisson(chats, rate=0.7 * peak / (turns * tokens), seed=bench.asked.seed + number))
    duel = await fight(Duel("open", "openvino_genai"), ours, theirs, lists)
    bench.report.ratios |= {f"open_{key}_vs_genai": round(value, 3) for key, value in duel.ratios.items()}
    bench.report.results |= {f"open_{key}": value for key, value in figures(duel.ours).items() if "tok_s_" not in key}


async def against_llama(bench: Bench, ours: ReplicaClient) -> None:
    """Sweep slots and quantisations on a short list; the best of each load then plays three rounds with us."""
    python = await asyncio.to_thread(environment, "llama", LLAMA_INSTALLS)
    models = {"q4_0": await asyncio.to_thread(requantised_gguf), "q4_1": await asyncio.to_thread(shipped_gguf)}
    swept: dict[str, dict[tuple[str, int], float]] = {load: {} for load in LOADS if load == "chat8" or not bench.asked.quick}

    async def sweep(name: str, slots: int) -> None:
        async with llama_server(python, models[name], slots, bench.logs / "llama.log") as server:
            for load, found in swept.items():
                chats = bench.lists(load, 1, first=91, turns=1)[0]
                found[name, slots] = (await server.play(chats)).complete(chats).tok_s

    for slots in (8,) if bench.asked.quick else (4, 8, 16):
        await sweep("q4_0", slots)
    if not bench.asked.quick:
        for slots in {max(found, key=lambda setting: found[setting])[1] for found in swept.values()}:
            await sweep("q4_1", slots)
    for load, found in swept.items():
        progress(f"llama.cpp, {load}: " + ", ".join(f"{name} with {slots} slots {rate:.0f} tok/s" for (name, slots), rate in found.items()))
        name, slots = max(found, key=lambda setting: found[setting])
        async with llama_server(python, models[name], slots, bench.logs / "llama.log") as server:
            await warm(bench, load, server.play)
            lists = bench.lists(load, 3, first=40, turns=1 if bench.asked.quick else 0)
            await fight(bench.duel(load, "llama_cpp"), ours.play, server.play, lists)
            _peer(bench, "llama_cpp", server.version)
        sweep_tok_s = {f"{name} {slots}": round(rate, 1) for (name, slots), rate in found.items()}
        bench.report.peers["llama_cpp"] |= {f"{load}_best": f"{name}, {slots} slots", f"{load}_sweep_tok_s": sweep_tok_s}


async def against_vllm(bench: Bench, ours: ReplicaClient) -> None:
    async with vllm_server(bench.logs / "vllm.log") as server:
        for load in LOADS:
            await warm(bench, load, server.play)
            await fight(bench.duel(load, "vllm"), ours.play, server.play, bench.lists(load, 3, first=60))
        _peer(bench, "vllm", server.version)


def _peer(bench: Bench, name: str, version: str) -> None:
    entry: dict[str, object] = dict(bench.report.peers.get(name, {"version": version}))
    for duel in bench.duels:
        if duel.peer == name and duel.rounds:
            rates = [played.tok_s for played in duel.theirs]
            entry |= {duel.load: {"rounds": len(rates), "min": round(min(rates), 1), "max": round(max(rates), 1), **figures(duel.theirs)}}
            entry |= {"rounds": len(rates), "min": round(min(rates), 1), "max": round(max(rates), 1)}
    bench.report.peers[name] = entry


def conclude(bench: Bench) -> None:
    """The contract's ratios: against the best peer, figure by figure, that is the worst ratio for us. May be called again."""
    bench.report.n = 0
    for load in LOADS:
        duels = [duel for duel in bench.duels if duel.load == load and duel.rounds >= 3]
        for key in ("tok_s", "ttft_p50", "ttft_p99", "itl_p95"):
            found = [duel.ratios[key] for duel in duels if key in duel.ratios]
            if found:
                bench.report.ratios[f"{load}_{key}_vs_best"] = round(min(found) if key == "tok_s" else max(found), 3)
        for duel in duels:
            if duel.peer == "llama_cpp":
                bench.report.ratios[f"{load}_tok_s_vs_llama"] = round(duel.ratios["tok_s"], 3)
        mine = [played for duel in duels for played in duel.ours]
        if mine:
            bench.report.results |= {f"{load}_{key}": value for key, value in figures(mine).items()}
            bench.report.n += len(pooled_ttfts(mine))


# --- ours alone -------------------------------------------------------------------------------------


async def loop_share(bench: Bench, ours: ReplicaClient) -> None:
    """What the wall time holds besides forward passes, 16 sequences decoding: scheduler, sampler, text, wire and this client."""
    for key, sampled in (("loop_share", False), ("loop_share_sampled", True)):
        shares: list[float] = []
        for number in range(1 if bench.asked.quick else 3):
            chats = bench.maker.chats(16, 1, 64, round_number=8000 + number, seed=bench.asked.seed)
            played = (await ours.play(chats if sampled else scenarios.greedy(chats))).complete(chats)
            parts = ours.steps.shares(played.seconds)
            shares.append(parts["outside"])
            progress(f"  {key}: {line(played)}; " + ", ".join(f"{name} {part:.4f}" for name, part in parts.items()))
        bench.results({key: median(shares)})


async def vs_executor(bench: Bench, ours: ReplicaClient) -> None:
    """16 short prompts without a common beginning, on both sides in the same batches: as many begin in each of the first steps."""
    ratios: list[float] = []
    tokens = 48 if bench.asked.quick else 96
    with bare_executor(bench.folder) as bare:
        for number in range(3):
            chats = [
                Chat(index, (bench.maker.long_prompt(31, seed=9000 + 100 * number + index),), tokens, index, temperature=0.0)
                for index in range(16)
            ]
            prompts = [list(chat.turns[0]) for chat in chats]
            ask = partial(bare.greedy_rate, prompts, max_tokens=tokens)
            mine: Played | None = None
            theirs = 0.0
            for first in (True, False) if number % 2 == 0 else (False, True):
                if first:
                    mine = (await ours.play(chats)).complete(chats)
                else:
                    theirs = await asyncio.to_thread(ask)
            assert mine is not None
            ratios.append(mine.tok_s / theirs)
            progress(f"  executor alone {theirs:.0f} tok/s, ours {mine.tok_s:.0f}")
    bench.report.ratios["tok_s_vs_executor"] = round(median(ratios), 3)


async def alone(bench: Bench, ours: ReplicaClient) -> None:
    """The scenarios on a replica with its usual memory."""
    asked, maker = bench.asked, bench.maker
    if bench.part("loop"):
        await loop_share(bench, ours)
    if bench.part("executor"):
        await vs_executor(bench, ours)
    if bench.part("intruder", full_only=True):
        bench.results(await scenarios.intruder(ours, maker, rounds=3, seed=asked.seed))
    if bench.part("burst", full_only=True):
        bench.results(await scenarios.burst(ours, maker, users=48, seed=asked.seed))
    if bench.part("secrets", full_only=True):
        bench.results({"secrets_leaked": await scenarios.planted_secret(ours, maker, trials=10, seed=asked.seed)})
        auc = await scenarios.timing_auc(ours, maker, probes=400, salted=True, seed=asked.seed)
        without = await scenarios.timing_auc(ours, maker, probes=80, salted=False, seed=asked.seed + 1)
        bench.results({"salt_auc": auc, "salt_auc_without": without})


async def alone_in_a_small_pool(bench: Bench) -> None:
    """The scenarios in which memory is short."""
    asked, maker = bench.asked, bench.maker
    spec = bench_spec(bench.folder, DEFAULT_MODEL, kv_bytes=SMALL_POOL_BYTES)
    async with replica(spec) as ours:
        if bench.part("overload"):
            bench.results(await scenarios.overload(ours, maker, seed=asked.seed))
        if bench.part("cancel"):
            bench.results(await scenarios.cancel_storm(ours, maker, cancels=150 if asked.quick else 500, seed=asked.seed))
        if bench.part("returning"):
            bench.results(await scenarios.returning(ours, maker, conversations=5, rounds=1, seed=asked.seed))
    if bench.part("flooder", full_only=True):
        await fairness(bench)


async def fairness(bench: Bench) -> None:
    """Eight backlogged tenants, fair and first come first served, each on a replica of its own."""
    spec = bench_spec(bench.folder, DEFAULT_MODEL, kv_bytes=SMALL_POOL_BYTES // 3)
    for key, seconds, served in (
        ("flooder_min_share", 60.0, spec),
        ("flooder_min_share_fcfs", 20.0, replace(spec, order="fcfs")),
    ):
        async with replica(served) as ours:
            bench.results({key: await scenarios.flooder(ours, bench.maker, seconds=seconds, seed=bench.asked.seed)})


async def run(bench: Bench) -> None:
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(replica(bench_spec(bench.folder, DEFAULT_MODEL)))
        if bench.part("genai"):
            async with genai(bench) as peer:
                await against_genai(bench, ours, peer)
        if bench.part("llama"):
            await against_llama(bench, ours)
        if bench.asked.vllm:
            await against_vllm(bench, ours)
        await alone(bench, ours)
    await alone_in_a_small_pool(bench)
    if bench.part("exact"):
        prompts = 6 if bench.asked.quick else 50
        bench.results(await exact_mismatches(bench.folder, bench.maker, prompts=prompts, tokens=12, seed=bench.asked.seed))


async def _until_stopped(bench: Bench) -> None:
    """``run``; SIGTERM stops it in order, so that every process it started is gone."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await run(bench)


def main() -> None:
    """Prints the line in any case; after a failure it lacks what was not measured, and the exit status is 1."""
    asked = _asked()
    configure_logging("text")
    folder = ModelStore(load_config(Flags(), {}).models_dir).find(DEFAULT_MODEL)
    if folder is None:
        raise SystemExit("the default model is not installed: antiphon models pull")
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-logs-") as logs:
        bench = Bench(asked, folder, Path(logs))
        try:
            asyncio.run(_until_stopped(bench))
            conclude(bench)
            if asked.docs:
                plots.write([bench.report.line()], plots.DOCS)
        finally:
            conclude(bench)
            bench.report.print_json()


if __name__ == "__main__":
    main()
