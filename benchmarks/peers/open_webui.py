"""Open WebUI as a whole product, in an environment of its own: gigabytes to install, half a minute to start."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.files import environment
from benchmarks.served import free_port

VERSION = "0.12.4"
_START_SECONDS = 300.0
_TRY_AGAIN_S = 0.05


@dataclass(frozen=True, slots=True)
class OpenWebUi:
    """A server that has answered; ``ready_s`` after its start. ``key`` is its only user's token."""

    url: str
    key: str
    pid: int
    ready_s: float


def open_webui_python() -> Path:
    """The interpreter of its environment, made on the first call."""
    return environment("open-webui", (("torch==2.13.0",), (f"open-webui=={VERSION}",)))


@contextmanager
def open_webui(engine_url: str, engine_key: str, data: Path) -> Iterator[OpenWebUi]:
    """The server in front of ``engine_url`` (up to ``/v1``), nothing else switched on; gone at the end. The folder ``data`` is kept."""
    python, port = open_webui_python(), free_port()
    url = f"http://127.0.0.1:{port}"
    data.mkdir(exist_ok=True)
    settings = {
        "DATA_DIR": str(data),
        "WEBUI_AUTH": "False",
        "WEBUI_SECRET_KEY": "benchmark",
        "OPENAI_API_BASE_URL": engine_url,
        "OPENAI_API_KEY": engine_key,
        "ENABLE_OLLAMA_API": "False",
        "RAG_EMBEDDING_ENGINE": "openai",
        "HF_HUB_OFFLINE": "1",
        "OFFLINE_MODE": "true",
        "ANONYMIZED_TELEMETRY": "false",
        "DO_NOT_TRACK": "true",
        "SCARF_NO_ANALYTICS": "true",
    }
    command = [str(python.with_name("open-webui")), "serve", "--host", "127.0.0.1", "--port", str(port)]
    began = time.perf_counter()
    with (data / "server.log").open("ab") as log:
        process = subprocess.Popen(command, env={**os.environ, **settings}, stdout=log, stderr=log, cwd=data)
    try:
        _until_healthy(url, process, data)
        ready_s = time.perf_counter() - began
        yield OpenWebUi(url, _token(url), process.pid, ready_s)
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until_healthy(url: str, process: subprocess.Popen[bytes], data: Path) -> None:
    deadline = time.perf_counter() + _START_SECONDS
    while time.perf_counter() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(_TRY_AGAIN_S)
    raise RuntimeError(f"Open WebUI did not start:\n{(data / 'server.log').read_text()[-3000:]}")


def _token(url: str) -> str:
    request = urllib.request.Request(
        f"{url}/api/v1/auths/signin", json.dumps({"email": "", "password": ""}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(json.load(answer)["token"])
