"""A whole edge on a real port: memory stores, the real orchestrator, a real gateway with reference replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from argon2 import PasswordHasher

from antiphon.app.config import Flags, load_config
from antiphon.app.pool_desk import RunningPools
from antiphon.app.system import SystemClock, SystemIds
from antiphon.core.clock import Clock
from antiphon.core.ids import GenerationId, IdKind, TenantId, UserId
from antiphon.core.plans import Plan
from antiphon.core.tenancy import ApiKey, Scope, Tenant, User, UserRole
from antiphon.edge.auth import new_api_key, new_token
from antiphon.edge.http import EdgeApp, build_app
from antiphon.edge.listener import open_listener
from antiphon.edge.metrics import PrometheusTelemetry
from antiphon.edge.oidc import OidcProviders, ProviderSettings
from antiphon.edge.passwords import Passwords
from antiphon.edge.server import HttpServer
from antiphon.edge.services import EdgeServices, ServerState
from antiphon.edge.sign_in_gate import LocalGate, SignInGate
from antiphon.edge.sign_in_pace import SignInPace
from antiphon.edge.sse import SseDecoder, SseEvent
from antiphon.inference.gateway import Gateway
from antiphon.orchestrator.acceptance import TurnDesk
from antiphon.orchestrator.background import Background, BackgroundSettings
from antiphon.orchestrator.completion import Completions
from antiphon.orchestrator.ports import Ports
from antiphon.orchestrator.runner import Runner
from antiphon.orchestrator.settings import Timing
from antiphon.orchestrator.shown_prompt import PromptDesk
from antiphon.stores.abuse.memory import MemoryAbuseCases
from antiphon.stores.accounts.base import Accounts
from antiphon.stores.accounts.memory import MemoryAccounts
from antiphon.stores.conversations.memory import MemoryConversations
from antiphon.stores.custody.memory import MemoryCustody
from antiphon.stores.generations.memory import MemoryGenerations
from antiphon.stores.log.base import GenerationLog
from antiphon.stores.log.memory import MemoryLog
from antiphon.stores.memory import MemoryState
from antiphon.stores.personal.memory import MemoryPersonalTexts
from antiphon.stores.prompts.memory import MemoryPrompts
from antiphon.stores.shares.memory import MemoryShares
from antiphon.stores.transfers.memory import MemoryTransfers
from antiphon.stores.usage.memory import MemoryLedger
from tests.allowances import GENEROUS, allowances

TIMING = Timing(lease_seconds=2, heartbeat_seconds=0.2, sweep_seconds=0.2, checkpoint_seconds=0.1, coalesce_ms=10, ping_seconds=0.3)
_FOLDER = TemporaryDirectory(prefix="antiphon-sites-")
CONFIG = load_config(Flags(data=Path(_FOLDER.name)), {"HOME": _FOLDER.name})
PLAN = Plan("free", models=("quick", "slow"), ttft_limit_ms=10**9, max_output_tokens=512, **GENEROUS)


@dataclass(slots=True)
class Person:
    """A user with a key, and an HTTP client that sends it."""

    user: User
    key: str
    http: httpx.AsyncClient

    async def conversation(self, **fields: object) -> str:
        made = await self.http.post("/v1/conversations", json=fields)
        assert made.status_code == 201, made.text
        return str(made.json()["id"])

    async def send(self, conversation: str, content: str | None = "hello", **fields: object) -> dict[str, str]:
        """Send and take the ids."""
        fields.setdefault("params", {"max_tokens": 6})
        fields.setdefault("model", "quick")
        headers = {"Accept": "application/json"}
        answer = await self.http.post(f"/v1/conversations/{conversation}/messages", json={"content": content, **fields}, headers=headers)
        assert answer.status_code == 202, answer.text
        return dict(answer.json())

    async def read(self, generation: str, cursor: str | None = None) -> list[SseEvent]:
        """All events of a stream, to its end."""
        headers = {} if cursor is None else {"Last-Event-ID": cursor}
        answer = await self.http.get(f"/v1/generations/{generation}/stream", headers=headers)
        assert answer.status_code == 200, answer.text
        return SseDecoder().feed(answer.content)


class Site:
    """One server. ``state`` holds every row; ``log`` every generation's log."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        public_url: str = "",
        loopback: bool = True,
        static_dir: Path = Path("/nonexistent"),
        log: GenerationLog | None = None,
        passwords_hasher: PasswordHasher | None = None,
        sign_in_gate: SignInGate | None = None,
        timing: Timing = TIMING,
        accounts: Accounts | None = None,
        refusal_seconds: float = 0.0,
        providers: Sequence[ProviderSettings] = (),
    ) -> None:
        self.clock: Clock = SystemClock()
        self.ids = SystemIds()
        self.state = MemoryState()
        self.log: GenerationLog = MemoryLog(self.clock, 900) if log is None else log
        self.telemetry = PrometheusTelemetry()
        self.accounts: Accounts = MemoryAccounts(self.state) if accounts is None else accounts
        ports = Ports(
            conversations=MemoryConversations(self.state),
            generations=MemoryGenerations(self.state, self.clock),
            prompts=MemoryPrompts(self.state),
            personal=MemoryPersonalTexts(self.state),
            log=self.log,
            gateway=gateway,
            allowances=allowances(self.clock),
            plans={"free": PLAN},
            clock=self.clock,
            ids=self.ids,
            timing=timing,
            telemetry=self.telemetry,
            default_output_tokens={"quick": 64, "slow": 64},
        )
        self.runner = Runner(ports)
        gate = sign_in_gate or LocalGate(SignInPace(), self.clock)
        self.passwords = Passwords(self.accounts, gate, self.ids, self.clock, hasher=passwords_hasher, refusal_seconds=refusal_seconds)
        self.background = Background(ports, self.runner.planner, BackgroundSettings())
        self.runner.on_end = self.background.after
        self.services = EdgeServices(
            accounts=self.accounts,
            passwords=self.passwords,
            conversations=ports.conversations,
            generations=ports.generations,
            transfers=MemoryTransfers(self.state),
            shares=MemoryShares(self.state),
            custody=MemoryCustody(self.state),
            cases=MemoryAbuseCases(self.state),
            log=self.log,
            desk=TurnDesk(ports, self.runner),
            runner=self.runner,
            completions=Completions(ports, self.runner),
            prompts=PromptDesk(ports, self.runner.planner),
            personal=ports.personal,
            background=self.background,
            gateway=gateway,
            pools=RunningPools(replace(CONFIG, data_dir=CONFIG.data_dir / self.ids.new(IdKind.REQUEST)), gateway, self.accounts),
            allowances=ports.allowances,
            ledger=MemoryLedger(),
            plans=ports.plans,
            default_plan="free",
            clock=self.clock,
            ids=self.ids,
            timing=timing,
            telemetry=self.telemetry,
            public_url=public_url,
            loopback=loopback,
            static_dir=static_dir,
            version="1.2.3",
            state=ServerState(),
            oidc=OidcProviders(providers, self.clock),
        )
        self.app: EdgeApp = build_app(self.services)
        self.server = HttpServer(self.app, open_listener("127.0.0.1", 0))
        self.port = 0
        self.tenant = Tenant(TenantId(self.ids.new(IdKind.TENANT)), "home", self.clock.now())
        self._clients: list[httpx.AsyncClient] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def open(self) -> None:
        await self.accounts.create_tenant(self.tenant)
        await self.runner.start()
        self.port = await self.server.start()

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()
        for pool in await self.services.pools.added(self.tenant.id):
            await self.services.pools.remove(self.tenant.id, pool.name)  # the gateway stays
        await self.runner.drain(0)
        await self.server.stop()
        self.passwords.close()

    def client(self, **headers: str) -> httpx.AsyncClient:
        """A client without credentials."""
        client = httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30, trust_env=False, verify=False)
        self._clients.append(client)
        return client

    async def person(self, name: str, *, role: UserRole = UserRole.MEMBER, scopes: frozenset[Scope] = frozenset(Scope)) -> Person:
        user = User(UserId(self.ids.new(IdKind.USER)), self.tenant.id, name, role, "free", False, self.clock.now())
        await self.accounts.create_user(user)
        key_id, text, sha256, last4 = new_api_key(self.ids)
        await self.accounts.create_key(ApiKey(key_id, self.tenant.id, user.id, "test", scopes, last4, self.clock.now()), sha256)
        return Person(user, text, self.client(Authorization=f"Bearer {text}"))

    async def link(self, user: User) -> str:
        """A sign-in link's token."""
        text, sha256 = new_token(self.ids)
        await self.accounts.create_link(sha256, user.id, expires_at=self.clock.now().replace(year=2999))
        return text

    def rows(self) -> tuple[int, ...]:
        """How many rows every table has."""
        state = self.state
        return (
            len(state.conversations),
            len(state.messages),
            len(state.generations),
            len(state.replays),
            len(state.keys),
            len(state.outbox),
        )

    async def until_text(self, generation: str, characters: int = 1) -> None:
        """Return when readers can see so much text."""
        async with asyncio.timeout(30):
            while True:
                state = await self.log.state(GenerationId(generation))
                if state is not None and len(state.text) >= characters:
                    return
                await asyncio.sleep(0.005)
