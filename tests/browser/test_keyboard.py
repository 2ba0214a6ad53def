"""The whole journey without a pointer: sign in, ask, stop, edit, branch, search, export."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chat import Chat
from tests.system.served import Server

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

_FOCUS = """
() => {
  const at = document.activeElement;
  const words = at.getAttribute("aria-label") || at.textContent || at.getAttribute("placeholder") || "";
  return `${at.getAttribute("data-testid") || ""}|${words.trim()}`;
}
"""


def _tab_to(page: Page, wanted: str, *, back: bool = False, most: int = 60) -> None:
    """Press Tab until what has the focus matches; a focus that cannot be seen fails."""
    for _ in range(most):
        page.keyboard.press("Shift+Tab" if back else "Tab")
        if re.search(wanted, page.evaluate(_FOCUS)):
            visible = page.evaluate(
                "document.activeElement.matches(':focus-visible') && document.activeElement.getClientRects().length > 0"
            )
            assert visible, page.evaluate(_FOCUS)
            return
    raise AssertionError(f"Tab does not reach {wanted}; it is at {page.evaluate(_FOCUS)}")


def test_the_whole_journey_by_keyboard(browser: Browser, server: Server, tmp_path: Path) -> None:
    context = browser.new_context(viewport={"width": 1200, "height": 800}, accept_downloads=True)
    context.add_init_script("localStorage.setItem('antiphon.model.default', 'slow')")
    page = context.new_page()
    keys = page.keyboard
    page.goto(server.url)
    expect(page.get_by_label("Sign-in link")).to_be_visible()
    _tab_to(page, "Sign-in link")
    keys.insert_text(server.command("link"))
    keys.press("Enter")
    chat = Chat(page, server)
    expect(chat.composer).to_be_focused()

    keys.type("Tell me about trees")
    keys.press("Enter")
    chat.growing(20)
    keys.press("Escape")
    chat.ended("cancelled")

    keys.press("ArrowUp")
    expect(page.get_by_label("Edit message")).to_be_focused()
    keys.press("Control+A")
    keys.type("Tell me about zeppelins")
    keys.press("Enter")
    expect(chat.messages.first).to_contain_text("2/2")
    chat.ended()
    expect(chat.composer).to_be_focused()

    _tab_to(page, "branch-prev", back=True)
    keys.press("Enter")
    expect(chat.messages.first).to_contain_text("1/2")
    expect(chat.messages.first).to_contain_text("trees")

    keys.press("Control+K")
    expect(page.get_by_test_id("search-field")).to_be_focused()
    keys.type("zeppelins")
    expect(page.get_by_test_id("search-result").first).to_contain_text("zeppelins")
    keys.press("ArrowDown")
    keys.press("ArrowUp")
    keys.press("Enter")
    expect(page.get_by_test_id("search-field")).to_have_count(0)
    expect(chat.messages.first).to_contain_text("zeppelins")
    expect(chat.messages.first).to_contain_text("2/2")

    _tab_to(page, "^\\|Account: owner$", back=True)
    keys.press("Enter")
    expect(page.get_by_role("menuitem", name="Settings")).to_be_focused()
    keys.press("Enter")
    expect(page.get_by_role("dialog", name="Settings")).to_be_visible()
    _tab_to(page, "^\\|General$")
    while not page.get_by_role("tab", name="Data").evaluate("tab => tab === document.activeElement"):
        keys.press("ArrowDown")
    _tab_to(page, "export-antiphon")
    with page.expect_download() as downloading:
        keys.press("Enter")
    file = tmp_path / "export.jsonl"
    downloading.value.save_as(file)
    text = file.read_text()
    assert "zeppelins" in text
    assert "trees" in text
    keys.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    context.close()


def test_the_focus_is_kept_in_a_dialog_and_comes_back(chat: Chat) -> None:
    chat.composer.focus()
    chat.page.keyboard.press("Control+/")
    expect(chat.page.get_by_role("dialog")).to_be_visible()
    for _ in range(6):
        chat.page.keyboard.press("Tab")
        inside = chat.page.evaluate("document.activeElement === document.body || !!document.activeElement.closest('dialog')")
        assert inside
    chat.page.keyboard.press("Escape")
    expect(chat.composer).to_be_focused()


def test_a_new_line_where_the_other_key_sends(chat: Chat) -> None:
    chat.page.evaluate("localStorage.setItem('antiphon.settings', JSON.stringify({ send: 'mod' }))")
    chat.page.reload()
    chat.composer.fill("One")
    chat.composer.press("Enter")
    expect(chat.composer).to_have_value("One\n")
    chat.composer.press("Control+Enter")
    chat.ended()
