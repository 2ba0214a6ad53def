"""OpenAI's shapes on a real engine."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

import pytest

from antiphon.app.system import SystemClock
from antiphon.core.telemetry import NullTelemetry
from antiphon.inference.gateway import Gateway
from tests.awake import until
from tests.edge.conftest import reference_pool
from tests.edge.site import Person, Site

URL = "/v1/chat/completions"
HELLO = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]},
]


def chunks_of(body: str) -> list[dict[str, object]]:
    frames = [frame for frame in body.split("\n\n") if frame.startswith("data: ")]
    assert frames[-1] == "data: [DONE]"
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-1]]


async def test_whole_and_streamed_answers_are_equal(ada: Person) -> None:
    body = {"model": "quick", "messages": HELLO, "max_tokens": 9, "temperature": 0}
    whole = await ada.http.post(URL, json=body)
    assert whole.status_code == 200
    assert whole.headers["x-antiphon-generation"].startswith("gen_")
    answer = whole.json()
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "reference-quick"
    assert answer["usage"]["completion_tokens"] > 0
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"]
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= 0

    streamed = await ada.http.post(URL, json={**body, "stream": True, "stream_options": {"include_usage": True}})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert streamed.headers["x-antiphon-generation"].startswith("gen_")
    chunks = chunks_of(streamed.text)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "reasoning_content" not in answer["choices"][0]["message"]
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks if chunk["choices"])
    assert text == answer["choices"][0]["message"]["content"] != ""
    assert chunks[-2]["choices"][0]["finish_reason"] == answer["choices"][0]["finish_reason"]
    assert (chunks[-1]["choices"], chunks[-1]["usage"]["completion_tokens"]) == ([], answer["usage"]["completion_tokens"])
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert len({chunk["id"] for chunk in chunks}) == 1


async def test_thoughts_come_apart_from_the_answer() -> None:
    """As servers of reasoning models do: ``reasoning_content`` beside ``content``, whole and in chunks."""
    with tempfile.TemporaryDirectory(prefix="think") as folder:
        gateway = Gateway([reference_pool("quick", vocabulary="thinking")], SystemClock(), NullTelemetry(), runtime_dir=Path(folder))
        await gateway.start()
        site = Site(gateway)
        await site.open()
        try:
            await gateway.wait_ready(30)
            ada = await site.person("ada")
            body = {"model": "quick", "messages": HELLO, "max_tokens": 20, "temperature": 0}
            message = (await ada.http.post(URL, json=body)).json()["choices"][0]["message"]
            assert len(message["reasoning_content"].split()) == 8
            assert len(message["content"].split()) > 5
            chunks = chunks_of((await ada.http.post(URL, json={**body, "stream": True})).text)
            for name in ("reasoning_content", "content"):
                assert "".join(chunk["choices"][0]["delta"].get(name, "") for chunk in chunks) == message[name]
        finally:
            await site.close()
            await gateway.close()


async def test_without_asking_there_is_no_usage(ada: Person) -> None:
    answer = await ada.http.post(URL, json={"model": "reference-quick", "messages": HELLO, "max_tokens": 3, "stream": True})
    assert all("usage" not in chunk for chunk in chunks_of(answer.text))


async def test_fields_that_ask_for_nothing_are_taken(ada: Person) -> None:
    body = {
        "model": "quick",
        "messages": [{"role": "developer", "content": "x"}, {"role": "user", "content": "y", "name": "eve"}],
        "max_completion_tokens": 2,
        "n": 1,
        "frequency_penalty": 0,
        "presence_penalty": 0.0,
        "logit_bias": {},
        "logprobs": False,
        "response_format": {"type": "text"},
        "tools": [],
        "tool_choice": "none",
        "store": False,
        "metadata": {"a": "b"},
        "user": "eve",
        "stop": "zzz",
        "stream": None,
        "seed": None,
    }
    answer = await ada.http.post(URL, json=body)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"n": 1_000_000}, 422, "n"),
        ({"best_of": 2}, 422, "best_of"),
        ({"api_base": "https://elsewhere"}, 422, "api_base"),
        ({"chat_template_kwargs": {"tokenize": True}}, 422, "chat_template_kwargs"),
        ({"frequency_penalty": 0.5}, 422, "frequency_penalty"),
        ({"logprobs": True}, 422, "logprobs"),
        ({"response_format": {"type": "json_object"}}, 422, "response_format.type"),
        ({"messages": []}, 422, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, 422, "messages.0.role"),
        ({"messages": [{"role": "user", "content": " "}]}, 422, "messages.0.content"),
        ({"max_tokens": 0}, 422, "max_tokens"),
        ({"max_tokens": 100_000}, 422, "max_tokens"),
        ({"temperature": 3}, 422, "temperature"),
        ({"model": "gpt-9"}, 409, None),
        ({"messages": [{"role": "user", "content": "word " * 10_000}]}, 413, None),
    ],
)
async def test_refusals(ada: Person, fields: dict[str, object], status: int, param: str | None) -> None:
    answer = await ada.http.post(URL, json={"model": "quick", "messages": HELLO, **fields})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param), answer.text
    assert set(error) == {"message", "type", "code", "param"}
    assert error["message"].startswith(f"{param}: ") is (param is not None)


async def test_a_refusal_says_what_the_field_takes_and_what_it_got(ada: Person) -> None:
    told = {"stop": list("abcde"), "max_tokens": 9, "max_completion_tokens": 8}
    messages = []
    for fields in (told, {**told, "stop": None}, {"max_tokens": 100_000}):
        answer = await ada.http.post(URL, json={"model": "quick", "messages": HELLO, **fields})
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_request")
        messages.append(answer.json()["error"]["message"])
    assert messages == [
        "stop: Takes a text of 1 to 64 characters, or a list of at most 4 of them, but got a list of 5.",
        "max_tokens: Takes what max_completion_tokens says, which is 8, but got 9.",
        "max_tokens: Takes 1 to 512 on this plan, as max_completion_tokens does, but got 100000.",
    ]


async def test_broken_json_is_told_in_the_same_shape(ada: Person) -> None:
    answer = await ada.http.post(URL, content=b"{", headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_json")
    got = await ada.http.get(URL)
    assert (got.status_code, got.json()["error"]["code"]) == (405, "method_not_allowed")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_gone_client_stops_the_engine(ada: Person, gateway: Gateway, stream: bool) -> None:
    def running() -> int:
        return sum(replica.running + replica.waiting for replica in gateway.replicas("slow"))

    body = {"model": "slow", "messages": HELLO, "max_tokens": 500, "stream": stream}

    async def ask() -> None:
        async with ada.http.stream("POST", URL, json=body) as answer:
            await answer.aread()

    asking = asyncio.create_task(ask())
    await until(lambda: running() > 0)
    asking.cancel()
    await until(lambda: running() == 0, within_s=1, what="the engine stops")
