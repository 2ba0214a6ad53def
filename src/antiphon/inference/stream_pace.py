"""How many answers a replica can write at once without any falling below a promised pace. Pure.

The replica's own model says what a step of decode rows takes; what steps really take, with the prompts of those who come and
with whoever else uses the machine, is measured, and the model is scaled by it.
"""

from __future__ import annotations

from antiphon.inference.wire import ReplicaSnapshot

_TERMS = 4
_LATEST = 0.04
"""What a step counts for against all before it: the last second or two."""
_SHARE = 0.9
_MOST_STRETCH = 4.0
_ANY = 1 << 30


class StreamPace:
    """For answers that are to be written at ``tokens_per_s`` each, at least."""

    def __init__(self, tokens_per_s: int) -> None:
        self._step_ms = _SHARE * 1000 / tokens_per_s
        self._last: tuple[ReplicaSnapshot, float] | None = None
        self._gap_ms = self._expected_ms = 0.0

    @property
    def stretch(self) -> float:
        """How much longer a reader waits for a token than decode rows alone would take; 1 until something is known."""
        return min(max(self._gap_ms / self._expected_ms, 1.0), _MOST_STRETCH) if self._expected_ms > 0 else 1.0

    def observe(self, snapshot: ReplicaSnapshot, block_tokens: int, tokens: int, now: float) -> None:
        """A step ended, and brought so many ``tokens``, each to another reader."""
        last, self._last = self._last, (snapshot, now)
        if last is None or not tokens or not last[0].running or len(snapshot.step_ms) < _TERMS:
            return
        step_ms, each_ms = _decode_ms(snapshot, block_tokens)
        share = _LATEST if self._expected_ms > 0 else 1.0
        self._gap_ms += share * (1000 * (now - last[1]) - self._gap_ms)
        self._expected_ms += share * (step_ms + each_ms * tokens - self._expected_ms)

    def pause(self) -> None:
        """The replica has ended: the time until it speaks again was no step."""
        self._last = None

    def rows(self, snapshot: ReplicaSnapshot, block_tokens: int) -> int:
        """How many may run, at least one; any number while nothing is known of the replica's steps."""
        if len(snapshot.step_ms) < _TERMS:
            return _ANY
        step_ms, each_ms = _decode_ms(snapshot, block_tokens)
        return max(int((self._step_ms / self.stretch - step_ms) / each_ms), 1) if each_ms > 0 else _ANY


def _decode_ms(snapshot: ReplicaSnapshot, block_tokens: int) -> tuple[float, float]:
    """Milliseconds of a step, and of each row in it with what the rows look back on now."""
    step_ms, row_ms, _, context_ms = snapshot.step_ms[:_TERMS]
    return step_ms, row_ms + context_ms * snapshot.held * block_tokens / max(snapshot.running, 1)
