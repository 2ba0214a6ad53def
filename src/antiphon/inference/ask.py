"""What a turn asks of a pool, as the gateway's policies see it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from antiphon.core.tenancy import Band
from antiphon.engines.base import EngineRequest

_ANSWER_PART = 4


@dataclass(frozen=True, slots=True)
class Ask:
    """Whose turn it is, what it will need, and how long its plan lets it wait.

    ``output_tokens`` is the most the answer may have; ``free_length``: nobody named that number, so it may be lowered.
    ``wait_limit_s`` is the plan's limit for the first token. ``kind`` says what sort of request it is: lengths are learned
    for each kind. ``reserved_tokens_per_s``, prompt and answer together, go to the tenant before anybody else's.
    """

    tenant: str
    user: str
    prompt_tokens: int
    output_tokens: int
    band: Band = Band.STANDARD
    wait_limit_s: float = 10.0
    free_length: bool = False
    downgrade: bool = False
    plan: str = ""
    conversation: str = ""
    kind: str = "chat"
    weight: float = 1.0
    reserved_tokens_per_s: float = 0.0

    def within(self, context_tokens: int) -> Ask:
        """The same turn, asked of a model of so many tokens (0: not known): its prompt is trimmed until a quarter is the answer's."""
        if context_tokens <= 0:
            return self
        output_tokens = min(self.output_tokens, max(context_tokens - self.prompt_tokens, context_tokens // _ANSWER_PART))
        return replace(self, prompt_tokens=min(self.prompt_tokens, context_tokens - output_tokens), output_tokens=output_tokens)


@dataclass(frozen=True, slots=True)
class Demand:
    """What one request is expected to take: ``tokens`` of KV cache at its peak, ``prefill_tokens`` to compute before the first
    of ``output_tokens``. The peak counts with a long answer, ``output_tokens`` is what an answer has on average.
    """

    tokens: int
    prefill_tokens: int
    output_tokens: float


def ask_of(request: EngineRequest) -> Ask:
    """What can be told from a request alone, for one that nobody was asked about: it was accepted before a restart."""
    return Ask(
        tenant=request.tenant_id,
        user="",
        prompt_tokens=len(request.prompt_ids),
        output_tokens=request.sampling.max_tokens,
        band=request.band,
        weight=request.weight,
    )
