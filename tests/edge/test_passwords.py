"""Passwords, sessions, and what ends with them; people of a tenant and who may manage whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from argon2 import PasswordHasher

from antiphon.app.system import SystemClock
from antiphon.core.tenancy import UserRole, may_manage
from antiphon.edge.passwords import Passwords
from antiphon.edge.sign_in_gate import LocalGate
from antiphon.edge.sign_in_pace import Allowance, SignInPace
from antiphon.inference.gateway import Gateway
from antiphon.stores.accounts.base import UserChange
from tests.awake import awake_s
from tests.edge.site import Person, Site

QUICK = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
SECRET = "correct horse battery"


@pytest.fixture(scope="module")
async def door(gateway: Gateway) -> AsyncIterator[Site]:
    site = Site(gateway, loopback=False, passwords_hasher=QUICK)
    await site.open()
    try:
        yield site
    finally:
        await site.close()


async def browser(site: Site, person: Person, agent: str = "Browser/1") -> httpx.AsyncClient:
    client = site.client()
    client.headers["User-Agent"] = agent
    assert (await client.post("/v1/session", json={"token": await site.link(person.user)})).status_code == 204
    return client


async def with_password(site: Site, name: str, role: UserRole = UserRole.MEMBER) -> tuple[Person, httpx.AsyncClient]:
    person = await site.person(name, role=role)
    client = await browser(site, person)
    assert (await client.put("/v1/me/password", json={"password": SECRET})).status_code == 204
    return person, client


async def sign_in(site: Site, name: str, password: str, **more: str) -> tuple[httpx.Response, httpx.AsyncClient]:
    client = site.client()
    return await client.post("/v1/session", json={"name": name, "password": password, **more}), client


async def test_a_name_and_its_password_sign_in(door: Site) -> None:
    await with_password(door, "nina")
    answer, client = await sign_in(door, "nina", SECRET)
    assert answer.status_code == 204 and "HttpOnly" in answer.headers["set-cookie"]
    assert (await client.get("/v1/me")).json()["name"] == "nina"
    assert (await sign_in(door, "nina", SECRET, tenant="home"))[0].status_code == 204
    refused = [await sign_in(door, *pair) for pair in (("nina", SECRET + "x"), ("nobody", SECRET), ("nina", ""), ("", ""))]
    bodies = [{**answer.json(), "request_id": ""} for answer, _ in refused]
    assert all(body == bodies[0] and body["status"] == 401 for body in bodies), "a refusal tells nothing"
    assert (await sign_in(door, "nina", SECRET, tenant="elsewhere"))[0].status_code == 401


async def test_who_has_no_password_and_no_other_way_in_is_asked_for_one(door: Site, gateway: Gateway) -> None:
    person = await door.person("otto")
    client = await browser(door, person)
    answer = await client.get("/v1/me/password")
    assert answer.json() == {"set": False, "asked": True, "skippable": False, "least_characters": 8}
    assert (await client.put("/v1/me/password", json={"password": SECRET})).status_code == 204
    assert (await client.get("/v1/me/password")).json() == {**answer.json(), "set": True, "asked": False}
    for public_url, role, asked in (("", UserRole.OWNER, False), ("", UserRole.ADMIN, True), ("http://chat.example", UserRole.OWNER, True)):
        site = Site(gateway, passwords_hasher=QUICK, public_url=public_url)  # reached from this machine alone, but for a proxy
        await site.open()
        try:
            owner = await browser(site, await site.person("owen", role=role))
            assert (await owner.get("/v1/me/password")).json()["asked"] is asked
        finally:
            await site.close()


async def test_letters_that_look_alike_are_one_password(door: Site) -> None:
    _, client = await with_password(door, "zoë")
    assert (await client.put("/v1/me/password", json={"password": "cafe\u0301 au lait", "current_password": SECRET})).status_code == 204
    assert (await sign_in(door, "zoë", "caf\u00e9 au lait"))[0].status_code == 204


async def test_a_change_needs_the_old_password_and_ends_other_sessions(door: Site) -> None:
    person, client = await with_password(door, "olaf")
    other = await browser(door, person)
    link = await door.link(person.user)
    for body in ({"password": "another password"}, {"password": "another password", "current_password": "wrong"}):
        answer = await client.put("/v1/me/password", json=body)
        assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "current_password")
    assert (await other.get("/v1/me")).status_code == 200
    changed = await client.put("/v1/me/password", json={"password": "another password", "current_password": SECRET})
    assert changed.status_code == 204
    assert (await client.get("/v1/me")).status_code == 200
    assert (await other.get("/v1/me")).status_code == 401
    assert (await door.client().post("/v1/session", json={"token": link})).status_code == 401
    assert (await sign_in(door, "olaf", SECRET))[0].status_code == 401
    assert (await sign_in(door, "olaf", "another password"))[0].status_code == 204


@pytest.mark.parametrize("password", ["", "short", "aaaaaaaaaaaa", "Simple.Name", "x" * 1025])
async def test_passwords_that_will_not_do(door: Site, password: str) -> None:
    person = await door.person(f"simple.name{len(password)}" if password != "Simple.Name" else "simple.name")
    client = await browser(door, person)
    assert (await client.put("/v1/me/password", json={"password": password})).status_code == 422


async def test_sessions_are_listed_and_ended_one_by_one(door: Site) -> None:
    person = await door.person("pia")
    first, second = await browser(door, person, "Laptop\u00ff/1"), await browser(door, person, "Phone/2")
    listed = (await first.get("/v1/me/sessions")).json()["data"]
    assert [(one["agent"], one["current"]) for one in listed] == [("Laptop/1", True), ("Phone/2", False)]
    assert (await first.delete(f"/v1/me/sessions/{listed[1]['id']}")).status_code == 204
    assert (await second.get("/v1/me")).status_code == 401
    assert (await first.get("/v1/me")).status_code == 200
    for unknown in (listed[1]["id"], "ses_x", "x"):
        assert (await first.delete(f"/v1/me/sessions/{unknown}")).status_code == 404


async def test_tries_are_limited_before_anything_is_hashed(gateway: Gateway) -> None:
    pace = SignInPace(name_from_address=Allowance(3, 60), name=Allowance(100, 1), address=Allowance(100, 1))
    site = Site(gateway, passwords_hasher=QUICK, sign_in_gate=LocalGate(pace, SystemClock()))
    await site.open()
    try:
        await with_password(site, "quinn")
        statuses = [(await sign_in(site, "quinn", "wrong password"))[0].status_code for _ in range(3)]
        refused, _ = await sign_in(site, "quinn", SECRET)
        nobody = [(await sign_in(site, "nobody", SECRET))[0].status_code for _ in range(4)]
    finally:
        await site.close()
    assert statuses == [401] * 3
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert 50 <= int(refused.headers["retry-after"]) <= 60
    assert nobody == [401, 401, 401, 429]


async def test_an_open_stream_ends_with_its_session(door: Site) -> None:
    person = await door.person("rosa")
    first, second = await browser(door, person), await browser(door, person)
    sent = await person.send(await person.conversation(), model="slow", params={"max_tokens": 512})
    began_to_read = asyncio.Event()

    async def read() -> None:
        async with second.stream("GET", f"/v1/generations/{sent['generation_id']}/stream") as answer:
            assert answer.status_code == 200
            async for _ in answer.aiter_raw():
                began_to_read.set()

    reading = asyncio.create_task(read())
    await began_to_read.wait()
    assert not reading.done()
    sessions = (await first.get("/v1/me/sessions")).json()["data"]
    began = awake_s()
    await first.delete(f"/v1/me/sessions/{next(one['id'] for one in sessions if not one['current'])}")
    await reading
    assert awake_s() - began < 2, "it was ended here: nobody waits for the next look"
    await person.http.post(f"/v1/generations/{sent['generation_id']}/cancel", json={})


async def test_an_invitation_lets_its_person_in(door: Site) -> None:
    boss = await door.person("boss", role=UserRole.OWNER)
    await door.accounts.change_user(boss.user.tenant_id, boss.user.id, UserChange(plan="owner"))
    made = await boss.http.post("/v1/admin/users", json={"name": "sam", "role": "admin"})
    assert made.status_code == 201, made.text
    assert made.json()["user"]["plan"] == "free", "what everybody gets, not what who invites has"
    token = made.json()["url"].partition("?token=")[2]
    client = door.client()
    assert (await client.post("/v1/session", json={"token": token})).status_code == 204
    assert (await client.get("/v1/me")).json()["role"] == "admin"
    assert (await boss.http.post("/v1/admin/users", json={"name": "sam"})).status_code == 409
    assert (await boss.http.post("/v1/admin/users", json={"name": "tim", "plan": "none"})).status_code == 422
    user = made.json()["user"]["id"]
    assert (await boss.http.patch(f"/v1/admin/users/{user}", json={"disabled": True})).json()["disabled"] is True
    assert (await client.get("/v1/me")).status_code == 401
    assert (await boss.http.post(f"/v1/admin/users/{user}/link")).status_code == 409
    assert (await boss.http.patch(f"/v1/admin/users/{user}", json={"disabled": False})).status_code == 200
    assert (await client.get("/v1/me")).status_code == 401, "sessions do not come back"
    assert {entry["action"] for entry in (await boss.http.get("/v1/admin/audit")).json()["data"]} >= {"user.invite", "user.change"}


async def test_an_admin_gains_no_right_through_others(door: Site) -> None:
    owner, admin = await door.person("una", role=UserRole.OWNER), await door.person("vic", role=UserRole.ADMIN)
    other, member = await door.person("wes", role=UserRole.ADMIN), await door.person("xia")
    for role in ("owner", "admin"):
        assert (await admin.http.post("/v1/admin/users", json={"name": f"new {role}", "role": role})).status_code == 403
        assert (await admin.http.patch(f"/v1/admin/users/{member.user.id}", json={"role": role})).status_code == 403
    for above in (owner, other, admin):
        assert (await admin.http.post(f"/v1/admin/users/{above.user.id}/link")).status_code == 403
        assert (await admin.http.patch(f"/v1/admin/users/{above.user.id}", json={"disabled": True})).status_code == 403
    assert (await admin.http.patch(f"/v1/admin/users/{member.user.id}", json={"disabled": True})).status_code == 200
    assert not may_manage(UserRole.MEMBER, UserRole.MEMBER)


async def test_an_outsider_cannot_fill_the_threads(door: Site) -> None:
    """Two hundred at once: some are asked to come back, nobody waits for long, and the queue is empty afterwards."""
    pace = SignInPace(address=Allowance(1000, 1), name=Allowance(1000, 1))
    passwords = Passwords(door.accounts, LocalGate(pace, door.clock), door.ids, door.clock)
    try:
        tries = (passwords.user_of(f"nobody {number}", None, SECRET, address="192.0.2.1") for number in range(200))
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        passwords.check()
    finally:
        passwords.close()
    assert outcomes.count(None) >= 30
    assert {type(outcome).__name__ for outcome in outcomes} == {"NoneType", "RateLimited"}
