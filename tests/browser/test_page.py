from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, StorageState, expect

from tests.browser.axe import serious_findings
from tests.browser.chat import Chat
from tests.system.served import Server

pytestmark = pytest.mark.browser

FIRST_LOAD_BYTES = 70_000


def test_first_load_is_small(static_folder: Path) -> None:
    page = (static_folder / "index.html").read_text()
    files = ["index.html", *re.findall(r'(?:src|href)="/([^"]+)"', page)]
    assert len(files) >= 3
    assert sum(len(gzip.compress((static_folder / name).read_bytes())) for name in files) <= FIRST_LOAD_BYTES
    for name in files:
        assert (static_folder / f"{name}.gz").is_file()
        assert (static_folder / f"{name}.br").is_file()


def test_what_comes_first_is_what_the_page_names(chat: Chat, static_folder: Path) -> None:
    """The budget above counts what the browser really loads before the markdown code is asked for."""
    named = set(re.findall(r'(?:src|href)="(/[^"]+)"', (static_folder / "index.html").read_text()))
    scripts = chat.page.evaluate(
        "performance.getEntriesByType('resource').filter(one => /[.](js|css)$/.test(one.name)).map(one => new URL(one.name).pathname)"
    )
    late = [name for name in scripts if name not in named]
    assert late, "the markdown code comes by itself"
    assert all(re.search(r"/(view|blocks|render)-", name) for name in late), late


def test_markdown_code_that_comes_late_leaves_nothing_behind(page: Page, chat: Chat) -> None:
    chat.use("echo")
    chat.ask("# A title\n\n- one\n- two")
    held: list[Route] = []
    page.route(re.compile(r"/assets/view-.*\.js"), lambda route: held.append(route))  # noqa: PLW0108 - Playwright wants a function
    page.reload(wait_until="commit")
    expect(chat.answer.locator(".prose.plain")).to_have_text("# A title\n\n- one\n- two")
    assert len(held) == 1
    held[0].continue_()
    expect(chat.answer.get_by_role("heading", name="A title")).to_be_visible()
    expect(chat.answer.locator(".prose")).to_have_text(re.compile(r"^\s*A title\s*one\s*two\s*$"))


def test_no_request_leaves_the_server_and_no_rule_is_broken(chat: Chat) -> None:
    """That no other host is asked is held by every test's context; here the policy, and that nothing runs against it."""
    policy = chat.server.person().http.get("/").headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    for frame in ("diagram", "picture"):
        assert "unsafe" not in chat.server.person().http.get(f"/frame/{frame}.html").headers["content-security-policy"]
    broken: list[str] = []
    chat.page.on("console", lambda message: broken.append(message.text) if "Content Security Policy" in message.text else None)
    chat.page.reload()
    chat.use("echo")
    chat.ask("# Title\n\n$x^2$ and `code`\n\n```python\nprint(1)\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    expect(chat.page.locator(".formula")).to_be_visible()
    assert broken == []


def test_a_phone_has_a_drawer_and_never_scrolls_sideways(browser: Browser, server: Server, signed_in: StorageState) -> None:
    context = browser.new_context(storage_state=signed_in, viewport={"width": 390, "height": 780}, has_touch=True, is_mobile=True)
    chat = Chat(context.new_page(), server)
    chat.page.goto(server.url)
    chat.composer.fill("Hello " + "x" * 300)
    chat.page.get_by_test_id("send").tap()
    chat.ended()
    assert chat.page.evaluate("document.documentElement.scrollWidth") <= 390
    expect(chat.page.get_by_test_id("new-chat")).not_to_be_visible()
    chat.page.get_by_role("button", name="Show sidebar").tap()
    expect(chat.page.get_by_test_id("sidebar-item").first).to_be_visible()
    chat.page.get_by_test_id("new-chat").tap()
    expect(chat.messages).to_have_count(0)
    expect(chat.page.get_by_test_id("new-chat")).not_to_be_visible()
    context.close()


@pytest.mark.slow
def test_scrolling_up_is_never_fought(chat: Chat) -> None:
    for text in ("one", "two", "three", "four"):
        chat.ask(text)
    chat.page.set_viewport_size({"width": 900, "height": 420})
    chat.send("five")
    chat.growing(20)
    chat.messages.last.hover()
    chat.page.mouse.wheel(0, -400)
    chat.page.wait_for_timeout(300)
    pane = chat.page.locator(".pane")
    top = pane.evaluate("pane => pane.scrollTop")
    chat.ended()
    assert pane.evaluate("pane => pane.scrollTop") == top
    chat.page.get_by_role("button", name="Go to the end").click()
    chat.page.wait_for_timeout(800)
    assert pane.evaluate("pane => pane.scrollHeight - pane.clientHeight - pane.scrollTop") < 2


def at_rest(shown: Locator) -> None:
    """Wait until it has not moved for 300 ms of drawn frames: a page that draws nothing for a while moves nothing."""
    shown.evaluate(
        """element => new Promise(resolve => {
            let top = NaN, frames = 0;
            const look = () => {
                const now = element.getBoundingClientRect().top;
                [top, frames] = [now, now === top ? frames + 1 : 0];
                frames < 18 ? requestAnimationFrame(look) : resolve();
            };
            look();
        })"""
    )


def test_another_version_comes_where_this_one_was(chat: Chat) -> None:
    for text in ("one", "two", "three"):
        chat.ask(text)
    chat.page.set_viewport_size({"width": 900, "height": 420})
    question = chat.page.locator("[data-testid=message][data-role=user]").nth(1)
    question.hover()
    question.get_by_test_id("edit").click()
    chat.page.get_by_label("Edit message").fill(
        "two, in other words, which are more than a line has room for, so that what follows moves down " * 2
    )
    chat.page.get_by_label("Edit message").press("Enter")
    chat.ended()
    arrows = question.get_by_role("group", name="Versions")
    at_rest(arrows)
    arrows.get_by_test_id("branch-prev").hover()  # where it can be pressed
    before = arrows.bounding_box()
    arrows.get_by_test_id("branch-prev").click()
    expect(arrows).to_contain_text("1/2")
    expect(question.get_by_test_id("branch-next")).to_be_focused()
    at_rest(arrows)
    after = arrows.bounding_box()
    assert before is not None
    assert after is not None
    assert abs(after["y"] - before["y"]) <= 1


def test_shortcuts(chat: Chat) -> None:
    chat.ask("Something")
    chat.page.keyboard.press("Control+Shift+O")
    expect(chat.messages).to_have_count(0)
    chat.page.locator("body").click(position={"x": 600, "y": 700})
    chat.page.keyboard.press("Shift+Escape")
    expect(chat.composer).to_be_focused()
    chat.page.keyboard.press("Control+/")
    expect(chat.page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    chat.page.keyboard.press("Escape")
    expect(chat.page.get_by_role("dialog")).to_have_count(0)
    chat.page.keyboard.press("Control+Shift+S")
    expect(chat.page.get_by_test_id("new-chat")).not_to_be_visible()


def test_every_button_has_a_name(chat: Chat) -> None:
    chat.ask("Names")
    nameless = chat.page.locator("button").evaluate_all(
        "buttons => buttons.filter(one => !(one.getAttribute('aria-label') || one.textContent.trim())).map(one => one.outerHTML)"
    )
    assert nameless == []
    assert chat.page.locator("main").count() == 1
    assert chat.page.get_by_role("navigation").count() == 1
    assert chat.page.locator("[aria-live], [role=status], [role=log]").count() == 1


def test_what_the_page_says_to_screen_readers(chat: Chat) -> None:
    chat.send("Say it")
    status = chat.page.get_by_role("status")
    expect(status).to_have_text("Answering")
    expect(chat.answer).to_have_attribute("aria-busy", "true")
    chat.ended()
    expect(status).to_have_text("Answer ready")
    expect(chat.answer).to_have_attribute("aria-busy", "false")
    expect(chat.page.get_by_role("article", name="You said")).to_be_visible()
    expect(chat.page.get_by_role("article", name="Antiphon said")).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(chat: Chat, theme: str) -> None:
    chat.page.add_init_script(f"localStorage.setItem('antiphon.settings', JSON.stringify({{ theme: '{theme}' }}))")
    chat.page.reload()
    assert serious_findings(chat.page) == []
    chat.send("An answer")
    chat.growing(10)
    assert serious_findings(chat.page) == []
    chat.ended()
    assert serious_findings(chat.page) == []
    chat.page.keyboard.press("Control+k")
    expect(chat.page.get_by_test_id("search-field")).to_be_visible()
    assert serious_findings(chat.page) == []


def test_earlier_messages_come_by_themselves_and_hold_the_place(chat: Chat) -> None:
    messages = [
        {
            "id": f"msg_0000000a-0000-7000-8000-{at:012d}",
            "parent_id": f"msg_0000000a-0000-7000-8000-{at - 1:012d}" if at else None,
            "role": ("user", "assistant")[at % 2],
            "content": f"Number {at}.",
        }
        for at in range(120)
    ]
    whole = {
        "id": "conv_0000000a-0000-7000-8000-000000000000",
        "title": "Long",
        "current_leaf_id": messages[-1]["id"],
        "messages": messages,
    }
    file = '{"antiphon_export":1}\n' + json.dumps(whole) + "\n"
    report = chat.server.person().http.post("/v1/import", files={"file": ("long.jsonl", file.encode())}).json()
    chat.page.goto(f"{chat.server.url}/c/{report['conversations'][0]['id']}")
    expect(chat.messages).to_have_count(40)
    pane = chat.page.locator(".pane")
    assert pane.evaluate("pane => pane.scrollHeight - pane.clientHeight - pane.scrollTop") < 2
    chat.page.wait_for_timeout(600)
    chat.messages.first.hover()
    chat.page.mouse.wheel(0, -20_000)
    expect(chat.messages).to_have_count(120, timeout=20_000)


def test_an_address_that_leads_nowhere_leads_back(chat: Chat) -> None:
    chat.page.goto(f"{chat.server.url}/s/taken-away")
    expect(chat.page.get_by_role("heading", name="There is nothing here")).to_be_visible()
    chat.page.get_by_role("link", name="To the chats").click()
    expect(chat.composer).to_be_visible()
