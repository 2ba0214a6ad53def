"""Signing in at an identity provider: a real one on a port, a real server, and a browser that follows redirects."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc.jwk import RSAKey

from antiphon.core.tenancy import UserRole
from antiphon.edge.oidc import ProviderSettings
from antiphon.inference.gateway import Gateway
from tests.edge.identity_provider import CLIENT, SECRET, Provider
from tests.edge.site import Site

START = "/v1/session/providers/one"


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    provider = Provider()
    await provider.open()
    yield provider
    await provider.close()


@pytest.fixture
async def second() -> AsyncIterator[Provider]:
    provider = Provider(in_body=True)
    await provider.open()
    yield provider
    await provider.close()


@pytest.fixture
async def door(gateway: Gateway, provider: Provider, second: Provider) -> AsyncIterator[Site]:
    one = ProviderSettings("one", "One <Ltd>", provider.issuer, CLIENT, SECRET, ("example.com",), "home", "free")
    two = ProviderSettings("two", "Two", second.issuer, CLIENT, SECRET, ("*",), "home", "free")
    site = Site(gateway, providers=(one, two))
    await site.open()
    yield site
    await site.close()


async def sign_in(site: Site, start: str = START, browser: httpx.AsyncClient | None = None) -> tuple[httpx.Response, httpx.AsyncClient]:
    """What the browser shows after it was sent away and back, and the browser."""
    browser = browser or site.client()
    answer = await browser.get(start)
    while answer.status_code in {302, 303} and answer.headers["location"] != "/":
        answer = await browser.get(answer.headers["location"])
    return answer, browser


async def test_somebody_new_comes_in_and_is_the_same_ever_after(door: Site, provider: Provider) -> None:
    listed = await door.client().get("/v1/session/providers")
    assert listed.json() == {"data": [{"name": "one", "label": "One <Ltd>"}, {"name": "two", "label": "Two"}]}
    answer, browser = await sign_in(door)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    me = (await browser.get("/v1/me")).json()
    assert (me["name"], me["role"], me["plan"]) == ("Ada", "member", "free")
    password = (await browser.get("/v1/me/password")).json()
    assert (password["asked"], password["skippable"]) == (True, True), "by a link too she would have another way back in"
    provider.person |= {"name": "Countess of Lovelace", "email": "other@elsewhere.example"}
    _, again = await sign_in(door)
    assert (await again.get("/v1/me")).json() == me, "known by issuer and subject, whatever else changes"
    assert [cookie.name for cookie in browser.cookies.jar] == ["antiphon_session"]


async def test_the_same_address_at_two_providers_is_two_people(door: Site) -> None:
    _, first = await sign_in(door)
    _, other = await sign_in(door, "/v1/session/providers/two")
    names = [(await browser.get("/v1/me")).json() for browser in (first, other)]
    assert names[0]["user_id"] != names[1]["user_id"]
    assert [one["name"] for one in names] == ["Ada", "Ada (2)"]


@pytest.mark.parametrize(
    "person",
    [
        {"sub": "1", "name": "Eve", "email": "eve@evil.example", "email_verified": True},
        {"sub": "1", "name": "Eve", "email": "eve@example.com", "email_verified": False},
        {"sub": "1", "name": "Eve", "email": "eve@example.com"},
        {"sub": "1", "name": "Eve", "email": "eve@example.com", "email_verified": "true"},
        {"sub": "1", "name": "Eve", "email": "eve@example.com.evil.example", "email_verified": True},
        {"sub": "1", "name": "Eve"},
    ],
)
async def test_strangers_stay_out(person: dict[str, object], door: Site, provider: Provider) -> None:
    provider.person = person
    users = len(door.state.users)
    answer, browser = await sign_in(door)
    assert answer.status_code == 403 and "not admitted" in answer.text and "One &lt;Ltd&gt;" in answer.text
    assert (await browser.get("/v1/me")).status_code == 401
    assert len(door.state.users) == users


async def test_an_address_from_userinfo_counts_if_it_is_about_the_same_person(door: Site, provider: Provider) -> None:
    provider.person = {"sub": "7"}
    provider.userinfo = {"sub": "8", "email": "ada@example.com", "email_verified": True}
    answer, _ = await sign_in(door)
    assert answer.status_code == 502
    provider.userinfo["sub"] = "7"
    answer, browser = await sign_in(door)
    assert answer.status_code == 303
    assert (await browser.get("/v1/me")).json()["name"] == "ada@example.com"


async def test_a_disabled_user_stays_out_and_gets_no_second_account(door: Site) -> None:
    _, browser = await sign_in(door)
    me = (await browser.get("/v1/me")).json()
    await door.accounts.disable_user(me["user_id"])
    users = len(door.state.users)
    answer, _ = await sign_in(door)
    assert answer.status_code == 403
    assert len(door.state.users) == users


async def test_a_name_that_is_taken_gives_no_rights(door: Site, provider: Provider) -> None:
    boss = await door.person("boss", role=UserRole.OWNER)
    provider.person["name"] = "boss"
    _, browser = await sign_in(door)
    me = (await browser.get("/v1/me")).json()
    assert (me["name"], me["role"]) == ("boss (2)", "member")
    assert me["user_id"] != boss.user.id


async def test_only_the_browser_that_left_comes_back(door: Site, provider: Provider) -> None:
    """State, cookie and provider belong together; a code is used once."""
    browser = door.client()
    away = await browser.get(START)
    back = (await browser.get(away.headers["location"])).headers["location"]
    asked = len(provider.asked)
    for client, url in (
        (door.client(), back),
        (browser, re.sub(r"state=[^&]+", "state=x", back)),
        (browser, re.sub(r"&state=[^&]+", "", back)),
        (browser, back.replace("/one/", "/two/")),
        (browser, f"{START}/callback?error=access_denied"),
        (browser, f"{START}/callback?code=&state="),
    ):
        answer = await client.get(url)
        assert answer.status_code == 401, url
        assert "antiphon_session" not in answer.headers.get("set-cookie", "")
    assert len(provider.asked) == asked, "the provider is asked for nothing"
    assert (await browser.get(back)).status_code == 303
    assert (await browser.get(back)).status_code == 401, "the cookie of the flow is gone"
    again = await browser.get(START)
    other = (await browser.get(again.headers["location"])).headers["location"]
    stolen = re.sub(r"code=[^&]+", f"code={parse_qs(urlsplit(back).query)['code'][0]}", other)
    assert (await browser.get(stolen)).status_code == 502, "a code that was used"


async def test_unknown_providers_and_a_provider_that_is_away(door: Site, provider: Provider) -> None:
    assert (await door.client().get("/v1/session/providers/three")).status_code == 404
    assert (await door.client().get("/v1/session/providers/three/callback?code=x&state=y")).status_code == 404
    await provider.close()
    answer = await door.client().get(START)
    assert (answer.status_code, answer.headers["content-type"]) == (502, "text/html; charset=utf-8")
    assert "127.0.0.1" not in answer.text.replace(door.url, "")
    await provider.open()


async def test_a_provider_that_changed_its_keys(door: Site, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    await sign_in(door)
    monkeypatch.setattr("antiphon.edge.oidc._KEYS_ANEW_SECONDS", 0.0)
    provider.key = RSAKey.generate_key(2048, {"kid": "two"})
    provider.forge = lambda claims, key: provider.signed(claims, kid="two")
    answer, _ = await sign_in(door)
    assert answer.status_code == 303


async def test_a_session_from_a_provider_ends_like_any_other(door: Site) -> None:
    _, browser = await sign_in(door)
    token = browser.cookies["antiphon_session"]
    assert (await browser.delete("/v1/session")).status_code == 204
    assert (await door.client().get("/v1/me", headers={"Cookie": f"antiphon_session={token}"})).status_code == 401
