from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from antiphon.cli.markdown import TerminalMarkdown

ANSI = re.compile(r"\x1b\[\d*m")
PIECES = st.lists(
    st.sampled_from(["a", "b ", "**", "*", "`", "```", "\n", "# ", "- ", "> ", "1. ", "é", "py", "  "]) | st.text(max_size=4), max_size=30
)


def printed(*pieces: str) -> str:
    page = TerminalMarkdown()
    return "".join(page.push(piece) for piece in pieces) + page.finish()


def test_marks_become_styles() -> None:
    assert (
        printed("# Title\ntext **bo", "ld** and `co", "de`\n") == "\x1b[1mTitle\x1b[0m\ntext \x1b[1mbold\x1b[0m and \x1b[36mcode\x1b[0m\n"
    )
    assert printed("- one\n  * two\n") == "• one\n  • two\n"
    assert ANSI.sub("", printed("```python\nx = a ** b * c\n```\nend")) == "```python\nx = a ** b * c\n```\nend"


def test_what_is_certain_is_shown_at_once() -> None:
    page = TerminalMarkdown()
    assert page.push("Hello wor") == "Hello wor"
    assert page.push("ld, 2 * 3 ") == "ld, 2 "
    assert page.push("= 6\n") == "* 3 = 6\n"


def test_no_answer_steers_the_terminal() -> None:
    assert "\x1b]0;" not in printed("a\x1b]0;owned\x07b\n", "`\x9b2J`")


@given(PIECES)
def test_cut_anywhere_it_prints_the_same_and_loses_no_word(pieces: list[str]) -> None:
    whole = "".join(pieces)
    apart = ANSI.sub("", printed(*pieces))
    assert re.sub(r"[\W_]", "", apart) == re.sub(r"[\W_]", "", printed_plainly(whole))


def printed_plainly(text: str) -> str:
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "�", text)
