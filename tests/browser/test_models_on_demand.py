"""A model that is not in memory, in the window: it says so before it is asked, starts with a time, and answers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chat import Chat
from tests.system.served import Server, started
from tests.system.test_models_on_demand import CONFIG

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("on-demand") / "data", CONFIG) as made:
        yield made


def seen(page: Page, name: str) -> None:
    """Keep a picture where somebody asks for one."""
    if folder := os.environ.get("ANTIPHON_SEEN"):
        page.screenshot(path=Path(folder) / f"{name}.png")


def test_a_model_that_is_away_is_started_in_sight(page: Page, server: Server) -> None:
    chat, person = Chat(page, server), server.person()
    person.send(person.new_conversation(), "hold", model="a", params={"max_tokens": 240})
    page.locator(".model-picker").click()
    choice = page.get_by_role("menuitemradio", name="reference-b")
    expect(choice).to_contain_text("Starts when you ask")
    seen(page, "away")
    choice.click()
    chat.send("And you?")
    status = page.get_by_test_id("status")
    expect(status).to_have_text(re.compile(r"^Starting the model · about \d+ sec$"))
    seen(page, "starting")
    first = status.inner_text()
    expect(status).not_to_have_text(first)
    operator = page.context.new_page()
    operator.goto(f"{server.url}/operator")
    pools = operator.get_by_test_id("pool")
    expect(pools.nth(2)).to_contain_text("Not in memory")
    expect(pools.nth(2).get_by_role("table")).to_be_hidden()
    seen(operator, "operator")
    expect(chat.answer.locator(".prose")).not_to_be_empty()
    expect(pools.nth(1)).to_contain_text("b-0")
    expect(pools.nth(0)).to_contain_text("Not in memory")
    chat.page.get_by_test_id("stop").click()
    expect(chat.answer).to_have_attribute("data-status", "cancelled")
