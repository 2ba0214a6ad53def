"""What the orchestrator's tests act on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from antiphon.app.system import SystemClock, SystemIds
from antiphon.core.events import Delta, Done, Failed, LogEntry, LogEvent, Snapshot
from antiphon.core.generation import Generation, TurnParams
from antiphon.core.ids import ConversationId, GenerationId, IdKind, MessageId, TenantId, UserId
from antiphon.core.messages import Conversation, Message
from antiphon.core.plans import Plan
from antiphon.core.telemetry import Metric
from antiphon.core.tenancy import Band, Principal, Scope, UserRole
from antiphon.inference.gateway import Gateway
from antiphon.orchestrator.acceptance import SendMessage, TurnDesk
from antiphon.orchestrator.completion import Completions
from antiphon.orchestrator.ports import Ports
from antiphon.orchestrator.runner import Runner
from antiphon.orchestrator.settings import Timing
from antiphon.stores.conversations.base import Owner
from antiphon.stores.conversations.memory import MemoryConversations
from antiphon.stores.generations.base import Accepted, CurrentLeaf
from antiphon.stores.generations.memory import MemoryGenerations
from antiphon.stores.log.memory import MemoryLog
from antiphon.stores.memory import MemoryState
from antiphon.stores.personal.memory import MemoryPersonalTexts
from antiphon.stores.prompts.memory import MemoryPrompts
from tests.allowances import GENEROUS, allowances

TIMING = Timing(lease_seconds=2, heartbeat_seconds=0.2, sweep_seconds=0.2, checkpoint_seconds=0.1, coalesce_ms=20)
SHORT = TurnParams(max_tokens=12)
PLAN = Plan("free", models=("quick", "slow", "steady", "tight"), band=Band.STANDARD, ttft_limit_ms=10**9, max_output_tokens=512, **GENEROUS)


@dataclass(slots=True)
class CountingTelemetry:
    counts: dict[tuple[str, ...], float] = field(default_factory=dict[tuple[str, ...], float])
    observed: dict[tuple[str, ...], list[float]] = field(default_factory=dict[tuple[str, ...], list[float]])

    def count(self, metric: Metric, amount: float = 1.0, *labels: str) -> None:
        key = (metric.name, *labels)
        self.counts[key] = self.counts.get(key, 0) + amount

    def gauge(self, metric: Metric, value: float, *labels: str) -> None:
        pass

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        self.observed.setdefault((metric.name, *labels), []).append(value)


class Failing:
    """A real driver in front of which the ``nth`` call fails, before it reaches the driver or after it has acted."""

    def __init__(self, driver: object, nth: int, error: Exception, *, after: bool, times: int = 1) -> None:
        self._driver = driver
        self._failing = range(nth, nth + times)
        self._error = error
        self._after = after
        self.calls = 0

    @property
    def reached(self) -> bool:
        """Whether a call has failed."""
        return self.calls >= self._failing.start

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        method = getattr(self._driver, name)

        async def call(*args: object, **named: object) -> object:
            self.calls += 1
            fails = self.calls in self._failing
            if fails and not self._after:
                raise self._error
            answer = await method(*args, **named)
            if fails:
                raise self._error
            return answer

        return call


class Stage:
    """One server's orchestrator. ``state`` and ``log`` outlive it, as database and journal outlive a process."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        state: MemoryState | None = None,
        log: MemoryLog | None = None,
        concurrency: int = 64,
        ports: dict[str, Any] | None = None,
    ) -> None:
        self.state = state or MemoryState()
        self.clock = SystemClock()
        self.log = log or MemoryLog(self.clock, 900)
        self.conversations = MemoryConversations(self.state)
        self.generations = MemoryGenerations(self.state, self.clock)
        self.telemetry = CountingTelemetry()
        self.ids = SystemIds()
        whole = Ports(
            conversations=self.conversations,
            generations=self.generations,
            prompts=MemoryPrompts(self.state),
            personal=MemoryPersonalTexts(self.state),
            log=self.log,
            gateway=gateway,
            allowances=allowances(self.clock),
            plans={"free": PLAN},
            clock=self.clock,
            ids=self.ids,
            timing=TIMING,
            telemetry=self.telemetry,
            default_output_tokens={"quick": 64, "slow": 64},
        )
        self.ports = replace(whole, **(ports or {}))
        self.runner = Runner(self.ports, concurrency=concurrency)
        self.desk = TurnDesk(self.ports, self.runner)
        self.completions = Completions(self.ports, self.runner)
        self.owner = Owner(TenantId("tenant_1"), UserId("user_1"))
        self.principal = Principal(self.owner.tenant_id, self.owner.user_id, "ada", UserRole.MEMBER, "free", frozenset({Scope.CHAT}))

    async def close(self) -> None:
        await self.runner.drain(0)

    async def conversation(self) -> ConversationId:
        now = self.clock.now()
        conversation_id = ConversationId(self.ids.new(IdKind.CONVERSATION))
        owner = self.owner
        await self.conversations.create(
            Conversation(conversation_id, owner.tenant_id, owner.user_id, "", None, None, 0, False, False, False, now, now)
        )
        return conversation_id

    async def send(
        self,
        conversation_id: ConversationId,
        content: str | None = "hello",
        *,
        parent: MessageId | None | CurrentLeaf = CurrentLeaf(),
        model: str = "quick",
        params: TurnParams = SHORT,
        key: str | None = None,
    ) -> Accepted:
        request = SendMessage(conversation_id, content, parent, model, params, key, "fingerprint of " + repr(content))
        return await self.desk.send(self.principal, request)

    async def entries(self, generation_id: GenerationId) -> list[LogEntry]:
        """The whole log, once it has ended."""
        found: list[LogEntry] = []
        async with asyncio.timeout(30):
            while not (found and found[-1].terminal):
                after = found[-1].seq if found else 0
                await self.log.wait(generation_id, after)
                part = await self.log.read(generation_id, after)
                if part is None:
                    await asyncio.sleep(0.005)
                    continue
                found += part.entries
        return found

    async def until_text(self, generation_id: GenerationId, characters: int = 1) -> None:
        """Return when readers can see so much text."""
        async with asyncio.timeout(30):
            while True:
                state = await self.log.state(generation_id)
                if state is not None and len(state.text) >= characters:
                    return
                await asyncio.sleep(0.005)

    async def ended(self, generation_id: GenerationId) -> Generation:
        await self.entries(generation_id)
        return await self.generation(generation_id)

    async def generation(self, generation_id: GenerationId) -> Generation:
        return await self.generations.get(self.owner, generation_id)

    async def message(self, message_id: MessageId) -> Message:
        return await self.conversations.message(self.owner, message_id)


def shown_text(entries: list[LogEntry]) -> str:
    text = ""
    for entry in entries:
        if isinstance(entry.event, Delta):
            text += entry.event.text
        elif isinstance(entry.event, Snapshot):
            text = entry.event.text
    return text


def check_log(entries: list[LogEntry]) -> LogEvent:
    """Dense but where a snapshot stands for what was before it, epochs never fall, one terminal entry, at the end; returns it."""
    expected = 1
    for entry in entries:
        assert entry.seq == expected or (entry.seq > expected and isinstance(entry.event, Snapshot))
        expected = entry.seq + 1
    assert all(before.epoch <= after.epoch for before, after in pairwise(entries))
    assert [isinstance(entry.event, Done | Failed) for entry in entries] == [False] * (len(entries) - 1) + [True]
    return entries[-1].event
