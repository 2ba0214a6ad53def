"""What searching finds, in both drivers alike."""

from __future__ import annotations

import pytest

from antiphon.core.errors import BadCursor
from antiphon.core.generation import Usage
from antiphon.core.ids import MessageId
from antiphon.stores.conversations.base import ConversationPatch, Owner
from antiphon.stores.generations.base import ContinueMessage
from tests.contracts.scene import Scene


async def found(scene: Scene, question: str, owner: Owner | None = None) -> list[tuple[str, str | None]]:
    page = await scene.conversations.search(owner or scene.owner(), question, limit=100, after=None)
    return [(hit.conversation_id, hit.message_id) for hit in page.hits]


async def test_titles_questions_and_answers_are_found_by_their_owner_alone(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner, title="Brewing tea")
    turn = await scene.send(owner, head.id, "how hot should the water be?")
    await scene.finish(turn, "About eighty degrees for green LEAVES.")
    assert await found(scene, "brew") == [(head.id, None)]
    assert await found(scene, "hot WATER") == [(head.id, turn.user_message_id)]
    assert await found(scene, "leaves") == [(head.id, turn.message_id)]
    assert await found(scene, "water leaves") == []
    assert await found(scene, "water", scene.owner(user="u2")) == await found(scene, "water", scene.owner("t2")) == []


async def test_only_what_is_written_to_its_end_is_found(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner)
    turn = await scene.send(owner, head.id, "go")
    claimed = await scene.generations.claim(turn.generation_id, now=scene.clock.now(), lease_until=scene.clock.now() + scene.leases)
    assert claimed is not None
    await scene.generations.checkpoint(turn.generation_id, 1, text="halfway", seq=2, usage=Usage(9, 0, 4))
    assert await found(scene, "halfway") == []
    await scene.generations.finalise(scene.end(turn, 1, "halfway there", finish_reason="length"))
    assert await found(scene, "halfway") == [(head.id, turn.message_id)]
    more = await scene.generations.accept(scene.turn(owner, head.id, ContinueMessage(turn.message_id)))
    await scene.finish(more, "halfway there and home")
    assert await found(scene, "halfway home") == [(head.id, turn.message_id)]


async def test_a_rename_is_found_by_its_new_name_and_a_deletion_not_at_all(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner, title="before")
    now = scene.clock.now()
    await scene.conversations.update(owner, head.id, ConversationPatch(title="after"), now=now)
    assert await found(scene, "before") == []
    assert await found(scene, "after") == [(head.id, None)]
    await scene.conversations.delete(owner, head.id, now=now)
    assert await found(scene, "after") == []


async def test_temporary_conversations_are_not_found(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner, title="whisper", temporary=True)
    turn = await scene.send(owner, head.id, "whisper this")
    await scene.finish(turn, "whispered")
    assert await found(scene, "whisper") == []


@pytest.mark.parametrize(
    ("text", "question", "hit"),
    [
        ("我们的太阳系在银河系的边缘", "银河系", True),
        ("我们的太阳系在银河系的边缘", "银河", True),
        ("我们的太阳系在银河系的边缘", "河", True),
        ("我们的太阳系在银河系的边缘", "我", True),
        ("我们的太阳系在银河系的边缘", "缘", True),
        ("我们的太阳系在银河系的边缘", "河银", False),
        ("東京の天気は晴れ", "天気 東京", True),
        ("Go is a game, C is a language", "go", True),
        ("Go is a game, C is a language", "c", True),
        ("Go is a game, C is a language", "am", False),
        ("ein Stück", "stück", True),
        ("cafe\u0301", "café", True),
        ("the end 🎉", "🎉", True),
        ("one two  three", '"two  three"', True),
        ("one two three", '"one three"', False),
    ],
)
async def test_terms_of_any_length_and_script(scene: Scene, text: str, question: str, hit: bool) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner, title="the title")
    turn = await scene.send(owner, head.id, text)
    assert await found(scene, question) == ([(head.id, turn.user_message_id)] if hit else [])


@pytest.mark.parametrize(
    "question",
    [
        "",
        " ",
        '"',
        '""',
        "*",
        "foo-bar",
        'a"b',
        "NOT",
        "AND OR",
        "(",
        "title:x",
        "NEAR(a b)",
        "^a",
        "a*",
        "-x",
        "'",
        "%",
        "_",
        "\\",
        "x" * 5000,
    ],
)
async def test_no_question_is_a_syntax_error(scene: Scene, question: str) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner, title="plain")
    await scene.send(owner, head.id, f"I typed {question} here")
    page = await scene.conversations.search(owner, question, limit=5, after=None)
    assert all(hit.conversation_id == head.id for hit in page.hits)


async def test_titles_come_first_and_then_texts_that_are_mostly_the_term(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner, title="all about otters")
    dense = await scene.exchange(owner, head.id, "otters otters")
    sparse = await scene.exchange(owner, head.id, "otters " + "and other animals of rivers and lakes " * 20)
    assert await found(scene, "otters") == [(head.id, None), (head.id, dense.user_message_id), (head.id, sparse.user_message_id)]


async def test_pages_of_hits_hold_each_once_while_more_arrive(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner, title="x")
    wanted = [await scene.exchange(owner, head.id, f"needle {number}") for number in range(7)]
    seen: list[MessageId | None] = []
    after = None
    while True:
        page = await scene.conversations.search(owner, "needle", limit=3, after=after)
        seen += [hit.message_id for hit in page.hits]
        await scene.exchange(owner, head.id, "a late needle")
        after = page.next_cursor
        if after is None:
            break
    assert sorted(map(str, seen)) == sorted(str(turn.user_message_id) for turn in wanted)
    for cursor in ("", "x", "czE", "czE.MQ"):
        with pytest.raises(BadCursor):
            await scene.conversations.search(owner, "needle", limit=3, after=cursor)


async def test_snippets_are_escaped_and_marked(scene: Scene) -> None:
    owner = scene.owner()
    head = await scene.conversation(owner, title="<b>title</b>")
    await scene.send(owner, head.id, "far away " * 60 + "<script>alert('needle')</script>\n" + "and on " * 60)
    (hit,) = (await scene.conversations.search(owner, "NEEDLE", limit=5, after=None)).hits
    assert "&lt;script&gt;alert(&#x27;<mark>needle</mark>&#x27;)" in hit.snippet
    assert hit.snippet.startswith("…")
    assert hit.snippet.endswith("…")
    assert "<script" not in hit.snippet
