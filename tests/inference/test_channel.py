from __future__ import annotations

import asyncio
from pathlib import Path

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
