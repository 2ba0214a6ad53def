from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
import zmq

from antiphon.inference.channel import GatewayChannel, ReplicaChannel
from antiphon.inference.supervisor import ipc_address
from antiphon.inference.wire import Cancel, Command


async def test_no_command_of_a_burst_is_lost_while_the_replica_computes(tmp_path: Path) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    address = ipc_address(tmp_path, "a.sock")
    channel = GatewayChannel(context, address, lambda report: None)
    replica = ReplicaChannel(address)
    sent = [Cancel(handle) for handle in range(5000)]
    try:
        await asyncio.sleep(0.05)
        for command in sent:
            channel.send(command)
        received: list[Command] = []
        async with asyncio.timeout(10):
            while len(received) < len(sent):
                received += replica.receive(wait=False)
                await asyncio.sleep(0.001)
        assert received == sent
    finally:
        channel.close()
        replica.close(0)
        context.term()


async def test_expected_commands_are_waited_for_a_moment_and_no_longer(tmp_path: Path) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    address = ipc_address(tmp_path, "a.sock")
    channel = GatewayChannel(context, address, lambda report: None)
    replica = ReplicaChannel(address)
    try:
        await asyncio.sleep(0.05)
        assert replica.receive(wait=False, expected=5) == []
        channel.send(Cancel(1))
        channel.send(Cancel(2))
        received: list[Command] = []
        while len(received) < 2:
            received += replica.receive(wait=False, expected=2)
        assert received == [Cancel(1), Cancel(2)]
    finally:
        channel.close()
        replica.close(0)
        context.term()


@pytest.mark.parametrize(("computes", "policy"), [(True, os.SCHED_BATCH), (False, os.SCHED_OTHER)])
def test_what_writes_its_frames_does_not_take_the_processor_from_a_step(tmp_path: Path, computes: bool, policy: int) -> None:
    before = set(os.listdir("/proc/self/task"))
    replica = ReplicaChannel(ipc_address(tmp_path, "a.sock"), computes=computes)
    try:
        begun = {int(task) for task in set(os.listdir("/proc/self/task")) - before}
        assert begun
        assert {os.sched_getscheduler(task) for task in begun} == {policy}
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
    finally:
        replica.close(0)
