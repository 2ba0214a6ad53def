"""Two more things a stranger does once it runs on their laptop, each timed: invite a colleague, and use a server they already have.

With this repository's own ``.venv`` (``make setup``), in empty homes, with a real browser. The colleague comes to another address
than the owner's own; the server they already have is any that speaks OpenAI's API, here one of ours with a key. The first journey, from
a clone to the first answer, is ``stranger.py``.

The last line printed is JSON: seconds of ``colleague`` and of ``endpoint``, from the first command to the first words of an answer.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stranger import QUESTION, ROOT, Failed, Stopwatch, look

ANTIPHON = ROOT / ".venv" / "bin" / "antiphon"
OTHER_ADDRESS = "127.0.0.2"
PASSWORD = "correct horse battery staple"
FAR = """
[[pools]]
name = "far"
model = "reference"
engine = "reference"
output_tokens_per_s = 40
"""


class Home:
    """One person's machine: an empty home, and the commands they type there."""

    def __init__(self, folder: Path, **environ: str) -> None:
        folder.mkdir()
        models = os.environ.get("ANTIPHON_MODELS") or str(
            Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "antiphon" / "models"
        )
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANTIPHON_", "XDG_"))}
        self.environ = {**kept, "HOME": str(folder), "ANTIPHON_MODELS": models, **environ}

    def antiphon(self, *arguments: str, typed: str = "") -> str:
        done = subprocess.run(
            [ANTIPHON, *arguments], input=typed, capture_output=True, text=True, env=self.environ, timeout=120, check=False
        )
        if done.returncode != 0:
            raise Failed(f"antiphon {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout.strip()

    @contextmanager
    def serving(self, *arguments: str) -> Iterator[str]:
        """``antiphon serve``; yields its link."""
        process = subprocess.Popen(
            [ANTIPHON, "serve", *arguments], env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith("Antiphon is ready: "):
                raise Failed(f"it did not start: {process.communicate()[1][-500:]}")
            yield line.split()[-1]
        finally:
            process.terminate()
            process.communicate(timeout=30)


def colleague(folder: Path, watch: Stopwatch, python: str) -> float | None:
    """The owner opens the server to others and invites Ann, who comes to another address and asks."""
    owner = Home(folder / "owner")
    port = str(_free_port())
    since = watch_now()
    refused = subprocess.run(
        [ANTIPHON, "serve", "--host", "0.0.0.0", "--port", port], capture_output=True, text=True, env=owner.environ, check=False
    )
    if "antiphon users password" not in refused.stderr:
        raise Failed("a server that others reach started without a password")
    owner.antiphon("users", "password", typed=f"{PASSWORD}\n")
    with owner.serving("--host", "0.0.0.0", "--port", port):
        owner.antiphon("users", "create", "ann")
        link = owner.antiphon("link", "--user", "ann").replace("127.0.0.1", OTHER_ADDRESS)
        answer, seconds = look(python, link, QUESTION, watch, since=since)
    print(f"journeys: Ann read: {' '.join(answer.split())[:120]}", file=sys.stderr)
    return seconds


def endpoint(folder: Path, watch: Stopwatch, python: str) -> float | None:
    """A server is there already; two commands, and it answers in the window."""
    there = Home(folder / "there")
    file = folder / "there.toml"
    file.write_text(FAR)
    with there.serving("--config", str(file), "--port", "0") as far_link:
        url = f"{far_link.partition('/?')[0]}/v1"
        mine = Home(
            folder / "mine",
            ANTIPHON_MODELS=str(folder / "no-models"),
            FAR_KEY=there.antiphon("keys", "create", "--name", "laptop", "--config", str(file)),
        )
        since = watch_now()
        mine.antiphon("models", "add", "--url", url, "--model", "far", "--key-env", "FAR_KEY")
        with mine.serving("--port", "0") as link:
            answer, seconds = look(python, link, QUESTION, watch, since=since)
    print(f"journeys: it said: {' '.join(answer.split())[:120]}", file=sys.stderr)
    return seconds


def watch_now() -> float:
    import time

    return time.monotonic()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["colleague", "endpoint"])
    arguments = parser.parse_args()
    python = str(ROOT / ".venv" / "bin" / "python")
    folder = Path(tempfile.mkdtemp(prefix="antiphon-journeys-"))
    times: dict[str, float | None] = {}
    try:
        for name, journey in (("colleague", colleague), ("endpoint", endpoint)):
            if arguments.only in {None, name}:
                times[name] = journey(folder, Stopwatch(300), python)
    except Failed as failure:
        print(f"journeys: {failure}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(times))
    return 0


if __name__ == "__main__":
    sys.exit(main())
