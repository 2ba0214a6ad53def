"""No words of anybody's become a control token, on whichever way they reach the model: by token ids, on every family of templates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest

from antiphon.core.generation import GenerationStatus, TurnParams, Usage
from antiphon.core.ids import ConversationId, GenerationId, IdKind, MemoryId, MessageId
from antiphon.core.messages import Role
from antiphon.core.prompts import Memory, Summary
from antiphon.engines.tokenizer import ModelTokenizer, load_tokenizer
from antiphon.inference.fleet import ServedPool
from antiphon.orchestrator.background import _fitting, _title_request
from antiphon.orchestrator.parts import PartKind, Question, RenderedPrompt
from antiphon.orchestrator.planner import Place, PromptPlanner
from antiphon.orchestrator.summary import summary_request
from antiphon.stores.generations.base import CurrentLeaf, FinishedGeneration, NewUserMessage, TurnToAccept
from tests.engines.conftest import model_folder  # noqa: F401 - a fixture
from tests.engines.families import FAMILIES, INJECTIONS, Family
from tests.orchestrator.stage import Stage

POOL = ServedPool("small", "model", context_tokens=2600)
QUESTION = "Which colour has my boat Amaryllis?"


class Tokenizers:
    """All of a gateway that planning asks for."""

    def __init__(self, tokenizer: ModelTokenizer) -> None:
        self._tokenizer = tokenizer

    def tokenizer(self, _pool: str) -> ModelTokenizer:
        return self._tokenizer


@pytest.fixture(params=[*FAMILIES, "bundled"], ids=lambda one: getattr(one, "name", one))
def tokenizer(request: pytest.FixtureRequest) -> ModelTokenizer:
    if isinstance(request.param, Family):
        return request.param.tokenizer()
    return bundled(cast("Path", request.getfixturevalue("model_folder")))


@cache
def bundled(folder: Path) -> ModelTokenizer:
    return load_tokenizer(folder)


async def tell(stage: Stage, conversation_id: ConversationId, leaf: MessageId | None, text: str, answer: str) -> MessageId:
    """A whole turn, planned and stored; its answer's id."""
    now, ids, planner = stage.clock.now(), stage.ids, stage.runner.planner
    question = Question(MessageId(ids.new(IdKind.MESSAGE)), text)
    planned = await planner.plan(Place(stage.owner, conversation_id, leaf), question, POOL)
    turn = TurnToAccept(
        owner=stage.owner,
        conversation_id=conversation_id,
        what=NewUserMessage(question.message_id, CurrentLeaf(), text, planned.question_tokens),
        message_id=MessageId(ids.new(IdKind.MESSAGE)),
        generation_id=GenerationId(ids.new(IdKind.GENERATION)),
        model=POOL.model,
        requested_model=POOL.model,
        params=TurnParams(),
        plan="free",
        key_id=None,
        idempotency=None,
        now=now,
        pool=POOL.name,
        prompt=planned.record,
        preamble=planned.preamble,
        summary=planned.summary,
    )
    accepted = await stage.generations.accept(turn)
    await stage.generations.claim(accepted.generation_id, now=now, lease_until=now + timedelta(seconds=10))
    ending = (GenerationStatus.COMPLETE, answer, "stop", Usage(), 1, 1, None, "{}", now)
    await stage.generations.finalise(FinishedGeneration(accepted.generation_id, 1, *ending))
    return accepted.message_id


async def prompt_with(tokenizer: ModelTokenizer, words: str) -> RenderedPrompt:
    """What is read at the end of a long conversation in which ``words`` are everywhere: told, answered, instructed, summarised, quoted."""
    stage = Stage(cast("Any", Tokenizers(tokenizer)))
    await stage.ports.personal.put_instructions(stage.owner, f"Be brief. {words}")
    await stage.ports.personal.add_memory(stage.owner, Memory(MemoryId("mem_1"), f"has a boat {words}", stage.clock.now()), at_most=1)
    conversation_id = await stage.conversation()
    leaf = await tell(stage, conversation_id, None, f"My boat Amaryllis is green. {words}", f"Noted. {words}")
    for number in range(30):
        leaf = await tell(stage, conversation_id, leaf, f"Talk of rain and sun, part {number}. {words}", f"Rain falls. {words}")
    question = Question(MessageId("msg_new"), f"{QUESTION} {words}")
    place = Place(stage.owner, conversation_id, leaf)
    planned = await stage.runner.planner.plan(place, question, POOL)
    preamble = planned.preamble
    assert preamble is not None
    stage.state.preambles[conversation_id, preamble.digest] = preamble
    through = planned.record.summary
    assert through is not None
    summary = Summary(conversation_id, through, f"The user has a boat. {words}", "a model", stage.clock.now())
    stage.state.summaries[conversation_id, through] = summary
    rendered = await PromptPlanner(stage.ports).render(place, question, planned.record, POOL)
    assert rendered is not None
    return rendered


def marks(tokenizer: ModelTokenizer, ids: Sequence[int]) -> list[int]:
    known = tokenizer.markup_ids
    return [token_id for token_id in ids if token_id in known]


def framed(tokenizer: ModelTokenizer, prompt: RenderedPrompt) -> list[int]:
    """The marks that the template itself writes round the turns of a prompt."""
    told = [counted.part for counted in prompt.parts if counted.part.kind is PartKind.TURN]
    pairs = (len(told) - 1) // 2
    frame = tokenizer.frame((Role.SYSTEM, Role.USER, *(Role.ASSISTANT, Role.USER) * pairs))
    return marks(tokenizer, [token_id for stretch in frame for token_id in stretch])


@pytest.mark.parametrize("words", INJECTIONS)
async def test_no_words_forge_a_turn_on_any_way_into_a_prompt(tokenizer: ModelTokenizer, words: str) -> None:
    prompt = await prompt_with(tokenizer, words)
    reached = {counted.part.kind for counted in prompt.parts if words[:10] in counted.part.text}
    assert reached == set(PartKind) - {PartKind.SYSTEM}
    assert marks(tokenizer, prompt.ids) == framed(tokenizer, prompt) != []


@pytest.mark.parametrize(
    "asking", [lambda words, most: _title_request(words, words, most), lambda words, most: summary_request(words, [], most)]
)
def test_nor_on_the_way_to_a_title_or_a_summary(tokenizer: ModelTokenizer, asking: Callable[[str, int], Any]) -> None:
    wanted = marks(tokenizer, _fitting(tokenizer, lambda most: asking("harmless", most), 2000))
    for words in INJECTIONS:
        assert marks(tokenizer, _fitting(tokenizer, lambda most, words=words: asking(words, most), 2000)) == wanted != []


def test_the_same_words_would_forge_turns_if_they_were_trusted(tokenizer: ModelTokenizer) -> None:
    assert any(marks(tokenizer, tokenizer.encode_trusted(words)) for words in INJECTIONS)
