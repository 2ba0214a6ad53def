"""A turn's prompt as its owner may read it: each part with its tokens and how many of them the cache had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.core.errors import NotFound
from antiphon.core.generation import Generation
from antiphon.core.ids import GenerationId, MessageId
from antiphon.orchestrator.parts import CountedPart, Question
from antiphon.orchestrator.planner import Place, PromptPlanner
from antiphon.orchestrator.ports import Ports
from antiphon.stores.conversations.base import Owner


@dataclass(frozen=True, slots=True)
class ShownPrompt:
    """``cached`` has one figure for each part: the cache holds a prompt from its beginning."""

    parts: tuple[CountedPart, ...]
    cached: tuple[int, ...]
    prompt_tokens: int
    omitted: tuple[MessageId, ...]


class PromptDesk:
    """Where prompts are looked at."""

    def __init__(self, ports: Ports, planner: PromptPlanner) -> None:
        self._ports = ports
        self._planner = planner

    async def prompt_of(self, owner: Owner, generation_id: GenerationId) -> ShownPrompt:
        """What a generation was given to read. Raises ``NotFound``, also for one whose prompt nobody recorded, and ``ModelGone``."""
        conversations = self._ports.conversations
        generation = await self._ports.generations.get(owner, generation_id)
        answer = await conversations.message(owner, generation.message_id)
        record = answer.prompt
        if record is None or generation.user_message_id is None:
            raise NotFound("The prompt of this answer was not recorded.")
        asked = await conversations.message(owner, generation.user_message_id)
        place = Place(owner, generation.conversation_id, asked.parent_id)
        pool = self._ports.gateway.resolve(record.model, ())
        rendered = await self._planner.render(place, Question(asked.id, asked.content), record, pool)
        if rendered is None:
            raise NotFound("The prompt of this answer was not recorded.")
        omitted = await self._planner.omitted(place, record)
        return ShownPrompt(rendered.parts, _cached(rendered.parts, generation), len(rendered.ids), omitted)


def _cached(parts: Sequence[CountedPart], generation: Generation) -> tuple[int, ...]:
    left = generation.usage.cached_tokens
    cached: list[int] = []
    for part in parts:
        cached.append(min(left, part.tokens))
        left -= cached[-1]
    return tuple(cached)
