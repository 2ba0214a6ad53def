"""What is behind a share link: the client for a person's browser, the texts alone for everything else."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from antiphon.core.ids import ConversationId, ShareId, TenantId, UserId
from antiphon.core.messages import Role
from antiphon.edge.shared_page import client_page, plain_page
from antiphon.inference.gateway import Gateway
from antiphon.stores.shares.base import Share, SharedMessage
from tests.edge.site import Site

HOSTILE = "</noscript><script>alert(1)</script>\\1 \\g<0>"
CLIENT = """<!doctype html><html><head><meta name="referrer" content="same-origin" /><title>Antiphon</title>
<script type="module" src="/assets/index.js"></script></head>
<body><div id="shell" aria-hidden="true"></div><div id="app"></div><noscript>It needs JavaScript.</noscript></body></html>"""
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def _share() -> Share:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    messages = (SharedMessage(Role.USER, HOSTILE, None, moment), SharedMessage(Role.ASSISTANT, "said", "small", moment))
    return Share(ShareId("share_1"), TenantId("t"), UserId("u"), ConversationId("conv_1"), "token", HOSTILE, messages, moment)


def test_no_text_of_a_share_is_markup() -> None:
    for page in (plain_page(_share()), client_page(CLIENT, _share())):
        assert "<script>" not in page and page.count("</noscript>") <= 1
        assert page.count("&lt;/noscript&gt;&lt;script&gt;alert(1)&lt;/script&gt;\\1 \\g&lt;0&gt;") == 3, "title, heading, message"
        assert page.count("noindex,nofollow") == 1


def test_the_clients_page_keeps_its_code_and_shows_no_shell() -> None:
    page = client_page(CLIENT, _share())
    assert '<script type="module" src="/assets/index.js">' in page and 'id="shell" hidden' in page
    assert "referrer" not in page and "JavaScript" not in page


@pytest.mark.parametrize("built", [True, False])
async def test_a_browser_gets_the_client_and_a_program_the_texts(gateway: Gateway, tmp_path: Path, built: bool) -> None:
    if built:
        (tmp_path / "index.html").write_text(CLIENT)
    site = Site(gateway, static_dir=tmp_path)
    await site.open()
    try:
        ann = await site.person("ann")
        conversation = await ann.conversation(title="Of trees")
        await ann.send(conversation)
        url = (await ann.http.post(f"/v1/conversations/{conversation}/share")).json()["url"]
        shown, told = await site.client().get(url, headers=BROWSER), await site.client().get(url)
        assert (shown.status_code, told.status_code) == (200, 200)
        assert ("/assets/index.js" in shown.text, "/assets/index.js" in told.text) == (built, False)
        for page in (shown, told):
            assert "<title>Of trees</title>" in page.text and page.headers["vary"] == "Accept"
            assert page.headers["referrer-policy"] == "no-referrer" and "no-store" in page.headers["cache-control"]
    finally:
        await site.close()
