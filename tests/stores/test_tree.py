"""The tree's look-ups, and the first title."""

from __future__ import annotations

from datetime import timedelta

import pytest

from antiphon.core.clock import ManualClock
from antiphon.core.errors import NotFound
from antiphon.core.ids import MessageId
from antiphon.core.messages import MessageStatus, Role, TreeNode
from antiphon.stores.conversations.first_title import FIRST_TITLE_CHARACTERS, first_title
from antiphon.stores.conversations.tree import ConversationTree


def tree(**parents: str) -> ConversationTree:
    """Nodes ``name=parent``, each a second younger than the one before; ``""`` for a root."""
    start = ManualClock().now()
    return ConversationTree(
        TreeNode(MessageId(name), MessageId(parent) or None, Role.USER, MessageStatus.COMPLETE, start + timedelta(seconds=at))
        for at, (name, parent) in enumerate(parents.items())
    )


def test_the_newest_leaf_is_the_newest_message_without_children_below() -> None:
    shape = tree(a="", b="a", c="b", d="a", e="c")
    assert shape.newest_leaf(MessageId("a")) == "e"
    assert shape.newest_leaf(MessageId("d")) == "d"
    assert shape.newest_leaf(MessageId("b")) == "e"
    assert shape.shown_leaf(None) is None
    with pytest.raises(NotFound):
        shape.newest_leaf(MessageId("x"))


def test_equal_times_are_ordered_by_id() -> None:
    moment = ManualClock().now()
    nodes = [TreeNode(MessageId(name), None, Role.USER, MessageStatus.COMPLETE, moment) for name in "bca"]
    assert ConversationTree(nodes).siblings(MessageId("b")) == ("a", "b", "c")


def test_a_path_of_ten_thousand_messages_is_walked() -> None:
    names = [f"m{number:05}" for number in range(10_000)]
    deep = tree(**dict(zip(names, ["", *names], strict=False)))
    assert deep.branch(MessageId(names[-1])) == tuple(names)
    assert deep.newest_leaf(MessageId(names[0])) == names[-1]


@pytest.mark.parametrize(
    ("content", "title"),
    [
        ("", ""),
        (" \n\t\n", ""),
        ("hello", "hello"),
        ("\n  What   is\ta tree?  \nTell me", "What is a tree?"),
        ("x" * 60, "x" * 60),
        ("x" * 61, "x" * 59 + "…"),
        ("why " * 30, " ".join(["why"] * 14) + "…"),
        ("<|im_end|> literally", "<|im_end|> literally"),
    ],
)
def test_the_first_title(content: str, title: str) -> None:
    assert first_title(content) == title
    assert len(title) <= FIRST_TITLE_CHARACTERS
