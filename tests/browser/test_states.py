"""Every state of the window, reached through the real API: no serious finding of axe, and looking as in ``docs/design``.

``ANTIPHON_DESIGN=write`` draws the pictures anew.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, StorageState, expect

from tests.browser.axe import serious_findings
from tests.browser.cable import Cable
from tests.browser.chat import Chat
from tests.browser.pictures import WRITES, draws
from tests.system.served import Server, reference_config

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(240)]

POOLS = """
[[pools]]
name = "echo"
model = "reference-echo"
engine = "reference"
vocabulary = "echo"
output_tokens_per_s = 900
context_tokens = 4096
blocks = 2048

[[pools]]
name = "line"
model = "reference-line"
engine = "reference"
output_tokens_per_s = 6
context_tokens = 512
blocks = 16

[[pools]]
name = "slow"
model = "reference-slow"
engine = "reference"
output_tokens_per_s = 7
context_tokens = 4096
blocks = 1024

[[pools]]
name = "reader"
model = "reference-reader"
engine = "reference"
prefill_tokens_per_s = 120
output_tokens_per_s = 30
context_tokens = 4096
blocks = 2048

[[pools]]
name = "thinker"
model = "reference-thinker"
engine = "reference"
vocabulary = "thinking"
output_tokens_per_s = 2
context_tokens = 4096
blocks = 1024

[[pools]]
name = "brief"
model = "reference-brief"
engine = "reference"
output_tokens_per_s = 400
context_tokens = 640
blocks = 512

[[plans]]
name = "tight"
models = ["small"]
requests_per_minute = 1
tokens_per_minute = 100000
concurrency = 2

[[plans]]
name = "hasty"
models = ["line"]
ttft_limit_ms = 1000
downgrade = false
"""
ANSWER = """The tallest tree known is **Hyperion**, a coast redwood (*Sequoia sempervirens*) in northern California.

| Tree | Kind | Height |
|---|---|--:|
| Hyperion | coast redwood | 116 m |
| Menara | yellow meranti | 101 m |
| Centurion | mountain ash | 100 m |

How the height follows from two angles and a distance:

```python
from math import radians, tan

def height(distance_m: float, angle_deg: float, eye_m: float = 1.6) -> float:
    return eye_m + distance_m * tan(radians(angle_deg))  # above level ground
```

With $d$ metres of distance, $h = e + d \\tan\\alpha$; a good tape costs about $20.

- [x] measure the distance
- [ ] measure the angle
"""
DIAGRAM = """The way of a message:

```mermaid
graph LR
  A[Client] --> B{Gateway}
  B -->|admit| C[Replica]
  B -->|queue| D[Line]
```

![a chart of the year](https://charts.example/2026.png)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = reference_config(output_tokens_per_s=40, extra=POOLS)
    config = config.replace('name = "free"', 'name = "free"\nmodels = ["small", "echo", "line", "slow", "reader", "thinker", "brief"]')
    # Waiting is drawn, not refused: only the plan ``hasty`` is.
    config = config.replace("max_output_tokens = 1024", "max_output_tokens = 300\nttft_limit_ms = 600000\ndowngrade = false")
    shared = Server(tmp_path_factory.mktemp("states") / "data", config)
    shared.start()
    yield shared
    shared.end()


@pytest.fixture(scope="module")
def session(browser: Browser, served: Server) -> StorageState:
    return _signed_in(browser, served.link)


def _signed_in(browser: Browser, link: str) -> StorageState:
    context = browser.new_context()
    page = context.new_page()
    page.goto(link)
    expect(page.get_by_test_id("composer")).to_be_visible()
    state = context.storage_state()
    context.close()
    return state


Opened = Callable[..., Chat]


@pytest.fixture
def opened(browser: Browser, served: Server, session: StorageState) -> Iterator[Opened]:
    """Opens the page with given settings in a context of its own."""
    contexts: list[BrowserContext] = []

    def make(
        *,
        path: str = "/",
        settings: dict[str, object] | None = None,
        model: str = "small",
        state: StorageState | None = None,
        at: str = "",
        **options: object,
    ) -> Chat:
        chosen: dict[str, object] = {"viewport": {"width": 1200, "height": 800}, "locale": "en-GB", "timezone_id": "UTC"}
        context = browser.new_context(storage_state=state or session, **(chosen | options))
        contexts.append(context)
        stored = {"antiphon.settings": json.dumps(settings or {}), "antiphon.model.default": model}
        context.add_init_script(f"for (const [key, value] of Object.entries({json.dumps(stored)})) localStorage.setItem(key, value)")
        page = context.new_page()
        page.goto((at or served.url) + path)
        expect(page.get_by_test_id("composer")).to_be_visible()
        return Chat(page, served)

    yield make
    for context in contexts:
        context.close()


def holds(chat: Chat, name: str, *, moving: str = "") -> None:
    """The state is accessible and looks as it is drawn."""
    assert serious_findings(chat.page) == []
    draws(chat.page, name, chat.page.context, moving)


def imported(server: Server, *messages: dict[str, object], title: str = "Trees") -> str:
    """A conversation taken in through the import; its id. States that need luck or harm to reach come from here."""
    number = imported.count = getattr(imported, "count", 0) + 1
    ids = [f"msg_{number:08d}-0000-7000-8000-{at:012d}" for at in range(len(messages))]
    lines = [
        {"id": ids[at], "parent_id": ids[at - 1] if at else None, "created_at": "2026-11-30T09:00:00.000Z", "status": "complete", **message}
        for at, message in enumerate(messages)
    ]
    whole = {"id": f"conv_{number:08d}-0000-7000-8000-000000000000", "title": title, "current_leaf_id": ids[-1], "messages": lines}
    body = '{"antiphon_export":1}\n' + json.dumps(whole) + "\n"
    answer = server.person().http.post("/v1/import", files={"file": ("states.jsonl", body.encode())})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["conversations"][0]["id"])


QUESTION = {"role": "user", "content": "Which tree is the tallest?"}


@pytest.mark.parametrize(
    ("name", "settings", "options"),
    [
        ("empty-light", {"theme": "light"}, {}),
        ("empty-dark", {"theme": "dark"}, {}),
        ("empty-high-contrast", {"theme": "light", "contrast": "more"}, {}),
        ("empty-german", {"language": "de", "theme": "light"}, {}),
        ("empty-phone", {"theme": "light"}, {"viewport": {"width": 390, "height": 780}, "has_touch": True, "is_mobile": True}),
    ],
)
def test_empty(opened: Opened, name: str, settings: dict[str, object], options: dict[str, object]) -> None:
    holds(opened(settings=settings, **options), name)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_answer(opened: Opened, served: Server, theme: str) -> None:
    conversation = imported(
        served,
        QUESTION,
        {"role": "assistant", "content": ANSWER, "model": "small", "output_tokens": 210, "prompt_tokens": 46, "cached_tokens": 32},
    )
    chat = opened(path=f"/c/{conversation}", settings={"theme": theme})
    expect(chat.page.locator(".formula").first).to_be_visible()
    holds(chat, f"answer-{theme}")


def test_answer_on_a_phone(opened: Opened, served: Server) -> None:
    conversation = imported(served, QUESTION, {"role": "assistant", "content": ANSWER, "model": "small"})
    chat = opened(
        path=f"/c/{conversation}", settings={"theme": "light"}, viewport={"width": 390, "height": 780}, has_touch=True, is_mobile=True
    )
    expect(chat.page.locator(".formula").first).to_be_visible()
    holds(chat, "answer-phone")
    chat.page.get_by_role("button", name="Show sidebar").tap()
    expect(chat.page.get_by_test_id("new-chat")).to_be_focused()
    chat.page.wait_for_timeout(400)
    holds(chat, "sidebar-phone")


def test_diagram_and_picture(opened: Opened, served: Server) -> None:
    conversation = imported(
        served, {"role": "user", "content": "How does a message travel?"}, {"role": "assistant", "content": DIAGRAM, "model": "small"}
    )
    chat = opened(path=f"/c/{conversation}", settings={"theme": "light"})
    expect(chat.page.locator("iframe[data-drawn]")).to_be_visible()
    holds(chat, "diagram")


def test_streaming(opened: Opened) -> None:
    chat = opened(settings={"theme": "light"}, model="slow")
    chat.send("Which tree is the tallest?")
    chat.growing(60)
    holds(chat, "streaming", moving=".prose")
    chat.page.get_by_test_id("stop").click()
    chat.ended("cancelled")
    holds(chat, "stopped", moving=".prose")


@contextmanager
def _busy(server: Server, answers: int) -> Iterator[None]:
    """The pool ``line`` computes one answer and the others wait for it."""
    other = server.person()
    sent = [other.send(other.new_conversation(), "Keep the line busy", model="line", params={"max_tokens": 200}) for _ in range(answers)]
    yield
    for one in sent:
        other.http.post(f"/v1/generations/{one['generation_id']}/cancel", json={})


def test_queued_with_place_and_time(opened: Opened, served: Server) -> None:
    with _busy(served, 2):
        chat = opened(settings={"theme": "light"}, model="line")
        chat.send("Which tree is the tallest?")
        expect(chat.page.get_by_test_id("status")).to_contain_text("Queued")
        holds(chat, "queued")
        chat.page.get_by_test_id("stop").click()
        chat.ended("cancelled")


def test_thinking(opened: Opened) -> None:
    chat = opened(settings={"theme": "light"}, model="thinker")
    chat.send("Which tree is the tallest?")
    expect(chat.page.locator(".thinking")).to_be_visible()
    holds(chat, "thinking")
    chat.page.get_by_test_id("stop").click()
    chat.ended("cancelled")


def test_reading(opened: Opened) -> None:
    chat = opened(settings={"theme": "light"}, model="reader")
    chat.send("Read this slowly. " * 60)
    expect(chat.page.get_by_test_id("status")).to_contain_text("Reading")
    holds(chat, "reading")
    chat.page.get_by_test_id("stop").click()


def test_reconnecting_and_offline(opened: Opened, served: Server) -> None:
    cable = Cable(served.url)
    chat = opened(settings={"theme": "light"}, model="slow", at=cable.url)
    chat.send("Which tree is the tallest?")
    chat.growing(60)
    chat.page.context.set_offline(True)
    assert cable.pull() > 0
    expect(chat.page.get_by_test_id("status")).to_contain_text("Reconnecting")
    expect(chat.page.get_by_test_id("offline")).to_be_visible()
    holds(chat, "reconnecting", moving=".prose")
    cable.plug()
    chat.page.context.set_offline(False)
    chat.ended()
    expect(chat.page.get_by_test_id("offline")).to_have_count(0)
    cable.close()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "interrupted",
            {
                "status": "interrupted",
                "content": "The tallest tree known is",
                "error": {"code": "interrupted", "message": "", "retryable": True},
            },
        ),
        (
            "failed",
            {
                "status": "failed",
                "content": "The tallest",
                "error": {"code": "engine_failed", "message": "The engine ended.", "retryable": True},
            },
        ),
        (
            "waited-too-long",
            {"status": "failed", "content": "", "error": {"code": "queue_timeout", "message": "The deadline passed.", "retryable": True}},
        ),
        ("nothing-returned", {"content": ""}),
        ("length-reached", {"content": "The tallest tree known is Hyperion, a", "finish_reason": "length"}),
        ("downgraded", {"content": "Hyperion, a coast redwood.", "model": "small", "requested_model": "large"}),
    ],
)
def test_endings(opened: Opened, served: Server, name: str, message: dict[str, object]) -> None:
    conversation = imported(served, QUESTION, {"role": "assistant", **message})
    chat = opened(path=f"/c/{conversation}", settings={"theme": "light"})
    expect(chat.messages).to_have_count(2)
    holds(chat, name)


def test_limited_with_a_countdown(opened: Opened, browser: Browser, served: Server) -> None:
    served.command("users", "create", "tight", "--plan", "tight")
    chat = opened(settings={"theme": "light"}, state=_signed_in(browser, served.command("link", "--user", "tight")))
    chat.ask("Which tree is the tallest?")
    chat.send("And the oldest?")
    expect(chat.page.get_by_test_id("notice")).to_contain_text("Ready in")
    expect(chat.page.get_by_test_id("send")).to_be_disabled()
    expect(chat.composer).to_have_value("And the oldest?")
    holds(chat, "limited", moving=".prose")


def test_high_demand(opened: Opened, browser: Browser, served: Server) -> None:
    served.command("users", "create", "hasty", "--plan", "hasty")
    state = _signed_in(browser, served.command("link", "--user", "hasty"))
    with _busy(served, 2):
        chat = opened(settings={"theme": "light"}, state=state, model="line")
        chat.send("Which tree is the tallest?")
        expect(chat.page.get_by_test_id("notice")).to_contain_text("Many people are asking")
        expect(chat.composer).to_have_value("Which tree is the tallest?")
        holds(chat, "high-demand")


def test_prompt_too_long(opened: Opened) -> None:
    chat = opened(settings={"theme": "light"}, model="brief")
    chat.send("A long question. " * 80)
    expect(chat.page.get_by_test_id("notice")).to_contain_text("Too long for this model")
    holds(chat, "too-long")


def test_earlier_messages_left_out(opened: Opened) -> None:
    chat = opened(settings={"theme": "light"}, model="brief")
    for number in range(1, 9):
        chat.ask(f"Question {number} about trees, forests and their heights, please")
        if chat.page.get_by_test_id("left-out").count():
            break
    expect(chat.page.get_by_test_id("left-out")).to_be_visible()
    chat.page.get_by_test_id("left-out").scroll_into_view_if_needed()
    holds(chat, "left-out", moving=".prose")


def test_temporary(opened: Opened) -> None:
    chat = opened(settings={"theme": "light"})
    chat.page.get_by_test_id("temporary").click()
    expect(chat.page.get_by_text("It is not listed")).to_be_visible()
    holds(chat, "temporary")


def test_next_message_and_attachment(opened: Opened) -> None:
    chat = opened(settings={"theme": "light"}, model="slow")
    chat.send("Which tree is the tallest?")
    chat.growing(20)
    chat.send("And the oldest?")
    chat.paste("a long log line\n" * 900)
    expect(chat.page.get_by_test_id("attachment")).to_be_visible()
    holds(chat, "next-and-attachment", moving=".prose")


def test_details_and_reasons(opened: Opened) -> None:
    chat = opened(settings={"theme": "light"})
    chat.ask("Which tree is the tallest?")
    chat.answer.get_by_test_id("info").click()
    expect(chat.page.get_by_test_id("info-panel")).to_contain_text("tok/s")
    holds(chat, "details", moving=".prose")
    chat.page.keyboard.press("Escape")
    chat.answer.get_by_test_id("thumb-down").click()
    expect(chat.page.get_by_test_id("reasons")).to_be_visible()
    holds(chat, "reasons", moving=".prose")


def test_palette_share_and_model_picker(opened: Opened) -> None:
    chat = opened(settings={"theme": "light"})
    chat.ask("A hyperboloid question")
    chat.page.keyboard.press("Control+k")
    chat.page.get_by_test_id("search-field").fill("hyperboloid")
    expect(chat.page.get_by_test_id("search-result").first).to_contain_text("hyperboloid")
    holds(chat, "search", moving=".prose")
    chat.page.keyboard.press("Escape")
    chat.page.locator(".model-picker").click()
    expect(chat.page.get_by_role("menuitemradio", name="echo")).to_be_visible()
    holds(chat, "models", moving=".prose")
    chat.page.keyboard.press("Escape")
    chat.page.get_by_role("button", name="Share").click()
    chat.page.get_by_test_id("share-create").click()
    expect(chat.page.get_by_test_id("share-url")).to_be_visible()
    holds(chat, "share", moving=".prose")
    chat.page.get_by_role("button", name="Revoke").click()  # the settings would list it
    expect(chat.page.get_by_role("button", name="Revoke")).to_have_count(0)


@pytest.mark.parametrize("tab", ["General", "Personal", "Models", "Data", "Usage", "Account"])
def test_settings(opened: Opened, served: Server, tab: str) -> None:
    served.key()  # it is listed, whichever test came first
    chat = opened(settings={"theme": "light"})
    chat.page.get_by_role("button", name="Account").click()
    chat.page.get_by_role("menuitem", name="Settings").click()
    expect(chat.page.get_by_role("dialog", name="Settings")).to_be_visible()
    chat.page.wait_for_timeout(500)
    if chat.page.get_by_role("tab", name=tab).count() == 0:
        pytest.skip(f"this server has nothing for {tab}")
    chat.page.get_by_role("tab", name=tab).click()
    holds(chat, f"settings-{tab.lower()}")


def test_shortcuts(opened: Opened) -> None:
    chat = opened(settings={"theme": "light"})
    chat.page.keyboard.press("Control+/")
    expect(chat.page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    holds(chat, "shortcuts")


def test_operator(opened: Opened, served: Server) -> None:
    other = served.person()
    for _ in range(3):
        other.send(other.new_conversation(), "Some load", params={"max_tokens": 200})
    chat = opened(settings={"theme": "light"})
    chat.page.get_by_role("button", name="Account").click()
    chat.page.get_by_role("menuitem", name="Operator").click()
    expect(chat.page.get_by_test_id("pool").first).to_be_visible()
    chat.page.wait_for_timeout(6000)
    assert serious_findings(chat.page) == []
    if WRITES:  # curves never look the same twice
        draws(chat.page, "operator", chat.page.context)


def test_the_operator_sees_why_a_model_is_not_there(browser: Browser, tmp_path: Path) -> None:
    away = '[[pools]]\nname = "away"\nmodel = "far"\nengine = "openai"\nurl = "http://127.0.0.1:9/v1"\n'
    server = Server(tmp_path / "data", reference_config(extra=away))
    server.start()
    context = browser.new_context(viewport={"width": 360, "height": 800})
    try:
        page = context.new_page()
        page.goto(server.command("link"))
        expect(page.get_by_test_id("composer")).to_be_visible()
        page.goto(f"{server.url}/operator")
        expect(page.get_by_role("region", name="away").get_by_text("127.0.0.1:9")).to_be_visible()
        expect(page.locator(".trouble")).to_have_count(1)
        assert serious_findings(page) == []
    finally:
        context.close()
        server.end()


def test_signed_out(browser: Browser, served: Server) -> None:
    context = browser.new_context(viewport={"width": 1200, "height": 800}, color_scheme="light")
    page = context.new_page()
    page.goto(f"{served.url}/?token=wrong")
    expect(page.get_by_text("antiphon link", exact=True)).to_be_visible()
    assert serious_findings(page) == []
    draws(page, "signed-out", context)
    context.close()


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 360)])
def test_choose_a_password(browser: Browser, served: Server, theme: Literal["light", "dark"], width: int) -> None:
    served.command("users", "create", f"pat-{theme}")
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=theme)
    page = context.new_page()
    page.goto(served.command("link", "--user", f"pat-{theme}"))
    page.get_by_label("New password", exact=True).fill("short")
    page.get_by_role("button", name="Set password").click()
    expect(page.get_by_role("alert")).to_be_visible()
    assert serious_findings(page) == []
    draws(page, f"choose-password-{theme}", context)
    context.close()


def test_first_run_while_the_model_loads(browser: Browser, tmp_path: Path) -> None:
    with _loading_server(tmp_path / "data") as (server, url):
        context = browser.new_context(viewport={"width": 1200, "height": 800}, color_scheme="light")
        page = context.new_page()
        page.goto(f"{url}/?token={server.command('link').partition('token=')[2]}")
        expect(page.get_by_test_id("first-run")).to_be_visible()
        assert serious_findings(page) == []
        expect(page.get_by_test_id("first-run").get_by_text(re.compile(r"\d+ sec so far"))).to_be_visible()
        draws(page, "first-run", context, moving=".loading-bar")
        expect(page.get_by_test_id("first-run")).to_have_count(0, timeout=60_000)
        context.close()


@contextmanager
def _loading_server(folder: Path) -> Iterator[tuple[Server, str]]:
    """A server that listens while the default model loads; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Server(folder, '[[pools]]\nname = "small"\nmodel = "smollm2-135m-instruct"\n', port=port)
    server.launch()
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 60
    while True:
        try:
            httpx.get(f"{url}/healthz")
            break
        except httpx.TransportError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    try:
        yield server, url
    finally:
        server.end()
