from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.browser.chat import Chat

pytestmark = pytest.mark.browser


def test_reload_in_mid_answer_goes_on(chat: Chat) -> None:
    chat.send("Tell me a lot")
    chat.growing(60)
    before = chat.shown()
    chat.page.reload()
    expect(chat.page.get_by_test_id("stop")).to_be_visible()
    text = chat.ended()
    assert text.startswith(before)
    assert chat.same_as_stored()


def test_a_lost_network_costs_no_character(chat: Chat, context: BrowserContext) -> None:
    chat.send("Keep talking")
    chat.growing(30)
    for _ in range(2):
        context.set_offline(True)
        chat.page.wait_for_timeout(400)
        context.set_offline(False)
        chat.page.wait_for_timeout(400)
    chat.ended()
    assert chat.same_as_stored()


def test_a_second_tab_shows_the_same_answer(chat: Chat, context: BrowserContext) -> None:
    chat.ask("Before")
    other = Chat(context.new_page(), chat.server)
    other.page.goto(chat.page.url)
    expect(other.messages).to_have_count(2)
    chat.send("In both")
    expect(other.messages).to_have_count(4)
    other.growing(10)
    other.page.get_by_test_id("stop").click()
    assert other.ended("cancelled") == chat.ended("cancelled")
    assert chat.same_as_stored()


def test_leaving_and_coming_back(chat: Chat) -> None:
    chat.send("A long one")
    chat.growing(20)
    chat.page.get_by_test_id("new-chat").click()
    expect(chat.messages).to_have_count(0)
    expect(chat.page.get_by_label("Answering")).to_be_visible()
    chat.page.get_by_test_id("sidebar-item").first.click()
    chat.ended()
    assert chat.same_as_stored()
