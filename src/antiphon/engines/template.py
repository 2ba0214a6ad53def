"""A model's chat template: text the template wrote is trusted, text that people wrote is not, and the two never mix.

The template is rendered with a marker in place of each message's content; what lies between the markers is the template's own. So
nothing a person types passes through the template or is read as one of its control tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from antiphon.core.errors import ModelUnusable
from antiphon.core.messages import Role
from antiphon.engines.base import PromptMessage

_MARKER = re.compile("\ue0f0([0-9]+)\ue0f1")
_JOINT = "\n\n"


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

    def frame(self, roles: Sequence[Role]) -> tuple[str, ...]:
        """What stands before the content of each message of these roles, and behind the last, up to where the answer begins.

        A system message for a model whose template has no place for one goes right before the text of the user's message after it.
        """
        if self._takes_system or Role.SYSTEM not in roles:
            return self._render(roles)
        kept = [role for role in roles if role is not Role.SYSTEM]
        stretches = iter(self._render(kept))
        frame: list[str] = []
        for index, role in enumerate(roles):
            follows_system = index > 0 and roles[index - 1] is Role.SYSTEM
            frame.append(_JOINT if follows_system else next(stretches))
            if role is Role.SYSTEM and list(roles[index + 1 : index + 2]) not in ([Role.SYSTEM], [Role.USER]):
                raise ModelUnusable("The model's chat template takes a system message only before a user's.")
        return (*frame, next(stretches))

    def folded(self, messages: Sequence[PromptMessage]) -> Sequence[PromptMessage]:
        """The same messages for a template without a place for system messages, wherever those stand."""
        if self._takes_system:
            return messages
        folded: list[PromptMessage] = []
        waiting = ""
        for message in messages:
            if message.role is Role.SYSTEM:
                waiting += message.content + _JOINT
            elif message.role is Role.USER:
                folded.append(PromptMessage(Role.USER, waiting + message.content))
                waiting = ""
            else:
                folded.append(message)
        return folded

    def _carries(self, role: Role) -> bool:
        try:
            self._render([role] if role is Role.USER else [role, Role.USER])
        except ModelUnusable:
            return False
        return True

    def _render(self, roles: Sequence[Role]) -> tuple[str, ...]:
        """Raises ``ModelUnusable`` for a template that leaves a message out, repeats one or changes their order."""
        messages = [{"role": role.value, "content": f"\ue0f0{index}\ue0f1"} for index, role in enumerate(roles)]
        try:
            rendered = self._template.render(messages=messages, add_generation_prompt=True, tools=None, **self._tokens)
        except (TemplateError, TypeError, ValueError) as error:
            raise ModelUnusable("The model's chat template cannot be rendered.") from error
        parts = _MARKER.split(rendered)
        if [int(number) for number in parts[1::2]] != list(range(len(roles))):
            raise ModelUnusable("The model's chat template does not carry every message once, in order.")
        return tuple(parts[::2])


def _raise_exception(message: str) -> str:
    raise TemplateError(message)


def _no_date(_format: str) -> str:
    """A date would change the prompt, and with it the cached prefix, every day."""
    return ""
