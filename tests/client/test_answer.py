"""Whatever the connections do, a reader's text has every character once, and only ever grows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.client import Delta, Done, Snapshot
from antiphon.client.answer import Answer, Opening
from antiphon.client.transport import Transport
from tests.client.whimsical_server import Story, Whim, whimsical

TEXTS = st.lists(st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8), min_size=1, max_size=12)
WHIMS = st.lists(
    st.builds(
        Whim,
        status=st.sampled_from((200, 200, 200, 200, 502, 503)),
        cut=st.none() | st.integers(0, 900),
        back=st.integers(0, 4),
        snapshot=st.sampled_from((0, 0, 1, 3)),
        skipped=st.sampled_from((0, 0, 0, 1, 2)),
        asks=st.sampled_from((0, 0, 1, 4)),
    ),
    max_size=8,
)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, Story]]:
    with whimsical() as served:
        yield served


@given(texts=TEXTS, whims=WHIMS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_every_character_once(served: tuple[str, Story], texts: list[str], whims: list[Whim]) -> None:
    url, story = served
    # A refusal before the answer has begun is told to the caller, so the first connection is not one.
    first = [Whim(cut=400), *whims]
    story.texts, story.whims, story.cursors = texts, first, []
    opening = Opening("/v1/conversations/conv_1/messages", {"content": "hi"}, "key-1")
    answer = Answer(Transport(url, "ak_1", timeout_s=5), opening, sleep=lambda _: None)
    shown = ""
    events = list[object]()
    for event in answer:
        events.append(event)
        if isinstance(event, Delta):
            shown += event.text
        elif isinstance(event, Snapshot):
            assert event.text.startswith(shown)
            shown = event.text
        assert answer.text == shown
    assert shown == "".join(texts)
    assert isinstance(events[-1], Done)
    assert sum(isinstance(event, Done) for event in events) == 1
