"""What goes out comes back: our format loses nothing, the others read well."""

from __future__ import annotations

import io
import json
import re
import zipfile
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.ids import ConversationId, KeyId, ShareId
from antiphon.core.messages import Role
from antiphon.core.tenancy import ApiKey, Scope, User, UserRole
from antiphon.orchestrator.transfer.account import Person, archive_of
from antiphon.orchestrator.transfer.exporting import Format
from antiphon.orchestrator.transfer.planting import plant
from antiphon.orchestrator.transfer.source import SourceConversation, SourceMessage
from antiphon.stores.shares.base import Share
from tests.ids import CountingIds
from tests.orchestrator.transfer.uploads import FIXTURES, ME, Place, as_json, chatgpt, fixture

ID = re.compile(rb"(?:conv|msg)_[0-9a-f-]{36}")


def renamed(export: bytes) -> list[bytes]:
    """The lines in an order of their own (the list's is by id where times are equal), their ids by order of appearance."""
    return sorted(map(_renamed, export.splitlines()))


def _renamed(line: bytes) -> bytes:
    """Origins, which name an older server's ids, are left out."""
    names: dict[bytes, bytes] = {}

    def name(found: re.Match[bytes]) -> bytes:
        return names.setdefault(found[0], b"<%d>" % len(names))

    return ID.sub(name, re.sub(rb'"origin":\{[^}]*\},', b"", line))


@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.iterdir()))
async def test_import_and_export_is_a_fixed_point(name: str) -> None:
    first, second, third = Place(1), Place(2), Place(3)
    await first.take(fixture(name))
    out = await first.give()
    assert (await second.take(out)).count("failed") == 0
    again = await second.give()
    assert renamed(again) == renamed(out)
    await third.take(again)
    assert renamed(await third.give()) == renamed(out)


async def test_our_own_fixture_comes_out_as_it_went_in() -> None:
    place = Place()
    await place.take(fixture("antiphon.jsonl"))
    wanted = [json.loads(line) for line in renamed(fixture("antiphon.jsonl"))]
    found = [json.loads(line) for line in renamed(await place.give())]
    assert found == wanted


async def test_an_export_that_comes_home_makes_no_doubles() -> None:
    here, there = Place(1), Place(2)
    await here.take(fixture("chatgpt.json"))
    await here.take(fixture("antiphon.jsonl"))
    out = await here.give()
    assert [line.status for line in (await here.take(out)).lines] == ["skipped"] * 4
    await there.take(out)
    assert [line.status for line in (await here.take(await there.give())).lines] == ["skipped"] * 4
    assert [line.status for line in (await there.take(fixture("chatgpt.json"))).lines] == ["skipped", "skipped", "failed"]


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=20).filter(
    lambda text: text.strip() != ""
)


@given(st.lists(st.tuples(st.integers(0, 9), TEXTS, st.integers(0, 3)), min_size=1, max_size=10), TEXTS)
@settings(max_examples=60, deadline=None)
async def test_any_tree_of_any_text_comes_back(drawn: list[tuple[int, str, int]], title: str) -> None:
    messages = tuple(
        SourceMessage(
            str(number),
            str(parent % number) if number else None,
            Role.ASSISTANT if number % 2 else Role.USER,
            text,
            created_at=datetime(2025, 1, 1, 0, 0, second, tzinfo=UTC),
            extra=json.dumps({"x": text}, ensure_ascii=False),
        )
        for number, (parent, text, second) in enumerate(drawn)
    )
    here, there = Place(1), Place(2)
    source = SourceConversation("test", "1", title, messages, current_id="0", extra=json.dumps({"y": title}))
    await here.transfers.import_conversation(plant(source, ME, CountingIds(4), now=here.clock.now()).whole)
    out = await here.give()
    await there.take(out)
    assert renamed(await there.give()) == renamed(out)


async def test_markdown_reads_well() -> None:
    place = Place()
    report = await place.take(fixture("chatgpt.json"))
    assert (
        (await place.give(Format.MARKDOWN, only=report.lines[0].conversation_id)).decode()
        == """# Travelling to Norway

*2023-11-14 22:13 UTC*

## You

*2023-11-14 22:15 · version 2 of 2*

[image]

How far is this from Oslo?

## Assistant

*gpt-4o · 2023-11-14 22:15*

```python
print(400)
```

## Assistant

*2023-11-14 22:15*

```
400
```

## Assistant

*gpt-4o · 2023-11-14 22:15*

400 km.
"""
    )
    everything = (await place.give(Format.MARKDOWN)).decode()
    assert "\n---\n" in everything
    assert "# A question without a title" in everything


async def test_json_is_one_plain_list_and_comes_back_too() -> None:
    place, other = Place(1), Place(2)
    assert json.loads(await place.give(Format.JSON)) == []
    await place.take(fixture("openwebui.json"))
    out = await place.give(Format.JSON)
    listed = json.loads(out)
    assert {one["title"] for one in listed} == {"Two versions", "Older than trees"}
    assert listed[0]["messages"][0].keys() >= {"id", "parent_id", "role", "content", "created_at"}
    assert (await other.take(out)).count("imported") == 2


async def test_an_account_as_one_zip() -> None:
    place, other = Place(1), Place(2)
    await place.take(fixture("antiphon.jsonl"))
    await place.take(as_json(chatgpt(f"c{number}", "hello " * 100) for number in range(120)))
    user = User(ME.user_id, ME.tenant_id, "ada", UserRole.MEMBER, "free", False, place.clock.now())
    key = ApiKey(KeyId("key_1"), ME.tenant_id, ME.user_id, "laptop", frozenset({Scope.CHAT}), "wxyz", place.clock.now())
    share = Share(ShareId("share_1"), ME.tenant_id, ME.user_id, ConversationId("conv_1"), "token", "A title", (), place.clock.now())
    pieces = [piece async for piece in archive_of(Person(user, (key,), (share,), ("chat",)), place.exporter, ME)]
    assert max(len(piece) for piece in pieces) < 64_000
    packed = b"".join(pieces)
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert archive.testzip() is None
        assert set(archive.namelist()) == {"README.txt", "account.json", "keys.json", "shares.json", "conversations.jsonl", "feedback.json"}
        assert json.loads(archive.read("keys.json"))[0]["last4"] == "wxyz"
        assert json.loads(archive.read("account.json"))["name"] == "ada"
        assert json.loads(archive.read("shares.json"))[0]["title"] == "A title"
        assert b"token" not in archive.read("shares.json")
        assert [given["comment"] for given in json.loads(archive.read("feedback.json"))] == ["yes"]
    assert (await other.take(packed)).count("imported") == 122
