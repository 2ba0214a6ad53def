from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.chat import Chat, words
from tests.system.served import eventually

pytestmark = pytest.mark.browser


def test_send_stream_and_open_again(chat: Chat) -> None:
    chat.send("Hello, how are you?")
    expect(chat.page.get_by_test_id("stop")).to_be_visible()
    expect(chat.composer).to_have_value("")
    text = chat.ended()
    assert len(words(text)) > 20
    assert chat.same_as_stored()
    expect(chat.page.get_by_test_id("send")).to_be_visible()
    expect(chat.page).to_have_title(re.compile("Hello, how are you"))
    expect(chat.page.get_by_test_id("sidebar-item").first).to_have_attribute("aria-current", "page")
    chat.page.get_by_test_id("new-chat").click()
    expect(chat.messages).to_have_count(0)
    chat.page.go_back()
    expect(chat.messages).to_have_count(2)
    assert chat.shown() == text


def test_a_name_given_after_the_first_answer_is_shown(chat: Chat) -> None:
    person = chat.server.person()
    chat.ask("A boat")
    chat.page.wait_for_timeout(500)  # the list has been read again by then
    renamed = person.http.patch(f"/v1/conversations/{chat.conversation}", json={"title": "Boats at sea"})
    assert renamed.status_code == 200
    expect(chat.page).to_have_title("Boats at sea · Antiphon")
    expect(chat.page.get_by_test_id("sidebar-item").first).to_contain_text("Boats at sea")


def test_stop_and_continue(chat: Chat) -> None:
    chat.use("slow")
    chat.send("Go on")
    chat.growing()
    chat.page.get_by_test_id("stop").click()
    stopped = chat.ended("cancelled")
    assert chat.same_as_stored()
    chat.page.get_by_test_id("continue").click()
    expect(chat.page.get_by_test_id("stop")).to_be_visible()
    whole = chat.ended()
    assert whole.startswith(stopped)
    assert len(whole) > len(stopped)
    assert chat.same_as_stored()


def test_escape_stops_before_the_first_word(chat: Chat) -> None:
    chat.send("Never mind")
    chat.page.keyboard.press("Escape")
    chat.ended("cancelled")
    assert chat.same_as_stored()
    assert chat.ask("But this")


def test_edit_makes_a_branch_and_the_arrows_lead_back(chat: Chat) -> None:
    first = chat.ask("One")
    chat.messages.first.hover()
    chat.page.get_by_test_id("edit").click()
    chat.page.get_by_label("Edit message").fill("Another one")
    chat.page.get_by_label("Edit message").press("Enter")
    expect(chat.messages.first).to_contain_text("Another one")
    expect(chat.messages.first).to_contain_text("2/2")
    second = chat.ended()
    assert second != first
    chat.page.get_by_test_id("branch-prev").click()
    expect(chat.messages.first).to_contain_text("1/2")
    assert chat.shown() == first
    chat.page.reload()
    expect(chat.messages.first).to_contain_text("1/2")
    chat.page.get_by_test_id("branch-next").click()
    expect(chat.messages.first).to_contain_text("2/2")
    assert chat.shown() == second


def test_regenerate_keeps_both_answers(chat: Chat) -> None:
    chat.ask("Say something")
    chat.answer.get_by_test_id("regenerate").click()
    expect(chat.page.get_by_test_id("stop")).to_be_visible()
    chat.ended()
    expect(chat.answer).to_contain_text("2/2")
    expect(chat.messages).to_have_count(2)


def test_a_refusal_gives_the_text_back(chat: Chat) -> None:
    problem = {
        "type": "about:blank",
        "title": "Too fast",
        "status": 429,
        "code": "rate_limited",
        "detail": "Slow down.",
        "retry_after_ms": 900,
    }
    keys: list[str] = []

    def refuse(route: Route) -> None:
        keys.append(route.request.headers["idempotency-key"])
        route.fulfill(status=429, body=json.dumps(problem), content_type="application/problem+json")

    chat.page.route("**/messages", refuse)
    chat.send("Keep me")
    expect(chat.page.get_by_text("Slow down.")).to_be_visible()
    expect(chat.composer).to_have_value("Keep me")
    expect(chat.messages).to_have_count(0)
    expect(chat.page.get_by_test_id("send")).to_be_disabled()
    chat.page.unroute("**/messages")
    expect(chat.page.get_by_test_id("send")).to_be_enabled()
    expect(chat.page.get_by_test_id("notice")).to_have_count(0)
    chat.composer.press("Enter")
    chat.ended()
    assert len(keys) == 1


def test_a_lost_answer_to_a_send_is_not_a_second_send(chat: Chat) -> None:
    keys: list[str] = []

    def lose(route: Route) -> None:
        keys.append(route.request.headers["idempotency-key"])
        if len(keys) == 1:
            route.fetch()
            route.abort()
        else:
            route.continue_()

    chat.page.route("**/messages", lose)
    chat.ask("Once only")
    assert len(keys) == 2
    assert len(set(keys)) == 1
    chat.page.unroute("**/messages")
    chat.page.reload()
    expect(chat.messages).to_have_count(2)
    expect(chat.page.get_by_test_id("branch-prev")).to_have_count(0)


def test_drafts_stay_with_their_conversation(chat: Chat) -> None:
    chat.ask("A chat")
    chat.composer.fill("Half a thought")
    chat.page.get_by_test_id("new-chat").click()
    expect(chat.composer).to_have_value("")
    chat.page.go_back()
    expect(chat.composer).to_have_value("Half a thought")
    chat.page.reload()
    expect(chat.composer).to_have_value("Half a thought")


def test_enter_of_an_input_method_does_not_send(page: Page, chat: Chat) -> None:
    chat.composer.fill("にほんご")
    chat.composer.dispatch_event("keydown", {"key": "Enter", "isComposing": True, "bubbles": True})
    chat.composer.press("Shift+Enter")
    expect(chat.composer).to_have_value("にほんご\n")
    expect(chat.messages).to_have_count(0)


def test_a_message_written_meanwhile_is_sent_next(chat: Chat) -> None:
    chat.send("First")
    chat.growing()
    chat.send("Second")
    expect(chat.page.get_by_text("Next: Second")).to_be_visible()
    expect(chat.messages).to_have_count(4)
    chat.ended()


def test_rename_and_delete(chat: Chat) -> None:
    chat.ask("A chat to delete")
    item = chat.page.get_by_test_id("sidebar-item").first
    item.dblclick()
    chat.page.get_by_label("Chat title").fill("Renamed")
    chat.page.get_by_label("Chat title").press("Enter")
    expect(item).to_have_text("Renamed")
    expect(chat.page).to_have_title("Renamed · Antiphon")
    chat.page.get_by_role("button", name="Options for Renamed").click()
    chat.page.get_by_role("menuitem", name="Delete").click()
    expect(chat.page.get_by_text("Renamed", exact=True)).to_have_count(0)
    expect(chat.messages).to_have_count(0)
    assert chat.page.url.rstrip("/") == chat.server.url
    chat.page.get_by_role("button", name="Undo").click()
    expect(chat.messages).to_have_count(2)
    expect(item).to_have_text("Renamed")
    conversation = chat.conversation
    chat.page.get_by_role("button", name="Options for Renamed").click()
    chat.page.get_by_role("menuitem", name="Delete").click()
    expect(chat.page.get_by_text("Renamed", exact=True)).to_have_count(0)
    chat.page.reload()  # leaving the page settles it
    person = chat.server.person()
    eventually(lambda: person.http.get(f"/v1/conversations/{conversation}").status_code == 404, within_s=10, what="it is gone")


def test_hostile_text_stays_text(chat: Chat) -> None:
    hostile = "<img src=x onerror=alert(1)> <script>alert(2)</script> [a](javascript:alert(3)) ![b](https://example.invalid/b.png)"
    chat.page.get_by_role("button", name="Model: small").click()
    chat.page.get_by_role("menuitemradio", name="nasty").click()
    chat.ask(hostile)
    expect(chat.messages.first.locator(".bubble")).to_have_text(hostile)
    for _ in range(4):
        chat.ask("more")
    assert chat.page.locator("#app img, #app script, #app iframe, #app a[href^=javascript]").count() == 0


def test_a_conversation_that_is_not_there(chat: Chat) -> None:
    chat.page.goto(f"{chat.server.url}/c/conv_00000000-0000-7000-8000-000000000000")
    expect(chat.page.get_by_text("This chat does not exist")).to_be_visible()
