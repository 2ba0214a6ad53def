from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chat import Chat
from tests.edge.identity_provider import CLIENT, SECRET, Provider
from tests.system.served import Server, reference_config

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


def test_who_is_invited_chooses_a_password_and_signs_in_with_it(browser: Browser, server: Server) -> None:
    server.command("users", "create", "pat")
    context = browser.new_context()
    page = context.new_page()
    page.goto(server.command("link", "--user", "pat"))
    expect(page.get_by_role("heading", name="Choose a password")).to_be_visible()
    expect(page.get_by_label("Name", exact=True)).to_have_value("pat")
    expect(page.get_by_text("At least 8 characters")).to_be_visible()
    expect(page.get_by_role("button", name="Not now")).to_have_count(0)
    page.reload()
    wanted = page.get_by_label("New password", exact=True)
    expect(wanted).to_be_focused()
    for poor, reason in (("short", "at least 8 characters"), ("aaaaaaaaaaaa", "too easy to guess")):
        wanted.fill(poor)
        wanted.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text(reason)
        expect(wanted).to_be_focused()
    wanted.fill("four quiet zeppelins")
    page.get_by_label("Show password").check()
    expect(wanted).to_have_attribute("type", "text")
    page.get_by_role("button", name="Set password").click()
    expect(page.get_by_test_id("composer")).to_be_visible()
    page.reload()
    expect(page.get_by_test_id("composer")).to_be_visible()
    context.clear_cookies()
    page.reload()
    page.get_by_label("Name", exact=True).fill("pat")
    page.get_by_label("Password", exact=True).fill("four loud zeppelins")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("status")).to_contain_text("do not match")
    page.get_by_label("Password", exact=True).fill("four quiet zeppelins")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_test_id("composer")).to_be_visible()
    page.goto(server.command("link", "--user", "pat"))
    expect(page.get_by_test_id("composer")).to_be_visible()  # there is a password: nothing is asked
    context.close()


@pytest.fixture
def provider() -> Iterator[Provider]:
    """One on a loop of its own."""
    provider, loop = Provider(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(provider.open(), loop).result(10)
    yield provider
    asyncio.run_coroutine_threadsafe(provider.close(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_a_provider_signs_in(browser: Browser, provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OIDC_SECRET", SECRET)
    table = f"""
[[providers]]
name = "work"
label = "Example Ltd"
issuer = "{provider.issuer}"
client_id = "{CLIENT}"
client_secret_env = "OIDC_SECRET"
domains = ["example.com"]
"""
    server = Server(tmp_path / "data", reference_config(extra=table))
    server.start()
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(server.url)
        page.get_by_role("link", name="Sign in with Example Ltd").click()
        expect(page.get_by_test_id("composer")).to_be_visible()
        assert page.url == f"{server.url}/"
        assert page.evaluate("fetch('/v1/me').then(answer => answer.json()).then(me => me.name)") == "Ada"
        context.clear_cookies()
        page.goto(server.command("link", "--user", "Ada"))
        page.get_by_role("button", name="Not now").click()  # she has another way in
        expect(page.get_by_test_id("composer")).to_be_visible()
        provider.person["sub"], provider.person["email"] = "666", "eve@evil.example"
        context.clear_cookies()
        page.reload()
        page.get_by_role("link", name="Sign in with Example Ltd").click()
        expect(page.get_by_role("heading")).to_have_text("Not signed in with Example Ltd")
        page.get_by_role("link", name="Back to the sign-in page").click()
        expect(page.get_by_label("Password", exact=True)).to_be_visible()
    finally:
        context.close()
        server.end()
