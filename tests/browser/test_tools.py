"""What stands around the conversation: search, folders, shares, import and export, settings, attachments, branches, ratings."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from tests.browser.chat import Chat
from tests.system.served import Server

pytestmark = pytest.mark.browser


def _open_settings(chat: Chat, tab: str) -> None:
    chat.page.get_by_role("button", name="Account").click()
    chat.page.get_by_role("menuitem", name="Settings").click()
    chat.page.get_by_role("tab", name=tab).click()


def test_search_opens_at_the_message(chat: Chat) -> None:
    chat.ask("A sentence about an okapi")
    chat.ask("Another sentence")
    chat.page.get_by_test_id("new-chat").click()
    chat.page.get_by_test_id("search").click()
    chat.page.get_by_test_id("search-field").fill("okapi")
    found = chat.page.get_by_test_id("search-result").filter(has=chat.page.locator("mark"))
    expect(found.first.locator("mark")).to_have_text("okapi")
    found.first.click()
    expect(chat.messages).to_have_count(4)
    expect(chat.page.locator(".message.found")).to_contain_text("okapi")


def test_pin_folder_and_archive(chat: Chat) -> None:
    chat.ask("To be kept in order")
    page = chat.page
    options = page.get_by_role("button", name="Options for To be kept in order")
    options.click()
    page.get_by_role("menuitem", name="Pin", exact=True).click()
    expect(page.get_by_role("region", name="Pinned").get_by_test_id("sidebar-item")).to_have_text("To be kept in order")
    options.click()
    page.get_by_role("menuitem", name="Unpin").click()
    options.click()
    page.get_by_role("menuitem", name="Move to folder").click()
    page.get_by_label("New folder").fill("Order")
    page.get_by_role("button", name="Create").click()
    folder = page.get_by_role("button", name="Order 1")
    folder.click()
    expect(page.get_by_role("region", name="Folders").get_by_test_id("sidebar-item")).to_have_text("To be kept in order")
    page.reload()
    expect(page.get_by_role("region", name="Folders").get_by_test_id("sidebar-item")).to_have_text("To be kept in order")
    options.click()
    page.get_by_role("menuitem", name="Archive").click()
    expect(options).to_have_count(0)
    expect(chat.messages).to_have_count(0)
    _open_settings(chat, "Data")
    page.get_by_role("listitem").filter(has_text="To be kept in order").get_by_role("button", name="Unarchive").click()
    page.keyboard.press("Escape")
    expect(options).to_have_count(1)


def test_a_share_can_be_read_and_revoked(chat: Chat, browser: Browser) -> None:
    chat.use("echo")
    chat.ask("To be **shared**")
    chat.page.get_by_role("button", name="Share", exact=True).click()
    chat.page.get_by_test_id("share-create").click()
    url = chat.page.get_by_test_id("share-url").input_value()
    assert "To be **shared**" in httpx.get(url, trust_env=False).text
    anybody = browser.new_page()
    anybody.goto(url)
    expect(anybody.locator(".bubble")).to_have_text("To be **shared**")
    expect(anybody.locator(".prose strong")).to_have_text("shared")
    chat.page.get_by_role("button", name="Revoke").click()
    expect(chat.page.get_by_role("button", name="Revoke")).to_have_count(0)
    assert httpx.get(url, trust_env=False).status_code == 404
    anybody.reload()
    expect(anybody.get_by_role("heading", name="There is nothing here")).to_be_visible()
    anybody.close()


def test_an_import_reports_and_an_export_brings_it_back(chat: Chat, tmp_path: Path) -> None:
    whole = {
        "id": "conv_0000000b-0000-7000-8000-000000000000",
        "title": "Brought along",
        "messages": [{"id": "msg_0000000b-0000-7000-8000-000000000000", "parent_id": None, "role": "user", "content": "From elsewhere"}],
    }
    file = tmp_path / "brought.jsonl"
    file.write_text('{"antiphon_export":1}\n' + json.dumps(whole) + "\n" + '{"id":"conv_broken","messages":[{"role":"user"}]}\n')
    _open_settings(chat, "Data")
    chat.page.get_by_test_id("import-file").set_input_files(file)
    report = chat.page.get_by_test_id("import-report")
    expect(report).to_contain_text("1 imported · 0 skipped · 1 failed")
    chat.page.get_by_test_id("import-file").set_input_files(file)
    expect(report).to_contain_text("0 imported · 1 skipped · 1 failed")
    with chat.page.expect_download() as downloading:
        chat.page.get_by_test_id("export-antiphon").click()
    downloading.value.save_as(tmp_path / "export.jsonl")
    assert "From elsewhere" in (tmp_path / "export.jsonl").read_text()


def test_a_long_paste_becomes_an_attachment(chat: Chat) -> None:
    long = "".join(f"{number} ```` x\n" for number in range(210))
    chat.composer.fill("What is this?")
    chat.paste(long)
    expect(chat.page.get_by_test_id("attachment")).to_contain_text("211 lines")
    expect(chat.composer).to_have_value("What is this?")
    chat.page.reload()
    expect(chat.page.get_by_test_id("attachment")).to_have_count(1)
    chat.composer.press("Enter")
    chat.ended()
    expect(chat.page.get_by_test_id("attachment")).to_have_count(0)
    expect(chat.messages.first.locator(".bubble")).to_have_text("What is this?")
    chat.messages.first.locator("summary").click()
    assert chat.messages.first.locator("pre").inner_text().strip() == long.strip()
    sent = chat.server.person().http.get(f"/v1/conversations/{chat.conversation}/messages").json()["data"][0]["content"]
    assert long in sent


def test_a_paste_can_be_put_into_the_message(chat: Chat) -> None:
    chat.paste("word " * 2000)
    chat.page.get_by_role("button", name="put into the message").click()
    expect(chat.page.get_by_test_id("attachment")).to_have_count(0)
    assert len(chat.composer.input_value()) == 10_000


def test_what_is_too_large_is_said_before_it_is_sent(chat: Chat) -> None:
    chat.paste("0123456789\n" * 100_000)
    expect(chat.page.get_by_role("alert")).to_contain_text("at most 256 kB can be sent")
    expect(chat.page.get_by_test_id("send")).to_be_disabled()
    chat.page.get_by_role("button", name=re.compile("Remove Pasted")).click()
    expect(chat.page.get_by_role("alert")).to_have_count(0)


def test_a_temporary_chat_leaves_nothing(chat: Chat) -> None:
    chat.page.get_by_test_id("temporary").click()
    chat.ask("Forget this zymurgy")
    expect(chat.page.locator(".composer.temporary")).to_be_visible()
    expect(chat.page.get_by_title("Forget this zymurgy")).to_have_count(0)
    assert chat.server.person().http.get("/v1/search", params={"q": "zymurgy"}).json()["data"] == []
    chat.page.get_by_test_id("new-chat").click()
    expect(chat.page.locator(".composer.temporary")).to_have_count(0)


def test_a_branch_goes_to_a_new_chat(chat: Chat) -> None:
    first = chat.ask("One")
    chat.ask("Two")
    origin = chat.conversation
    answer = chat.page.locator("[data-testid=message][data-role=assistant]").first
    answer.hover()
    answer.get_by_role("button", name="More").click()
    chat.page.get_by_role("menuitem", name="Branch to a new chat").click()
    expect(chat.messages).to_have_count(2)
    assert chat.conversation != origin
    assert chat.shown() == first
    chat.ask("Three")
    expect(chat.messages).to_have_count(4)


def test_a_rating_with_its_reasons_is_kept(chat: Chat) -> None:
    chat.ask("Rate this")
    chat.answer.get_by_test_id("thumb-down").click()
    expect(chat.answer.get_by_test_id("thumb-down")).to_have_attribute("aria-pressed", "true")
    chat.page.get_by_role("button", name="Too long").click()
    chat.page.get_by_label("Say more, if you like").fill("Much too long")
    chat.page.get_by_role("button", name="Submit").click()
    expect(chat.page.get_by_test_id("reasons")).to_have_count(0)
    kept = chat.server.person().http.get("/v1/admin/feedback").json()["data"][0]
    assert (kept["rating"], kept["reasons"], kept["comment"]) == (-1, ["too_long"], "Much too long")
    chat.page.reload()
    expect(chat.answer.get_by_test_id("thumb-down")).to_have_attribute("aria-pressed", "true")
    expect(chat.answer.get_by_test_id("thumb-up")).to_have_attribute("aria-pressed", "false")


def test_regenerate_with_another_model(chat: Chat) -> None:
    chat.ask("With another one")
    chat.answer.get_by_role("button", name="Regenerate with another model").click()
    chat.page.get_by_role("menuitem", name="echo").click()
    expect(chat.answer).to_contain_text("2/2")
    assert chat.ended() == "With another one"


def test_instructions_reach_the_next_prompt(chat: Chat) -> None:
    _open_settings(chat, "Personal")
    chat.page.get_by_label("Custom instructions").fill("Answer like a botanist.")
    chat.page.get_by_role("button", name="Save").click()
    chat.page.get_by_label("Remember", exact=True).fill("I grow ferns")
    chat.page.get_by_role("button", name="Remember").click()
    expect(chat.page.get_by_role("button", name="Forget: I grow ferns")).to_be_visible()
    chat.page.keyboard.press("Escape")
    chat.ask("Something")
    chat.answer.get_by_test_id("info").click()
    chat.page.get_by_role("button", name="What the model read").click()
    read = chat.page.get_by_role("dialog", name="What the model read")
    expect(read).to_contain_text("Answer like a botanist.")
    expect(read).to_contain_text("I grow ferns")
    for address in ("/v1/me/instructions",):
        chat.server.person().http.put(address, json={"text": ""})


def test_formulas_diagrams_tables_and_pictures(chat: Chat, context: BrowserContext) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    chat.use("echo")
    parts = (
        "$x^2$ for $5 and $6",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "```mermaid\ngraph TD\n  A --> B\n```",
        "```mermaid\nnot a diagram at all\n```",
        "![tree](https://pictures.invalid/tree.png)",
        "```js\nconst a = 1;\n```",
    )
    chat.ask("\n\n".join(parts))
    page = chat.page
    expect(chat.answer.locator(".formula")).to_have_count(1)
    expect(chat.answer.locator("iframe.diagram[data-drawn]")).to_have_count(1)
    expect(chat.answer.locator(".code.mermaid:not(.drawn) pre")).to_be_visible()
    page.get_by_role("button", name="Source").click()
    expect(chat.answer.locator(".code.mermaid.as-source pre")).to_be_visible()
    chat.answer.locator(".table").hover()
    page.get_by_role("button", name="Copy table").click()
    assert page.evaluate("navigator.clipboard.readText()") == "a\tb\n1\t2"
    page.keyboard.press("Control+Shift+;")
    expect(page.get_by_test_id("toast")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "const a = 1;"
    assert page.locator(".prose img").count() == 0
    expect(page.get_by_role("button", name="Load picture “tree” from pictures.invalid")).to_be_visible()


def test_a_password_is_set_and_other_browsers_are_signed_out(browser: Browser, server: Server) -> None:
    server.command("users", "create", "robin")
    first, second = browser.new_context(), browser.new_context()
    pages = [context.new_page() for context in (first, second)]
    for number, page in enumerate(pages):
        page.goto(server.command("link", "--user", "robin"))
        if number == 0:  # the second time there is one
            page.get_by_label("New password", exact=True).fill("seven slow submarines")
            page.get_by_role("button", name="Set password").click()
        expect(page.get_by_test_id("composer")).to_be_visible()
    chat = Chat(pages[0], server)
    _open_settings(chat, "Account")
    sessions = chat.page.get_by_test_id("sessions")
    expect(sessions.get_by_text("Chrome · Linux")).to_have_count(2)
    sessions.get_by_role("button", name="Sign out").click()
    expect(sessions.get_by_role("button", name="Sign out")).to_have_count(0)
    pages[1].reload()
    expect(pages[1].get_by_label("Sign-in link")).to_be_visible()
    tries = (
        ("", "short", "Use at least 8 characters."),
        ("seven slow submarines", "four quiet zeppelins", "Password set."),
        ("wrong", "four loud zeppelins", "This is not your current password."),
    )
    for before, after, told in tries:
        chat.page.get_by_role("button", name="Change").click()
        chat.page.get_by_label("Current password").fill(before)
        chat.page.get_by_label("New password").fill(after)
        chat.page.get_by_role("button", name="Save").click()
        expect(chat.page.get_by_text(told, exact=True).first).to_be_visible()
        if chat.page.get_by_label("New password").count():
            chat.page.get_by_role("button", name="Cancel").click()
    for context in (first, second):
        context.close()


def test_footnotes(chat: Chat) -> None:
    chat.use("echo")
    chat.ask("Redwoods[^1] are tall[^two].\n\n[^1]: the *tallest*\n[^two]: https://example.invalid/trees")
    expect(chat.answer.get_by_role("button", name="Footnote 1")).to_have_text("1")
    expect(chat.answer.locator(".footnote")).to_have_text(["1 the tallest", "two https://example.invalid/trees"])


def test_what_is_left_of_a_limit_is_in_the_menu(chat: Chat) -> None:
    chat.page.get_by_role("button", name="Account").click()
    chat.page.get_by_role("menuitem", name=re.compile("Usage")).click()
    expect(chat.page.get_by_role("tab", name="Usage")).to_have_attribute("aria-selected", "true")


def test_copying_works_without_https(chat: Chat) -> None:
    chat.page.add_init_script("Object.defineProperty(Navigator.prototype, 'clipboard', { value: undefined })")
    chat.page.goto(chat.server.url)
    text = chat.ask("Copy this")
    chat.answer.get_by_test_id("copy").click()
    expect(chat.answer.get_by_role("button", name="Copied")).to_be_visible()
    chat.composer.press("Control+V")
    expect(chat.composer).to_have_value(text)
    chat.composer.fill("")
    chat.page.get_by_role("button", name="Share", exact=True).click()
    chat.page.get_by_test_id("share-create").click()
    url = chat.page.get_by_test_id("share-url").input_value()
    chat.page.get_by_role("dialog").get_by_role("button", name="Copy").click()
    expect(chat.page.get_by_test_id("toast")).to_contain_text("Link copied")
    chat.page.keyboard.press("Escape")
    chat.composer.press("Control+V")
    expect(chat.composer).to_have_value(url)


def test_a_menu_closes_by_its_own_button(chat: Chat) -> None:
    account = chat.page.get_by_role("button", name="Account")
    for shown in (1, 0, 1, 0):
        account.click()
        expect(chat.page.get_by_role("menu", name="Account")).to_have_count(shown)
    account.click()
    chat.page.keyboard.press("Escape")
    expect(account).to_be_focused()


def test_the_operator_invites_and_keeps_out(chat: Chat, browser: Browser) -> None:
    page = chat.page
    page.goto(f"{chat.server.url}/operator")
    page.get_by_test_id("people").locator("summary").click()
    page.get_by_label("Name of the new person").fill("kim")
    page.get_by_role("button", name="Invite").click()
    link = page.get_by_test_id("invitation").get_by_label("Sign-in link").input_value()
    kim = page.get_by_test_id("person").filter(has_text="kim")
    kim.get_by_label("Role: kim").select_option("admin")
    expect(kim.get_by_label("Role: kim")).to_have_value("admin")
    guest = browser.new_context().new_page()
    guest.goto(link)
    guest.get_by_label("New password", exact=True).fill("seven slow submarines")
    guest.get_by_role("button", name="Set password").click()
    expect(guest.get_by_role("button", name="Account: kim")).to_be_visible()
    kim.get_by_role("button", name="Keep out").click()
    expect(kim.get_by_role("button", name="Let in again")).to_be_visible()
    guest.reload()
    expect(guest.get_by_label("Sign-in link")).to_be_visible()
    guest.context.close()
    for name in ("Plans", "API keys", "This month", "Audit"):
        page.locator("summary").filter(has_text=name).click()
    expect(page.get_by_role("cell", name="user.invite")).not_to_have_count(0)
    expect(page.get_by_role("row", name=re.compile("free.*standard"))).to_be_visible()


def test_the_operator_sees_pools(chat: Chat) -> None:
    chat.page.goto(f"{chat.server.url}/operator")
    pool = chat.page.get_by_role("region", name="small")
    expect(pool).to_contain_text("small-0")
    expect(pool).to_contain_text("Tokens/s")
    chat.page.get_by_test_id("new-chat").click()
    expect(chat.composer).to_be_visible()
