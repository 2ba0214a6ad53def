"""Each format's fixture becomes the tree that a person saw, with its times, models and endings."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from antiphon.core.messages import MessageStatus, Role
from antiphon.orchestrator.transfer.values import parse_object, time_of
from antiphon.stores.transfers.base import WholeConversation
from tests.orchestrator.transfer.uploads import Place, as_zip, chatgpt, fixture, tree_of


async def imported(name: str) -> tuple[list[str], list[WholeConversation]]:
    """The report's reasons, and the conversations in its order."""
    place = Place()
    report = await place.take(fixture(name))
    return [f"{line.status}: {line.reason}" for line in report.lines], [
        await place.whole(line) for line in report.lines if line.status == "imported"
    ]


async def test_chatgpt() -> None:
    reasons, (norway, untitled) = await imported("chatgpt.json")
    assert reasons == ["imported: None", "imported: None", "failed: It has no messages."]
    assert tree_of(norway) == [
        (None, "user", "How do I get to Norway?"),
        (0, "assistant", "By ferry."),
        (0, "assistant", "By train, \n\n[image]"),
        (None, "user", "[image]\n\nHow far is this from Oslo?"),
        (3, "assistant", "```python\nprint(400)\n```"),
        (4, "assistant", "```\n400\n```"),
        (5, "assistant", "400 km."),
    ]
    head = norway.head
    assert (head.title, head.archived, head.pinned, head.model) == ("Travelling to Norway", True, True, None)
    assert head.current_leaf_id == norway.messages[6].id
    assert head.created_at == datetime(2023, 11, 14, 22, 13, 20, 250_000, UTC)
    assert head.updated_at == datetime(2023, 11, 14, 22, 28, 20, 500_000, UTC)
    assert [message.model for message in norway.messages] == [None, "gpt-4", "gpt-4o", None, "gpt-4o", None, "gpt-4o"]
    assert [message.finish_reason for message in norway.messages] == [None, "stop", "cancelled", None, None, None, "length"]
    assert norway.messages[2].status is MessageStatus.CANCELLED
    assert norway.messages[1].created_at == datetime(2023, 11, 14, 22, 13, 22, tzinfo=UTC)
    assert tree_of(untitled) == [
        (None, "user", "A question without a title\nand a second line"),
        (0, "assistant", "[hologram_v9]"),
    ]
    assert untitled.head.title == "A question without a title"
    assert untitled.head.current_leaf_id == untitled.messages[1].id
    assert untitled.messages[1].created_at == untitled.head.created_at


async def test_chatgpt_in_a_zip_of_many_files() -> None:
    first, second, broken = json.loads(fixture("chatgpt.json"))
    place = Place()
    members = {
        "conversations-000__json": json.dumps([first, broken]),
        "conversations-001__json": json.dumps([second]),
        "user__json": '{"id": "user-x"}',
        "shared_conversations__json": '[{"id": "s", "conversation_id": "c", "title": "t"}]',
        "library__json": '[{"id": "file-1"}]',
        "chat__html": "<html>",
    }
    report = await place.take(as_zip(**members))
    assert [(line.status, line.messages) for line in report.lines] == [("imported", 7), ("failed", 0), ("imported", 2)]


async def test_openwebui() -> None:
    reasons, (two, old) = await imported("openwebui.json")
    assert reasons == ["imported: None", "imported: None"]
    assert tree_of(two) == [
        (None, "user", "Say hi"),
        (0, "assistant", "Hi"),
        (0, "assistant", "Hello"),
        (2, "user", "More"),
        (3, "assistant", ""),
        (3, "assistant", "half an ans"),
    ]
    assert two.head.current_leaf_id == two.messages[1].id
    assert (two.head.pinned, two.head.archived) == (True, True)
    hello, failed, half = two.messages[2], two.messages[4], two.messages[5]
    assert (hello.model, hello.prompt_tokens, hello.output_tokens) == ("qwen:7b", 12, 3)
    assert failed.status is MessageStatus.FAILED
    assert failed.error is not None
    assert failed.error.message == "out of memory"
    assert half.status is MessageStatus.INTERRUPTED
    assert tree_of(old) == [(None, "user", "one"), (0, "assistant", "two")]


async def test_librechat_flat() -> None:
    _, (story,) = await imported("librechat_flat.json")
    assert tree_of(story) == [
        (None, "user", "a story"),
        (0, "assistant", "Of course"),
        (0, "assistant", "Sure, I c"),
        (None, "user", "a longer story"),
        (3, "assistant", "The legend\n\nof Eldoria"),
        (3, "assistant", ""),
    ]
    assert [message.status.value for message in story.messages][1:] == ["complete", "interrupted", "complete", "complete", "failed"]
    assert story.messages[1].finish_reason == "length"
    assert story.messages[1].output_tokens == 78
    assert story.head.created_at == datetime(2024, 5, 28, 18, 8, 55, 14_000, UTC)
    assert story.head.updated_at == datetime(2024, 5, 28, 18, 14, 9, tzinfo=UTC)


async def test_librechat_nested() -> None:
    _, (nested,) = await imported("librechat_tree.json")
    assert tree_of(nested) == [
        (None, "user", "hello"),
        (0, "assistant", "It works."),
        (1, "user", "thanks"),
        (2, "assistant", "Welcome"),
        (1, "user", "lol"),
    ]
    assert nested.messages[2].created_at == nested.messages[1].created_at


async def test_our_own() -> None:
    reasons, (ours, empty) = await imported("antiphon.jsonl")
    assert reasons == ["imported: None", "imported: None"]
    assert tree_of(ours) == [(None, "user", "What is new?"), (0, "assistant", "Everything — 全部 🎉"), (0, "assistant", "No")]
    head, answer = ours.head, ours.messages[1]
    assert (head.title, head.title_source.value, head.model, head.folder, head.pinned) == ("Ours", "auto", "small", "work", True)
    assert head.current_leaf_id == answer.id
    assert str(answer.cost) == "0.00012"
    assert ours.feedback[answer.id].comment == "yes"
    assert json.loads(ours.extra) == {"mood": {"of the": ["future", 1.5, None]}}
    assert json.loads(ours.extras[answer.id]) == {"generation_id": "gen_0193b5a0-0000-7000-8000-000000000009", "tools": [{"name": "clock"}]}
    assert ours.messages[2].error is not None
    assert empty.messages == ()


async def test_text_that_is_none_is_repaired() -> None:
    file = json.dumps(chatgpt("x", "a\ud800b \\ud800 \\\\u0000 \0c 🎉\ud83d", "ok")).encode()
    place = Place()
    report = await place.take(file.replace(b"ok", b"\xff\xfe"))
    (line,) = report.lines
    assert (line.status, line.reason) == ("imported", "Characters that are no text were replaced.")
    assert tree_of(await place.whole(line)) == [(None, "user", "a�b \\ud800 \\\\u0000 c 🎉�"), (0, "assistant", "��")]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (1_700_000_000, "2023-11-14T22:13:20+00:00"), (1_700_000_000_000, "2023-11-14T22:13:20+00:00"),
        ("2024-05-28T18:08:55.014Z", "2024-05-28T18:08:55.014000+00:00"), ("2024-05-28", "2024-05-28T00:00:00+00:00"),
        (0, None), (-5, None), (1e300, None), (float("nan"), None), (True, None), ("yesterday", None), ("1066-01-01", None),
        ("0001-01-01T00:00:00+23:00", None), ([], None), ("9999-12-31T23:59:59-14:00", None), (10**400, None),
    ],
)  # fmt: skip
def test_moments(value: object, wanted: str | None) -> None:
    found = time_of(value)  # type: ignore[arg-type]
    assert (None if found is None else found.isoformat()) == wanted


def test_the_parser_takes_nothing_but_an_object() -> None:
    assert parse_object(b'{"a": "b", "a": "c"}') == ({"a": "c"}, False)
    assert parse_object(b'{"role": "user"}')[0] == {"role": Role.USER.value}
