"""What the model reads: prompts that stop growing, a prefix that stays cached, and facts that come back.

Over HTTP with the default model: conversations of 60 turns in a context that is full by turn 20. In process, on a real SQLite file with
the real tokenizer: a conversation of 1,000 stored messages, where a turn's prompt is decided and rendered. Over HTTP again, with the
reference engine (what is read does not depend on who reads it): 50 written cases, a fact at turn 2 and its question at turn 50.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import takewhile
from pathlib import Path
from random import Random
from typing import Any, cast

from antiphon.app.config import Flags, load_config
from antiphon.app.interpreter import tune_interpreter
from antiphon.app.system import SystemClock, SystemIds
from antiphon.core.generation import GenerationStatus, TurnParams, Usage
from antiphon.core.ids import ConversationId, GenerationId, IdKind, MessageId, TenantId, UserId
from antiphon.core.messages import Conversation
from antiphon.engines.model_source import DEFAULT_MODEL, ModelStore
from antiphon.engines.static_embedding import static_embedder
from antiphon.engines.tokenizer import load_tokenizer
from antiphon.inference.fleet import ServedPool
from antiphon.orchestrator.parts import Question
from antiphon.orchestrator.planner import Place, PlannedPrompt, PromptPlanner
from antiphon.orchestrator.ports import Ports
from antiphon.stores.conversations.base import Owner
from antiphon.stores.conversations.sql import SqlConversations
from antiphon.stores.generations.base import CurrentLeaf, FinishedGeneration, NewUserMessage, TurnToAccept
from antiphon.stores.generations.sql import SqlGenerations
from antiphon.stores.personal.sql import SqlPersonalTexts
from antiphon.stores.prompts.sql import SqlPrompts
from antiphon.stores.sql.sqlite import SqliteDatabase
from benchmarks.context_cases import FILLERS, Case, cases
from benchmarks.report import Report, median, options, percentile, progress
from benchmarks.served import Answer, ChatClient, Served, served

TURNS = 60
CONTEXT_TOKENS = 2144
ANSWER_TOKENS = 32
CASES_AT_ONCE = 4
PLAN = """
[[plans]]
name = "free"
tokens_per_minute = 1000000000
requests_per_minute = 1000000
concurrency = 64
max_output_tokens = 1024
"""
REAL = f"""{PLAN}
[[pools]]
name = "small"
context_tokens = {CONTEXT_TOKENS}
"""
REFERENCE = f"""{PLAN}
[background]
titles = "words"
[[pools]]
name = "small"
model = "reference"
engine = "reference"
output_tokens_per_s = 100000
prefill_tokens_per_s = 10000000
context_tokens = 4096
"""
MODEL = "smol"
TOPICS = ("boats", "bread", "maps", "wool", "bees", "clocks", "glass", "rivers", "chess", "tea", "kites", "ink")
ASKS = (
    "Tell me one thing about {a} that has to do with {b}.",
    "Why would somebody who likes {a} care for {b}?",
    "Name a book for people who know {a} but not {b}.",
    "What is harder to learn, {a} or {b}, and why?",
)


@dataclass(slots=True)
class Chat:
    """One conversation as its client saw it, turn by turn."""

    answers: list[Answer] = field(default_factory=list)

    @property
    def trims(self) -> list[int]:
        """Indexes of turns whose prompt is shorter than the one before."""
        told = self.answers
        return [index for index in range(1, len(told)) if told[index].prompt_tokens < told[index - 1].prompt_tokens]

    def cached_shares(self) -> list[float]:
        """Cached tokens of each turn that was not a trim, as a share of the prompt before."""
        trims, told = set(self.trims), self.answers
        return [told[index].cached_tokens / told[index - 1].prompt_tokens for index in range(1, len(told)) if index not in trims]

    def ttft_s(self, turns: Sequence[int]) -> list[float]:
        """Times to the first token of those turns (from 1), without trims."""
        trims = set(self.trims)
        return [ttft for turn in turns if turn - 1 not in trims and (ttft := self.answers[turn - 1].ttft_s) is not None]


def play_chat(server: Served, seed: int) -> Chat:
    """Sixty turns of a conversation, each sent when the answer before it is there."""
    draw, chat, client = Random(seed), Chat(), ChatClient(server)
    conversation = client.new_conversation()
    for turn in range(TURNS):
        a, b = draw.sample(TOPICS, 2)
        text = f"{draw.choice(FILLERS)[1]} {draw.choice(FILLERS)[1]} {draw.choice(ASKS).format(a=a, b=b)}"
        answer = client.ask(conversation, text, max_tokens=ANSWER_TOKENS, seed=seed * 1000 + turn)
        if answer.error:
            raise RuntimeError(f"turn {turn + 1}: {answer.error}")
        chat.answers.append(answer)
    client.close()
    return chat


def measure_chats(report: Report, *, seed: int, chats: int) -> None:
    with served(REAL) as server:
        played: list[Chat] = []
        for number in range(chats):
            played.append(play_chat(server, seed + number))
            told = played[-1].answers
            progress(
                f"chat {number + 1}: {told[19].prompt_tokens} tokens at turn 20, {told[-1].prompt_tokens} at 60, trims {played[-1].trims}"
            )
    shares = sorted(share for chat in played for share in chat.cached_shares())
    trims = sum(len(chat.trims) for chat in played)
    growth = [chat.answers[-1].prompt_tokens / chat.answers[19].prompt_tokens for chat in played]
    early = [ttft for chat in played for ttft in chat.ttft_s((4, 5, 6))]
    late = [ttft for chat in played for ttft in chat.ttft_s((58, 59, 60))]
    report.n += chats * TURNS
    report.results |= {
        "prompt_tokens_turn60_over_turn20": round(max(growth), 3),
        "cached_share": round(shares[0], 4),
        "cached_share_p50": round(median(shares), 4),
        "turns_per_trim": round(chats * (TURNS - 1) / max(trims, 1), 1),
        "ttft_turn60_over_turn5": round(median(late) / median(early), 3),
        "ttft_ms_turn5": round(1e3 * median(early), 1),
        "ttft_ms_turn60": round(1e3 * median(late), 1),
    }


# --- 1,000 stored messages ----------------------------------------------------------------------


class Bench:
    """A conversation on a SQLite file, and a planner before it. The gateway is asked for its tokenizer alone."""

    def __init__(self, database: SqliteDatabase, tokenizer: Any) -> None:
        self.clock, self.ids = SystemClock(), SystemIds()
        self.owner = Owner(TenantId("tenant_1"), UserId("user_1"))
        self.conversations, self.generations = SqlConversations(database), SqlGenerations(database)
        gateway = cast("Any", type("Tokenizers", (), {"tokenizer": lambda _self, _pool: tokenizer})())
        ports = {name: cast("Any", None) for name in ("log", "plans", "timing", "telemetry", "allowances")}
        wanted = set(Ports.__dataclass_fields__)
        self.ports = Ports(
            conversations=self.conversations,
            generations=self.generations,
            gateway=gateway,
            clock=self.clock,
            ids=self.ids,
            prompts=SqlPrompts(database),
            personal=SqlPersonalTexts(database),
            embedder=static_embedder(),
            **{name: value for name, value in ports.items() if name in wanted},
        )
        self.tokenizer = tokenizer
        self.pool = ServedPool("small", MODEL, 8192)

    async def conversation(self) -> ConversationId:
        now, name = self.clock.now(), ConversationId(self.ids.new(IdKind.CONVERSATION))
        owner = self.owner
        await self.conversations.create(
            Conversation(name, owner.tenant_id, owner.user_id, "t", None, None, 1, False, False, False, now, now)
        )
        return name

    async def turn(self, conversation: ConversationId, question: Question, planned: PlannedPrompt, text: str) -> MessageId:
        """Store the turn whole; its answer's id."""
        now = self.clock.now()
        turn = TurnToAccept(
            owner=self.owner,
            conversation_id=conversation,
            what=NewUserMessage(question.message_id, CurrentLeaf(), question.text, planned.question_tokens),
            message_id=MessageId(self.ids.new(IdKind.MESSAGE)),
            generation_id=GenerationId(self.ids.new(IdKind.GENERATION)),
            model=MODEL,
            requested_model=MODEL,
            params=TurnParams(),
            plan="free",
            key_id=None,
            idempotency=None,
            now=now,
            pool="small",
            prompt=planned.record,
            preamble=planned.preamble,
            summary=planned.summary,
        )
        accepted = await self.generations.accept(turn)
        await self.generations.claim(accepted.generation_id, now=now, lease_until=now + timedelta(seconds=10))
        end = FinishedGeneration(
            accepted.generation_id,
            1,
            GenerationStatus.COMPLETE,
            text,
            "stop",
            Usage(),
            1,
            1,
            None,
            "{}",
            now,
            len(self.tokenizer.encode(text)),
        )
        await self.generations.finalise(end)
        return accepted.message_id


async def measure_assembly(report: Report, *, seed: int, turns: int) -> None:
    config = load_config(Flags(), {})
    folder = ModelStore(config.models_dir).find(DEFAULT_MODEL)
    if folder is None:
        raise SystemExit("the default model is not installed: antiphon models pull")
    draw = Random(seed)
    tune_interpreter()  # as the server's
    with tempfile.TemporaryDirectory(prefix="antiphon-context-") as data:
        database = SqliteDatabase(Path(data) / "antiphon.db")
        await database.open()
        try:
            bench = Bench(database, load_tokenizer(folder))
            planner, conversation = PromptPlanner(bench.ports), await bench.conversation()
            leaf: MessageId | None = None
            plan_ms: list[float] = []
            render_ms: list[float] = []
            for number in range(500 + turns):
                asked, answered = draw.choice(FILLERS)
                question = Question(MessageId(bench.ids.new(IdKind.MESSAGE)), f"{number}: {asked}")
                place = Place(bench.owner, conversation, leaf)
                start = time.perf_counter()
                planned = await planner.plan(place, question, bench.pool)
                plan_s = time.perf_counter() - start
                leaf = await bench.turn(conversation, question, planned, " ".join([answered] * 3))
                ahead = Place(bench.owner, conversation, leaf)  # as after each answer
                await planner.draft(ahead, Question(leaf, ""), bench.pool)
                await planner.learn(ahead, (question.message_id, leaf))
                start = time.perf_counter()
                prompt = await planner.render(place, question, planned.record, bench.pool)
                render_s = time.perf_counter() - start
                assert prompt is not None
                assert len(prompt.ids) == planned.record.tokens
                if number >= 500:
                    plan_ms.append(1e3 * plan_s)
                    render_ms.append(1e3 * render_s)
            cold = PromptPlanner(bench.ports)
            await cold.texts(bench.pool)
            start = time.perf_counter()
            await cold.plan(Place(bench.owner, conversation, leaf), Question(MessageId("msg_x"), "And now?"), bench.pool)
            cold_ms = 1e3 * (time.perf_counter() - start)
        finally:
            await database.close()
    both = [plan + rendered for plan, rendered in zip(plan_ms, render_ms, strict=True)]
    report.results |= {
        "assemble_ms_1000": round(median(both), 3),
        "assemble_ms_1000_p95": round(percentile(both, 0.95), 3),
        "plan_ms_1000": round(median(plan_ms), 3),
        "render_ms_1000": round(median(render_ms), 3),
        "assemble_ms_1000_cold": round(cold_ms, 1),
    }
    progress(f"1,000 messages: {report.results['assemble_ms_1000']} ms, cold {report.results['assemble_ms_1000_cold']} ms")


# --- written cases ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recalled:
    """Whether the fact was read at turn 50, how many ``snippets`` came with that turn, ``right`` of them the fact, and their ``tokens``."""

    case: Case
    read: bool
    snippets: int
    right: int
    tokens: int
    trims: int


def ask_case(server: Served, case: Case) -> Recalled:
    client, chat = ChatClient(server), Chat()
    conversation = client.new_conversation()
    told = {1: case.fact, 11: case.distractors[0], 22: case.distractors[1], 33: case.distractors[2]}
    fillers = iter(FILLERS)
    for turn in range(50):
        text = case.question if turn == 49 else told.get(turn) or " ".join(next(fillers))
        answer = client.ask(conversation, text, max_tokens=40, seed=turn)
        if answer.error:
            raise RuntimeError(answer.error)
        chat.answers.append(answer)
    client.close()
    parts = prompt_of(server, chat.answers[-1].generation_id)["parts"]
    snippets = list(takewhile(lambda part: part["kind"] == "snippet", reversed(parts[:-1])))  # those of the last turn alone
    right = sum(case.fact in part["text"] for part in snippets)
    read = any(case.fact in part["text"] for part in parts)
    return Recalled(case, read, len(snippets), right, sum(part["tokens"] for part in snippets), len(chat.trims))


def prompt_of(server: Served, generation: str) -> Any:
    connection = http.client.HTTPConnection(*server.address, timeout=30)
    connection.request("GET", f"/v1/generations/{generation}/prompt", headers={"Authorization": f"Bearer {server.key}"})
    response = connection.getresponse()
    body = json.loads(response.read())
    connection.close()
    assert response.status == 200, body
    return body


def measure_cases(report: Report, *, some: Sequence[Case]) -> None:
    with served(REFERENCE) as server, ThreadPoolExecutor(CASES_AT_ONCE) as people:
        told = list(people.map(partial(ask_case, server), some))
    for one in told:
        if not one.read:
            progress(f"not read: {one.case.question}")
    apart = [one.read for one in told if not one.case.shared_words]
    shared = [one.read for one in told if one.case.shared_words]
    quoting = [one.right / one.snippets for one in told if one.snippets]
    report.n += 50 * len(some)
    report.results |= {
        "recall_turns": round(sum(shared + apart) / len(told), 3),
        "recall_turns_shared_words": round(sum(shared) / len(shared), 3),
        "recall_turns_apart": round(sum(apart) / len(apart), 3),
        "snippet_precision": round(sum(quoting) / max(len(quoting), 1), 3),
        "snippet_tokens_max": max(one.tokens for one in told),
        "cases_turns_per_trim": round(49 * len(told) / max(sum(one.trims for one in told), 1), 1),
        "recall_file": None,
    }
    progress(f"cases: {sum(shared + apart)} of {len(told)} facts were read")


def main() -> None:
    asked = options("context")
    report = Report("context", DEFAULT_MODEL, asked.seed)
    measure_chats(report, seed=asked.seed, chats=1 if asked.quick else 2)
    asyncio.run(measure_assembly(report, seed=asked.seed, turns=60 if asked.quick else 300))
    written = cases()
    measure_cases(report, some=(*written[:5], *written[25:30]) if asked.quick else written)
    report.print_json()


if __name__ == "__main__":
    main()
