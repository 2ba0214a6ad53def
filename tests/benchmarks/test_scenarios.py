"""The scenarios over the replica's real wire, with the reference engine: they must run, and find nothing where nothing is wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.app.config import Flags, load_config
from antiphon.engines.base import ReplicaSpec
from antiphon.engines.model_source import DEFAULT_MODEL, ModelStore
from antiphon.engines.tokenizer import load_tokenizer
from benchmarks import scenarios
from benchmarks.chats import ChatMaker
from benchmarks.replica_client import ReplicaClient, replica

pytestmark = [pytest.mark.model, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def maker() -> ChatMaker:
    folder: Path | None = ModelStore(load_config(Flags(), {}).models_dir).find(DEFAULT_MODEL)
    if folder is None:
        pytest.skip("the default model is not installed")
    return ChatMaker(load_tokenizer(folder))


@pytest.fixture
async def client() -> AsyncIterator[ReplicaClient]:
    spec = ReplicaSpec("bench", "reference", "reference", "", prefill_tokens_per_s=20_000, output_tokens_per_s=4_000, blocks=120)
    async with replica(spec) as found:
        yield found


async def test_a_load_is_answered_whole_and_its_steps_are_counted(client: ReplicaClient, maker: ChatMaker) -> None:
    chats = maker.chats(6, 2, 8, round_number=0, seed=0)
    played = (await client.play(chats)).complete(chats)
    assert len(played.turns) == 12
    assert all(turn.cached_tokens >= 0 for turn in played.turns)
    shares = client.steps.shares(played.seconds)
    assert 0.0 < shares["infer"] <= 1.0
    assert shares["outside"] == pytest.approx(1.0 - shares["infer"])


async def test_cancels_and_too_many_sequences_leave_every_block_free(client: ReplicaClient, maker: ChatMaker) -> None:
    storm = await scenarios.cancel_storm(client, maker, cancels=30, seed=1)
    assert storm == {"leaked_blocks": 0.0, "cancelled": 30.0}
    crowd = await scenarios.overload(client, maker, seed=1)
    assert crowd["failed"] == 0.0
    assert (await client.idle()).held == 0
