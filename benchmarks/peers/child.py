"""A peer behind pipes: one line asks, one line answers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.chats import Chat, Played, Turn


class ChildPeer:
    """A child process that plays lists of chats. Raises ``RuntimeError`` when it ends unasked."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
        self._log = log
        self.version = str(self._answer()["version"])

    def play(self, chats: Sequence[Chat]) -> Played:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([asdict(chat) for chat in chats]) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        return Played([Turn(**turn) for turn in answer["turns"]], answer["seconds"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the peer ended: {self._log.read_text()[-2000:]}")
        return json.loads(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
