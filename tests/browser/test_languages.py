"""No text is hard-coded: in the marked language of the tests every word on the screen is marked, right to left, and nothing breaks out."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import serious_findings
from tests.browser.chat import Chat

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

UNMARKED = """
() => {
  const found = new Set();
  const names = ".bubble .prose .model-name .model-picker .models .row-title .brand .account-name .initial .branch-count .facts .own";
  const data = ["kbd", "code", ".facts-list dd", "h1 small", "option", "b", "textarea", "input"];
  const own = [...names.split(" "), ...data].join(", ");
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const parent = node.parentElement;
    const text = node.data.trim();
    if (!/\\p{L}{2,}/u.test(text) || parent.closest(`script, noscript, ${own}`) || parent.getClientRects().length === 0) continue;
    if (!parent.textContent.includes("⟦")) found.add(text);
  }
  for (const element of document.querySelectorAll("[aria-label], [title], [placeholder]")) {
    for (const name of ["aria-label", "title", "placeholder"]) {
      const text = element.getAttribute(name);
      if (!text || !/\\p{L}{2,}/u.test(text) || text.includes("⟦")) continue;
      if (!element.closest([...names.split(" "), "[data-testid=sidebar-item]", "kbd", "code"].join(", "))) found.add(`${name}: ${text}`);
    }
  }
  return [...found];
}
"""


@pytest.fixture
def foreign(chat: Chat) -> Chat:
    chat.page.add_init_script("localStorage.setItem('antiphon.settings', JSON.stringify({ language: 'qps' }))")
    chat.page.goto(chat.server.url)
    expect(chat.composer).to_be_visible()
    return chat


def _marked(page: Page) -> None:
    assert page.evaluate(UNMARKED) == []
    width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]


def test_every_text_of_the_chat_is_translated(foreign: Chat) -> None:
    page = foreign.page
    assert page.evaluate("getComputedStyle(document.body).direction") == "rtl"
    assert page.locator("#sidebar").bounding_box()["x"] > 600  # type: ignore[index] - it is on the right
    _marked(page)
    foreign.use("slow")
    foreign.send("hello")
    foreign.growing(5)
    _marked(page)
    page.get_by_test_id("stop").click()
    foreign.ended("cancelled")
    _marked(page)
    assert serious_findings(page) == []
    page.set_viewport_size({"width": 390, "height": 780})
    _marked(page)


def test_every_text_of_the_dialogs_is_translated(foreign: Chat) -> None:
    page = foreign.page
    foreign.ask("hello")
    page.keyboard.press("Control+/")
    expect(page.get_by_role("dialog")).to_be_visible()
    _marked(page)
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    expect(page.get_by_test_id("search-field")).to_be_visible()
    page.keyboard.press("Escape")
    page.locator(".account").click()
    _marked(page)
    page.locator(".menu:popover-open [role=menuitem]").first.click()
    expect(page.locator(".dialog.settings")).to_be_visible()
    page.wait_for_timeout(400)
    for tab in page.get_by_role("tab").all():
        tab.click()
        page.wait_for_timeout(150)
        _marked(page)
    page.keyboard.press("Escape")
    foreign.answer.get_by_test_id("thumb-down").click()
    foreign.answer.get_by_test_id("info").click()
    expect(page.get_by_test_id("info-panel")).to_be_visible()
    _marked(page)


def test_german_is_spoken_to_germans(chat: Chat) -> None:
    page = chat.page
    page.add_init_script(f"localStorage.setItem('antiphon.settings', {json.dumps(json.dumps({'language': 'de'}))})")
    page.goto(chat.server.url)
    expect(page.get_by_role("heading", name="Was beschäftigt dich?")).to_be_visible()
    assert page.evaluate("document.documentElement.lang") == "de"
