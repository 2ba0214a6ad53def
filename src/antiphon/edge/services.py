"""What the edge is given by the composition, and the state of this process that health and drain share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from antiphon.core.clock import Clock
from antiphon.core.ids import IdSource
from antiphon.core.plans import Plan
from antiphon.edge.metrics import PrometheusTelemetry
from antiphon.edge.oidc import OidcProviders
from antiphon.edge.passwords import Passwords
from antiphon.edge.pool_desk import PoolDesk
from antiphon.inference.gateway import Gateway
from antiphon.orchestrator.acceptance import TurnDesk
from antiphon.orchestrator.allowances import Allowances
from antiphon.orchestrator.background import Background
from antiphon.orchestrator.completion import Completions
from antiphon.orchestrator.runner import Runner
from antiphon.orchestrator.settings import Timing
from antiphon.orchestrator.shown_prompt import PromptDesk
from antiphon.stores.abuse.base import AbuseCases
from antiphon.stores.accounts.base import Accounts
from antiphon.stores.conversations.base import Conversations
from antiphon.stores.custody.base import Custody
from antiphon.stores.generations.base import Generations
from antiphon.stores.log.base import GenerationLog
from antiphon.stores.personal.base import PersonalTexts
from antiphon.stores.shares.base import Shares
from antiphon.stores.transfers.base import Transfers
from antiphon.stores.usage.base import Ledger


async def _yes() -> bool:
    return True


@dataclass(slots=True)
class ServerState:
    """Whether this process takes work. ``store_ready`` and ``log_ready`` are set by the composition once each is open;
    ``store_takes_writes`` tells whether the store does now.
    """

    store_takes_writes: Callable[[], Awaitable[bool]] = _yes
    store_ready: bool = True
    log_ready: bool = True
    draining: bool = False
    leaving: bool = False
    _on_drain: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    def drain(self) -> None:
        """From now on: not ready, no new turns, and every open stream is told to reconnect and ends.

        A stream that is opened later, by a reader who found no other server, goes on until ``leave``.
        """
        self.draining = True
        self._tell()

    def leave(self) -> None:
        """The process is about to end: every stream is told to reconnect and ends."""
        self.draining = self.leaving = True
        self._tell()

    def on_drain(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` when draining begins, and when it ends."""
        self._on_drain.append(tell)

    def _tell(self) -> None:
        for tell in self._on_drain:
            tell()


@dataclass(frozen=True, slots=True)
class EdgeServices:
    """Everything the routes use. ``default_plan`` is of whoever is added without one; ``public_url`` is empty unless one is configured;
    ``loopback``: bound to this machine only.
    """

    accounts: Accounts
    passwords: Passwords
    conversations: Conversations
    generations: Generations
    transfers: Transfers
    shares: Shares
    custody: Custody
    cases: AbuseCases
    log: GenerationLog
    desk: TurnDesk
    runner: Runner
    completions: Completions
    prompts: PromptDesk
    background: Background
    personal: PersonalTexts
    gateway: Gateway
    pools: PoolDesk
    allowances: Allowances
    ledger: Ledger
    plans: Mapping[str, Plan]
    default_plan: str
    clock: Clock
    ids: IdSource
    timing: Timing
    telemetry: PrometheusTelemetry
    public_url: str
    loopback: bool
    static_dir: Path
    version: str
    state: ServerState = field(default_factory=ServerState)
    oidc: OidcProviders = field(default_factory=OidcProviders)
