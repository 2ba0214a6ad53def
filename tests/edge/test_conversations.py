"""Conversations and their messages over HTTP: versions, branches, continuing, replays, pages."""

from __future__ import annotations

import asyncio
import json

import httpx

from tests.edge.site import Person, Site


async def test_conversation_versions(ada: Person) -> None:
    made = await ada.http.post("/v1/conversations", json={"title": "first"})
    path = f"/v1/conversations/{made.json()['id']}"
    tag = made.headers["etag"]
    renamed = await ada.http.patch(path, json={"title": "second"}, headers={"If-Match": tag})
    assert (renamed.status_code, renamed.json()["title"]) == (200, "second")
    stale = await ada.http.patch(path, json={"title": "third"}, headers={"If-Match": tag})
    assert (stale.status_code, stale.json()["code"]) == (412, "stale_version")
    read = await ada.http.get(path)
    assert (read.headers["etag"], read.json()["title"]) == (renamed.headers["etag"], "second")
    assert (await ada.http.patch(path, json={"title": "x"}, headers={"If-Match": "latest"})).status_code == 422
    assert (await ada.http.delete(path)).status_code == 204
    assert (await ada.http.get(path)).status_code == 404
    assert (await ada.http.delete(path)).status_code == 404


async def test_branches(ada: Person) -> None:
    conversation = await ada.conversation()
    first = await ada.send(conversation, "one")
    await ada.read(first["generation_id"])
    again = await ada.send(conversation, None, parent_message_id=first["user_message_id"])
    await ada.read(again["generation_id"])
    edited = await ada.send(conversation, "uno", parent_message_id=None)
    await ada.read(edited["generation_id"])
    assert again["user_message_id"] == first["user_message_id"]
    tree = (await ada.http.get(f"/v1/conversations/{conversation}/tree")).json()["data"]
    parents = {node["id"]: node["parent_id"] for node in tree}
    assert parents == {
        first["user_message_id"]: None,
        first["message_id"]: first["user_message_id"],
        again["message_id"]: first["user_message_id"],
        edited["user_message_id"]: None,
        edited["message_id"]: edited["user_message_id"],
    }
    path = (await ada.http.get(f"/v1/conversations/{conversation}/messages", params={"leaf": first["message_id"]})).json()
    assert path["siblings"][first["message_id"]] == [first["message_id"], again["message_id"]]
    assert [message["content"] for message in path["data"]][:1] == ["one"]
    assert (await ada.http.put(f"/v1/messages/{first['message_id']}/feedback", json={"rating": -1})).status_code == 204
    path = (await ada.http.get(f"/v1/conversations/{conversation}/messages", params={"leaf": first["message_id"]})).json()
    assert [message["rating"] for message in path["data"]] == [None, -1]


async def test_continue(ada: Person) -> None:
    sent = await ada.send(await ada.conversation(), params={"max_tokens": 5})
    await ada.read(sent["generation_id"])
    answer = await ada.http.post(f"/v1/messages/{sent['message_id']}/continue", json={}, headers={"Accept": "application/json"})
    before = (await ada.http.get(f"/v1/generations/{sent['generation_id']}")).json()["text"]
    assert answer.status_code == 202
    events = await ada.read(answer.json()["generation_id"])
    assert (events[0].name, json.loads(events[0].data)["text"]) == ("snapshot", before)
    assert answer.json()["message_id"] == sent["message_id"]


async def test_an_answer_that_ended_by_itself_is_not_continued(ada: Person) -> None:
    sent = await ada.send(await ada.conversation(), params={"max_tokens": 200, "stop": ["e", "a", "\n", " "]})
    events = await ada.read(sent["generation_id"])
    assert json.loads(events[-1].data)["finish_reason"] == "stop"
    answer = await ada.http.post(f"/v1/messages/{sent['message_id']}/continue", json={}, headers={"Accept": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


async def test_idempotency(ada: Person, site: Site) -> None:
    path = f"/v1/conversations/{await ada.conversation()}/messages"
    body = {"content": "once", "params": {"max_tokens": 3}}
    headers = {"Accept": "application/json", "Idempotency-Key": "k-1"}
    answers = await asyncio.gather(*(ada.http.post(path, json=body, headers=headers) for _ in range(10)))
    assert len({answer.text for answer in answers}) == 1
    assert sum(answer.headers.get("idempotency-replayed") == "true" for answer in answers) == 9
    quoted = await ada.http.post(path, json=body, headers={**headers, "Idempotency-Key": '"k-1"'})
    in_body = await ada.http.post(path, json={**body, "idempotency_key": "k-1"}, headers={"Accept": "application/json"})
    assert quoted.json() == in_body.json() == answers[0].json()
    stream = await ada.http.post(path, json=body, headers={"Idempotency-Key": "k-1"})
    assert (stream.status_code, stream.headers["idempotency-replayed"]) == (200, "true")
    other = await ada.http.post(path, json={**body, "content": "twice"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")
    for key in ("", "x" * 256, "\u00e9".encode()):
        assert (await ada.http.post(path, json=body, headers={**headers, "Idempotency-Key": key})).status_code == 422
    assert len((await ada.http.get(path)).json()["data"]) == 2


async def test_temporary_conversations_are_not_listed(ada: Person) -> None:
    hidden = await ada.conversation(temporary=True)
    listed = (await ada.http.get("/v1/conversations?limit=100")).json()["data"]
    assert hidden not in {conversation["id"] for conversation in listed}


async def test_pages(site: Site) -> None:
    person = await site.person("pager")
    made = [await person.conversation(title=str(index)) for index in range(5)]
    seen: list[str] = []
    after = None
    while True:
        page: httpx.Response = await person.http.get("/v1/conversations", params={"limit": 2, **({"after": after} if after else {})})
        seen += [conversation["id"] for conversation in page.json()["data"]]
        after = page.json()["next"]
        if after is None:
            break
    assert sorted(seen) == sorted(made)
