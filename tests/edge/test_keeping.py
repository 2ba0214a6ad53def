"""Sidebar, search, shares, deletion and oversight over a real connection; and many requests at once into one conversation."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.core.tenancy import Scope, UserRole
from tests.edge.site import Person, Site


async def answered(person: Person, conversation: str, content: str | None = "hello", **fields: object) -> dict[str, str]:
    """A whole turn."""
    turn = await person.send(conversation, content, **fields)
    await person.read(turn["generation_id"])
    return turn


@pytest.fixture
async def ann(site: Site, request: pytest.FixtureRequest) -> Person:
    return await site.person(f"ann of {request.node.name}")


async def test_the_sidebar_chooses_and_folders_are_listed(ann: Person) -> None:
    plain, filed = await ann.conversation(), await ann.conversation(title="Named")
    moved = await ann.http.patch(f"/v1/conversations/{filed}", json={"folder": "  Trips  2026 ", "pinned": True})
    assert moved.json()["folder"] == "Trips 2026"
    assert moved.json()["title_source"] == "user"

    async def listed(query: str) -> list[str]:
        return [one["id"] for one in (await ann.http.get(f"/v1/conversations?{query}")).json()["data"]]

    assert await listed("pinned=true") == await listed("folder=Trips 2026") == [filed]
    assert await listed("pinned=false&archived=false") == [plain]
    assert (await ann.http.get("/v1/folders")).json() == {"data": [{"name": "Trips 2026", "conversations": 1}]}
    assert (await ann.http.patch(f"/v1/conversations/{filed}", json={"folder": None})).json()["folder"] is None
    assert (await ann.http.get("/v1/conversations?pinned=perhaps")).status_code == 422


async def test_searching(ann: Person, site: Site) -> None:
    conversation = await ann.conversation()
    turn = await answered(ann, conversation, "where do <b>pelicans</b> nest?")
    found = (await ann.http.get("/v1/search", params={"q": "PELICANS"})).json()
    assert found["next"] is None
    hit = next(hit for hit in found["data"] if hit["message_id"] is not None)
    assert (hit["conversation_id"], hit["message_id"]) == (conversation, turn["user_message_id"])
    assert hit["snippet"] == "where do &lt;b&gt;<mark>pelicans</mark>&lt;/b&gt; nest?"
    stranger = await site.person(f"stranger to {conversation}")
    assert (await stranger.http.get("/v1/search", params={"q": "pelicans"})).json()["data"] == []
    for question in ('"', "*", "AND", "a\N{RIGHT-TO-LEFT OVERRIDE}b", "' OR 1=1 --"):
        assert (await ann.http.get("/v1/search", params={"q": question})).status_code == 200
    assert (await ann.http.get("/v1/search")).status_code == 422
    assert (await ann.http.get("/v1/search", params={"q": "x", "after": "nonsense"})).json()["code"] == "bad_cursor"
    assert (await ann.http.get("/v1/search?q=%00")).json()["code"] == "invalid_text"


async def test_a_share_is_public_frozen_and_gone_when_revoked(ann: Person, site: Site) -> None:
    conversation = await ann.conversation(title="<i>Shared</i>")
    await answered(ann, conversation, "<script>alert(1)</script>")
    made = await ann.http.post(f"/v1/conversations/{conversation}/share")
    assert made.status_code == 201
    share = made.json()
    await answered(ann, conversation, "said later")
    anybody = site.client()
    page = await anybody.get(share["url"])
    assert page.status_code == 200
    assert "noindex" in page.headers["x-robots-tag"]
    assert "no-store" in page.headers["cache-control"]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.text
    assert "<script" not in page.text
    assert "said later" not in page.text
    token = share["url"].rpartition("/")[2]
    shown = (await anybody.get(f"/v1/shared/{token}")).json()
    assert [message["role"] for message in shown["data"]] == ["user", "assistant"]
    listed = (await ann.http.get("/v1/shares")).json()["data"]
    assert [(one["id"], one["url"], one["conversation_id"]) for one in listed] == [(share["id"], share["url"], conversation)]
    stranger = await site.person(f"stranger to {share['id']}")
    assert (await stranger.http.delete(f"/v1/shares/{share['id']}")).status_code == 404
    assert (await ann.http.delete(f"/v1/shares/{share['id']}")).status_code == 204
    for gone in (share["url"], f"/v1/shared/{token}", "/s/never", "/v1/shared/" + "x" * 500):
        assert (await anybody.get(gone)).status_code == 404


async def test_the_operator_sees_feedback_audit_and_retention(site: Site) -> None:
    ann = await site.person("operator", role=UserRole.ADMIN)
    conversation = await ann.conversation()
    turn = await answered(ann, conversation)
    rated = await ann.http.put(f"/v1/messages/{turn['message_id']}/feedback", json={"rating": -1, "reasons": ["wrong"], "comment": "no"})
    assert rated.status_code == 204
    feedback = (await ann.http.get("/v1/admin/feedback?limit=1")).json()["data"][0]
    assert (feedback["message_id"], feedback["rating"], feedback["comment"]) == (turn["message_id"], -1, "no")
    for deleted in (await ann.conversation(), conversation):
        assert (await ann.http.delete(f"/v1/conversations/{deleted}")).status_code == 204
    audit = (await ann.http.get("/v1/admin/audit?limit=1")).json()
    assert audit["data"][0]["action"] == "conversation.delete"
    assert audit["data"][0]["subject"] == conversation
    assert audit["next"] is not None
    assert (await ann.http.put("/v1/admin/retention", json={"days": 365})).json() == {"days": 365}
    assert (await ann.http.get("/v1/admin/retention")).json() == {"days": 365}
    assert (await ann.http.put("/v1/admin/retention", json={"days": 0})).status_code == 422
    assert (await ann.http.put("/v1/admin/retention", json={"days": None})).json() == {"days": None}
    member = await site.person(f"member beside {conversation}", scopes=frozenset({Scope.CHAT}))
    for path in ("audit", "feedback", "retention"):
        assert (await member.http.get(f"/v1/admin/{path}")).status_code == 403


async def test_the_operator_sees_plans_and_everybodys_keys(site: Site) -> None:
    boss = await site.person("boss of keys", role=UserRole.ADMIN)
    plans = {plan["name"]: plan for plan in (await boss.http.get("/v1/admin/plans")).json()["data"]}
    assert plans["free"]["priority"] == "standard"
    assert plans["free"]["tokens_per_minute"] > 0
    made = (await boss.http.post("/v1/keys", json={"name": "for a script", "scopes": ["chat"]})).json()
    keys = {key["id"]: key for key in (await boss.http.get("/v1/admin/keys")).json()["data"]}
    assert (keys[made["id"]]["name"], keys[made["id"]]["scopes"]) == ("for a script", ["chat"])
    assert made["key"] not in str(keys)
    assert (await boss.http.delete(f"/v1/keys/{made['id']}")).status_code == 204
    assert made["id"] not in str((await boss.http.get("/v1/admin/keys")).json())


async def test_who_leaves_takes_everything_along(site: Site) -> None:
    person = await site.person("leaver")
    conversation = await person.conversation()
    running = await person.send(conversation, model="slow", params={"max_tokens": 400})
    assert (await person.http.delete("/v1/me")).status_code == 403, "no key may do this"
    browser = site.client(Origin=site.url)
    assert (await browser.post("/v1/session", json={"token": await site.link(person.user)})).status_code == 204
    assert (await browser.delete("/v1/me", headers={"Content-Type": "application/json"})).status_code == 204
    assert (await browser.get("/v1/me")).status_code == (await person.http.get("/v1/me")).status_code == 401
    assert site.state.generations[running["generation_id"]].status.terminal  # type: ignore[index]
    assert site.state.users[person.user.id].name == person.user.id


async def test_two_tabs_send_while_a_third_renames_and_rates(ann: Person) -> None:
    conversation = await ann.conversation()
    first = await answered(ann, conversation)
    sent: list[dict[str, str]] = []

    async def tab(name: str) -> None:
        parent = first["message_id"]
        for number in range(20):
            turn = await answered(ann, conversation, f"{name} {number}", parent_message_id=parent, params={"max_tokens": 1})
            sent.append(turn)
            parent = turn["message_id"]

    async def rename_and_rate() -> None:
        for number in range(20):
            renamed = await ann.http.patch(f"/v1/conversations/{conversation}", json={"title": f"title {number}"})
            rated = await ann.http.put(f"/v1/messages/{first['message_id']}/feedback", json={"rating": 1 if number % 2 else -1})
            assert (renamed.status_code, rated.status_code) == (200, 204)

    await asyncio.gather(tab("a"), tab("b"), rename_and_rate())
    nodes = (await ann.http.get(f"/v1/conversations/{conversation}/tree")).json()["data"]
    parents = {node["id"]: node["parent_id"] for node in nodes}
    assert len(sent) == 40
    assert len(nodes) == 82
    assert all(parents[turn["message_id"]] == turn["user_message_id"] for turn in sent)
    assert all(node["status"] != "streaming" for node in nodes)
    assert (await ann.http.get(f"/v1/conversations/{conversation}")).json()["title"] == "title 19"


async def test_fifty_identical_sends_make_one_generation(ann: Person) -> None:
    conversation = await ann.conversation()
    turns = await asyncio.gather(*(ann.send(conversation, "once", idempotency_key="the same") for _ in range(50)))
    assert all(turn == turns[0] for turn in turns)
    nodes = (await ann.http.get(f"/v1/conversations/{conversation}/tree")).json()["data"]
    assert len(nodes) == 2
    other = await ann.http.post(f"/v1/conversations/{conversation}/messages", json={"content": "twice", "idempotency_key": "the same"})
    assert other.json()["code"] == "idempotency_mismatch"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"since": "2026-13-01"}, "since"),
        ({"since": "2026-W48-1"}, "since"),
        ({"since": "20261130"}, "since"),
        ({"since": "2026-11-30T00:00:00+14:00"}, "since"),
        ({"until": "\u0662026-11-30"}, "until"),
        ({"since": "9999-12-31"}, "since"),
        ({"since": "2026-11-30", "until": "2026-11-01"}, "since"),
        ({"group_by": "user;drop"}, "group_by"),
    ],
)
async def test_totals_are_of_days_and_of_known_groups(site: Site, query: dict[str, str], field: str) -> None:
    operator = await site.person(f"who asks for {query}", role=UserRole.ADMIN)
    refused = await operator.http.get("/v1/admin/usage", params=query)
    assert (refused.status_code, [fault["path"] for fault in refused.json()["errors"]]) == (422, [field])


async def test_totals_of_all_time_begin_in_the_first_year(site: Site) -> None:
    operator = await site.person("who asks for all time", role=UserRole.ADMIN)
    found = (await operator.http.get("/v1/admin/usage", params={"since": "0001-01-01", "until": "9999-12-31"})).json()
    assert (found["since"], found["until"]) == ("0001-01-01T00:00:00.000Z", "9999-12-31T00:00:00.000Z")
