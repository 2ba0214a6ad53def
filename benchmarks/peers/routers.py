"""Routers of other projects, from their wheels, each in an environment of its own, in front of one upstream."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from benchmarks.peers.files import environment
from benchmarks.served import free_port

_READY_S = 60.0


@dataclass(frozen=True, slots=True)
class Router:
    """``module`` is run with the interpreter that has it; it takes workers, host, port and ``options``."""

    name: str
    package: str
    version: str
    module: str
    metrics_option: str

    def command(self, upstream: str, port: int) -> Sequence[str]:
        python = environment(self.package, ((f"{self.package}=={self.version}",),))
        options = ("--host", "127.0.0.1", "--port", str(port), "--policy", "round_robin", self.metrics_option, str(free_port()))
        return (str(python), "-m", self.module, "--worker-urls", upstream, *options)


ROUTERS = (
    Router("vllm_router", "vllm-router", "0.1.17", "vllm_router.launch_router", "--prometheus-port"),
    Router("sglang_router", "sglang-router", "0.3.2", "sglang_router.launch_router", "--prometheus-port"),
)


@asynccontextmanager
async def upstream() -> AsyncIterator[str]:
    """The reference engine's server; its address."""
    port = free_port()
    command = (sys.executable, "-m", "benchmarks.peers.reference_upstream", str(port))
    async with _running(command, Path("/dev/null"), stdin=True):
        await _answers(f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def routed(router: Router, worker: str, log: Path) -> AsyncIterator[tuple[str, int]]:
    """A router that forwards to ``worker``; its address and process. Raises ``RuntimeError`` where it does not in a minute."""
    port = free_port()
    command = await asyncio.to_thread(router.command, worker, port)
    async with _running(command, log, stdin=False) as process:
        await _forwards(f"http://127.0.0.1:{port}", router.name, log)
        yield f"http://127.0.0.1:{port}", process.pid


@asynccontextmanager
async def _running(command: Sequence[str], log: Path, *, stdin: bool) -> AsyncIterator[subprocess.Popen[bytes]]:
    with log.open("ab") as output:
        pipe = subprocess.PIPE if stdin else subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=pipe, stdout=output, stderr=output)
    try:
        yield process
    finally:
        if process.stdin is not None:
            process.stdin.close()
        else:
            process.terminate()
        try:
            await asyncio.to_thread(process.wait, 10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _answers(address: str) -> None:
    deadline = time.perf_counter() + _READY_S
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(address) as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            if time.perf_counter() > deadline:
                raise RuntimeError(f"{address} does not answer")
            await asyncio.sleep(0.1)


async def _forwards(address: str, name: str, log: Path) -> None:
    """Wait until a completion comes through whole."""
    deadline, body = time.perf_counter() + _READY_S, {"messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 1}
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.post(f"{address}/v1/chat/completions", json={"model": "small", **body}) as answer:
                    if answer.status == 200 and b"[DONE]" in await answer.read():
                        return
            except aiohttp.ClientError:
                pass
            if time.perf_counter() > deadline:
                raise RuntimeError(f"{name} forwards nothing:\n{log.read_text()[-2000:]}")
            await asyncio.sleep(0.2)
