"""Signing in by link, and what a cookie may do."""

from __future__ import annotations

from antiphon.inference.gateway import Gateway
from tests.edge.site import Person, Site


async def test_cookies(site: Site, ada: Person) -> None:
    token = await site.link(ada.user)
    client = site.client()
    evil = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert (await client.post("/v1/session", json={"token": token}, headers=evil)).status_code == 403
    assert (await client.post("/v1/session", data={"token": token})).status_code == 415
    signed_in = await client.post("/v1/session", json={"token": token})
    assert signed_in.status_code == 204
    cookie = signed_in.headers["set-cookie"]
    assert cookie.startswith("antiphon_session=") and "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Secure" not in cookie
    assert (await client.post("/v1/session", json={"token": token})).status_code == 401

    assert (await client.get("/v1/me")).json()["name"] == "ada"
    assert (await client.post("/v1/conversations", json={})).status_code == 201
    own = {"Origin": site.url, "Sec-Fetch-Site": "same-origin"}
    assert (await client.post("/v1/conversations", json={}, headers=own)).status_code == 201
    for headers in (evil, {"Origin": "null"}, {"Origin": "http://127.0.0.1:1"}, {"Sec-Fetch-Site": "same-site"}):
        assert (await client.post("/v1/conversations", json={}, headers=headers)).status_code == 403
        assert (await client.delete("/v1/session", headers=headers)).status_code == 403
    assert (await client.post("/v1/conversations", content=b"{}", headers={"Content-Type": "text/plain"})).status_code == 415
    wrong_key = await client.get("/v1/me", headers={"Authorization": "Bearer nonsense"})
    assert wrong_key.status_code == 401
    assert (await client.delete("/v1/session")).status_code == 204
    client.cookies.set("antiphon_session", cookie.split(";")[0].split("=")[1])
    assert (await client.get("/v1/me")).status_code == 401


async def test_a_session_is_found_among_others_cookies(site: Site, ada: Person) -> None:
    signed_in = await site.client().post("/v1/session", json={"token": await site.link(ada.user)})
    own = signed_in.headers["set-cookie"].split(";")[0]
    other = f"antiphon_session={'x' * 43}"
    for cookies in (f"{other}; {own}", f"{own}; {other}", f"antiphon_session=; {other}; {own}"):
        assert (await site.client().get("/v1/me", headers={"Cookie": cookies})).json()["name"] == "ada"
    assert (await site.client().delete("/v1/session", headers={"Cookie": f"{other}; {own}"})).status_code == 204
    assert (await site.client().get("/v1/me", headers={"Cookie": own})).status_code == 401


async def test_sign_in_that_cannot_be(site: Site) -> None:
    for body in ({"token": "x"}, {"token": "x" * 43}, {"name": "ada", "password": "x"}):
        answer = await site.client().post("/v1/session", json=body)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    for empty in ({}, {"name": "ada"}):
        assert (await site.client().post("/v1/session", json=empty)).status_code == 422


async def test_behind_https(gateway: Gateway) -> None:
    site = Site(gateway, public_url="https://chat.example")
    await site.open()
    try:
        person = await site.person("ada")
        headers = {"Origin": "https://chat.example"}
        answer = await site.client().post("/v1/session", json={"token": await site.link(person.user)}, headers=headers)
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-antiphon_session=") and "; Secure" in cookie and "Path=/" in cookie
        assert "strict-transport-security" in answer.headers
        session = {"Cookie": cookie.split(";")[0]}
        assert (await site.client().post("/v1/conversations", json={}, headers={**session, **headers})).status_code == 201
        assert (await site.client().get("/v1/me", headers={"Cookie": session["Cookie"].replace("__Host-", "")})).status_code == 401
    finally:
        await site.close()
