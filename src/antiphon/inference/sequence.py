"""One request inside a replica. One rule: its computed tokens catch up with its total tokens. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from antiphon.core.generation import FinishReason
from antiphon.engines.base import EngineRequest, EngineUsage, prompt_sha256
from antiphon.inference.fair_share import Account
from antiphon.inference.prefix_cache import PUBLIC_SALT, BlockTokens, CachedBlock

MOST_PREEMPTIONS = 2


@dataclass(frozen=True, slots=True)
class Room:
    """What a sequence lives in."""

    context_tokens: int
    block_tokens: int


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
    account: Account
    block_tokens: int
    blocks: list[int] = field(default_factory=list[int])
    computed: int = 0
    cached: int = 0
    """Tokens that were found in the prefix cache instead of being computed."""
    indexed: CachedBlock | None = None
    """The deepest of its blocks that the prefix cache knows."""
    indexed_blocks: int = 0
    shared_blocks: int = 0
    """Leading blocks that somebody else computed."""
    expected_tokens: int = 0
    """Total tokens that it is predicted to have in the end; what admission counts with."""
    expected_blocks: int = 0
    firm: bool = False
    """Every block it can ever need is promised to it: it is never pre-empted for want of blocks."""
    preemptions: int = 0
    pinned: CachedBlock | None = None
    """Where a pre-empted sequence's cache ends."""
    computed_before: int = 0
    """What a pre-empted sequence had computed."""
    uncached: int = 0
    """While it waits: tokens to compute, as far as is known."""
    passed_over: int = 0
    """How often others were admitted because this one did not fit yet."""
    started_at: float | None = None
    caught_up_at: float | None = None
    accelerator_s: float = 0.0
    furthest: int = 0
    """Tokens of it that were ever there after a step, read from a cache or computed."""
    keys: list[BlockTokens] = field(default_factory=list["BlockTokens"])

    @classmethod
    def from_request(cls, sequence_id: int, request: EngineRequest, room: Room, account: Account, now: float) -> Sequence:
        return cls(
            id=sequence_id,
            request=request,
            limit_tokens=min(len(request.prompt_ids) + request.sampling.max_tokens, room.context_tokens),
            submitted_at=now,
            tokens=[*request.prompt_ids, *request.already_ids],
            output_ids=list(request.already_ids),
            prompt_sha256=prompt_sha256(request.prompt_ids),
            account=account,
            block_tokens=room.block_tokens,
        )

    @property
    def remaining(self) -> int:
        """Tokens still to compute before the next one can be sampled; 1 in plain decoding."""
        return len(self.tokens) - self.computed

    @property
    def peak_blocks(self) -> int:
        """Blocks it can ever hold. The last token is sampled and never computed."""
        return -(-(self.limit_tokens - 1) // self.block_tokens)

    @property
    def current_blocks(self) -> int:
        """Blocks that the tokens it has now fill once they are computed."""
        return -(-len(self.tokens) // self.block_tokens)

    def expect(self, tokens: int) -> None:
        """It will probably have so many tokens in the end."""
        self.expected_tokens = tokens
        self.expected_blocks = -(-max(tokens, len(self.tokens)) // self.block_tokens)

    def block_key(self, index: int) -> BlockTokens:
        """The ids of its ``index``-th block, which must be full."""
        keys = self.keys
        while len(keys) <= index:
            begin = len(keys) * self.block_tokens
            keys.append(tuple(self.tokens[begin : begin + self.block_tokens]))
        return keys[index]

    def salt(self, index: int) -> str:
        """Under which salt its ``index``-th block is cached."""
        return PUBLIC_SALT if index < self.public_blocks else self.request.tenant_id

    @property
    def public_blocks(self) -> int:
        return min(self.request.public_prefix_tokens, len(self.request.prompt_ids)) // self.block_tokens

    def prompt_keys(self) -> list[BlockTokens]:
        """Ids of the full blocks that a cache may supply: the last token is always computed, for its logits."""
        full = (len(self.tokens) - 1) // self.block_tokens
        if full > 0:
            self.block_key(full - 1)
        return self.keys[:full]

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

        ``prompt_tokens`` are those that were read: of one that is cancelled in between, not the rest. ``output_tokens`` counts every
        token that was sampled, the end-of-turn token and ``already_ids`` included.
        ``accelerator_ms`` is its share, by tokens, of each step it took part in.
        """
        started = now if self.started_at is None else self.started_at
        caught_up = now if self.caught_up_at is None else self.caught_up_at
        prompt_tokens = min(self.furthest, len(self.request.prompt_ids))
        return EngineUsage(
            prompt_tokens=prompt_tokens,
            cached_tokens=min(self.cached, prompt_tokens),
            output_tokens=len(self.output_ids),
            queued_ms=_ms(started - self.submitted_at),
            prefill_ms=_ms(caught_up - started),
            decode_ms=_ms(now - caught_up),
            accelerator_ms=_ms(self.accelerator_s),
        )

    def check(self) -> None:
        """Raise ``AssertionError`` unless the numbers of a running sequence agree."""
        size = self.block_tokens
        assert len(self.tokens) == len(self.request.prompt_ids) + len(self.output_ids)
        assert 0 <= self.computed < len(self.tokens) <= self.limit_tokens
        assert len(self.blocks) == -(-self.computed // size)
        assert len(self.blocks) <= self.peak_blocks
        assert self.indexed_blocks == self.computed // size
        assert self.shared_blocks <= self.indexed_blocks
        assert self.pinned is None
        assert self.preemptions <= MOST_PREEMPTIONS


def _ms(seconds: float) -> int:
    return round(max(seconds, 0.0) * 1000)
