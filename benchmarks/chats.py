"""Request lists and the load they make: the same object drives our replica and every peer.

A ``Player`` is told what an engine did and says what to send next, so one list makes the same load in a child process's step
loop, over a socket, or over HTTP. It knows token ids only; conversations grow by what the engine itself has answered.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace

from antiphon.core.messages import Role
from antiphon.engines.base import PromptMessage
from antiphon.engines.tokenizer import ModelTokenizer

SYSTEM_PROMPT = "You are a careful assistant. " + " ".join(
    f"Rule {number}: answer plainly and keep the reader's time in mind." for number in range(25)
)
"""About 400 tokens that every chat shares."""
QUESTIONS = (
    "What is a hash table?",
    "Explain rain to a child.",
    "Write a haiku about ships.",
    "How do I boil an egg?",
    "Name three rivers and say where they are.",
    "What does a compiler do?",
    "Give me a plan for a weekend in Rome.",
    "Why is the sky blue?",
)
WORDS = ["river", "stone", "cloud", "letter", "window", "garden", "engine", "paper", "winter", "music", "bridge", "market"]


@dataclass(frozen=True, slots=True)
class Chat:
    """One conversation. ``turns[0]`` is its first prompt, the others follow the answer before them.

    ``arrives_s`` is when it begins, from the start of the load. All answers have exactly ``max_tokens`` tokens.
    """

    number: int
    turns: tuple[tuple[int, ...], ...]
    max_tokens: int
    seed: int
    arrives_s: float = 0.0
    tenant: str = "tenant"
    temperature: float = 0.7
    top_p: float = 0.95


@dataclass(slots=True)
class Turn:
    """One request as its client saw it. Seconds count from the start of the load."""

    chat: int
    turn: int
    tenant: str
    prompt_tokens: int
    sent_s: float
    token_s: list[float] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    cached_tokens: int = -1
    error: str = ""

    @property
    def ttft_s(self) -> float:
        return self.token_s[0] - self.sent_s

    @property
    def gaps_s(self) -> list[float]:
        return [later - earlier for earlier, later in zip(self.token_s, self.token_s[1:], strict=False)]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is to be sent now. ``key`` names it at the player."""

    key: int
    ids: tuple[int, ...]
    chat: Chat
    seed: int


class Player:
    """Plays ``chats``: each begins at its time, its next turn is sent when the last one has ended."""

    def __init__(self, chats: Sequence[Chat]) -> None:
        self._arriving = [(chat.arrives_s, chat.number, chat) for chat in chats]
        heapq.heapify(self._arriving)
        self._open: dict[int, tuple[Chat, Turn, tuple[int, ...]]] = {}
        self._next: list[tuple[Chat, int, tuple[int, ...]]] = []
        self.turns: list[Turn] = []

    @property
    def done(self) -> bool:
        return not self._arriving and not self._open and not self._next

    @property
    def next_arrival_s(self) -> float | None:
        """When the next chat begins; ``None`` when all have."""
        return self._arriving[0][0] if self._arriving else None

    def due(self, now: float) -> list[Prompt]:
        """What must be sent at ``now``, each once."""
        while self._arriving and self._arriving[0][0] <= now:
            chat = heapq.heappop(self._arriving)[2]
            self._next.append((chat, 0, ()))
        prompts: list[Prompt] = []
        for chat, number, past in self._next:
            ids = past + chat.turns[number]
            turn = Turn(chat.number, number, chat.tenant, len(ids), now)
            key = len(self.turns)
            self.turns.append(turn)
            self._open[key] = (chat, turn, ids)
            prompts.append(Prompt(key, ids, chat, chat.seed + number))
        self._next.clear()
        return prompts

    def tokens(self, key: int, ids: Iterable[int], now: float) -> None:
        """Tokens arrived for a request."""
        turn = self._open[key][1]
        for token_id in ids:
            turn.token_ids.append(token_id)
            turn.token_s.append(now)

    def ended(self, key: int, *, cached_tokens: int = -1, error: str = "") -> None:
        """A request ended; its chat's next turn is due at once, unless it failed."""
        chat, turn, ids = self._open.pop(key)
        turn.cached_tokens, turn.error = cached_tokens, error
        if not error and turn.turn + 1 < len(chat.turns):
            self._next.append((chat, turn.turn + 1, ids + tuple(turn.token_ids)))


@dataclass(slots=True)
class Played:
    """A load that was played to its end. ``seconds`` is from the first send to the last token."""

    turns: list[Turn]
    seconds: float

    @property
    def output_tokens(self) -> int:
        return sum(len(turn.token_ids) for turn in self.turns)

    @property
    def tok_s(self) -> float:
        return self.output_tokens / self.seconds

    @property
    def ttfts_s(self) -> list[float]:
        return [turn.ttft_s for turn in self.turns if turn.token_s]

    @property
    def gaps_s(self) -> list[float]:
        return [gap for turn in self.turns for gap in turn.gaps_s]

    @property
    def failed(self) -> list[Turn]:
        return [turn for turn in self.turns if turn.error]

    def complete(self, chats: Sequence[Chat]) -> Played:
        """Itself; raises ``RuntimeError`` unless every turn of ``chats`` has all its tokens."""
        expected = sum(len(chat.turns) * chat.max_tokens for chat in chats)
        if self.failed or self.output_tokens != expected:
            errors = sorted({turn.error for turn in self.failed})
            raise RuntimeError(f"{self.output_tokens} of {expected} tokens arrived; {errors}")
        return self


def poisson(chats: Sequence[Chat], *, rate: float, seed: int) -> list[Chat]:
    """The same chats, beginning at random: ``rate`` a second on average."""
    rng, at = random.Random(seed), 0.0
    made: list[Chat] = []
    for chat in chats:
        made.append(replace(chat, arrives_s=at))
        at += rng.expovariate(rate)
    return made


def played_to_json(played: Played) -> dict[str, object]:
    return {"seconds": played.seconds, "turns": [asdict(turn) for turn in played.turns]}


class ChatMaker:
    """Chats in a model's own template, from a seed: equal arguments give equal lists."""

    def __init__(self, tokenizer: ModelTokenizer) -> None:
        self._tokenizer = tokenizer

    def first(self, question: str, system: str = SYSTEM_PROMPT) -> tuple[int, ...]:
        messages = [PromptMessage(Role.SYSTEM, system), PromptMessage(Role.USER, question)]
        return tuple(self._tokenizer.prompt(messages))

    def following(self, question: str) -> tuple[int, ...]:
        """The ids between an answer and the next one."""
        text = f"<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        return tuple(self._tokenizer.encode_trusted(text))

    def text(self, token_ids: Iterable[int]) -> str:
        stream = self._tokenizer.text_stream()
        return "".join(stream.push(token_id) for token_id in token_ids) + stream.finish()

    def chats(self, users: int, turns: int, max_tokens: int, *, round_number: int, seed: int) -> list[Chat]:
        """One chat per user with the shared system prompt; only that is common to two rounds."""
        made: list[Chat] = []
        for user in range(users):
            rng = random.Random(f"{seed}.{round_number}.{user}")
            questions = [f"({round_number}.{user}.{turn}) {rng.choice(QUESTIONS)}" for turn in range(turns)]
            ids = (self.first(questions[0]), *(self.following(question) for question in questions[1:]))
            made.append(Chat(user, ids, max_tokens, seed=rng.randrange(1 << 31)))
        return made

    def long_prompt(self, tokens: int, *, seed: int) -> tuple[int, ...]:
        """A prompt of exactly ``tokens`` ids that shares no block with another seed's."""
        rng = random.Random(f"long {seed}")
        ids = self.first("".join(f"{rng.choice(WORDS)} {rng.randrange(1000)} " for _ in range(tokens)), system=f"Text {seed}.")
        tail = ids[-6:]
        return ids[: tokens - len(tail)] + tail
