"""How an answer goes on where its text stopped: after a takeover, and for *Continue*."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.engines.base import Tokenizer


@dataclass(frozen=True, slots=True)
class Resumption:
    """What an engine must be given so that its next text follows the text shown.

    ``context_ids`` end the prompt, ``already_ids`` begin the answer. ``base_tokens`` of them together belong to an earlier
    generation. ``skip`` was shown and will come out of the engine once more.
    """

    context_ids: tuple[int, ...] = ()
    already_ids: tuple[int, ...] = ()
    base_tokens: int = 0
    skip: str = ""


@dataclass(frozen=True, slots=True)
class ShownText:
    """Text that readers hold: ``prior`` from an earlier generation, ``own`` from this one with the ids behind it."""

    prior: str
    prior_ids: tuple[int, ...]
    own: str
    own_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Decoded:
    text: str
    held: str
    stopped: bool


def resume(tokenizer: Tokenizer, shown: ShownText, stop: Sequence[str]) -> Resumption:
    """The resumption after ``shown``. ``prior_ids`` are used where they render exactly ``prior``, else it is encoded anew.

    A stop string within ``prior`` would end the answer before it goes on, so such a text becomes context instead.
    Blocking: it decodes all ids and may encode ``prior``.
    """
    base = _base_ids(tokenizer, shown)
    if base and _decode(tokenizer, base, stop).stopped:
        own = _decode(tokenizer, shown.own_ids, stop)
        return Resumption(base, shown.own_ids, len(base), _skip(own, shown.own))
    already = (*base, *shown.own_ids)
    decoded = _decode(tokenizer, already, stop)
    return Resumption((), already, len(base), _skip(decoded, shown.prior + shown.own))


def _base_ids(tokenizer: Tokenizer, shown: ShownText) -> tuple[int, ...]:
    if not shown.prior:
        return ()
    ids = shown.prior_ids
    while ids and ids[-1] in tokenizer.end_token_ids:
        ids = ids[:-1]
    if ids and _decode(tokenizer, ids, ()).text == shown.prior:
        return ids
    return tuple(tokenizer.encode(shown.prior))


def _decode(tokenizer: Tokenizer, ids: Sequence[int], stop: Sequence[str]) -> _Decoded:
    stream = tokenizer.text_stream(stop)
    pieces: list[str] = []
    for token_id in ids:
        if stream.stopped:
            break
        pieces.append(stream.push(token_id))
    stopped = stream.stopped
    return _Decoded("".join(pieces), "" if stopped else stream.finish(), stopped)


def _skip(decoded: _Decoded, shown: str) -> str:
    """What the engine's decoder still holds back of a text that was shown to its end."""
    return decoded.held if decoded.held and shown == decoded.text + decoded.held else ""
