"""A replica that writes down, before it tells anybody, what its engine does for whom: the account that usage is held against.

One line of JSON per event, appended with one ``write``, so that a killed process loses nothing that it had told. ``began``: a request's
first step; ``read``: how many positions of its prompt were computed in a step; ``ended``: the engine's own last word.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from antiphon.app import worker
from antiphon.engines.base import StepPlan, StepResult
from antiphon.engines.reference import ReferenceExecutor
from antiphon.inference.channel import ReplicaChannel
from antiphon.inference.wire import Command, FinishedFrame, Report, StepFrame, Submit

_requests: dict[int, Any] = {}
_begun: set[int] = set()
_furthest: dict[int, int] = {}
_file = os.open(os.environ["ANTIPHON_COUNTED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def note(kind: str, handle: int, **figures: int | str) -> None:
    request = _requests[handle]
    line = {"kind": kind, "pid": os.getpid(), "handle": handle, "generation": request.request_id, "tenant": request.tenant_id, **figures}
    os.write(_file, json.dumps(line).encode() + b"\n")


class CountedChannel(ReplicaChannel):
    def receive(self, *, wait: bool, expected: int = 0) -> list[Command]:
        commands = super().receive(wait=wait, expected=expected)
        for command in commands:
            if isinstance(command, Submit):
                _requests[command.handle] = command.request
        return commands

    def send(self, report: Report) -> None:
        for frame in report.sequences if isinstance(report, StepFrame) else ():
            if isinstance(frame, FinishedFrame):
                usage, request = frame.usage, _requests[frame.handle]
                note(
                    "ended",
                    frame.handle,
                    prompt=usage.prompt_tokens,
                    cached=usage.cached_tokens,
                    output=usage.output_tokens,
                    already=len(request.already_ids),
                    reason=frame.reason,
                )
        super().send(report)


class CountedExecutor(ReferenceExecutor):
    def step(self, plan: StepPlan) -> StepResult:
        result = super().step(plan)
        for sequence in plan.sequences:
            handle, prompt = sequence.sequence_id, len(_requests[sequence.sequence_id].prompt_ids)
            if handle not in _begun:
                _begun.add(handle)
                note("began", handle, prompt=prompt)
            begin = max(sequence.past_tokens, _furthest.get(handle, 0))
            end = min(sequence.past_tokens + len(sequence.token_ids), prompt)
            if end > begin:
                _furthest[handle] = end
                note("read", handle, tokens=end - begin)
            if sequence.sample is not None:
                note("sampled", handle)
        return result


if __name__ == "__main__":
    import antiphon.engines.reference
    import antiphon.inference.channel

    antiphon.engines.reference.ReferenceExecutor = CountedExecutor  # type: ignore[misc]
    antiphon.inference.channel.ReplicaChannel = CountedChannel  # type: ignore[misc]
    code = worker.main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
