"""The whole product beside Open WebUI, both in front of the same engine: what each adds to it, and what each takes.

The engine is a server of ours with the reference engine, spoken to in OpenAI's shapes by everybody. One user asks one thing after the
other over a kept connection: the engine directly, through us and through Open WebUI, in turn. Open WebUI passes a completion on; so do
we on the same route, and on our own, ``…_stored``, a turn is on disk before its first token.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from playwright.sync_api import sync_playwright

from benchmarks.footprint import first_page, installed, memory, our_python
from benchmarks.peers.open_webui import VERSION, OpenWebUi, open_webui, open_webui_python
from benchmarks.report import Report, median, options, percentile, progress
from benchmarks.served import ChatClient, Served, served

ENGINE = """
[[pools]]
name = "small"
model = "reference"
engine = "reference"
prefill_tokens_per_s = 1000000
output_tokens_per_s = 200
context_tokens = 8192
blocks = 4096
"""
PLANS = """
[[plans]]
name = "free"
models = ["small"]
tokens_per_minute = 1000000000
requests_per_minute = 1000000
concurrency = 64
"""
FRONT = """
[[pools]]
name = "small"
model = "small"
engine = "openai"
url = "{url}/v1"
api_key_env = "{variable}"
"""
KEY_VARIABLE = "ANTIPHON_BENCH_ENGINE_KEY"
TOKENS = 4
PAUSE_S = 0.05
"""Between an answer and the next question: what a server does after an answer's end is no part of the next one's time."""
IDLE_S = 10.0
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True, slots=True)
class Route:
    """One way to a completion."""

    url: str
    path: str
    key: str


class Asker:
    """One user on one connection, opened anew where the server has closed it meanwhile."""

    def __init__(self, route: Route) -> None:
        parts = urlsplit(route.url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        self._path = route.path
        self._headers = {"Authorization": f"Bearer {route.key}", "Content-Type": "application/json"}

    def ttft_s(self, question: str) -> float:
        """As ``_ask``."""
        try:
            return self._ask(question)
        except (BrokenPipeError, http.client.RemoteDisconnected):
            self._connection.close()
            return self._ask(question)

    def _ask(self, question: str) -> float:
        """Seconds from the send to the first text; the answer is read to its end. Raises ``RuntimeError`` for one without text."""
        body = {"model": "small", "messages": [{"role": "user", "content": question}], "stream": True, "max_tokens": TOKENS}
        began, first = time.perf_counter(), 0.0
        self._connection.request("POST", self._path, json.dumps(body).encode(), self._headers)
        answer = self._connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{self._path}: {answer.status} {answer.read(500)!r}")
        for line in answer:
            if not first and line.startswith(b"data: {"):
                choices = json.loads(line[6:]).get("choices")
                first = time.perf_counter() - began if choices and choices[0]["delta"].get("content") else 0.0
        if not first:
            raise RuntimeError(f"{self._path}: an answer without text")
        return first


def stored(server: Served) -> Callable[[str], float]:
    """Asks in one conversation after the other, ten turns each, on our own route."""
    client, asked, conversation = ChatClient(server), 0, ""

    def ask(question: str) -> float:
        nonlocal asked, conversation
        conversation = conversation if asked % 10 else client.new_conversation()
        asked += 1
        answer = client.ask(conversation, question, max_tokens=TOKENS, seed=asked)
        if answer.error or answer.ttft_s is None:
            raise RuntimeError(f"an answer without text: {answer.error}")
        return answer.ttft_s

    return ask


@dataclass(frozen=True, slots=True)
class Scene:
    """The engine, and where both products keep what they keep; ``python`` is our installed product's."""

    engine: Served
    folder: Path
    python: Path

    @contextmanager
    def ours(self) -> Iterator[Served]:
        """Our server in front of the engine."""
        config = FRONT.format(url=self.engine.url, variable=KEY_VARIABLE) + PLANS
        with served(config, kept=_made(self.folder / "ours"), python=str(self.python)) as server:
            yield server

    @contextmanager
    def theirs(self) -> Iterator[OpenWebUi]:
        """Open WebUI in front of the engine."""
        with open_webui(f"{self.engine.url}/v1", self.engine.key, self.folder / "theirs") as server:
            yield server


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def starts(report: Report, scene: Scene, rounds: int) -> None:
    """Seconds to readiness, ours with its own model loaded, theirs without one, in turn; each folder has been started on before."""
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(rounds + 1):
        with served(kept=_made(scene.folder / "with-model"), python=str(scene.python)) as server:
            ours.append(server.ready_s)
            report.results["idle_mb_with_model"] = round(memory(server.pid).resident_mb)
        with scene.theirs() as other:
            theirs.append(other.ready_s)
        progress(f"start {number}: ours {ours[-1]:.2f} s, theirs {theirs[-1]:.2f} s")
    report.results |= {"ready_s_first": round(ours[0], 2), "ready_s": round(median(ours[1:]), 2)}
    report.peers["open_webui"] |= {"ready_s_first": round(theirs[0], 2), "ready_s": round(median(theirs[1:]), 2)}


def added(report: Report, engine: Served, ours: Served, theirs: OpenWebUi, quick: bool) -> None:
    """Time to first text over that of the engine asked directly, every round by itself; the order turns from round to round."""
    count, rounds = (20, 3) if quick else (100, 4)
    ways: dict[str, Callable[[str], float]] = {
        "engine": Asker(Route(engine.url, "/v1/chat/completions", engine.key)).ttft_s,
        "ours": Asker(Route(ours.url, "/v1/chat/completions", ours.key)).ttft_s,
        "stored": stored(ours),
        "theirs": Asker(Route(theirs.url, "/api/chat/completions", theirs.key)).ttft_s,
    }
    for name, ask in ways.items():
        for number in range(10):
            ask(f"({report.seed}.{name}.{number}) warm up")
    every: dict[str, list[float]] = {name: [] for name in ways}
    more: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds):
        found: dict[str, list[float]] = {name: [] for name in ways}
        for half, order in enumerate((list(ways), list(reversed(ways))) if turn % 2 == 0 else (list(reversed(ways)), list(ways))):
            for name in order:
                for number in range(count // 2):
                    time.sleep(PAUSE_S)
                    # Nobody's question was asked before: of one in its cache the engine computes a token at the pace of an answer.
                    question = f"({report.seed}.{turn}.{half}.{name}.{number}) tell me about the river"
                    found[name].append(ways[name](question))
        for name, seconds in found.items():
            every[name] += seconds
            more[name].append(1000 * (median(seconds) - median(found["engine"])))
        progress(f"round {turn + 1}: " + ", ".join(f"{name} {1000 * median(seconds):.1f} ms" for name, seconds in found.items()))
    report.n += sum(len(seconds) for seconds in every.values())
    report.results |= {
        "engine_ttft_ms_p50": round(1000 * median(every["engine"]), 2),
        "added_ttft_ms_p50": round(median(more["ours"]), 2),
        "added_ttft_ms_p50_stored": round(median(more["stored"]), 2),
        "added_ttft_ms_p95": round(1000 * (percentile(every["ours"], 0.95) - percentile(every["engine"], 0.95)), 2),
    }
    against = [mine / other for mine, other in zip(more["ours"], more["theirs"], strict=True)]
    durable = [mine / other for mine, other in zip(more["stored"], more["theirs"], strict=True)]
    report.ratios |= {"added_ttft_ms_p50": round(median(against), 3), "added_ttft_ms_p50_stored": round(median(durable), 3)}
    report.peers["open_webui"] |= {
        "rounds": rounds,
        "min": round(min(against), 3),
        "max": round(max(against), 3),
        "added_ttft_ms_p50": round(median(more["theirs"]), 2),
        "added_ttft_ms_p95": round(1000 * (percentile(every["theirs"], 0.95) - percentile(every["engine"], 0.95)), 2),
    }


def idle(report: Report, ours: Served, theirs: OpenWebUi) -> None:
    """Memory of both some seconds after both were ready."""
    time.sleep(IDLE_S)
    mine, other = memory(ours.pid), memory(theirs.pid)
    report.results |= {"idle_mb_without_model": round(mine.resident_mb), "idle_mb_without_model_shared": round(mine.proportional_mb)}
    report.peers["open_webui"] |= {
        "idle_mb_without_model": round(other.resident_mb),
        "idle_mb_without_model_shared": round(other.proportional_mb),
    }


def environments(report: Report, ours: Path, theirs: Path) -> None:
    for figures, python in ((report.results, ours), (report.peers["open_webui"], theirs)):
        packages, megabytes = installed(python)
        figures |= {"packages": packages, "installed_mb": round(megabytes)}


def pages(report: Report, ours: Served, theirs: OpenWebUi, python: Path) -> None:
    """What a browser fetches before somebody can write."""
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    command = [str(python), "-m", "antiphon", "link", "--data", str(ours.data), "--config", str(ours.data / "antiphon.toml")]
    link = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        mine = first_page(browser, link, lambda page: page.get_by_test_id("composer").wait_for())
        other = first_page(browser, theirs.url, lambda page: page.locator("#chat-input").wait_for())
        browser.close()
    report.results |= {"first_page_kb_gzip": round(mine.kb_gzip, 1), "first_page_answers": mine.answers}
    report.peers["open_webui"] |= {"first_page_kb_gzip": round(other.kb_gzip, 1), "first_page_answers": other.answers}


def main() -> int:
    chosen = options("product")
    report = Report("product", "reference", chosen.seed)
    report.peers["open_webui"] = {"version": VERSION}
    theirs_python, python = open_webui_python(), our_python()
    with TemporaryDirectory(prefix="antiphon-bench-") as folder, served(ENGINE + PLANS) as engine:
        os.environ[KEY_VARIABLE] = engine.key
        scene = Scene(engine, Path(folder), python)
        starts(report, scene, 1 if chosen.quick else 3)
        with scene.ours() as ours, scene.theirs() as theirs:
            idle(report, ours, theirs)
            added(report, engine, ours, theirs, chosen.quick)
            pages(report, ours, theirs, python)
        environments(report, python, theirs_python)
    for key in ("idle_mb_without_model", "ready_s", "packages", "installed_mb", "first_page_kb_gzip"):
        report.ratios[key] = round(report.results[key] / report.peers["open_webui"][key], 4)
    report.print_json()
    return 0


if __name__ == "__main__":
    sys.exit(main())
