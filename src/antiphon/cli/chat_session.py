"""A conversation in the terminal: messages, and a few commands for its history and its branches."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from antiphon.cli.chat import say
from antiphon.cli.markdown import TerminalMarkdown, printable

if TYPE_CHECKING:
    from antiphon.client import Client
    from antiphon.client.calls import CurrentLeaf
    from antiphon.client.shapes import Message, Path

_HELP = """\
/retry           answer the last message once more, beside the answer that is there
/edit TEXT       say TEXT in place of your last message; what was there stays as a branch
/branches        the branches of the last exchange
/branch N        go to one of them
/history         the newest conversations
/open N          go on with one of them
/show            this conversation from its beginning
/new             a new conversation
/model NAME      answer with another model from now on
/quit            leave (or Ctrl-D); Ctrl-C stops an answer"""


class ChatSession:
    """One person at a terminal. Errors of the server are told, and the conversation goes on."""

    def __init__(self, client: Client, conversation_id: str, *, model: str | None, plain: bool) -> None:
        self._client = client
        self._conversation_id = conversation_id
        self._model = model
        self._plain = plain
        self._leaf: str | None = None
        self._listed: tuple[str, ...] = ()

    def run(self) -> int:
        """Read messages and commands until the end of input."""
        from antiphon.client import ClientError

        _edit_lines()
        while True:
            try:
                line = input("> ").strip()
            except EOFError:
                print()
                return 0
            except KeyboardInterrupt:
                print("\n(/quit or Ctrl-D leaves)", file=sys.stderr)
                continue
            if line in {"/quit", "/exit"}:
                return 0
            try:
                self._take(line)
            except ClientError as error:
                print(f"antiphon: {error}", file=sys.stderr)
            except KeyboardInterrupt:
                print("\n(stopped)", file=sys.stderr)

    def _take(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        match name:
            case "":
                pass
            case "/help":
                print(_HELP)
            case "/new":
                self._go_to(self._client.new_conversation(model=self._model).id)
            case "/model":
                self._choose_model(rest.strip())
            case "/history":
                self._history()
            case "/open":
                self._open(rest.strip())
            case "/show":
                self._show()
            case "/retry" | "/edit" | "/branches" | "/branch":
                self._branching(name, rest.strip())
            case _ if line.startswith("/") and "/" not in line[1:].partition(" ")[0]:
                print(f"There is no {name}; /help lists what there is.", file=sys.stderr)
            case _:
                self._say(line)

    def _say(self, content: str | None, parent: str | CurrentLeaf | None = None, *, parent_named: bool = False) -> None:
        from antiphon.client import CURRENT_LEAF

        where = parent if parent_named else self._leaf or CURRENT_LEAF
        say(self._client.send(self._conversation_id, content, parent=where, model=self._model), plain=self._plain)
        self._leaf = None

    def _path(self) -> Path:
        return self._client.path(self._conversation_id, leaf=self._leaf)

    def _branching(self, name: str, rest: str) -> None:
        path = self._path()
        asked = next((message for message in reversed(path.data) if message.role == "user"), None)
        if asked is None:
            print("Nothing was said yet.", file=sys.stderr)
        elif name == "/retry":
            self._say(None, asked.id, parent_named=True)
        elif name == "/edit" and rest:
            self._say(rest, asked.parent_id, parent_named=True)
        elif name == "/edit":
            print("/edit TEXT", file=sys.stderr)
        else:
            self._branches(path, asked, rest if name == "/branch" else "")

    def _branches(self, path: Path, asked: Message, chosen: str) -> None:
        """List, or choose among, the versions of the last answer, else of the last message."""
        last = path.data[-1]
        versions = (path.siblings.get(one.id, ()) for one in (last, asked))
        beside = next((ids for ids in versions if len(ids) > 1), (last.id,))
        if chosen:
            number = _number(chosen, len(beside))
            if number is None:
                return
            self._leaf = beside[number]
        here = {message.id for message in self._path().data}
        for number, message_id in enumerate(beside, start=1):
            below = self._client.path(self._conversation_id, leaf=message_id).data
            version = next((message for message in below if message.id == message_id), below[-1])
            mark = "*" if message_id in here else " "
            print(f"{mark}{number}  {version.role:<9}  {_first_line(version.content)}")

    def _history(self) -> None:
        page = self._client.conversations(limit=20).data
        self._listed = tuple(conversation.id for conversation in page)
        for number, conversation in enumerate(page, start=1):
            mark = "*" if conversation.id == self._conversation_id else " "
            print(f"{mark}{number:>2}  {_first_line(conversation.title) or '(no title)'}")

    def _open(self, chosen: str) -> None:
        if not self._listed:
            self._history()
        number = _number(chosen, len(self._listed))
        if number is not None:
            self._go_to(self._listed[number])
            self._show()

    def _show(self) -> None:
        for message in self._path().data:
            if message.role == "user":
                print(f"> {printable(message.content)}")
            elif message.role == "assistant":
                page = TerminalMarkdown()
                styled = sys.stdout.isatty() and not self._plain
                print(page.push(message.content) + page.finish() if styled else printable(message.content))

    def _choose_model(self, name: str) -> None:
        models = self._client.models()
        if name and any(name == model.id for model in models):
            self._model = name
        else:
            print("  ".join(f"{model.id} ({model.status})" for model in models))

    def _go_to(self, conversation_id: str) -> None:
        self._conversation_id, self._leaf = conversation_id, None


def _number(text: str, most: int) -> int | None:
    """``text`` as an index, counted from 1; says so where it is none."""
    if text.isascii() and text.isdigit() and 1 <= int(text) <= most:
        return int(text) - 1
    print(f"A number from 1 to {most} is needed." if most else "There is nothing to choose from.", file=sys.stderr)
    return None


def _first_line(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= 70 else line[:69] + "…"


def _edit_lines() -> None:
    """Arrow keys and earlier lines, where the interpreter has them; nothing is written to a file."""
    try:
        import readline
    except ImportError:
        return
    readline.set_auto_history(True)
