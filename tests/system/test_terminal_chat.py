"""The terminal client against a real server: one that is killed in mid-answer, and a conversation with branches."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.served import Server, eventually, reference_config

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]


def chat(server: Server, *arguments: str, stdin: int = subprocess.DEVNULL, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "ANTIPHON_KEY": server.key(), "ANTIPHON_URL": server.url, "PYTHONUNBUFFERED": "1", "TERM": "xterm"}
    return subprocess.Popen(
        [sys.executable, "-m", "antiphon", "chat", *arguments], stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, env=environment
    )


def test_a_server_killed_in_mid_answer_is_printed_whole_and_once(tmp_path: Path, free_port: int) -> None:
    server = Server(tmp_path / "data", reference_config(output_tokens_per_s=12), port=free_port)
    server.start()
    try:
        process = chat(server, "tell", "me")
        assert process.stdout is not None
        first = process.stdout.read(40)
        server.kill_group()
        server.start()
        rest, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        person = server.person()
        conversation = person.http.get("/v1/conversations").json()["data"][0]["id"]
        answer = person.http.get(f"/v1/conversations/{conversation}/messages").json()["data"][-1]
        assert answer["status"] == "complete"
        assert (first + rest).decode() == answer["content"] + "\n"
        assert len(answer["content"].split()) == 64
    finally:
        server.end()


class Terminal:
    """A person at a pseudo-terminal."""

    def __init__(self, server: Server) -> None:
        ours, theirs = pty.openpty()
        self.descriptor, self.seen = ours, ""
        self.process = chat(server, stdin=theirs, stdout=theirs)
        os.close(theirs)
        os.set_blocking(ours, False)

    def read(self) -> str:
        try:
            self.seen += os.read(self.descriptor, 65_536).decode(errors="replace")
        except BlockingIOError:
            time.sleep(0.01)
        return self.seen

    def type(self, line: str) -> str:
        """What is shown between this line and the next prompt."""
        eventually(lambda: self.read().endswith("> "), within_s=20, what="a prompt")
        self.seen = ""
        os.write(self.descriptor, f"{line}\n".encode())
        eventually(lambda: self.read().endswith("> ") and self.seen.count("\n") > 1, within_s=20, what=f"an answer to {line}")
        return self.seen


def test_branches_and_history(make_server: Callable[[str], Server]) -> None:
    server = make_server(reference_config(output_tokens_per_s=400))
    terminal = Terminal(server)
    try:
        first = terminal.type("hello there")
        terminal.type("/retry")
        assert "2 " in terminal.type("/branches")
        terminal.type("/branch 1")
        assert "hello there" in terminal.type("/show")
        edited = terminal.type("/edit something else")
        assert edited.splitlines()[1:] != first.splitlines()[1:]
        beside = terminal.type("/branches").splitlines()[1:3]
        assert [" ".join(line.split()) for line in beside] == ["1 user hello there", "*2 user something else"]

        os.write(terminal.descriptor, b"/quit\n")
        assert terminal.process.wait(30) == 0
    finally:
        terminal.process.kill()
        terminal.process.communicate()
        os.close(terminal.descriptor)
    person = server.person()
    (conversation,) = person.http.get("/v1/conversations").json()["data"]
    tree = person.http.get(f"/v1/conversations/{conversation['id']}/tree").json()["data"]
    assert sorted(node["role"] for node in tree) == ["assistant"] * 3 + ["user"] * 2
