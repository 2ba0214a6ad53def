"""``antiphon chat``: one answer for a message given or piped in, a conversation otherwise. Ctrl-C stops the answer."""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.cli.arguments import Commands
    from antiphon.client import Answer, Client

DEFAULT_URL = "http://127.0.0.1:8484"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def add(commands: Commands) -> None:
    parser = commands.add_parser("chat", help="chat in the terminal", allow_abbrev=False)
    parser.add_argument("--url", default=os.environ.get("ANTIPHON_URL") or DEFAULT_URL, help="the server (ANTIPHON_URL)")
    parser.add_argument("--key", default=os.environ.get("ANTIPHON_KEY"), help="an API key (ANTIPHON_KEY)")
    parser.add_argument("--model", help="a pool or model")
    parser.add_argument("message", metavar="MESSAGE", nargs="*")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from antiphon.client import Client, ClientError

    if not arguments.key:
        print("antiphon: no key; set ANTIPHON_KEY or pass --key (antiphon keys create --name terminal)", file=sys.stderr)
        return 2
    message = " ".join(arguments.message)
    if not message and not sys.stdin.isatty():
        message = sys.stdin.read().strip()
    try:
        client = Client(arguments.url, arguments.key)
        if message or not sys.stdin.isatty():
            return _say(client, client.new_conversation(model=arguments.model).id, message)
        return _converse(client, arguments.model)
    except ClientError as error:
        print(f"antiphon: {error}", file=sys.stderr)
        if isinstance(error.__cause__, ConnectionRefusedError | socket.gaierror):
            print("Start a server with `antiphon serve`, or name another with --url or ANTIPHON_URL.", file=sys.stderr)
        return 1


def _converse(client: Client, model: str | None) -> int:
    conversation = client.new_conversation(model=model)
    while True:
        try:
            message = input("> ").strip()
        except EOFError:
            print()
            return 0
        if message:
            _say(client, conversation.id, message)


def _say(client: Client, conversation_id: str, message: str) -> int:
    """Print the answer as it comes; an interrupt stops it on the server too."""
    answer = client.send(conversation_id, message)
    try:
        return _print_answer(answer)
    except KeyboardInterrupt:
        if answer.generation_id:
            answer.cancel()
        print("\n(stopped)", file=sys.stderr)
        return 130


def _print_answer(answer: Answer) -> int:
    from antiphon.client import Delta, Failed, Retract, Snapshot

    shown = ""
    for event in answer:
        match event:
            case Delta() | Snapshot() | Retract():
                if not answer.text.startswith(shown):
                    _write("\n\n")
                    shown = ""
                _write(answer.text[len(shown) :])
                shown = answer.text
            case Failed():
                print(f"\nantiphon: {event.message} ({event.code})", file=sys.stderr)
                return 1
            case _:
                pass
    _write("\n")
    return 0


def _write(text: str) -> None:
    """On a terminal, a model's control characters are shown as U+FFFD, so that no answer can steer it."""
    sys.stdout.write(_CONTROL.sub("\ufffd", text) if sys.stdout.isatty() else text)
    sys.stdout.flush()
