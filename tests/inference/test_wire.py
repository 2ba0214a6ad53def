from __future__ import annotations

import msgspec
import pytest

from antiphon.core.tenancy import Band
from antiphon.engines.base import EngineUsage, ExecutorShape, ReplicaSpec
from antiphon.inference.wire import (
    Cancel,
    Command,
    FailedFrame,
    FinishedFrame,
    Handshake,
    PrefillFrame,
    ReplicaReady,
    ReplicaSnapshot,
    Report,
    SetBand,
    StepFrame,
    StepTimes,
    Stop,
    Submit,
    TokensFrame,
    decode_command,
    decode_report,
    encode,
)
from tests.inference.requests import engine_request, in_band


@pytest.mark.parametrize(
    "command",
    [
        Submit(1, in_band(engine_request(range(5), stop=("\r\n", "é"), already_ids=[3]), Band.HIGH)),
        Cancel(2),
        SetBand(3, Band.BATCH),
        Stop(),
    ],
)
def test_commands_survive_the_wire(command: Command) -> None:
    assert decode_command(encode(command)) == command


@pytest.mark.parametrize(
    "report",
    [
        ReplicaReady(7, ExecutorShape(8, 32, 256, 1000, frozenset({1, 2})), 256, 64),
        StepFrame(
            (
                PrefillFrame(1, 5, 9),
                TokensFrame(2, (4, 5), "\u2028data: \U0001f600"),
                FinishedFrame(3, "stop", EngineUsage(1, 2, 3, 4, 5, 6, 7), "."),
                FailedFrame(4, "No."),
            ),
            ReplicaSnapshot(1, 2, 3, 4, 5, -6, 7),
            StepTimes(0.1, 0.2, 0.3, 0.4),
        ),
    ],
)
def test_reports_survive_the_wire(report: Report) -> None:
    assert decode_report(encode(report)) == report


def test_a_handshake_is_one_line_of_json() -> None:
    handshake = Handshake("small-0", ReplicaSpec("small", "reference", "m\n", "/models/m"), "ipc:///run/0-1.sock")
    line = msgspec.json.encode(handshake)
    assert b"\n" not in line
    assert msgspec.json.decode(line, type=Handshake) == handshake


def test_garbage_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_report(b"\xc1")
    with pytest.raises(msgspec.ValidationError):
        decode_command(encode(StepFrame((), ReplicaSnapshot(0, 0, 0, 0, 0, 0, 0), None)))
