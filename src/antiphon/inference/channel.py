"""Both ends of the wire between a gateway and one replica process, over ZeroMQ."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import zmq

from antiphon.core.errors import EngineFailed
from antiphon.inference.wire import Command, Report, decode_command, decode_report, encode

_DRAIN = 64
_FIRST_MS, _NEXT_MS = 3, 1
"""How long an expected command is waited for: the first, and each after another."""
_NO_LIMIT = 0
"""For commands: there are at most a few for each request under way, and one that is lost is a request nobody can stop."""


class ReplicaChannel:
    """The replica's end: blocking, one thread. Implements ``Channel``."""

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.RCVHWM, _NO_LIMIT)
        self._socket.connect(address)

    def receive(self, *, wait: bool, expected: int = 0) -> list[Command]:
        commands: list[Command] = []
        if wait:
            commands.append(decode_command(self._socket.recv()))
        while True:
            try:
                commands.append(decode_command(self._socket.recv(zmq.NOBLOCK)))
            except zmq.Again:
                patience_ms = 0 if len(commands) >= expected else _NEXT_MS if commands else _FIRST_MS
                if patience_ms == 0 or not self._socket.poll(patience_ms):
                    return commands

    def send(self, report: Report) -> None:
        """Blocks while the gateway does not read: a bounded number of frames is ever under way."""
        self._socket.send(encode(report))

    def close(self, linger_ms: int) -> None:
        """Give frames under way ``linger_ms`` to leave."""
        self._socket.close(linger=linger_ms)
        self._context.term()


class GatewayChannel:
    """The gateway's end, inside an event loop: ``on_report`` is called there, once per frame, in order."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], address: str, on_report: Callable[[Report], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_report = on_report
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, _NO_LIMIT)
        self._socket.bind(address)
        self._descriptor = int(self._socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._descriptor, self.drain)

    def send(self, command: Command) -> None:
        """Raises ``EngineFailed`` when the replica has stopped taking commands."""
        if self._socket.closed:
            raise EngineFailed("The engine stopped.")
        try:
            self._socket.send(encode(command), zmq.NOBLOCK)
        except zmq.Again:
            raise EngineFailed("The engine does not take requests.") from None
        # Sending may consume the descriptor's edge for frames that arrived meanwhile.
        self._loop.call_soon(self.drain)

    def drain(self) -> None:
        """Deliver the frames that have arrived; yields to the loop after a bounded number."""
        for _ in range(_DRAIN):
            if self._socket.closed:
                return
            try:
                data = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._on_report(decode_report(data))
        self._loop.call_soon(self.drain)

    def close(self) -> None:
        """Harmless when called twice. Removes the socket's file."""
        if not self._socket.closed:
            self._loop.remove_reader(self._descriptor)
            self._socket.close()
