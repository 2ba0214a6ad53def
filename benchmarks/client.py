"""The browser client in Chromium before a real server: its size, its first paint, long answers, long chats and long pastes.

The answers are the reference engine's echo of a text with prose, code and tables, at 200 tokens a second, over the real stream.
``typing_ms`` is from a key's own time stamp to the end of its handling; ``drain_lag_ms`` from a text's arrival to its being in the page.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, sync_playwright

from antiphon.engines.reference_tokenizer import ReferenceTokenizer
from antiphon.engines.reference_words import WORDS
from benchmarks.report import Report, median, options, percentile, progress
from benchmarks.served import Served, served

CONFIG = """
[[plans]]
name = "free"
models = ["fast", "echo", "words"]
tokens_per_minute = 1000000000
requests_per_minute = 100000
concurrency = 64
max_output_tokens = 20000

[[pools]]
name = "echo"
model = "reference-echo"
engine = "reference"
vocabulary = "echo"
output_tokens_per_s = 200
prefill_tokens_per_s = 1000000
context_tokens = 32768
blocks = 2048

[[pools]]
name = "fast"
model = "reference-fast"
engine = "reference"
vocabulary = "echo"
output_tokens_per_s = 2000
prefill_tokens_per_s = 1000000
context_tokens = 32768
blocks = 2048

[[pools]]
name = "words"
model = "reference-words"
engine = "reference"
output_tokens_per_s = 200
context_tokens = 8192
blocks = 1024
"""
STATIC = Path(__file__).parent.parent / "src" / "antiphon" / "edge" / "static"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ANSWER_TOKENS = 10_000
LONG_CHAT_MESSAGES = 1000
PASTE_CHARACTERS = 1_000_000
CPU_SLOWDOWN = 4
WARM_UP_ANSWERS = 15  # until the engine has compiled what it is going to compile
KEYS_PER_S = 12

_WATCH = """
() => {
  const seen = (window.__seen = { longest: 0, gap: 0, keys: [] });
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) seen.longest = Math.max(seen.longest, entry.duration);
  }).observe({ type: "longtask" });
  let last = performance.now();
  setInterval(() => {
    const now = performance.now();
    seen.gap = Math.max(seen.gap, now - last);
    last = now;
  }, 4);
  addEventListener("input", (event) => {
    const at = event.timeStamp;
    queueMicrotask(() => seen.keys.push(performance.now() - at));
  });
}
"""
_LAG = """
() => {
  const arrivals = [];
  const lags = (window.__lags = []);
  const real = window.fetch;
  window.fetch = async (...given) => {
    const answer = await real(...given);
    if (!(answer.headers.get("content-type") || "").startsWith("text/event-stream")) return answer;
    let length = 0;
    const decoder = new TextDecoder();
    let rest = "";
    const tap = new TransformStream({
      transform(chunk, out) {
        rest += decoder.decode(chunk, { stream: true });
        const events = rest.split("\\n\\n");
        rest = events.pop();
        for (const event of events) {
          if (!/^event: delta$/m.test(event)) continue;
          length += JSON.parse(/^data: (.*)$/m.exec(event)[1]).text.length;
          arrivals.push([length, performance.now()]);
        }
        out.enqueue(chunk);
      },
    });
    return new Response(answer.body.pipeThrough(tap), { status: answer.status, headers: answer.headers });
  };
  new MutationObserver(() => {
    const prose = [...document.querySelectorAll("[data-role=assistant] .prose")].at(-1);
    if (!prose) return;
    const shown = prose.textContent.length + 1;
    while (arrivals.length > 0 && arrivals[0][0] <= shown) lags.push(performance.now() - arrivals.shift()[1]);
  }).observe(document, { subtree: true, childList: true, characterData: true });
}
"""


def long_text(tokens: int) -> str:
    """Prose, code and tables of about ``tokens`` tokens of the reference tokenizer."""
    tokenizer = ReferenceTokenizer("echo")
    parts: list[str] = []
    count = 0
    while count < tokens:
        at = len(parts)
        words = [WORDS[(at * 31 + step * 7) % len(WORDS)] for step in range(90)]
        prose = (
            f"## Section {at + 1}\n\n"
            + " ".join(words[:60])
            + " .\n\n"
            + "".join(f"- {' '.join(words[step : step + 8])} \n" for step in (60, 68, 76))
        )
        rows = "".join(f"| {words[row]} | {row * 17} | {' '.join(words[row : row + 4])} |\n" for row in range(8))
        code = "".join(f"    total += weight[{row}] * value({row})  # {words[row]} \n" for row in range(12))
        code = f"```python\ndef section_{at + 1}(weight):\n    total = 0\n{code}    return total\n```\n"
        part = f"{prose}\n{code}\n| name | count | note |\n|---|--:|---|\n{rows}\n"
        parts.append(part)
        count += len(tokenizer.encode(part))
    return "".join(parts)


@dataclass(slots=True)
class Window:
    """The client in one tab."""

    page: Page
    server: Served
    devtools: CDPSession

    def go(self, path: str = "/") -> None:
        self.page.goto(self.server.url + path)
        self.page.get_by_test_id("composer").wait_for()

    def send(self, text: str) -> None:
        self.page.get_by_test_id("composer").fill(text)
        self.page.get_by_test_id("composer").press("Enter")

    def until_ended(self, seconds: float) -> None:
        self.page.locator("[data-role=assistant][data-status=complete]").last.wait_for(timeout=seconds * 1000)
        self.page.wait_for_function("document.querySelectorAll('[data-status=streaming]').length === 0", timeout=seconds * 1000)

    def heap_bytes(self) -> float:
        for _ in range(3):
            self.devtools.send("HeapProfiler.collectGarbage")
        return float(self.devtools.send("Runtime.getHeapUsage")["usedSize"])


@dataclass(slots=True)
class Bench:
    browser: Browser
    server: Served
    link: str
    hosts: set[str] = field(default_factory=set[str])

    @contextmanager
    def window(self, *scripts: str, model: str = "echo") -> Iterator[Window]:
        """A signed-in tab in a context of its own, with ``scripts`` run before the page's."""
        context: BrowserContext = self.browser.new_context(storage_state=self._session(), viewport={"width": 1200, "height": 800})
        context.on("request", lambda request: self.hosts.add(request.url.partition("://")[2].partition("/")[0]))
        context.add_init_script(f"localStorage.setItem('antiphon.model.default', '{model}')")
        for script in scripts:
            context.add_init_script(f"({script})()")
        page = context.new_page()
        try:
            yield Window(page, self.server, context.new_cdp_session(page))
        finally:
            context.close()

    _state: dict[str, object] | None = None

    def _session(self) -> dict[str, object]:
        if self._state is None:
            context = self.browser.new_context()
            page = context.new_page()
            page.goto(self.link)
            page.get_by_test_id("composer").wait_for()
            self._state = dict(context.storage_state())
            context.close()
        return self._state


def first_load() -> tuple[float, float]:
    """Gzip kB of the scripts, and of everything, that the page names: what comes before any lazy part."""
    names = re.findall(r'(?:src|href)="/([^"]+\.(?:js|css))"', (STATIC / "index.html").read_text())
    sizes = {name: len(gzip.compress((STATIC / name).read_bytes(), 9)) / 1000 for name in names}
    return sum(size for name, size in sizes.items() if name.endswith(".js")), sum(sizes.values())


def first_paint_ms(bench: Bench, rounds: int) -> list[float]:
    """First contentful paint with a cold cache, on a processor slowed down four times."""
    found: list[float] = []
    for _ in range(rounds):
        with bench.window() as window:
            window.devtools.send("Emulation.setCPUThrottlingRate", {"rate": CPU_SLOWDOWN})
            window.go()
            paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
            window.page.wait_for_function(f"{paint} !== null")
            found.append(float(window.page.evaluate(paint)))
    return found


def long_answer(bench: Bench, tokens: int) -> dict[str, float]:
    """The longest task, and how typing feels, while a long answer streams."""
    with bench.window(_WATCH) as window:
        window.go()
        window.send("warm up")
        window.until_ended(30)
        window.page.get_by_test_id("new-chat").click()
        window.send(long_text(tokens))
        window.page.locator("[data-role=assistant] .prose .block").first.wait_for()
        window.page.evaluate("Object.assign(window.__seen, { longest: 0, gap: 0, keys: [] })")
        deadline_keys = int(tokens / 200 * KEYS_PER_S * 0.8)
        for number in range(deadline_keys):
            window.page.keyboard.press("abcdefgh "[number % 9])
            window.page.wait_for_timeout(1000 / KEYS_PER_S - 8)
        window.until_ended(tokens / 100)
        window.page.wait_for_timeout(500)
        seen = window.page.evaluate("window.__seen")
        shown = window.page.locator("[data-role=assistant] .prose .code").count()
        assert shown == long_text(tokens).count("```python"), "every code block is drawn"
        keys = [float(key) for key in seen["keys"]]
        progress(f"client: {len(keys)} keys, longest task {seen['longest']:.0f} ms, longest gap {seen['gap']:.0f} ms")
        return {
            "longest_task_ms": round(float(seen["longest"] or seen["gap"]), 1),
            "typing_ms_p50": round(median(keys), 2),
            "typing_ms_p95": round(percentile(keys, 0.95), 2),
            "typed_keys": len(keys),
        }


def drain_lag(bench: Bench) -> dict[str, float]:
    """How far the shown text is behind the received one, for plain words at 200 tokens a second."""
    with bench.window(_LAG, model="words") as window:
        window.go()
        window.send("Tell me a story")
        window.until_ended(30)
        lags = [float(lag) for lag in window.page.evaluate("window.__lags")]
        return {"drain_lag_ms_p95": round(percentile(lags, 0.95), 1), "drain_lag_ms_max": round(max(lags), 1)}


def heap(bench: Bench, answers: int, *, listed: bool) -> dict[str, float]:
    """The heap after many answers, each in a chat of its own, over the heap before them.

    Chats that are listed add a row each to the sidebar, which stays; temporary ones leave nothing, so what they add is lost memory.
    """
    text = long_text(600)
    with bench.window(model="fast") as window:
        window.go()

        def one() -> None:
            window.page.get_by_test_id("new-chat").click()
            if not listed:
                window.page.get_by_test_id("temporary").click()
            window.send(text)
            window.until_ended(60)

        for _ in range(WARM_UP_ANSWERS):
            one()
        window.page.get_by_test_id("new-chat").click()
        before = window.heap_bytes()
        for number in range(answers):
            one()
            if number % 10 == 9:
                progress(f"client: {number + 1} answers")
        window.page.get_by_test_id("new-chat").click()
        window.page.wait_for_timeout(500)
        after = window.heap_bytes()
        name = "heap_listed" if listed else "heap"
        return {
            f"{name}_before_mb": round(before / 1e6, 2),
            f"{name}_after_mb": round(after / 1e6, 2),
            f"{name}_growth": round(after / before, 3),
        }


def long_chat(bench: Bench, rounds: int) -> list[float]:
    """From the click on a conversation of 1,000 messages to its newest ones being drawn, in a page that has not seen it."""
    messages = [
        {
            "id": f"msg_00000000-0000-7000-8000-{at:012d}",
            "parent_id": f"msg_00000000-0000-7000-8000-{at - 1:012d}" if at else None,
            "role": ("user", "assistant")[at % 2],
            "content": f"Message {at}. " + ("A question." if at % 2 == 0 else long_text(300)),
        }
        for at in range(LONG_CHAT_MESSAGES)
    ]
    whole = {
        "id": "conv_00000000-0000-7000-8000-000000000000",
        "title": "A long one",
        "current_leaf_id": messages[-1]["id"],
        "messages": messages,
    }
    body = '{"antiphon_export":1}\n' + json.dumps(whole) + "\n"
    headers = {"Authorization": f"Bearer {bench.server.key}"}
    answer = httpx.post(
        f"{bench.server.url}/v1/import", files={"file": ("long.jsonl", body.encode())}, headers=headers, timeout=60, trust_env=False
    )
    assert answer.json()["imported"] == 1, answer.text
    opened = """
    () => new Promise((resolve) => {
      const link = [...document.querySelectorAll("[data-testid=sidebar-item]")].find((item) => item.title === "A long one");
      const from = performance.now();
      const look = () => {
        const last = [...document.querySelectorAll("[data-role=assistant] .prose .code pre")].at(-1);
        if (last) requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - from), 0));
        else requestAnimationFrame(look);
      };
      link.click();
      look();
    })
    """
    found: list[float] = []
    for _ in range(rounds):
        with bench.window() as window:
            window.go()
            window.page.get_by_title("A long one").wait_for()
            window.page.wait_for_timeout(700)
            found.append(float(window.page.evaluate(opened)))
    return found


def paste(bench: Bench, rounds: int) -> list[float]:
    """From the paste of a million characters to its chip being drawn."""
    run = """
    (text) => new Promise((resolve) => {
      const data = new DataTransfer();
      data.setData("text/plain", text);
      const field = document.querySelector("[data-testid=composer]");
      const from = performance.now();
      field.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
      const look = () => {
        if (document.querySelector("[data-testid=attachment]")) setTimeout(() => resolve(performance.now() - from), 0);
        else requestAnimationFrame(look);
      };
      requestAnimationFrame(look);
    })
    """
    found: list[float] = []
    for _ in range(rounds):
        with bench.window() as window:
            window.go()
            found.append(float(window.page.evaluate(run, "0123456789 abcdefg\n" * (PASTE_CHARACTERS // 19))))
    return found


def main() -> int:
    chosen = options("client")
    report = Report("client", "reference", chosen.seed)
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        print("client: no Chromium", file=sys.stderr)
        return 1
    scripts_kb, all_kb = first_load()
    report.results |= {"first_load_kb_gzip": round(scripts_kb, 1), "first_load_all_kb_gzip": round(all_kb, 1)}
    rounds = 3 if chosen.quick else 10
    with served(CONFIG) as server, sync_playwright() as playwright:
        command = [sys.executable, "-m", "antiphon", "link", "--data", str(server.data), "--config", str(server.data / "antiphon.toml")]
        link = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        bench = Bench(browser, server, link)
        progress("client: first paint")
        paints = first_paint_ms(bench, rounds)
        report.results |= {"first_paint_ms": round(median(paints), 1), "first_paint_ms_max": round(max(paints), 1)}
        progress("client: a long chat")
        opens = long_chat(bench, rounds)
        report.results |= {"open_1000_ms": round(median(opens), 1), "open_1000_ms_max": round(max(opens), 1)}
        progress("client: a long paste")
        pastes = paste(bench, rounds)
        report.results |= {"paste_1mb_ms": round(median(pastes), 1), "paste_1mb_ms_max": round(max(pastes), 1)}
        progress("client: the drain")
        report.results |= drain_lag(bench)
        progress("client: a long answer")
        report.results |= long_answer(bench, ANSWER_TOKENS // 5 if chosen.quick else ANSWER_TOKENS)
        progress("client: the heap")
        for listed in (False, True):
            report.results |= heap(bench, 10 if chosen.quick else 50, listed=listed)
        report.results["remote_requests"] = len(bench.hosts - {server.url.partition("://")[2]})
        browser.close()
    report.n = rounds
    report.print_json()
    return 0


if __name__ == "__main__":
    sys.exit(main())
