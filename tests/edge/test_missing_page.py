"""An address that leads nowhere: a page for a person's browser, a problem for a program."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.inference.gateway import Gateway
from tests.edge.site import Site

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
async def pages(gateway: Gateway, tmp_path: Path) -> AsyncIterator[Site]:
    (tmp_path / "index.html").write_text("<!doctype html><title>the client</title>")
    site = Site(gateway, static_dir=tmp_path)
    await site.open()
    yield site
    await site.close()


@pytest.mark.parametrize("path", ["/nowhere", "/c/", "/c/a/b", "/operator/x", "/s/gone", "/index.htm", "/%00", "/..%2f"])
async def test_a_browser_is_shown_the_client_and_a_program_told(pages: Site, path: str) -> None:
    http = pages.client()
    shown = await http.get(path, headers=BROWSER)
    assert (shown.status_code, shown.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "the client" in shown.text
    assert "script-src 'self'" in shown.headers["content-security-policy"] and shown.headers["x-request-id"]
    told = await http.get(path)
    assert told.status_code == 404 and told.json()["code"] == "not_found"


async def test_the_api_answers_browsers_as_it_answers_programs(pages: Site) -> None:
    http = pages.client()
    for answer in (await http.get("/v1/nothing", headers=BROWSER), await http.post("/nowhere", headers=BROWSER)):
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    head = await http.head("/nowhere", headers=BROWSER)
    assert head.status_code == 404 and head.content == b""
