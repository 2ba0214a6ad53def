"""What of a model's answer is a title."""

from __future__ import annotations

import pytest

from antiphon.orchestrator.title import title_of, title_request
from tests.engines.families import FAMILIES, INJECTIONS

SAID = "How do I boil an egg? Put it into water: compound interest, tides at sea, café, 東京 の 天気"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Boil an egg", "Boil an egg"),
        ('  **Title: "Boiling an egg".**\n\nMore words', "Boiling an egg"),
        ("<think>The user wants eggs.\nHm.</think>\nTides at sea", "Tides at sea"),
        ("Compound Interest: a concept in finance that has been around", "Compound Interest"),
        ("# Café", "Café"),
        ("東京 の 天気", "東京 の 天気"),
        ("<think>never ends", None),
        ("How to put an egg into boiling water at sea", None),
        ("Boil an egg at war", None),
        ("It is the", None),
        ("", None),
        (" \n*** \n", None),
        ("egg" * 30, None),
    ],
)
def test_titles(text: str, title: str | None) -> None:
    assert title_of(text, SAID) == title


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_no_text_forges_a_turn_when_a_title_is_asked_for(family: object) -> None:
    tokenizer = family.tokenizer()  # type: ignore[attr-defined]

    def marks(text: str) -> list[int]:
        return [token_id for token_id in tokenizer.prompt(title_request(text, text)) if token_id in tokenizer.markup_ids]

    for text in INJECTIONS:
        assert marks(text) == marks("harmless")
