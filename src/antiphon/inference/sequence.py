"""One request inside a replica. One rule: its computed tokens catch up with its total tokens. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from antiphon.core.generation import FinishReason
from antiphon.engines.base import EngineRequest, EngineUsage, prompt_sha256
from antiphon.inference.prefix_cache import BlockTokens, CachedBlock


@dataclass(slots=True, eq=False)
class Sequence:
    """Progress of one request. ``tokens`` is the prompt and all output so far; ``computed`` of them are in the KV cache.

    There are no phases: prefill, decode, resumption and a cached prefix are all ``computed`` catching up with
    ``len(tokens)``. A step that catches up samples one token. Times are seconds of the caller's monotonic clock.
    """

    id: int
    request: EngineRequest
    limit_tokens: int
    """Total tokens at which it ends with ``length``: prompt + max_tokens, or the context."""
    submitted_at: float
    tokens: list[int]
    output_ids: list[int]
    prompt_sha256: bytes
    blocks: list[int] = field(default_factory=list[int])
    computed: int = 0
    cached: int = 0
    """Tokens that were found in the prefix cache instead of being computed."""
    indexed: CachedBlock | None = None
    """The deepest of its blocks that the prefix cache knows."""
    indexed_blocks: int = 0
    started_at: float | None = None
    caught_up_at: float | None = None
    accelerator_s: float = 0.0

    @classmethod
    def from_request(cls, sequence_id: int, request: EngineRequest, context_tokens: int, now: float) -> Sequence:
        prompt_tokens = len(request.prompt_ids)
        return cls(
            id=sequence_id,
            request=request,
            limit_tokens=min(prompt_tokens + request.sampling.max_tokens, context_tokens),
            submitted_at=now,
            tokens=[*request.prompt_ids, *request.already_ids],
            output_ids=list(request.already_ids),
            prompt_sha256=prompt_sha256(request.prompt_ids),
        )

    @property
    def remaining(self) -> int:
        """Tokens still to compute before the next one can be sampled; 1 in plain decoding."""
        return len(self.tokens) - self.computed

    def peak_blocks(self, block_tokens: int) -> int:
        """Blocks it can ever hold. The last token is sampled and never computed."""
        return -(-(self.limit_tokens - 1) // block_tokens)

    def block_key(self, index: int, block_tokens: int) -> BlockTokens:
        """The ids of its ``index``-th block, which must be full."""
        return tuple(self.tokens[index * block_tokens : (index + 1) * block_tokens])

    def prompt_keys(self, block_tokens: int) -> list[BlockTokens]:
        """Ids of the full blocks that a cache may supply: the last token is always computed, for its logits."""
        return [self.block_key(index, block_tokens) for index in range((len(self.tokens) - 1) // block_tokens)]

    def reason_after(self, end_token_ids: frozenset[int]) -> FinishReason | None:
        """Why it ends with the tokens it has now, if it does."""
        if self.output_ids and not self.request.ignore_end_of_turn and self.output_ids[-1] in end_token_ids:
            return FinishReason.STOP
        return FinishReason.LENGTH if len(self.tokens) >= self.limit_tokens else None

    def append(self, token_id: int, now: float) -> None:
        """Take a sampled token."""
        self.tokens.append(token_id)
        self.output_ids.append(token_id)
        if self.caught_up_at is None:
            self.caught_up_at = now

    def usage(self, now: float) -> EngineUsage:
        """What it has cost up to ``now``.

        ``output_tokens`` counts every token that was sampled, the end-of-turn token and ``already_ids`` included.
        ``accelerator_ms`` is its share, by tokens, of each step it took part in.
        """
        started = now if self.started_at is None else self.started_at
        caught_up = now if self.caught_up_at is None else self.caught_up_at
        prompt_tokens = len(self.request.prompt_ids)
        return EngineUsage(
            prompt_tokens=prompt_tokens,
            cached_tokens=min(self.cached, prompt_tokens),
            output_tokens=len(self.output_ids),
            queued_ms=_ms(started - self.submitted_at),
            prefill_ms=_ms(caught_up - started),
            decode_ms=_ms(now - caught_up),
            accelerator_ms=_ms(self.accelerator_s),
        )

    def check(self, block_tokens: int) -> None:
        """Raise ``AssertionError`` unless its numbers agree."""
        assert self.tokens == [*self.request.prompt_ids, *self.output_ids]
        assert 0 <= self.computed < len(self.tokens) <= self.limit_tokens
        assert len(self.blocks) == -(-self.computed // block_tokens)
        assert len(self.blocks) <= self.peak_blocks(block_tokens)
        assert self.indexed_blocks == self.computed // block_tokens
        assert self.cached <= self.computed


def _ms(seconds: float) -> int:
    return round(max(seconds, 0.0) * 1000)
