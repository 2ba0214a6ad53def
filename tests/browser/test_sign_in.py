from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chat import Chat
from tests.system.served import Server

pytestmark = pytest.mark.browser


def test_a_link_signs_in_and_leaves_no_token_behind(browser: Browser, server: Server) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(server.command("link"))
    expect(page.get_by_test_id("composer")).to_be_focused()
    assert "token" not in page.url
    assert "token" not in page.evaluate("JSON.stringify(localStorage) + JSON.stringify(history.state)")
    context.close()


def test_without_a_session_the_page_says_what_to_do(browser: Browser, server: Server) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{server.url}/?token=wrong")
    expect(page.get_by_text("antiphon link", exact=True)).to_be_visible()
    expect(page.get_by_role("status")).to_contain_text("expired or was already used")
    assert "token" not in page.url
    page.get_by_label("Sign-in link").fill(server.command("link"))
    page.get_by_role("button", name="Use link").click()
    expect(page.get_by_test_id("composer")).to_be_visible()
    context.close()


def test_sign_out(browser: Browser, server: Server) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(server.command("link"))
    page.get_by_role("button", name="Account").click()
    page.get_by_role("menuitem", name="Sign out").click()
    expect(page.get_by_text("antiphon link", exact=True)).to_be_visible()
    page.reload()
    expect(page.get_by_text("antiphon link", exact=True)).to_be_visible()
    context.close()


def test_a_session_that_ends_in_between_keeps_the_text(chat: Chat) -> None:
    chat.page.context.clear_cookies()
    chat.send("Do not lose this")
    expect(chat.page.get_by_text("antiphon link", exact=True)).to_be_visible()
    chat.page.get_by_label("Sign-in link").fill(chat.server.command("link"))
    chat.page.get_by_role("button", name="Use link").click()
    expect(chat.composer).to_have_value("Do not lose this")


def test_a_name_and_its_password_sign_in(browser: Browser, server: Server) -> None:
    server.command("users", "create", "pat")
    context = browser.new_context()
    page = context.new_page()
    page.goto(server.command("link", "--user", "pat"))
    expect(page.get_by_test_id("composer")).to_be_visible()
    put = "word => fetch('/v1/me/password', {method: 'PUT', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(word)})"
    assert page.evaluate(f"({put})({{password: 'four quiet zeppelins'}}).then(answer => answer.status)") == 204
    context.clear_cookies()
    page.reload()
    page.get_by_label("Name", exact=True).fill("pat")
    page.get_by_label("Password", exact=True).fill("four loud zeppelins")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("status")).to_contain_text("do not match")
    page.get_by_label("Password", exact=True).fill("four quiet zeppelins")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_test_id("composer")).to_be_visible()
    context.close()
