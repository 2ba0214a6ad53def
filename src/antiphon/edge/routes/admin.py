"""What the operator sees of the fleet."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter

from antiphon.edge.access import ADMIN, GuardedRoute, Services, guarded
from antiphon.inference.fleet import ReplicaStatus

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


@router.get("/pools")
@guarded(ADMIN)
async def list_pools(services: Services) -> list[PoolAnswer]:
    """Every pool's line and replicas."""
    gateway = services.gateway
    return [
        PoolAnswer(
            name=status.name,
            queue=[QueueAnswer(band.name.lower(), waiting) for band, waiting in gateway.waiting(status.name).items()],
            replicas=[_replica_answer(replica) for replica in gateway.replicas(status.name)],
            load=status.load,
            wait_ms=status.wait_ms,
            shed=gateway.refused(status.name),
            downgraded=gateway.downgraded(status.name),
        )
        for status in gateway.statuses()
    ]


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
