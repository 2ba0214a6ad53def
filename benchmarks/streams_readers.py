"""The readers' side of the ``streams`` benchmark, a process of its own: thousands of connections that check what they read.

It takes the commands of ``obey`` from its parent. Times are of the moment at which the
bytes reached this process, by the clock that both processes share (CLOCK_MONOTONIC).
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
import socket
import sys
import time
from array import array
from typing import cast

import msgspec
import uvloop

from benchmarks.piped import Command, obey_stdin, raise_descriptor_limit
from benchmarks.streams_text import filler

_EVENT = re.compile(rb"id: 1-(\d+)\nevent: (\w+)\ndata: (.*)\n\n")
_DIALS = 100
_ADDRESSES = 8
_RECEIVE_BYTES = 4096


class _Text(msgspec.Struct):
    text: str


_TEXT = msgspec.json.Decoder(_Text)


class Tally:
    """What all readers of this process have seen since the last ``take``."""

    def __init__(self) -> None:
        self.delays_ns = array("q")
        self.faults: list[str] = []
        self.measuring = False

    def fault(self, what: str) -> None:
        if len(self.faults) < 20:
            self.faults.append(what)


class Reader(asyncio.Protocol):
    """One stream. Every event must be the next one, with the text that belongs to its number."""

    def __init__(self, tally: Tally, request: bytes, size: int) -> None:
        self.seq = 0
        self.ended = False
        self.begun = asyncio.get_running_loop().create_future()
        self._tally = tally
        self._request = request
        self._size = size
        self._rest = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        if not self.begun.done():
            if b"retry: " not in data or b" 200 OK" not in data:
                if data.startswith(b"HTTP/1.1 200 OK") and b"retry: " not in data:
                    self._rest += data
                    return
                if not self._rest:
                    self._tally.fault(f"no stream: {data[:200]!r}")
            self.begun.set_result(None)
        data = self._rest + data if self._rest else data
        end = 0
        for found in _EVENT.finditer(data):
            end = found.end()
            self._take(found, now)
        self._rest = data[end:]

    def _take(self, found: re.Match[bytes], now: int) -> None:
        seq = int(found[1])
        if seq != self.seq + 1:
            self._tally.fault(f"event {seq} after {self.seq}")
        self.seq = seq
        if found[2] == b"done":
            self.ended = True
            return
        number, at, text = _TEXT.decode(found[3]).text.split("|", 2)
        if found[2] != b"delta" or int(number) != seq or text != filler(seq, self._size):
            self._tally.fault(f"event {seq} holds something else: {found[0][:200]!r}")
        if self._tally.measuring:
            self._tally.delays_ns.append(now - int(at))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.begun.done():
            self.begun.set_result(None)
            self._tally.fault("the server closed a connection")


class Readers:
    """All connections of this process, by group."""

    def __init__(self, port: int) -> None:
        self.tally = Tally()
        self._port = port
        self._groups: dict[str, list[tuple[str, Reader]]] = {}
        self._silent: list[socket.socket] = []
        self._dialled = 0

    async def connect(self, group: str, generations: list[list[str]], each: int, size: int) -> int:
        """Open ``each`` readers of every ``[id, key]``; returns how many."""
        wanted = [pair for pair in generations for _ in range(each)]
        made = self._groups.setdefault(group, [])
        for start in range(0, len(wanted), _DIALS):
            batch = await asyncio.gather(*(self._dial(name, key, size) for name, key in wanted[start : start + _DIALS]))
            await asyncio.gather(*(reader.begun for _, reader in batch))
            made += batch
        return len(made)

    async def _dial(self, name: str, key: str, size: int) -> tuple[str, Reader]:
        self._dialled += 1
        loop = asyncio.get_running_loop()
        local = (f"127.0.0.{2 + self._dialled % _ADDRESSES}", 0)
        _, reader = await loop.create_connection(
            lambda: Reader(self.tally, _request(name, key), size), "127.0.0.1", self._port, local_addr=local
        )
        return name, reader

    def silent(self, generations: list[list[str]], each: int) -> int:
        """Connections that ask for a stream and never read."""
        for name, key in generations:
            for _ in range(each):
                line = socket.socket()
                line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
                line.connect(("127.0.0.1", self._port))
                line.sendall(_request(name, key))
                self._silent.append(line)
        return len(self._silent)

    def take(self, *, measuring: bool) -> dict[str, object]:
        """Delays since the last call, in ns, and faults; from now on delays are kept or not."""
        delays, self.tally.delays_ns = self.tally.delays_ns, array("q")
        self.tally.measuring = measuring
        return {"delays_ns": delays.tolist(), "faults": self.tally.faults}

    def check(self, group: str, last: dict[str, int], *, ended: bool) -> int:
        """How many readers of ``group`` do not stand exactly at their generation's last event."""
        return sum(reader.seq != last[name] or reader.ended != ended for name, reader in self._groups[group])

    async def close(self, group: str | None) -> None:
        """Leave: one group, or the silent ones for ``None``."""
        if group is None:
            for line in self._silent:
                line.close()
            self._silent.clear()
            return
        for _, reader in self._groups.pop(group):
            reader.transport.abort()
        await asyncio.sleep(0)


def _request(name: str, key: str) -> bytes:
    path = f"/v1/generations/{name}/stream"
    return (
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\nAuthorization: Bearer {key}\r\n"
        "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36\r\nAccept-Encoding: gzip, deflate, br\r\n\r\n"
    ).encode()


async def obey(readers: Readers, command: Command) -> object:
    """Carry out one command of the parent's."""
    arguments = {name: value for name, value in command.items() if name != "do"}
    match command["do"]:
        case "connect":
            return await readers.connect(**arguments)  # pyright: ignore[reportArgumentType]
        case "silent":
            return readers.silent(**arguments)  # pyright: ignore[reportArgumentType]
        case "take":
            return readers.take(**arguments)  # pyright: ignore[reportArgumentType]
        case "check":
            return readers.check(**arguments)  # pyright: ignore[reportArgumentType]
        case "close":
            return await readers.close(**arguments)  # pyright: ignore[reportArgumentType]
        case name:
            raise ValueError(f"no such command: {name}")


async def main(port: int) -> None:
    readers = Readers(port)
    gc.disable()
    print(json.dumps("ready"), flush=True)
    await obey_stdin(lambda command: obey(readers, command))


if __name__ == "__main__":
    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(int(sys.argv[1])))
