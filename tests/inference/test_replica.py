from __future__ import annotations

import pytest

from antiphon.core.clock import ManualClock
from antiphon.core.errors import EngineFailed
from antiphon.engines.base import EngineRequest, Executor, ExecutorShape, ReplicaSpec, StepPlan, StepResult
from antiphon.engines.reference import ReferenceExecutor
from antiphon.engines.reference_tokenizer import ReferenceTokenizer
from antiphon.inference.replica import Replica
from antiphon.inference.wire import (
    Cancel,
    Command,
    FailedFrame,
    FinishedFrame,
    PrefillFrame,
    ReplicaReady,
    Report,
    SequenceFrame,
    StepFrame,
    Stop,
    Submit,
    TokensFrame,
)
from tests.inference.requests import engine_request, prompt_ids


class ScriptedChannel:
    """Hands out commands before given steps, then stops once everything was answered."""

    def __init__(self, script: dict[int, list[Command]]) -> None:
        self._script = script
        self._turn = 0
        self.reports: list[Report] = []

    def receive(self, *, wait: bool, expected: int = 0) -> list[Command]:
        commands = self._script.pop(self._turn, [])
        self._turn += 1
        return commands or ([Stop()] if wait else [])

    def send(self, report: Report) -> None:
        self.reports.append(report)

    @property
    def steps(self) -> list[StepFrame]:
        return [report for report in self.reports if isinstance(report, StepFrame)]

    def about(self, handle: int) -> list[SequenceFrame]:
        return [frame for step in self.steps for frame in step.sequences if frame.handle == handle]


class BreakingExecutor:
    """The reference executor, until it breaks."""

    def __init__(self, good_steps: int, failure: Exception) -> None:
        self._executor = ReferenceExecutor(ReplicaSpec("p", "reference", "m", ""))
        self._good_steps = good_steps
        self._failure = failure

    @property
    def shape(self) -> ExecutorShape:
        return self._executor.shape

    def step(self, plan: StepPlan) -> StepResult:
        self._good_steps -= 1
        if self._good_steps < 0:
            raise self._failure
        return self._executor.step(plan)

    def close(self) -> None:
        self._executor.close()


def serve(script: dict[int, list[Command]], executor: Executor | None = None, *, nasty: bool = False) -> ScriptedChannel:
    channel = ScriptedChannel(script)
    vocabulary = "nasty" if nasty else "ascii"
    executor = executor or ReferenceExecutor(ReplicaSpec("p", "reference", "m", "", vocabulary=vocabulary))
    Replica(executor, ReferenceTokenizer(vocabulary), channel, ManualClock()).run()
    return channel


def answer(request: EngineRequest, *, nasty: bool = False) -> tuple[list[int], str, FinishedFrame]:
    frames = serve({0: [Submit(1, request)]}, nasty=nasty).about(1)
    tokens = [frame for frame in frames if isinstance(frame, TokensFrame)]
    end = frames[-1]
    assert isinstance(end, FinishedFrame)
    return [token for frame in tokens for token in frame.token_ids], "".join(frame.text for frame in tokens) + end.text, end


def test_the_first_frames_say_what_the_replica_is() -> None:
    channel = serve({})
    ready, step = channel.reports
    assert isinstance(ready, ReplicaReady)
    assert ready.context_tokens == 8192
    assert isinstance(step, StepFrame)
    assert step.snapshot.free == ready.shape.blocks
    assert step.times is None


def test_each_step_is_one_frame_with_every_sequence_in_it() -> None:
    channel = serve({0: [Submit(handle, engine_request([handle, 5], max_tokens=3)) for handle in (1, 2)]})
    assert [len(step.sequences) for step in channel.steps] == [0, 2, 2, 4]
    assert [step.snapshot.running for step in channel.steps] == [0, 2, 2, 0]
    assert channel.steps[-1].snapshot.last_handle == 2


def test_a_long_prompt_reports_its_progress() -> None:
    frames = serve({0: [Submit(1, engine_request([7] * 1100, max_tokens=1))]}).about(1)
    progress = [(frame.done_tokens, frame.total_tokens) for frame in frames if isinstance(frame, PrefillFrame)]
    assert progress
    assert progress == sorted(progress)
    assert all(0 < done < total == 1100 for done, total in progress)


@pytest.mark.parametrize("cut", [0, 1, 5, 11])
@pytest.mark.parametrize("nasty", [False, True])
def test_a_resumed_answer_continues_the_text_exactly(cut: int, nasty: bool) -> None:
    ids, text, _ = answer(engine_request(prompt_ids("hello"), max_tokens=12), nasty=nasty)
    before = ReferenceTokenizer().text_stream()
    shown = "".join(before.push(token_id) for token_id in ids[:cut])
    rest, more, end = answer(engine_request(prompt_ids("hello"), max_tokens=12, already_ids=ids[:cut]), nasty=nasty)
    assert ids[:cut] + rest == ids
    assert shown + more == text
    assert end.usage.output_tokens == 12


def test_a_stop_string_ends_the_answer_and_never_leaks() -> None:
    _, text, _ = answer(engine_request(prompt_ids("hello"), max_tokens=20))
    words = text.split()
    stop = f"{words[3]} {words[4]}"
    ids, stopped, end = answer(engine_request(prompt_ids("hello"), max_tokens=20, stop=(stop,)))
    assert stopped == text[: text.index(stop)]
    assert end.reason == "stop"
    assert end.usage.output_tokens == len(ids) < 20


def test_a_stop_string_that_never_comes_is_given_back_at_the_end() -> None:
    _, text, _ = answer(engine_request(prompt_ids("hello"), max_tokens=6))
    stop = text[-4:] + "?"
    _, whole, end = answer(engine_request(prompt_ids("hello"), max_tokens=6, stop=(stop,)))
    assert whole == text
    assert end.text == text[-4:]
    assert end.reason == "length"


def test_a_resumed_answer_that_had_stopped_needs_no_step() -> None:
    ids, text, _ = answer(engine_request(prompt_ids("hello"), max_tokens=6))
    stop = text.split()[2]
    rest, more, end = answer(engine_request(prompt_ids("hello"), max_tokens=20, already_ids=ids, stop=(stop,)))
    assert (rest, more, end.reason, end.usage.output_tokens) == ([], "", "stop", 6)


def test_a_cancelled_request_is_out_of_the_next_step_and_its_blocks_are_back() -> None:
    channel = serve({0: [Submit(1, engine_request(range(40), max_tokens=500))], 4: [Cancel(1), Cancel(99)]})
    end = channel.about(1)[-1]
    assert isinstance(end, FinishedFrame)
    assert (end.reason, end.usage.output_tokens) == ("cancelled", 4)
    last = channel.steps[-1].snapshot
    assert (last.running, last.held, last.cached) == (0, 0, 2)


def test_what_never_fits_is_refused_and_the_others_go_on() -> None:
    channel = serve({0: [Submit(1, engine_request([1] * 9000)), Submit(2, engine_request([1, 2], max_tokens=1))]})
    refused = channel.about(1)
    assert len(refused) == 1
    assert isinstance(refused[0], FailedFrame)
    assert isinstance(channel.about(2)[-1], FinishedFrame)


@pytest.mark.parametrize("failure", [EngineFailed("The accelerator is gone."), RuntimeError("device 0x3f lost")])
def test_a_broken_executor_fails_every_request_here(failure: Exception) -> None:
    channel = ScriptedChannel({0: [Submit(handle, engine_request([handle], max_tokens=9)) for handle in (1, 2)]})
    replica = Replica(BreakingExecutor(2, failure), ReferenceTokenizer(), channel, ManualClock())
    with pytest.raises(type(failure)):
        replica.run()
    for handle in (1, 2):
        end = channel.about(handle)[-1]
        assert isinstance(end, FailedFrame)
        assert "0x3f" not in end.detail


def test_a_first_token_is_told_before_the_others_of_its_step() -> None:
    channel = serve({0: [Submit(1, engine_request([7, 5]))], 2: [Submit(2, engine_request([8, 5], max_tokens=3))]})
    both = next(step for step in channel.steps if len(step.sequences) == 2)
    assert [sequence.handle for sequence in both.sequences] == [2, 1]
