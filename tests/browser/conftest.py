"""A real browser in front of a real server with reference pools."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, StorageState, expect, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from tests.browser.chat import Chat
from tests.system.served import Server, reference_config

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
NASTY = """
[[pools]]
name = "nasty"
model = "reference-nasty"
engine = "reference"
vocabulary = "nasty"
output_tokens_per_s = 200
context_tokens = 4096
blocks = 2048
"""

SLOW = """
[[pools]]
name = "slow"
model = "reference-slow"
engine = "reference"
output_tokens_per_s = 14
context_tokens = 4096
blocks = 2048
"""

ECHO = """
[[pools]]
name = "echo"
model = "reference-echo"
engine = "reference"
vocabulary = "echo"
output_tokens_per_s = 1500
context_tokens = 32768
blocks = 4096
"""

expect.set_options(timeout=15_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for a module's tests, not for the session: while Playwright's blocking API is open, no other event loop can run."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        try:
            opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        except PlaywrightError as error:
            pytest.skip(f"no browser: {str(error).splitlines()[0]}")
        yield opened
        opened.close()


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = reference_config(output_tokens_per_s=50, extra=NASTY + SLOW + ECHO).replace(
        'name = "free"', 'name = "free"\nmodels = ["small", "nasty", "slow", "echo"]'
    )
    # Answers may be as long as a test likes, and a server that has seen none yet expects the longest:
    # neither waiting nor shorter answers in high demand are the subject here.
    config = config.replace("max_output_tokens = 1024", "max_output_tokens = 30000\nttft_limit_ms = 600000\ndowngrade = false")
    shared = Server(tmp_path_factory.mktemp("browser") / "data", config)
    shared.start()
    yield shared
    shared.end()


@pytest.fixture(scope="module")
def signed_in(browser: Browser, server: Server) -> StorageState:
    """The owner's session, made by opening the sign-in link."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(server.command("link"))  # each signs in once
    expect(page.get_by_test_id("composer")).to_be_visible()
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def context(browser: Browser, signed_in: StorageState) -> Iterator[BrowserContext]:
    """The owner's browser; no test may make the page fail or ask another host for anything."""
    made = browser.new_context(storage_state=signed_in, viewport={"width": 1200, "height": 800})
    faults: list[str] = []
    asked: set[Request] = set()
    made.on("weberror", lambda error: faults.append(str(error.error)))
    made.on("dialog", lambda dialog: faults.append(f"dialog {dialog.message}"))

    def ask(request: Request) -> None:
        asked.add(request)

    def fail(request: Request) -> None:
        if request.failure == "csp":  # the policy let none of it out
            asked.discard(request)

    made.on("request", ask)
    made.on("requestfailed", fail)
    yield made
    made.close()
    assert not faults
    hosts = {request.url.partition("://")[2].partition("/")[0] for request in asked}
    assert len(hosts) <= 1, hosts


@pytest.fixture
def page(context: BrowserContext, server: Server) -> Page:
    opened = context.new_page()
    opened.goto(server.url)
    expect(opened.get_by_test_id("composer")).to_be_visible()
    return opened


@pytest.fixture
def chat(page: Page, server: Server) -> Chat:
    return Chat(page, server)


@pytest.fixture(scope="module")
def static_folder() -> Path:
    return Path(__file__).parents[2] / "src" / "antiphon" / "edge" / "static"
