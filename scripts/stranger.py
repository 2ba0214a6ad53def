"""Does what a stranger does, and says how long each step took.

In an empty home without caches: clone this repository, ``make serve``, open the printed link in a real browser, ask, wait for the
first words of the answer. Then stop, start again, and find the conversation where it was. Everything made is removed. Needs git, make,
Python 3.11, and for the browser part Playwright (it is in ``requirements-dev.lock``) with a Chromium.

The last line printed is JSON: seconds of ``clone``, ``ready``, ``first_delta`` (from the clone on), ``second_ready``.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
READY = re.compile(r"Antiphon is ready: (http\S+)")
QUESTION = "What is a hash table?"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER_SCRIPT = """
import sys, time
from playwright.sync_api import sync_playwright

link, question, browser = sys.argv[1:4]
with sync_playwright() as playwright:
    chromium = playwright.chromium.launch(executable_path=browser or None, args=["--no-sandbox"])
    page = chromium.new_page()
    page.goto(link)
    composer, wanted = page.get_by_test_id("composer"), page.locator("input[autocomplete=new-password]")
    composer.or_(wanted).wait_for()
    if wanted.count():  # by an invitation
        wanted.fill("seven slow submarines")
        wanted.press("Enter")
    composer.wait_for()
    if question:
        page.get_by_test_id("composer").fill(question)
        page.get_by_test_id("send").click()
        answer = page.locator("[data-testid=message][data-role=assistant] .prose").first
        answer.wait_for(state="attached", timeout=60_000)
        while not answer.inner_text().strip():
            time.sleep(0.02)
        print("first delta", flush=True)
        page.locator("[data-role=assistant][data-status=complete]").first.wait_for(timeout=120_000)
        print(answer.inner_text(), flush=True)
    else:
        page.get_by_test_id("sidebar-item").first.click()
        page.get_by_test_id("message").nth(1).wait_for()
        print(page.get_by_test_id("message").first.inner_text(), flush=True)
    chromium.close()
"""


class Failed(Exception):
    """A step that a stranger would have given up at."""


@dataclass(frozen=True, slots=True)
class Server:
    process: subprocess.Popen[str]
    link: str


class Stopwatch:
    """Prints each step on stderr as it is reached."""

    def __init__(self, deadline_s: float) -> None:
        self.start = time.monotonic()
        self._deadline = self.start + deadline_s

    def remaining_s(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise Failed("out of time")
        return left

    def reached(self, step: str, since: float) -> float:
        seconds = round(time.monotonic() - since, 2)
        print(f"stranger: {step}: {seconds} s", file=sys.stderr, flush=True)
        return seconds


def bare_environment(home: Path) -> dict[str, str]:
    """The user's own settings, so far as they say where packages come from; nothing that was fetched or built before."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANTIPHON_", "XDG_", "PYTHON", "VIRTUAL_ENV"))}
    config = Path.home() / ".npmrc"
    if config.is_file():
        kept["NPM_CONFIG_USERCONFIG"] = str(config)
    return {**kept, "HOME": str(home), "PIP_NO_CACHE_DIR": "1", "NPM_CONFIG_CACHE": str(home / "npm-cache"), "TMPDIR": str(home / "tmp")}


@contextmanager
def serving(clone: Path, environ: Mapping[str, str], watch: Stopwatch) -> Iterator[Server]:
    """``make serve`` on a free port; yields when it printed its line, and ends it as Ctrl-C or a service manager would."""
    process = subprocess.Popen(
        ["make", "serve", "PORT=0"], cwd=clone, env=environ, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    lines: queue.Queue[str] = queue.Queue()
    reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
    reader.start()
    try:
        yield Server(process, _link(lines, watch))
    finally:
        process.terminate()  # make hands it on to the server
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise Failed("the server did not end within 30 s of SIGTERM") from None
        reader.join(5)


def _read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            lines.put(line)
    lines.put("")


def _link(lines: queue.Queue[str], watch: Stopwatch) -> str:
    while True:
        try:
            line = lines.get(timeout=watch.remaining_s())
        except queue.Empty:
            raise Failed("`make serve` did not become ready") from None
        found = READY.search(line)
        if found:
            return found[1]
        if not line:
            raise Failed("`make serve` ended before it was ready")


def look(python: str, link: str, question: str, watch: Stopwatch, *, since: float | None = None) -> tuple[str, float | None]:
    """Open ``link`` in a browser; ask ``question``, or open the last conversation. Returns what was read, and when words came."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), "")
    process = subprocess.Popen([python, "-c", BROWSER_SCRIPT, link, question, browser], stdout=subprocess.PIPE, text=True)
    timer = threading.Timer(watch.remaining_s(), process.kill)
    timer.start()
    first_delta = None
    try:
        assert process.stdout is not None
        with process.stdout:
            text = ""
            for line in process.stdout:
                if since is not None and line == "first delta\n":
                    first_delta = watch.reached("first delta", since)
                else:
                    text += line
        if process.wait() != 0:
            raise Failed("the browser did not get there")
    finally:
        timer.cancel()
    return text, first_delta


def run(folder: Path, python: str, watch: Stopwatch) -> dict[str, float | None]:
    """Every step, in ``folder``. Raises ``Failed``."""
    home, clone = folder / "home", folder / "antiphon"
    (home / "tmp").mkdir(parents=True)
    environ = bare_environment(home)
    times: dict[str, float | None] = {}
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True, timeout=watch.remaining_s())
    times["clone"] = watch.reached("cloned", watch.start)
    with serving(clone, environ, watch) as server:
        times["ready"] = watch.reached("ready", watch.start)
        answer, times["first_delta"] = look(python, server.link, QUESTION, watch, since=watch.start)
    print(f"stranger: the answer: {' '.join(answer.split())[:200]}", file=sys.stderr)
    second = time.monotonic()
    with serving(clone, environ, watch) as server:
        times["second_ready"] = watch.reached("ready again", second)
        found, _ = look(python, server.link, "", watch)
        if QUESTION not in found:
            raise Failed("the conversation is not there after the restart")
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description="From an empty home to the first words of an answer.")
    parser.add_argument("--deadline", type=float, default=600, metavar="SECONDS")
    parser.add_argument("--python", default=_own_python(), help="an interpreter that has Playwright")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="stranger-"))
    try:
        print(json.dumps(run(folder, arguments.python, Stopwatch(arguments.deadline))))
    except (Failed, subprocess.SubprocessError) as error:
        print(f"stranger: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _own_python() -> str:
    here = ROOT / ".venv" / "bin" / "python"
    return str(here) if here.exists() else sys.executable


if __name__ == "__main__":
    sys.exit(main())
