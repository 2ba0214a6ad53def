"""Markdown on a terminal, while it is being written: what is certain is shown at once, an open mark waits for its end or the line's."""

from __future__ import annotations

import re

_RESET, _BOLD, _ITALIC, _CODE, _DIM = "\x1b[0m", "\x1b[1m", "\x1b[3m", "\x1b[36m", "\x1b[2m"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SPAN = re.compile(r"`([^`\n]+)`|\*\*([^*\n]+)\*\*|(?<![\w*])\*([^*\s][^*\n]*)\*(?![\w*])")
_OPEN = re.compile(r"[`*][^\n]*\Z")
_HEADING = re.compile(r"#{1,6} ")
_BULLET = re.compile(r"( *)[-*+] ")
_UNDECIDED = re.compile(r" *(#{1,6}|`{1,3}[\w+-]*|[-*+]|>)?\Z")
_MOST_HELD = 240


def printable(text: str) -> str:
    """A model's control characters as U+FFFD, so that no answer can steer the terminal."""
    return _CONTROL.sub("�", text)


class TerminalMarkdown:
    """``push`` takes an answer in pieces of any size and returns what to print; ``finish`` what was still held."""

    def __init__(self) -> None:
        self._held = ""
        self._at_line_start = True
        self._in_code = False
        self._style = ""

    def push(self, piece: str) -> str:
        self._held += printable(piece)
        out: list[str] = []
        while "\n" in self._held:
            line, _, self._held = self._held.partition("\n")
            out.append(self._end_line(line))
        out.append(self._begin_line())
        return "".join(out)

    def finish(self) -> str:
        held, self._held = self._held, ""
        return self._end_line(held).removesuffix("\n") if held or self._style else ""

    def _end_line(self, rest: str) -> str:
        """The rest of a line whose end is known."""
        fence = self._at_line_start and rest.lstrip().startswith("```")
        if fence:
            self._in_code = not self._in_code
            shown = f"{_DIM}{rest}{_RESET}"
        elif self._in_code:
            shown = f"{_CODE}{rest}{_RESET}" if rest else ""
        else:
            shown = self._prefix(rest) if self._at_line_start else self._spans(rest)
            shown += _RESET if self._style else ""
        self._at_line_start, self._style = True, ""
        return shown + "\n"

    def _begin_line(self) -> str:
        """What can be shown of a line that goes on."""
        if not self._held or (self._at_line_start and _UNDECIDED.match(self._held)):
            return ""
        if self._at_line_start and self._held.lstrip().startswith("```"):
            return ""
        if self._in_code:
            return self._release(f"{_CODE}{self._held}{_RESET}", "")
        found = _OPEN.search(_SPAN.sub(lambda span: "x" * len(span[0]), self._held))
        cut = found.start() if found and len(self._held) - found.start() < _MOST_HELD else len(self._held)
        ready, rest = self._held[:cut], self._held[cut:]
        if not ready:
            return ""
        return self._release(self._prefix(ready) if self._at_line_start else self._spans(ready), rest)

    def _release(self, shown: str, rest: str) -> str:
        self._held, self._at_line_start = rest, False
        return shown

    def _prefix(self, line: str) -> str:
        """The beginning of a line with its mark: a heading is bold to its end, a list has bullets, a quotation a bar."""
        if _HEADING.match(line):
            self._style = _BOLD
            return _BOLD + self._spans(line.lstrip("# "))
        if line.startswith("> "):
            return f"{_DIM}│{_RESET} {self._spans(line[2:])}"
        bullet = _BULLET.match(line)
        return f"{bullet[1]}• {self._spans(line[bullet.end() :])}" if bullet else self._spans(line)

    def _spans(self, text: str) -> str:
        return _SPAN.sub(self._span, text)

    def _span(self, span: re.Match[str]) -> str:
        code, bold, italic = span.groups()
        style, inner = (_CODE, code) if code else (_BOLD, bold) if bold else (_ITALIC, italic)
        return f"{style}{inner}{_RESET}{self._style}"
