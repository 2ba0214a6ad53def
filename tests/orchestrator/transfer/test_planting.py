"""Trees that cannot be are made into trees that can, and it is said."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.messages import Role
from antiphon.orchestrator.transfer import planting
from antiphon.orchestrator.transfer.planting import Planted, plant
from antiphon.orchestrator.transfer.source import SourceConversation, SourceMessage, Unreadable
from tests.ids import CountingIds
from tests.orchestrator.transfer.uploads import ME, tree_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def node(name: str, parent: str | None, *, visible: bool = True, at: datetime | None = None) -> SourceMessage:
    return SourceMessage(name, parent, Role.USER, name, created_at=at, visible=visible)


def planted(*nodes: SourceMessage, current: str | None = None, title: str = "t") -> Planted:
    return plant(SourceConversation("test", "1", title, nodes, current_id=current), ME, CountingIds(), now=NOW)


def test_children_before_parents() -> None:
    assert tree_of(planted(node("c", "b"), node("b", "a"), node("a", None)).whole) == [
        (None, "user", "a"),
        (0, "user", "b"),
        (1, "user", "c"),
    ]


def test_hidden_nodes_give_their_children_to_the_one_above() -> None:
    whole = planted(
        node("root", None, visible=False), node("a", "root"), node("x", "a", visible=False), node("y", "x", visible=False), node("b", "y"),
        node("z", "b", visible=False), current="z",
    ).whole  # fmt: skip
    assert tree_of(whole) == [(None, "user", "a"), (0, "user", "b")]
    assert whole.head.current_leaf_id == whole.messages[1].id


def test_orphans_circles_and_doubles_are_kept_and_told() -> None:
    result = planted(node("a", "gone"), node("b", "c"), node("c", "b"), node("d", "c"), node("e", "e"), node("a", None), node("f", "a"))
    assert result.notes == ("1 message was there twice.", "1 message had lost the one before.", "2 circles were opened.")
    assert {text for _, _, text in tree_of(result.whole)} == set("abcdef")


def test_without_messages_there_is_nothing_to_import() -> None:
    with pytest.raises(Unreadable):
        planted(node("a", None, visible=False))


def test_too_many_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planting, "MAX_MESSAGES", 2)
    with pytest.raises(Unreadable, match="more than 2"):
        planted(node("a", None), node("b", "a"), node("c", "b"))


def test_a_deep_and_a_wide_tree() -> None:
    deep = planted(*(node(f"n{number}", f"n{number - 1}" if number else None) for number in range(20_000))).whole
    assert deep.messages[-1].parent_id == deep.messages[-2].id
    wide = planted(node("root", None), *(node(f"n{number}", "root") for number in range(5_000))).whole
    assert [message.content for message in wide.messages[:3]] == ["root", "n0", "n1"]


def test_times_and_titles_are_bounded() -> None:
    later = datetime(2999, 1, 1, tzinfo=UTC)
    whole = planted(node("a", None, at=later), node("b", "a"), title=" \x1b[31mred\n\u2028 " + "x" * 300).whole
    assert whole.head.title == "[31mred " + "x" * 192
    assert planted(node("\b", None), title="\x00 \x08").whole.head.title == ""
    assert planted(node("a", None), title="x" * 199 + " y").whole.head.title == "x" * 199
    assert {message.created_at for message in whole.messages} == {NOW}
    assert whole.head.updated_at == NOW


def test_a_text_beyond_the_limit_is_cut_between_characters() -> None:
    result = planted(SourceMessage("a", None, Role.ASSISTANT, "é" * 300_000))
    content = result.whole.messages[0].content
    assert len(content.encode()) <= planting.MAX_CONTENT_BYTES
    assert content.endswith("é\n\n[cut]")
    assert result.notes == ("1 text was cut at 512 kB.",)


@given(
    st.lists(st.tuples(st.integers(0, 7), st.none() | st.integers(0, 9), st.booleans()), max_size=12),
    st.none() | st.integers(0, 9),
)
@settings(max_examples=200, deadline=None)
def test_whatever_links_say_a_tree_comes_out(links: list[tuple[int, int | None, bool]], current: int | None) -> None:
    nodes = [node(str(name), None if parent is None else str(parent), visible=visible) for name, parent, visible in links]
    first = {one.source_id: one for one in reversed(nodes)}
    shown = {name for name, one in first.items() if one.visible}
    if not shown:
        return
    whole = planted(*nodes, current=None if current is None else str(current)).whole
    seen: set[str | None] = {None}
    for message in whole.messages:
        assert message.parent_id in seen
        seen.add(message.id)
    assert {message.content for message in whole.messages} == shown
    assert whole.head.current_leaf_id in seen - {None}
