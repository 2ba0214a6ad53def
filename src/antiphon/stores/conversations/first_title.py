"""A first title for a conversation that has none, made from the first text a person wrote."""

from __future__ import annotations

FIRST_TITLE_CHARACTERS = 60


def first_title(content: str) -> str:
    """The first line of ``content`` with any text, white space collapsed, at most 60 characters, cut between words where it can be."""
    line = next((" ".join(line.split()) for line in content.splitlines() if line.strip()), "")
    if len(line) <= FIRST_TITLE_CHARACTERS:
        return line
    cut = line[: FIRST_TITLE_CHARACTERS - 1]
    at_word = cut.rfind(" ")
    if at_word >= FIRST_TITLE_CHARACTERS // 2:
        cut = cut[:at_word]
    return cut.rstrip() + "…"
