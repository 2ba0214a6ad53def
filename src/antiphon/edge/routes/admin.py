"""What the operator sees of the fleet."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter

from antiphon.edge.access import ADMIN, Caller, GuardedRoute, Services, guarded
from antiphon.edge.api_document import refuses
from antiphon.edge.paths import PoolPath
from antiphon.edge.pool_desk import AddedPool
from antiphon.edge.schemas import NewPool, OutsideServer
from antiphon.inference.fleet import ReplicaStatus
from antiphon.stores.conversations.base import Owner

router = APIRouter(prefix="/v1/admin", tags=["admin"], route_class=GuardedRoute)


@dataclass(frozen=True, slots=True)
class QueueAnswer:
    band: str
    waiting: int


@dataclass(frozen=True, slots=True)
class BlocksAnswer:
    free: int
    held: int
    cached: int


@dataclass(frozen=True, slots=True)
class ReplicaAnswer:
    id: str
    pid: int | None
    state: str
    running: int
    waiting: int
    blocks: BlocksAnswer
    tok_s: float
    circuit: str


@dataclass(frozen=True, slots=True)
class PoolAnswer:
    name: str
    queue: list[QueueAnswer]
    replicas: list[ReplicaAnswer]
    load: str
    wait_ms: int
    shed: int
    downgraded: int
    added: bool
    """Whether it was added while the server ran, and can be removed."""
    presence: str
    """Of its model in memory; ``resident`` where all models fit."""
    trouble: str | None
    """Why a replica whose last start failed, or hung, is not ready; ``null`` where none did."""


@dataclass(frozen=True, slots=True)
class OfferedModelAnswer:
    """``context_tokens`` is 0 where the server does not say."""

    model: str
    context_tokens: int


@dataclass(frozen=True, slots=True)
class OfferedModelsAnswer:
    data: list[OfferedModelAnswer]


@dataclass(frozen=True, slots=True)
class AddedPoolAnswer:
    name: str
    model: str
    url: str


@router.get("/pools")
@guarded(ADMIN)
async def list_pools(caller: Caller, services: Services) -> list[PoolAnswer]:
    """Every pool's line and replicas."""
    gateway = services.gateway
    added = {pool.name for pool in await services.pools.added(caller.tenant_id)}
    return [
        PoolAnswer(
            name=status.name,
            queue=[QueueAnswer(band.name.lower(), waiting) for band, waiting in gateway.waiting(status.name).items()],
            replicas=[_replica_answer(replica) for replica in gateway.replicas(status.name)],
            load=status.load,
            wait_ms=status.wait_ms,
            shed=gateway.refused(status.name),
            downgraded=gateway.downgraded(status.name),
            added=status.name in added,
            presence=status.presence.value,
            trouble=status.trouble,
        )
        for status in gateway.statuses()
    ]


@router.post("/pools/offers")
@guarded(ADMIN)
async def list_offers(body: OutsideServer, caller: Caller, services: Services) -> OfferedModelsAnswer:
    """What an OpenAI-compatible server lists, to choose one of its models from."""
    offers = await services.pools.offers(caller.tenant_id, body.url, body.key)
    return OfferedModelsAnswer([OfferedModelAnswer(offer.model, offer.context_tokens) for offer in offers])


@router.post("/pools", status_code=201, responses=refuses(409, 507))
@guarded(ADMIN)
async def add_pool(body: NewPool, caller: Caller, services: Services) -> AddedPoolAnswer:
    """Serve a model of an OpenAI-compatible server, from now on and after every start. Plans that list models do not have it yet."""
    added = await services.pools.add(caller.tenant_id, AddedPool(body.name, body.model, body.url), body.key)
    by = Owner(caller.tenant_id, caller.user_id)
    await services.custody.record(by, "pool.add", added.name, now=services.clock.now())
    return AddedPoolAnswer(added.name, added.model, added.url)


@router.delete("/pools/{pool}", status_code=204, responses=refuses(409, 507))
@guarded(ADMIN)
async def remove_pool(pool: PoolPath, caller: Caller, services: Services) -> None:
    """Take an added pool away; answers under way on it fail."""
    await services.pools.remove(caller.tenant_id, pool)
    await services.custody.record(Owner(caller.tenant_id, caller.user_id), "pool.remove", pool, now=services.clock.now())


def _replica_answer(replica: ReplicaStatus) -> ReplicaAnswer:
    return ReplicaAnswer(
        id=replica.id,
        pid=replica.pid,
        state=replica.state,
        running=replica.running,
        waiting=replica.waiting,
        blocks=BlocksAnswer(replica.free_blocks, replica.held_blocks, replica.cached_blocks),
        tok_s=replica.tok_s,
        circuit=replica.circuit,
    )
