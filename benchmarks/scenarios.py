"""What the engine must withstand, each scenario one function over a replica client. No peer is needed for these."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from antiphon.inference.wire import SequenceFrame, StepFrame, TokensFrame
from benchmarks.chats import Chat, ChatMaker, Played, Player
from benchmarks.replica_client import ReplicaClient, engine_request, generate
from benchmarks.report import median, percentile

INTRUDER_TOKENS = 4_000
RETURNING_TOKENS = 2_000
FLOODER_TENANTS = 8
OUTPUT_WEIGHT, CACHED_WEIGHT = 2.0, 0.1
"""VTC's cost of an output token and of a cached prompt token; a computed one costs 1 (Sheng et al., OSDI 2024)."""


# --- intruder ---------------------------------------------------------------------------------------


async def intruder(client: ReplicaClient, maker: ChatMaker, *, rounds: int, seed: int) -> dict[str, float]:
    """Eight decode; then a prompt of 4,000 tokens arrives. Medians over ``rounds`` of ratios inside each round."""
    itl: list[float] = []
    ttft: list[float] = []
    skipped = 0
    for number in range(rounds):
        alone = await client.play([_long_chat(maker, seed + 2 * number, number=0, arrives_s=0.0)])
        eight = maker.chats(8, 1, 60, round_number=1000 + number, seed=seed)
        calm = (await client.play(eight)).complete(eight)
        busy, rows = await _beside_intruder(client, maker, number, seed)
        guest = next(turn for turn in busy.turns if turn.tenant == "intruder")
        hosts = [turn for turn in busy.turns if turn.tenant != "intruder"]
        during = [
            later - earlier
            for turn in hosts
            for earlier, later in zip(turn.token_s, turn.token_s[1:], strict=False)
            if later > guest.sent_s and earlier < guest.token_s[0]
        ]
        itl.append(percentile(during, 0.95) / percentile(calm.gaps_s, 0.95))
        ttft.append(guest.ttft_s / alone.turns[0].ttft_s)
        skipped += sum(count < len(hosts) for at, count in rows if guest.sent_s < at < guest.token_s[0])
    return {"intruder_itl_p95": median(itl), "intruder_ttft": median(ttft), "decode_rows_skipped": float(skipped)}


def _long_chat(maker: ChatMaker, seed: int, *, number: int, arrives_s: float) -> Chat:
    return Chat(number, (maker.long_prompt(INTRUDER_TOKENS, seed=seed),), 2, seed, arrives_s, tenant="intruder")


async def _beside_intruder(client: ReplicaClient, maker: ChatMaker, number: int, seed: int) -> tuple[Played, list[tuple[float, int]]]:
    """The load until the intruder has its answer; beside it, for each step, when it ended and how many hosts' tokens it brought."""
    hosts = maker.chats(8, 1, 1500, round_number=2000 + number, seed=seed)
    guest = _long_chat(maker, seed + 2 * number + 1, number=99, arrives_s=1.5)
    rows: list[tuple[float, int]] = []

    def answered(player: Player) -> bool:
        return any(turn.tenant == "intruder" and len(turn.token_s) == 2 for turn in player.turns)

    def count(frame: StepFrame, at: float) -> None:
        if frame.times is not None:
            rows.append((at, sum(isinstance(sequence, TokensFrame) for sequence in frame.sequences)))

    played = await client.play([*hosts, guest], until=answered, watch=count)
    return played, rows


# --- fairness ---------------------------------------------------------------------------------------


async def flooder(client: ReplicaClient, maker: ChatMaker, *, seconds: float, seed: int) -> float:
    """The worst share of any other tenant, 1.0 being an equal one, while tenant 0 sends 20 times what each of them sends.

    All tenants always have something waiting; raises ``RuntimeError`` if one had not.
    """
    rng = random.Random(seed)
    chats: list[Chat] = []
    for tenant in range(FLOODER_TENANTS):
        load = 20 if tenant == 0 else 1
        arrivals = [0.0] * (8 * load) + [rng.uniform(0.0, seconds) for _ in range(int(load * seconds))]
        for at in arrivals:
            question = maker.first(f"({rng.randrange(1 << 30)}) Tell me about rivers.", system=f"You are assistant {tenant}.")
            chats.append(Chat(len(chats), (question,), 64, rng.randrange(1 << 30), at, tenant=f"tenant-{tenant}"))
    played = await client.play(chats, stop_s=seconds)
    cost: dict[str, float] = defaultdict(float)
    waiting: dict[str, int] = defaultdict(int)
    for turn in played.turns:
        waiting[turn.tenant] += not turn.token_s
        if turn.token_s:
            cached = max(turn.cached_tokens, 0)
            cost[turn.tenant] += turn.prompt_tokens - cached + CACHED_WEIGHT * cached + OUTPUT_WEIGHT * len(turn.token_s)
    if len(waiting) < FLOODER_TENANTS or min(waiting.values()) == 0:
        raise RuntimeError(f"a tenant had nothing waiting: {dict(waiting)}")
    fair_share = sum(cost.values()) / FLOODER_TENANTS
    return min(cost[f"tenant-{tenant}"] for tenant in range(1, FLOODER_TENANTS)) / fair_share


# --- memory -----------------------------------------------------------------------------------------


async def returning(client: ReplicaClient, maker: ChatMaker, *, conversations: int, rounds: int, seed: int) -> dict[str, float]:
    """Conversations of 2,000 tokens, more than the blocks hold; each comes back when the others have driven it out.

    ``returning_ttft`` is TTFT of a return over TTFT of its first prompt, which computes all 2,000 tokens.
    """
    ratios: list[float] = []
    cached: list[float] = []
    for number in range(rounds):
        chats = [
            Chat(index, (maker.long_prompt(RETURNING_TOKENS, seed=seed + 100 * number + index), maker.following("Go on.")), 8, seed)
            for index in range(conversations)
        ]
        first: list[tuple[float, tuple[int, ...]]] = []
        for chat in chats:
            answer = await generate(client, engine_request(chat, chat.turns[0], chat.seed, "first"))
            first.append((answer.ttft_s, chat.turns[0] + answer.token_ids))
        for chat, (ttft_s, past) in zip(chats, first, strict=True):
            answer = await generate(client, engine_request(chat, past + chat.turns[1], chat.seed, "again"))
            ratios.append(answer.ttft_s / ttft_s)
            cached.append((answer.usage.cached_tokens if answer.usage else 0) / RETURNING_TOKENS)
    return {"returning_ttft": median(ratios), "returning_cached_share": median(cached)}


async def overload(client: ReplicaClient, maker: ChatMaker, *, seed: int) -> dict[str, float]:
    """Twice as many sequences as fit, all at once: how many failed, and what share of the work was done twice."""
    assert client.ready is not None
    shape = client.ready.shape
    prompt = maker.first("(0) Tell me about rivers.", system="Short.")
    answer_tokens = 96
    fit = shape.blocks // -(-(len(prompt) + 6 + answer_tokens) // shape.block_tokens)
    chats = [
        Chat(index, (maker.first(f"({index}) Tell me about rivers.", system=f"Short {index}."),), answer_tokens, seed + index)
        for index in range(2 * fit)
    ]
    before = await client.idle()
    played = await client.play(chats)
    after = await client.idle()
    starved = sum(len(turn.token_ids) < answer_tokens for turn in played.turns)
    work = sum(turn.prompt_tokens + len(turn.token_ids) for turn in played.turns)
    longest = max((max(turn.gaps_s, default=0.0) for turn in played.turns), default=0.0)
    return {
        "failed": float(max(len(played.failed), starved)),
        "preempted_share": (after.recomputed_tokens - before.recomputed_tokens) / work,
        "preemptions": float(after.preemptions - before.preemptions),
        "overload_sequences": float(len(chats)),
        "overload_longest_gap_ms": round(1e3 * longest, 1),
    }


async def burst(client: ReplicaClient, maker: ChatMaker, *, users: int, seed: int) -> dict[str, float]:
    """``users`` chats begin in the same moment; nothing of theirs but the system prompt is cached."""
    chats = maker.chats(users, 1, 16, round_number=4000, seed=seed)
    played = (await client.play(chats)).complete(chats)
    return {"burst_ttft_ms_p50": 1e3 * median(played.ttfts_s), "burst_ttft_ms_max": 1e3 * max(played.ttfts_s), "burst_tok_s": played.tok_s}


async def cancel_storm(client: ReplicaClient, maker: ChatMaker, *, cancels: int, seed: int) -> dict[str, float]:
    """Random requests, each cancelled at a random moment of its life: waiting, prefill, decode. Blocks that do not come back leak."""
    rng = random.Random(seed)
    before = await client.idle()
    ended: set[int] = set()
    tasks: set[asyncio.Task[None]] = set()

    async def one(number: int) -> None:
        tokens = rng.choice((30, 120, 600, 1500))
        chat = Chat(number, (maker.long_prompt(tokens, seed=seed + rng.randrange(40)),), 64, number, tenant=f"tenant-{number % 5}")
        finished = asyncio.Event()

        def hear(frame: SequenceFrame, _at: float) -> None:
            if not isinstance(frame, TokensFrame) and type(frame).__name__ in {"FinishedFrame", "FailedFrame"}:
                finished.set()

        handle = client.submit(engine_request(chat, chat.turns[0], number, f"storm-{number}"), hear)
        await asyncio.sleep(rng.expovariate(1 / 0.4))
        client.cancel(handle)
        async with asyncio.timeout(60):
            await finished.wait()
        ended.add(number)

    for number in range(cancels):
        tasks.add(asyncio.create_task(one(number)))
        await asyncio.sleep(rng.expovariate(1 / 0.02))
    await asyncio.gather(*tasks)
    after = await client.idle()
    leaked = (before.free + before.cached) - (after.free + after.cached)
    return {"leaked_blocks": float(abs(leaked) + abs(after.held - before.held)), "cancelled": float(len(ended))}


# --- tenants ----------------------------------------------------------------------------------------


async def timing_auc(client: ReplicaClient, maker: ChatMaker, *, probes: int, salted: bool, seed: int) -> float:
    """How well TTFT tells whether a foreign tenant has the prompt in the cache: 0.5 is not at all.

    Half of the probed prompts were sent by the victim before. Without ``salted`` both bear one tenant's name.
    """
    rng = random.Random(seed)
    victim, probe = ("victim", "probe") if salted else ("both", "both")
    cached: list[float] = []
    fresh: list[float] = []
    for number in range(0, probes, 20):
        batch = [maker.long_prompt(160, seed=seed + 10_000 + number + index) for index in range(20)]
        known = set(rng.sample(range(20), 10))
        primes = [Chat(index, (batch[index],), 1, 0, tenant=victim) for index in sorted(known)]
        (await client.play(primes)).complete(primes)
        for index in rng.sample(range(20), 20):
            chat = Chat(index, (batch[index],), 1, 0, tenant=probe)
            answer = await generate(client, engine_request(chat, batch[index], 0, "probe"))
            (cached if index in known else fresh).append(answer.ttft_s)
    return _auc(fresh, cached)


def _auc(larger: Sequence[float], smaller: Sequence[float]) -> float:
    """The probability that one of ``larger`` exceeds one of ``smaller`` (Mann-Whitney)."""
    wins = sum((left > right) + 0.5 * (left == right) for left in larger for right in smaller)
    return wins / (len(larger) * len(smaller))


async def planted_secret(client: ReplicaClient, maker: ChatMaker, *, trials: int, seed: int) -> float:
    """One tenant's prompts hold numbers; another asks for them with the same beginning. How many of them appeared."""
    appeared = 0
    for number in range(trials):
        rng = random.Random(f"{seed}.{number}")
        secret = f"{rng.randrange(10**8, 10**9)}"
        ours = maker.first(f"Remember that the code of the vault is {secret}. Say the code of the vault.", system="Vault.")
        theirs = maker.first("Remember that the code of the vault is", system="Vault.")
        for tenant, ids in (("owner", ours), ("stranger", theirs)):
            chat = Chat(0, (ids,), 24, 0, tenant=tenant, temperature=0.0)
            answer = await generate(client, engine_request(chat, ids, 0, "secret"))
            if tenant == "stranger":
                appeared += secret in maker.text(answer.token_ids)
    return float(appeared)


def greedy(chats: Sequence[Chat]) -> list[Chat]:
    """The same chats at temperature 0."""
    return [replace(chat, temperature=0.0) for chat in chats]
