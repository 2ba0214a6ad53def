"""Adding an OpenAI-compatible server while ours runs. The server is this very site, which speaks OpenAI's shapes too."""

from __future__ import annotations

import asyncio
import json

import httpx

from antiphon.core.tenancy import UserRole
from antiphon.edge.sse import SseEvent
from tests.edge.site import Person, Site


async def added(site: Site, admin: Person, **fields: str) -> httpx.Response:
    body = {"url": f"{site.url}/v1", "key": admin.key, "model": "quick", **fields}
    return await admin.http.post("/v1/admin/pools", json=body)


async def until_ready(person: Person, name: str) -> None:
    async with asyncio.timeout(30):
        while True:
            models = {model["id"]: model["status"] for model in (await person.http.get("/v1/models")).json()["data"]}
            if models[name] == "ready":
                return
            await asyncio.sleep(0.05)


async def ended(person: Person, sent: dict[str, str]) -> SseEvent:
    return (await person.read(sent["generation_id"]))[-1]


async def test_it_answers_from_then_on_until_it_is_removed(site: Site) -> None:
    admin = await site.person("pools' admin", role=UserRole.ADMIN)
    offers = await admin.http.post("/v1/admin/pools/offers", json={"url": f"{site.url}/v1/", "key": admin.key})
    assert {offer["model"] for offer in offers.json()["data"]} >= {"quick", "slow"}

    made = await added(site, admin, name="slow")
    assert (made.status_code, made.json()["code"]) == (409, "conflict"), "the name is another pool's"
    made = await added(site, admin)
    assert (made.status_code, made.json()["code"]) == (409, "conflict"), "so is the one made from the model's"
    made = await added(site, admin, name="far", model="slow")
    assert made.status_code == 201, made.text
    assert made.json() == {"name": "far", "model": "slow", "url": f"{site.url}/v1"}
    await until_ready(admin, "far")
    pools = {pool["name"]: pool["added"] for pool in (await admin.http.get("/v1/admin/pools")).json()}
    assert pools["far"] and not pools["quick"]
    assert admin.key not in (await admin.http.get("/v1/admin/pools")).text + (await admin.http.get("/v1/admin/audit")).text

    last = await ended(admin, await admin.send(await admin.conversation(), model="far"))
    assert last.name == "done", last

    under_way = await admin.send(await admin.conversation(), model="far", params={"max_tokens": 400})
    await site.until_text(under_way["generation_id"])
    assert (await admin.http.delete("/v1/admin/pools/far")).status_code == 204
    last = await ended(admin, under_way)
    assert (last.name, json.loads(last.data)["code"]) == ("error", "interrupted"), "an answer on it keeps what was shown"
    gone = await admin.http.post(f"/v1/conversations/{await admin.conversation()}/messages", json={"content": "hello", "model": "far"})
    assert (gone.status_code, gone.json()["code"]) == (409, "model_gone")
    assert (await admin.http.delete("/v1/admin/pools/far")).status_code == 404
    assert (await admin.http.delete("/v1/admin/pools/quick")).status_code == 404, "what was not added cannot be removed"
    actions = [entry["action"] for entry in (await admin.http.get("/v1/admin/audit")).json()["data"]]
    assert actions[:2] == ["pool.remove", "pool.add"]


async def test_what_cannot_be_served_is_said_where_it_was_typed(site: Site, free_port: int) -> None:
    admin = await site.person("careless admin", role=UserRole.ADMIN)

    async def faults(**fields: str) -> list[dict[str, str]]:
        answer = await added(site, admin, **{"name": "never", **fields})
        assert answer.status_code == 422, answer.text
        return list(answer.json()["errors"])

    (fault,) = await faults(url=f"http://127.0.0.1:{free_port}/v1")
    assert fault["path"] == "url" and "cannot be reached" in fault["reason"]
    (fault,) = await faults(key="ak_wrong")
    assert fault["path"] == "url" and "refuses the key" in fault["reason"] and "ak_wrong" not in fault["reason"]
    (fault,) = await faults(model="gpt-9")
    assert fault["path"] == "model" and "quick" in fault["reason"]
    for url in ("ftp://site/v1", "http://user:secret@site/v1", "http://site/v1?key=1", "http://", "http://[/v1", "http://site:0/v1", " "):
        (fault,) = await faults(url=url)
        assert fault["path"] == "url", url
    (fault,) = await faults(name="Not a name")
    assert fault["path"] == "name"
    (fault,) = await faults(key="two words\r\nX-Evil: 1")
    assert fault["path"] == "key"


async def test_a_redirect_leads_nowhere(site: Site) -> None:
    """The address may be inside a private network; no answer from outside may lead there."""
    admin = await site.person("led astray", role=UserRole.ADMIN)
    asked: list[bytes] = []

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(f"HTTP/1.1 302 Found\r\nLocation: {site.url}/v1/models\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(redirect, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        answer = await added(site, admin, name="astray", url=f"http://127.0.0.1:{port}/v1")
    assert answer.status_code == 422 and "302" in answer.json()["errors"][0]["reason"]
    assert len(asked) == 1
