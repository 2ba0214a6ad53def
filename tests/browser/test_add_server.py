"""A server that people already have, added where they look for models. It is this very server, which speaks OpenAI's shapes too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.axe import serious_findings
from tests.browser.chat import Chat


@pytest.mark.slow
def test_an_owner_adds_a_model_of_another_server_and_chats_with_it(chat: Chat) -> None:
    page, server = chat.page, chat.server
    _open(chat)
    section = page.get_by_test_id("add-server")
    section.get_by_label("Address, like").fill("http://127.0.0.1:9/v1")
    section.get_by_role("button", name="Ask what it offers").click()
    expect(section.get_by_role("alert")).to_contain_text("cannot be reached")

    section.get_by_label("Address, like").fill(f"{server.url}/v1")
    section.get_by_label("Key, if it needs one").fill(server.key())
    section.get_by_role("button", name="Ask what it offers").click()
    section.get_by_label("Model", exact=True).select_option("small")
    section.get_by_label("What to call it (the model's name)").fill("far")
    section.scroll_into_view_if_needed()
    assert serious_findings(page) == []
    _picture(chat, "add-server")
    section.get_by_role("button", name="Add the model").click()
    expect(page.locator(".toast")).to_contain_text("far is there now.")
    expect(section.get_by_label("Key, if it needs one")).to_have_value("")
    expect(page.locator("#tab-panel b", has_text="far")).to_be_visible()
    _picture(chat, "added-server")

    page.keyboard.press("Escape")
    chat.use("far")
    chat.send("hello")
    chat.growing()
    page.get_by_test_id("stop").click()
    chat.ended("cancelled")

    _open(chat)
    section.get_by_role("button", name="Remove far").click()
    expect(section.get_by_role("button", name="Remove far")).to_have_count(0)
    expect(page.locator("#tab-panel b", has_text="far")).to_have_count(0)


def _open(chat: Chat) -> None:
    chat.page.locator(".account").click()
    chat.page.get_by_role("menuitem", name="Settings").click()
    chat.page.get_by_role("tab", name="Models").click()


def _picture(chat: Chat, name: str) -> None:
    folder = os.environ.get("ANTIPHON_PICTURES")
    if folder:
        chat.page.screenshot(path=Path(folder) / f"{name}.png")
