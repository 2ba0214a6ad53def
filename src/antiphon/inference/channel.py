"""Both ends of the wire between a gateway and one replica process, over ZeroMQ."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import zmq

from antiphon.core.errors import EngineFailed
from antiphon.inference.wire import Command, Report, decode_command, decode_report, encode

_DRAIN = 64
_FIRST_MS, _NEXT_MS = 2, 1
"""How long an expected command is waited for: the first, and each after another."""
_FULL_PAUSE_S = 0.005
_NO_LIMIT = 0
"""For commands: there are at most a few for each request under way, and one that is lost is a request nobody can stop."""


def _replica_end(context: zmq.Context[zmq.Socket[bytes]], address: str) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.RCVHWM, _NO_LIMIT)
    socket.connect(address)
    return socket


@contextmanager
def _unhurried() -> Iterator[None]:
    """Threads begun meanwhile do not take the processor from the one that wakes them, where the system can tell them apart.

    Else each frame's way out cuts into the next step: 0.3 ms measured, a tenth of it so. Where others keep the processors busy
    such a thread waits for them, half a millisecond measured.
    """
    try:
        before = os.sched_getscheduler(0)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except (AttributeError, OSError):
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, before, os.sched_param(0))


class ReplicaChannel:
    """The replica's end: blocking, one thread. Implements ``Channel``."""

    def __init__(self, address: str, *, computes: bool = False) -> None:
        """``computes``: whether its steps keep this machine's processors busy."""
        with _unhurried() if computes else nullcontext():
            self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            self._socket = _replica_end(self._context, address)

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


class _LoopChannel:
    """One end inside an event loop: ``on_data`` is called there, once for each message, in order.

    pyzmq's own asyncio sockets make a future, and watch and unwatch the descriptor, for every message.
    """

    def __init__(self, socket: zmq.Socket[bytes], on_data: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_data = on_data
        self._socket = socket
        self._descriptor = int(socket.getsockopt(zmq.FD))
        self._loop.add_reader(self._descriptor, self.drain)

    def drain(self) -> None:
        """Deliver the messages that have arrived; yields to the loop after a bounded number."""
        for _ in range(_DRAIN):
            if self._socket.closed:
                return
            try:
                data = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._on_data(data)
        self._loop.call_soon(self.drain)

    def _send(self, data: bytes) -> None:
        """Raises ``zmq.Again`` when the other side takes nothing."""
        self._socket.send(data, zmq.NOBLOCK)
        # Sending may consume the descriptor's edge for messages that arrived meanwhile.
        self._loop.call_soon(self.drain)

    def _close(self, linger_ms: int) -> None:
        if not self._socket.closed:
            self._loop.remove_reader(self._descriptor)
            self._socket.close(linger=linger_ms)


class RelayChannel(_LoopChannel):
    """A replica's end, for one that lives in an event loop: ``on_command`` is called there, once for each command, in order."""

    def __init__(self, address: str, on_command: Callable[[Command], None]) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        super().__init__(_replica_end(self._context, address), lambda data: on_command(decode_command(data)))

    async def send(self, report: Report) -> None:
        """Waits while the gateway does not read: a bounded number of frames is ever under way."""
        data = encode(report)
        while True:
            try:
                return self._send(data)
            except zmq.Again:
                await asyncio.sleep(_FULL_PAUSE_S)

    def close(self, linger_ms: int) -> None:
        """Give frames under way ``linger_ms`` to leave."""
        self._close(linger_ms)
        self._context.term()


class GatewayChannel(_LoopChannel):
    """The gateway's end: ``on_report`` is called once for each frame, in order."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], address: str, on_report: Callable[[Report], None]) -> None:
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, _NO_LIMIT)
        socket.bind(address)
        super().__init__(socket, lambda data: on_report(decode_report(data)))

    def send(self, command: Command) -> None:
        """Raises ``EngineFailed`` when the replica has stopped taking commands."""
        if self._socket.closed:
            raise EngineFailed("The engine stopped.")
        try:
            self._send(encode(command))
        except zmq.Again:
            raise EngineFailed("The engine does not take requests.") from None

    def close(self) -> None:
        """Harmless when called twice. Removes the socket's file."""
        self._close(0)
