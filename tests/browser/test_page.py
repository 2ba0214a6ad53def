from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, StorageState, expect

from tests.browser.chat import Chat
from tests.system.served import Server

pytestmark = pytest.mark.browser

FIRST_LOAD_BYTES = 60_000


def test_first_load_is_small(static_folder: Path) -> None:
    page = (static_folder / "index.html").read_text()
    files = ["index.html", *re.findall(r'(?:src|href)="/([^"]+)"', page)]
    assert len(files) >= 3
    assert sum(len(gzip.compress((static_folder / name).read_bytes())) for name in files) <= FIRST_LOAD_BYTES
    for name in files:
        assert (static_folder / f"{name}.gz").is_file()
        assert (static_folder / f"{name}.br").is_file()


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
