"""The text of the ``streams`` benchmark's events: its number and the moment of its append, then filler that both sides know."""

from __future__ import annotations

WORDS = ("the antiphon answers ", "ein Wort, gr\u00fc\u00dfend ", "\U0001f600\U0001f3fd data: x ", "line\r\nbreak ", "\u2028 separator ")


def filler(seq: int, size: int) -> str:
    """What stands behind the numbers of event ``seq``."""
    word = WORDS[seq % len(WORDS)]
    return word * max(1, size // len(word))


def delta_text(seq: int, at_ns: int, size: int) -> str:
    return f"{seq}|{at_ns}|{filler(seq, size)}"
