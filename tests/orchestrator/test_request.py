from __future__ import annotations

from antiphon.core.messages import Role
from antiphon.engines.base import PromptMessage
from antiphon.engines.reference_tokenizer import ReferenceTokenizer
from antiphon.orchestrator.prompt import SYSTEM_PROMPT
from antiphon.orchestrator.request import public_prefix_tokens


def test_only_the_servers_own_system_prompt_is_public() -> None:
    tokenizer = ReferenceTokenizer()
    system, other = PromptMessage(Role.SYSTEM, SYSTEM_PROMPT), PromptMessage(Role.SYSTEM, "You are a pirate.")
    question = PromptMessage(Role.USER, SYSTEM_PROMPT + " a secret")
    shared = public_prefix_tokens(tokenizer, tokenizer.prompt([system, question]))
    assert shared == len(tokenizer.prompt([system])) - 1
    assert shared < public_prefix_tokens(tokenizer, tokenizer.prompt([system])) == shared + 1
    assert public_prefix_tokens(tokenizer, tokenizer.prompt([other, question])) < shared
    assert public_prefix_tokens(tokenizer, ()) == 0
