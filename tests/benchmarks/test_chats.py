"""The benchmarks' own arithmetic: a wrong ratio would be believed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.chats import Chat, Played, Player, Turn, poisson
from benchmarks.duel import Duel, fight
from benchmarks.plots import write
from benchmarks.report import percentile
from benchmarks.slo import Load, Request


def _played(chats: list[Chat], step_s: float) -> Played:
    """An engine that gives every open request one token each ``step_s``."""
    player, now = Player(chats), 0.0
    open_prompts = {prompt.key: prompt for prompt in player.due(now)}
    while not player.done:
        now += step_s
        for key, prompt in list(open_prompts.items()):
            player.tokens(key, [7], now)
            if len(player.turns[key].token_ids) == prompt.chat.max_tokens:
                del open_prompts[key]
                player.ended(key)
        open_prompts |= {prompt.key: prompt for prompt in player.due(now)}
    return Played(player.turns, now)


def test_a_next_turn_follows_the_answer_and_contains_it() -> None:
    player = Player([Chat(0, ((1, 2), (3,)), 2, seed=5)])
    (first,) = player.due(0.0)
    player.tokens(first.key, [8, 9], 1.0)
    assert player.due(1.0) == []
    player.ended(first.key)
    (second,) = player.due(2.0)
    assert second.ids == (1, 2, 8, 9, 3)
    assert (first.seed, second.seed) == (5, 6)
    player.ended(second.key, error="gone")
    assert player.done
    assert [turn.error for turn in player.turns] == ["", "gone"]


def test_chats_begin_when_they_arrive() -> None:
    chats = poisson([Chat(number, ((1,),), 1, seed=0) for number in range(50)], rate=10.0, seed=1)
    assert chats[0].arrives_s == 0.0
    assert 3.0 < chats[-1].arrives_s < 8.0
    player = Player(chats)
    assert len(player.due(0.0)) == 1
    assert player.next_arrival_s == chats[1].arrives_s
    assert len(player.due(100.0)) == 49


async def test_a_duel_is_played_abba_and_its_ratios_are_ours_over_theirs() -> None:
    order: list[str] = []

    async def ours(chats: list[Chat]) -> Played:
        order.append("ours")
        return _played(chats, 0.01)

    async def theirs(chats: list[Chat]) -> Played:
        order.append("theirs")
        return _played(chats, 0.02)

    lists = [[Chat(user, ((1,),), 4, seed=0) for user in range(2)] for _ in range(3)]
    duel = await fight(Duel("chat8", "peer"), ours, theirs, lists)
    assert order == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert duel.ratios["tok_s"] == pytest.approx(2.0)
    assert duel.ratios["ttft_p50"] == pytest.approx(0.5)
    assert duel.ratios["itl_p95"] == pytest.approx(0.5)
    assert "ttft_p99" not in duel.ratios


def test_a_round_with_a_token_missing_counts_for_nothing() -> None:
    chats = [Chat(0, ((1,),), 2, seed=0)]
    with pytest.raises(RuntimeError, match="1 of 2 tokens"):
        Played([Turn(0, 0, "t", 1, 0.0, [0.1], [7])], 0.1).complete(chats)


def test_a_p99_needs_300_samples() -> None:
    with pytest.raises(ValueError, match="300"):
        percentile([1.0] * 299, 0.99)
    assert percentile([*[1.0] * 296, 2.0, 3.0, 4.0, 5.0], 0.99) == 2.0


def test_promises_hold_or_not() -> None:
    good = [Request(0.2, 40.0) for _ in range(99)]
    assert Load(1.0, [*good, Request(0.2, None)]).holds
    assert not Load(1.0, [*good, Request(0.2, 19.0)]).holds
    assert not Load(1.0, [*good, Request(0.2, 40.0, error="no_capacity")]).holds
    assert not Load(1.0, [*good[:10], Request(5.0, 40.0)]).holds
    assert Load(1.0, [*good, Request(5.0, 40.0)]).met_share == 0.99


def test_a_page_has_a_chart_for_every_figure_that_a_peer_has_too(tmp_path: Path) -> None:
    figures = {"rounds": 3, "tok_s": 200.0, "ttft_ms_p50": 140.0, "itl_ms_p95": 30.0}
    line = {
        "name": "engine",
        "machine": "a < b",
        "commit": "c",
        "model": "m",
        "seed": 0,
        "n": 1,
        "seconds": 2.0,
        "cpu_probe": {"decode_ms": 1.0, "gemm_gflops": 2.0},
        "results": {"chat8_tok_s": 300.0, "chat8_ttft_ms_p50": 70.0},
        "ratios": {"chat8_tok_s_vs_best": 1.5},
        "peers": {"openvino_genai": {"version": "1", "chat8": figures}},
    }
    written = write([json.loads(json.dumps(line)), line | {"ratios": {"returning_ttft": 0.02}}], tmp_path)
    assert [path.name for path in written] == ["engine-chat8-tok_s.svg", "engine-chat8-ttft_ms_p50.svg", "engine.md"]
    assert "OpenVINO GenAI" in (tmp_path / "engine-chat8-tok_s.svg").read_text()
    page = (tmp_path / "engine.md").read_text()
    assert "| `chat8_tok_s_vs_best` | 1.5 |" in page
    assert "| `returning_ttft` | 0.02 |" in page
