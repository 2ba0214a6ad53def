"""How many tokens that are not decode rows go into one step. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.inference.step_time import StepLoad, StepTimeModel

_SMALLEST_CHUNK = 8
_BURST_PART = 8
_SOME_ROWS = range(4, 8)
_SLACK, _ROUND = 1.25, 2.0
"""A prompt that would be finished by so much more than its share is finished: the rest would cost a whole step. Where
nobody decodes that is to the nearest whole prompt.
"""


@dataclass(frozen=True, slots=True)
class StepTargets:
    """How long a step may take, in seconds, and how many tokens it may hold at most.

    Beside decode rows a step takes at most ``inter_token_s``, or ``stretch`` times what it would take without prefill
    where that is more; a prompt that would take no longer by itself is *short*. One that does not fit into one step takes
    ``long_share`` of what that leaves, since it disturbs many steps. Where several short prompts wait at once, together they
    may take ``burst_inter_tokens`` times the former or ``burst_rows`` times the latter, but no longer than ``burst_s``; how many
    of them begin in one step says ``most_prompts``.
    """

    inter_token_s: float = 0.05
    stretch: float = 2.2
    long_share: float = 0.85
    burst_inter_tokens: float = 1.3
    burst_rows: float = 5.0
    burst_s: float = 0.25
    burst_prompts: int = 3
    alone_s: float = 0.2
    prefill_tokens_beside_decode: int = 512
    prefill_tokens_alone: int = 1024

    def most_prompts(self, rows: int, waiting: int, passed_by: int) -> int:
        """How many of ``waiting`` short prompts begin in one step beside ``rows`` decode rows.

        ``burst_prompts``, or an eighth of them where that is more. More in one step answer the first of them later; fewer make
        more long steps for all that decode, and those who begin together come back together. Beside 4 to 7 rows that
        balance is at one fewer, unless more than that were ``passed_by`` in a step before.
        """
        fewer = self.burst_prompts - 1
        burst = fewer if rows in _SOME_ROWS and passed_by <= fewer else self.burst_prompts
        return max(burst, waiting // _BURST_PART)


class StepBudget:
    """What is left of one step's time for prompts, after its decode rows.

    A *short* prompt fits into one step. Short ones go whole or wait, in order: of several that begin together the first
    is answered when it is computed, not when all are, and from then on they take turns. So a step takes a few, whether
    somebody decodes yet or not.
    """

    def __init__(
        self, model: StepTimeModel, targets: StepTargets, load: StepLoad, waiting: Sequence[tuple[int, int]], passed_by: int = 0
    ) -> None:
        """``load`` is the decode rows, ``waiting`` the (cached, uncached) tokens of everything else that could go along;
        ``passed_by`` of them could have gone along before.
        """
        self._model = model
        rows_s = model.seconds(load)
        self._short_s = max(targets.inter_token_s, targets.stretch * rows_s)
        share = self._short_s - rows_s
        self._tokens = self._most_tokens = targets.prefill_tokens_beside_decode if load.rows else targets.prefill_tokens_alone
        shorts = [one for one in waiting if self._is_short(*one)]
        self._left_prompts = targets.most_prompts(load.rows, len(shorts), passed_by)
        together_s = max(targets.burst_inter_tokens * targets.inter_token_s, targets.burst_rows * rows_s)
        self._burst_s = max(min(together_s, targets.burst_s), self._short_s)
        if load.rows:
            self._left_s = share * targets.long_share
        else:
            self._left_s = share if shorts else max(targets.alone_s - rows_s, share)
        self._slack = _SLACK if load.rows else _ROUND
        self._first = load.rows == 0

    @property
    def spent(self) -> bool:
        """Whether nobody can get anything any more."""
        return self._tokens <= 0 or ((self._burst_s <= 0 or self._left_prompts <= 0) and not self._first)

    def chunk(self, past: int, remaining: int, multiple: int) -> int:
        """Tokens for one with ``remaining`` to compute after ``past``: all of them, or else a ``multiple``; 0 when it has to wait.

        The first of a step without decode rows always gets something, a short one all.
        """
        short = self._is_short(past, remaining)
        if short and self._first:
            return remaining
        tokens = min(self._model.chunk_within(self._burst_s if short else self._left_s, past), self._tokens)
        if remaining <= min(tokens * self._slack, self._tokens):
            return remaining
        if short:
            return 0
        tokens = tokens // multiple * multiple
        if tokens >= _SMALLEST_CHUNK:
            return tokens
        return min(remaining, max(_SMALLEST_CHUNK, multiple), self._tokens) if self._first else 0

    def spend(self, past: int, tokens: int) -> None:
        seconds = self._model.chunk_seconds(past, tokens)
        self._left_s -= seconds
        self._burst_s -= seconds
        self._tokens -= tokens
        self._left_prompts -= 1
        self._first = False

    def _is_short(self, past: int, tokens: int) -> bool:
        return tokens <= self._most_tokens and self._model.chunk_seconds(past, tokens) <= self._short_s
