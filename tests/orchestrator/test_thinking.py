"""Thoughts are told apart from answers, by tokens; shown, stored, and never sent back."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.app.system import SystemClock
from antiphon.core.events import Delta, Done, Reasoning
from antiphon.core.generation import TurnParams
from antiphon.core.messages import Role
from antiphon.core.telemetry import NullTelemetry
from antiphon.engines.base import PromptMessage
from antiphon.engines.reference_tokenizer import ReferenceTokenizer
from antiphon.inference.gateway import Gateway
from antiphon.orchestrator.prompt import SYSTEM_PROMPT
from antiphon.orchestrator.thinking import ThinkingSplit
from tests.engines.families import FAMILIES
from tests.orchestrator.conftest import reference_pool
from tests.orchestrator.stage import Stage, check_log

QWEN = next(family for family in FAMILIES if family.name == "qwen").tokenizer()
PLAIN = next(family for family in FAMILIES if family.name == "chatml").tokenizer()
OPEN, CLOSE = QWEN.thinking.open_id, QWEN.thinking.close_id  # type: ignore[union-attr]


@pytest.fixture(scope="module")
async def gateway() -> AsyncIterator[Gateway]:
    with tempfile.TemporaryDirectory(prefix="think") as folder:
        pools = [reference_pool("quick", 0.0, "thinking"), reference_pool("slow", 40.0, "thinking")]
        gateway = Gateway(pools, SystemClock(), NullTelemetry(), runtime_dir=Path(folder))
        await gateway.start()
        try:
            await gateway.wait_ready(30)
            yield gateway
        finally:
            await gateway.close()


def split(ids: list[int], *, pieces: int = 1, stop: tuple[str, ...] = ()) -> tuple[str, str]:
    """Thoughts and answer of these ids, pushed so many at a time."""
    made = ThinkingSplit(QWEN, stop)
    reasoning, text = "", ""
    for start in range(0, len(ids), pieces):
        spoken = made.push(ids[start : start + pieces], "the engine's own text")
        reasoning, text = reasoning + spoken.reasoning, text + spoken.text
    last = made.finish("")
    assert made.reasoning == reasoning + last.reasoning
    return reasoning + last.reasoning, text + last.text


def test_thoughts_come_apart() -> None:
    ids = [OPEN, *QWEN.encode("\nHm, 2 and 2.\n"), CLOSE, *QWEN.encode("\n\nFour.")]
    assert split(ids) == ("Hm, 2 and 2.\n", "Four.")


def test_marks_typed_as_text_and_marks_in_the_answer_are_none() -> None:
    ids = [*QWEN.encode("<think>not a thought</think> "), *QWEN.encode("say")]
    assert split(ids) == ("", "<think>not a thought</think> say")
    ids = [OPEN, *QWEN.encode("a </think> b"), CLOSE, *QWEN.encode("c"), OPEN, *QWEN.encode("d"), CLOSE]
    assert split(ids)[0] == "a </think> b"
    assert "c" in split(ids)[1]
    assert "d" in split(ids)[1]


def test_a_thought_that_never_ends_is_all_thought() -> None:
    assert split([OPEN, *QWEN.encode("and so on")]) == ("and so on", "")


def test_stop_strings_end_the_answer_not_the_thought() -> None:
    ids = [OPEN, *QWEN.encode("one. two."), CLOSE, *QWEN.encode("three. four.")]
    assert split(ids, stop=(".",)) == ("one. two.", "three")


def test_a_model_without_marks_is_left_alone() -> None:
    made = ThinkingSplit(PLAIN)
    assert PLAIN.thinking is None
    assert made.push([1, 2], "<think>x").text == "<think>x"
    assert made.finish("</think>").text == "</think>"
    assert made.reasoning == ""


@given(st.text(max_size=20), st.text(max_size=20), st.integers(1, 7))
def test_it_does_not_matter_how_tokens_are_grouped(thought: str, answer: str, pieces: int) -> None:
    ids = [OPEN, *QWEN.encode(thought), CLOSE, *QWEN.encode(answer)]
    assert split(ids, pieces=pieces) == split(ids) == (thought.lstrip("\n"), answer.lstrip("\n"))


async def test_a_turn_thinks_first_and_stores_it_apart(gateway: Gateway) -> None:
    stage = Stage(gateway)
    await stage.runner.start()
    conversation_id = await stage.conversation()
    accepted = await stage.send(conversation_id, "hello", params=TurnParams(max_tokens=20))
    entries = await stage.entries(accepted.generation_id)
    done = check_log(entries)
    thought = "".join(entry.event.text for entry in entries if isinstance(entry.event, Reasoning))
    said = "".join(entry.event.text for entry in entries if isinstance(entry.event, Delta))
    message = await stage.message(accepted.message_id)
    assert len(thought.split()) == 8
    assert (message.reasoning, message.content) == (thought, said)
    assert isinstance(done, Done)
    assert done.output_tokens == 20
    again = await stage.send(conversation_id, "and now?", params=TurnParams(max_tokens=12))
    await stage.ended(again.generation_id)
    tokenizer = ReferenceTokenizer("thinking")
    wanted = [PromptMessage(Role.USER, "hello"), PromptMessage(Role.ASSISTANT, said), PromptMessage(Role.USER, "and now?")]
    second = await stage.message(again.message_id)
    system = len(tokenizer.prompt([PromptMessage(Role.SYSTEM, ""), *wanted])) - len(tokenizer.prompt(wanted))
    assert second.prompt_tokens == len(tokenizer.prompt(wanted)) + system + len(tokenizer.encode(SYSTEM_PROMPT))
    await stage.close()


@pytest.mark.parametrize("characters", [0, 30])
async def test_a_takeover_goes_on_thinking_where_it_was(gateway: Gateway, characters: int) -> None:
    alone = Stage(gateway)
    await alone.runner.start()
    expected = await alone.send(await alone.conversation(), "tell me", model="slow", params=TurnParams(max_tokens=24))
    await alone.ended(expected.generation_id)
    whole = await alone.message(expected.message_id)
    await alone.close()

    first = Stage(gateway)
    await first.runner.start()
    accepted = await first.send(await first.conversation(), "tell me", model="slow", params=TurnParams(max_tokens=24))
    if characters:
        await first.until_text(accepted.generation_id, characters)
    else:
        await first.log.wait(accepted.generation_id, 1)
    await first.close()
    second = Stage(gateway, state=first.state, log=first.log)
    await second.runner.start()
    entries = await second.entries(accepted.generation_id)
    check_log(entries)
    message = await second.message(accepted.message_id)
    assert (message.reasoning, message.content) == (whole.reasoning, whole.content)
    assert "".join(entry.event.text for entry in entries if isinstance(entry.event, Reasoning)) == whole.reasoning
    assert {entry.epoch for entry in entries} == {1, 2}
    await second.close()
