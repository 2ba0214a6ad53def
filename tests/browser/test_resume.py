"""Whatever happens to page, tab and network in mid-answer: the text on the screen ends as the stored text, and nothing is sent twice."""

from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.browser.cable import Cable
from tests.browser.chat import Chat
from tests.system.served import Server

pytestmark = pytest.mark.browser


def _sent_once(chat: Chat, turns: int = 1) -> None:
    tree = chat.server.person().http.get(f"/v1/conversations/{chat.conversation}/tree").json()["data"]
    assert [node["role"] for node in tree] == ["user", "assistant"] * turns


def test_reload_in_mid_answer_goes_on(chat: Chat) -> None:
    chat.send("Tell me a lot")
    chat.growing(60)
    before = chat.shown()
    chat.page.reload()
    expect(chat.page.get_by_test_id("stop")).to_be_visible()
    text = chat.ended()
    assert text.startswith(before)
    chat.check_whole()
    _sent_once(chat)


def test_close_and_open_again(chat: Chat, context: BrowserContext) -> None:
    chat.send("Tell me more")
    chat.growing(60)
    address = chat.page.url
    chat.page.close()
    again = Chat(context.new_page(), chat.server)
    again.page.goto(address)
    again.ended()
    again.check_whole()
    _sent_once(again)


def test_a_lost_network_costs_no_character(chat: Chat, context: BrowserContext) -> None:
    chat.send("Keep talking")
    chat.growing(30)
    for _ in range(2):
        context.set_offline(True)
        chat.page.wait_for_timeout(400)
        context.set_offline(False)
        chat.page.wait_for_timeout(400)
    chat.ended()
    chat.check_whole()
    _sent_once(chat)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_half_a_minute_without_a_network(context: BrowserContext, server: Server) -> None:
    cable = Cable(server.url)
    chat = Chat(context.new_page(), server)
    chat.page.goto(cable.url)
    chat.send("Go on without me")
    chat.growing(30)
    context.set_offline(True)
    assert cable.pull() > 0
    chat.page.wait_for_timeout(30_000)
    expect(chat.answer).to_have_attribute("data-status", "streaming")
    cable.plug()
    context.set_offline(False)
    chat.ended()
    chat.check_whole()
    _sent_once(chat)
    cable.close()


def test_a_send_without_a_network_goes_out_once(chat: Chat, context: BrowserContext) -> None:
    chat.ask("First")
    context.set_offline(True)
    chat.send("Second")
    expect(chat.page.get_by_test_id("offline")).to_be_visible()
    chat.page.wait_for_timeout(1200)
    context.set_offline(False)
    expect(chat.messages).to_have_count(4)
    chat.ended()
    chat.check_whole()
    _sent_once(chat, turns=2)


def test_a_second_tab_shows_the_same_answer(chat: Chat, context: BrowserContext) -> None:
    chat.ask("Before")
    other = Chat(context.new_page(), chat.server)
    other.page.goto(chat.page.url)
    expect(other.messages).to_have_count(2)
    chat.send("In both")
    expect(other.messages).to_have_count(4)
    other.growing(10)
    chat.page.bring_to_front()
    chat.ended()
    other.ended()
    chat.check_whole()
    other.page.bring_to_front()
    other.check_whole()
    _sent_once(chat, turns=2)


def test_a_stop_in_one_tab_stops_in_both(chat: Chat, context: BrowserContext) -> None:
    chat.ask("Before")
    other = Chat(context.new_page(), chat.server)
    other.page.goto(chat.page.url)
    chat.use("slow")
    chat.send("In both")
    other.growing(10)
    other.page.get_by_test_id("stop").click()
    assert other.ended("cancelled") == chat.ended("cancelled")
    assert chat.same_as_stored()


def test_a_tab_in_the_background(chat: Chat, context: BrowserContext) -> None:
    chat.send("While I look elsewhere")
    chat.growing(20)
    front = context.new_page()
    front.bring_to_front()
    front.wait_for_timeout(2500)
    chat.page.bring_to_front()
    chat.ended()
    chat.check_whole()
    _sent_once(chat)


def test_leaving_and_coming_back(chat: Chat) -> None:
    chat.send("A long one")
    chat.growing(20)
    chat.page.get_by_test_id("new-chat").click()
    expect(chat.messages).to_have_count(0)
    expect(chat.page.get_by_label("Answering")).to_be_visible()
    chat.page.get_by_test_id("sidebar-item").first.click()
    chat.ended()
    chat.check_whole()
    _sent_once(chat)
