"""From a claimed generation to the request an engine gets. Pure, but for the tokenizer's time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from antiphon.core.generation import Generation, Sampling, TurnParams
from antiphon.core.messages import Role
from antiphon.core.tenancy import Band
from antiphon.engines.base import EngineRequest, PromptMessage, Tokenizer
from antiphon.orchestrator.parts import RenderedPrompt
from antiphon.orchestrator.prompt import SYSTEM_PROMPT, output_tokens
from antiphon.orchestrator.resume import ShownText, resume


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What pool and plan allow one answer. ``default_tokens`` is its length when the caller names none."""

    context_tokens: int
    default_tokens: int
    band: Band


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """``prompt_tokens`` includes the ``base_tokens`` of an earlier generation that the answer goes on from."""

    engine: EngineRequest
    prompt_tokens: int
    base_tokens: int
    skip: str


def sampling_of(params: TurnParams, *, max_tokens: int, noise_name: str) -> Sampling:
    """What to sample with. Without a seed of the caller's the noise is ``noise_name``'s, so a resumed answer draws the same."""
    defaults = Sampling(max_tokens=max_tokens)
    return Sampling(
        max_tokens=max_tokens,
        temperature=defaults.temperature if params.temperature is None else params.temperature,
        top_p=defaults.top_p if params.top_p is None else params.top_p,
        seed=_seed_of(noise_name) if params.seed is None else params.seed,
        stop=params.stop,
    )


def turn_request(
    tokenizer: Tokenizer, generation: Generation, prompt: RenderedPrompt, shown: ShownText, limits: ModelLimits
) -> TurnRequest:
    """The request that answers ``prompt``, or goes on answering it.

    Every generation may add as many tokens as its parameters ask for; text from before a *Continue* is context. Blocking.
    """
    params = generation.params
    resumption = resume(tokenizer, shown, params.stop)
    prompt_ids = prompt.ids
    prompt_tokens = len(prompt_ids) + resumption.base_tokens
    asked = limits.default_tokens if params.max_tokens is None else params.max_tokens
    new_tokens = output_tokens(asked, context_tokens=limits.context_tokens, prompt_tokens=prompt_tokens)
    already_base = 0 if resumption.context_ids else resumption.base_tokens
    engine = EngineRequest(
        request_id=generation.id,
        tenant_id=generation.tenant_id,
        prompt_ids=prompt_ids + resumption.context_ids,
        sampling=sampling_of(params, max_tokens=already_base + new_tokens, noise_name=generation.id),
        already_ids=resumption.already_ids,
        band=limits.band,
        public_prefix_tokens=prompt.public_tokens,
    )
    return TurnRequest(engine, prompt_tokens=prompt_tokens, base_tokens=already_base, skip=resumption.skip)


def public_prefix_tokens(tokenizer: Tokenizer, prompt_ids: Sequence[int]) -> int:
    """How many leading ids are the server's own, the same for every tenant: the system prompt and what the template puts
    around it. Whoever else begins with the very same ids says nothing of their own in them.
    """
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(prompt_ids, _system_ids(tokenizer), strict=False)))


@lru_cache(maxsize=32)
def _system_ids(tokenizer: Tokenizer) -> tuple[int, ...]:
    return tuple(tokenizer.prompt((PromptMessage(Role.SYSTEM, SYSTEM_PROMPT),)))


def _seed_of(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
