"""Processes that take one JSON command a line on stdin and answer each with one JSON line on stdout."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

Command = dict[str, object]
_LINE_BYTES = 1 << 22


class Piped:
    """The parent's end."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, do: str, **arguments: object) -> object:
        """Send one command and wait for its answer. Raises ``RuntimeError`` when the process is gone."""
        self.send(do, **arguments)
        return self.answer()

    def send(self, do: str, **arguments: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> object:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a benchmark process ended with {self._process.wait()}")
        return json.loads(line)


@contextmanager
def piped(module: str, *arguments: str) -> Iterator[Piped]:
    """Start ``python -m module`` and end it, by closing its stdin, with the context."""
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Piped(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def obey_stdin(obey: Callable[[Command], Awaitable[object]]) -> None:
    """The child's end: carry out commands until stdin is closed."""
    async with _stdin() as lines:
        while line := await lines.readline():
            print(json.dumps(await obey(json.loads(line))), flush=True)


@asynccontextmanager
async def _stdin() -> AsyncIterator[asyncio.StreamReader]:
    reader = asyncio.StreamReader(limit=_LINE_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        yield reader
    finally:
        transport.close()


def raise_descriptor_limit() -> int:
    """As many open files as the system lets this process have; returns how many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
