"""What the model reads, as its owner sees it: the prompt of a generation, what was left out, instructions and memory."""

from __future__ import annotations

import json

import pytest

from tests.edge.site import Person, Site


@pytest.fixture
async def ann(site: Site, request: pytest.FixtureRequest) -> Person:
    return await site.person(f"ann of {request.node.name}")


async def answered(person: Person, conversation: str, content: str, **fields: object) -> dict[str, str]:
    """A whole turn."""
    turn = await person.send(conversation, content, **fields)
    await person.read(turn["generation_id"])
    return turn


async def test_the_prompt_of_a_turn_part_by_part(ann: Person, site: Site) -> None:
    await ann.http.put("/v1/me/instructions", json={"text": " Answer in verse. "})
    await ann.http.post("/v1/me/memory", json={"text": "drinks\ntea"})
    conversation = await ann.conversation()
    first = await answered(ann, conversation, "hello")
    turn = await answered(ann, conversation, "and now?")
    shown = (await ann.http.get(f"/v1/generations/{turn['generation_id']}/prompt")).json()
    assert shown.keys() == {"parts", "prompt_tokens", "omitted"}
    assert [part["kind"] for part in shown["parts"]] == ["system", "instructions", "memory", "turn", "turn", "turn"]
    assert [part["message_id"] for part in shown["parts"]][3:] == [
        first["user_message_id"],
        first["message_id"],
        turn["user_message_id"],
    ]
    assert shown["parts"][1]["text"].endswith("Answer in verse.")
    assert shown["parts"][2]["text"].endswith("- drinks tea")
    generation = (await ann.http.get(f"/v1/generations/{turn['generation_id']}")).json()
    assert shown["prompt_tokens"] == sum(part["tokens"] for part in shown["parts"]) == generation["usage"]["prompt_tokens"]
    assert sum(part["cached"] for part in shown["parts"]) == generation["usage"]["cached_tokens"] > 0
    assert shown["omitted"] == []
    stranger = await site.person(f"stranger to {conversation}")
    assert (await stranger.http.get(f"/v1/generations/{turn['generation_id']}/prompt")).status_code == 404


async def test_a_conversation_three_times_the_window_goes_on_and_says_what_was_left_out(ann: Person) -> None:
    conversation = await ann.conversation()
    path: list[str] = []
    for number in range(16):
        turn = await answered(ann, conversation, f"{number} " + "the river is long and cold " * 35)
        path += [turn["user_message_id"], turn["message_id"]]
    message = (await ann.http.get(f"/v1/conversations/{conversation}/messages?limit=1")).json()["data"][0]
    context = message["context"]
    assert context["omitted"] > 10
    assert context["summarised"] is True
    meta = next(event for event in await ann.read(turn["generation_id"]) if event.name == "meta")
    assert json.loads(meta.data)["context"] == context
    shown = (await ann.http.get(f"/v1/generations/{turn['generation_id']}/prompt")).json()
    assert shown["omitted"] == path[: context["omitted"]]
    assert "summary" in [part["kind"] for part in shown["parts"]]
    first = (await ann.http.get(f"/v1/conversations/{conversation}/messages?limit=100")).json()["data"][1]
    assert first["context"] is None


async def used_by(person: Person) -> list[object]:
    usage = (await person.http.get("/v1/usage")).json()
    return [usage["today"], usage["month"], *((limit["name"], limit["used"]) for limit in usage["limits"])]


async def test_one_message_larger_than_the_window_is_refused_with_numbers(ann: Person, site: Site) -> None:
    conversation = await ann.conversation()
    before, used = site.rows(), await used_by(ann)
    refused = await ann.http.post(f"/v1/conversations/{conversation}/messages", json={"content": "#" * 9000, "model": "quick"})
    assert refused.status_code == 413
    problem = refused.json()
    assert (problem["code"], problem["limit_tokens"]) == ("prompt_too_long", 4096 - 16)
    assert problem["prompt_tokens"] > 9000
    assert site.rows() == before
    assert await used_by(ann) == used


async def test_instructions_and_memory_are_seen_changed_and_removed(ann: Person, site: Site) -> None:
    assert (await ann.http.get("/v1/me/instructions")).json() == {"text": ""}
    assert (await ann.http.put("/v1/me/instructions", json={"text": "Be brief."})).json() == {"text": "Be brief."}
    made = (await ann.http.post("/v1/me/memory", json={"text": "has a cat"})).json()
    changed = (await ann.http.patch(f"/v1/me/memory/{made['id']}", json={"text": "has two cats"})).json()
    assert changed == {**made, "text": "has two cats"}
    assert (await ann.http.get("/v1/me/memory")).json() == {"data": [changed]}
    stranger = await site.person("a stranger to cats")
    assert (await stranger.http.get("/v1/me/memory")).json() == {"data": []}
    assert (await stranger.http.delete(f"/v1/me/memory/{made['id']}")).status_code == 404
    assert (await ann.http.delete(f"/v1/me/memory/{made['id']}")).status_code == 204
    assert (await ann.http.delete("/v1/me/memory/nonsense")).status_code == 404
    for body in ({"text": " "}, {"text": "x" * 201}, {}):
        assert (await ann.http.post("/v1/me/memory", json=body)).status_code == 422
    assert (await ann.http.put("/v1/me/instructions", json={"text": "x" * 1501})).status_code == 422
    for number in range(30):
        assert (await ann.http.post("/v1/me/memory", json={"text": f"thing {number}"})).status_code == 201
    assert (await ann.http.post("/v1/me/memory", json={"text": "one too many"})).status_code == 409


async def test_a_temporary_conversation_is_without_them(ann: Person) -> None:
    await ann.http.put("/v1/me/instructions", json={"text": "Be brief."})
    conversation = await ann.conversation(temporary=True)
    turn = await answered(ann, conversation, "hello")
    shown = (await ann.http.get(f"/v1/generations/{turn['generation_id']}/prompt")).json()
    assert [part["kind"] for part in shown["parts"]] == ["system", "turn"]
