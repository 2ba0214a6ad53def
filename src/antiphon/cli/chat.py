"""``antiphon chat``: one answer for a message given or piped in, a conversation otherwise. Ctrl-C stops the answer."""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from typing import TYPE_CHECKING, Protocol

from antiphon.cli.markdown import TerminalMarkdown, printable

if TYPE_CHECKING:
    from antiphon.cli.arguments import Commands
    from antiphon.client import Answer, Client

DEFAULT_URL = "http://127.0.0.1:8484"
STOPPED = 130


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "chat",
        help="chat in the terminal",
        description="Without a MESSAGE: a conversation; /help lists what it understands. What is piped in follows the MESSAGE.",
        allow_abbrev=False,
    )
    parser.add_argument("--url", default=os.environ.get("ANTIPHON_URL") or DEFAULT_URL, help="the server (ANTIPHON_URL)")
    parser.add_argument("--key", default=os.environ.get("ANTIPHON_KEY"), help="an API key (ANTIPHON_KEY)")
    parser.add_argument("--model", help="a pool or model")
    going_on = parser.add_mutually_exclusive_group()
    going_on.add_argument("--conversation", metavar="ID", help="go on with this conversation")
    going_on.add_argument("--last", action="store_true", help="go on with the newest conversation")
    parser.add_argument("--plain", action="store_true", help="print Markdown as it is written")
    parser.add_argument("--json", action="store_true", help="print one JSON object when the answer is whole")
    parser.add_argument("message", metavar="MESSAGE", nargs="*")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from antiphon.client import Client, ClientError

    if not arguments.key:
        print("antiphon: no key; set ANTIPHON_KEY or pass --key (antiphon keys create --name terminal)", file=sys.stderr)
        return 2
    try:
        message = _message(" ".join(arguments.message))
    except UnicodeDecodeError:
        print("antiphon: what was piped in is not UTF-8 text", file=sys.stderr)
        return 2
    interactive = not message and sys.stdin.isatty()
    if not message and not interactive:
        print("antiphon: nothing to say: give a MESSAGE or pipe text in", file=sys.stderr)
        return 2
    try:
        client = Client(arguments.url, arguments.key)
        conversation_id = _conversation(client, arguments)
        if interactive:
            from antiphon.cli.chat_session import ChatSession

            return ChatSession(client, conversation_id, model=arguments.model, plain=arguments.plain).run()
        answer = client.send(conversation_id, message, model=arguments.model if arguments.conversation or arguments.last else None)
        return say_json(answer, conversation_id) if arguments.json else say(answer, plain=arguments.plain)
    except ClientError as error:
        print(f"antiphon: {error}", file=sys.stderr)
        if isinstance(error.__cause__, ConnectionRefusedError | socket.gaierror):
            print("Start a server with `antiphon serve`, or name another with --url or ANTIPHON_URL.", file=sys.stderr)
        return 1


def say(answer: Answer, *, plain: bool) -> int:
    """Print the answer as it comes; an interrupt stops it on the server too."""
    try:
        return _print_answer(answer, plain=plain)
    except KeyboardInterrupt:
        if answer.generation_id:
            answer.cancel()
        print("\n(stopped)", file=sys.stderr)
        return STOPPED


def say_json(answer: Answer, conversation_id: str) -> int:
    """Print one JSON object at the end: the text, how it ended, and what it cost."""
    from antiphon.client import Done, Failed

    code = 0
    try:
        for _ in answer:
            pass
    except KeyboardInterrupt:
        code = STOPPED
        if answer.generation_id:
            answer.cancel()
    meta, end = answer.meta, answer.end
    done = end if isinstance(end, Done) else None
    failed = end if isinstance(end, Failed) else None
    shown = {
        "conversation_id": conversation_id,
        "message_id": meta.message_id if meta else None,
        "generation_id": answer.generation_id or None,
        "model": meta.model if meta else None,
        "text": answer.text,
        "finish_reason": done.finish_reason if done else "cancelled" if code == STOPPED else None,
        "prompt_tokens": done.prompt_tokens if done else None,
        "output_tokens": done.output_tokens if done else None,
        "error": {"code": failed.code, "message": failed.message} if failed else None,
    }
    print(json.dumps(shown, ensure_ascii=False))
    return code or (0 if done else 1)


def _message(given: str) -> str:
    """What was given, and after it what is piped in."""
    if sys.stdin.isatty():
        return given
    piped = sys.stdin.read().strip()
    return "\n\n".join(part for part in (given, piped) if part)


def _conversation(client: Client, arguments: argparse.Namespace) -> str:
    if arguments.conversation:
        return str(arguments.conversation)
    if arguments.last:
        newest = client.conversations(limit=1).data
        if newest:
            return newest[0].id
    return client.new_conversation(model=arguments.model).id


class _Printer(Protocol):
    def push(self, piece: str) -> str: ...

    def finish(self) -> str: ...


class _Plain:
    """Text as it is; on a terminal without its control characters."""

    def push(self, piece: str) -> str:
        return printable(piece) if sys.stdout.isatty() else piece

    def finish(self) -> str:
        return ""


def _printer(*, plain: bool) -> _Printer:
    styled = not plain and sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return TerminalMarkdown() if styled else _Plain()


def _print_answer(answer: Answer, *, plain: bool) -> int:
    """What was printed is never printed again: a snapshot that goes on from it only adds, another text begins anew."""
    from antiphon.client import Delta, Failed, Retract, Snapshot

    shown, printer = "", _printer(plain=plain)
    for event in answer:
        match event:
            case Delta() | Snapshot() | Retract():
                if not answer.text.startswith(shown):
                    _write(printer.finish() + "\n\n")
                    shown, printer = "", _printer(plain=plain)
                _write(printer.push(answer.text[len(shown) :]))
                shown = answer.text
            case Failed():
                _write(printer.finish())
                print(f"\nantiphon: {event.message} ({event.code})", file=sys.stderr)
                return 1
            case _:
                pass
    _write(printer.finish() + "\n")
    return 0


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
