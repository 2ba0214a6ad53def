"""A model's chat template: text the template wrote is trusted, text that people wrote is not, and the two never mix.

The template is rendered once with a marker in place of each message's content; what lies between the markers is the
template's own. So nothing a person types passes through the template or is read as one of its control tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from antiphon.core.errors import ModelUnusable
from antiphon.core.messages import Role
from antiphon.engines.base import PromptMessage

_MARKER = re.compile("\ue0f0([0-9]+)\ue0f1")


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a prompt. In ``trusted`` text the names of control tokens stand for the tokens."""

    text: str
    trusted: bool


class ChatTemplate:
    """A Jinja template in a sandbox. Raises ``ModelUnusable`` where it cannot be parsed or does not carry a message."""

    def __init__(self, source: str, bos_token: str = "", eos_token: str = "") -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "sort_keys": False}
        try:
            self._template = environment.from_string(source, globals={"raise_exception": _raise_exception, "strftime_now": _no_date})
        except TemplateError as error:
            raise ModelUnusable("The model's chat template cannot be read.") from error
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._takes_system = self._carries(Role.SYSTEM)
        if not self._carries(Role.USER):
            raise ModelUnusable("The model's chat template does not take a user's message.")

    def pieces(self, messages: Sequence[PromptMessage]) -> tuple[Piece, ...]:
        """The prompt in order, up to where the assistant's answer begins; empty pieces are left out.

        A system message for a model whose template has no place for one goes before the first user message's text.
        """
        folded = messages if self._takes_system else _fold_system(messages)
        rendered = self._render([message.role for message in folded])
        parts = _MARKER.split(rendered)
        pieces = [
            Piece(part, trusted=True) if index % 2 == 0 else Piece(folded[int(part)].content, trusted=False)
            for index, part in enumerate(parts)
        ]
        return tuple(piece for piece in pieces if piece.text)

    def _carries(self, role: Role) -> bool:
        roles = [role] if role is Role.USER else [role, Role.USER]
        try:
            return {int(number) for number in _MARKER.findall(self._render(roles))} == set(range(len(roles)))
        except ModelUnusable:
            return False

    def _render(self, roles: Sequence[Role]) -> str:
        messages = [{"role": role.value, "content": f"\ue0f0{index}\ue0f1"} for index, role in enumerate(roles)]
        try:
            return self._template.render(messages=messages, add_generation_prompt=True, tools=None, **self._tokens)
        except (TemplateError, TypeError, ValueError) as error:
            raise ModelUnusable("The model's chat template cannot be rendered.") from error


def _fold_system(messages: Sequence[PromptMessage]) -> list[PromptMessage]:
    folded: list[PromptMessage] = []
    waiting = ""
    for message in messages:
        if message.role is Role.SYSTEM:
            waiting += f"{message.content}\n\n"
        elif message.role is Role.USER:
            folded.append(PromptMessage(Role.USER, waiting + message.content))
            waiting = ""
        else:
            folded.append(message)
    return folded


def _raise_exception(message: str) -> str:
    raise TemplateError(message)


def _no_date(_format: str) -> str:
    """A date would change the prompt, and with it the cached prefix, every day."""
    return ""
