"""What the edge asks of whoever adds and removes pools while the server runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from antiphon.core.ids import TenantId


@dataclass(frozen=True, slots=True)
class OfferedModel:
    """A model that an OpenAI-compatible server lists; 0 tokens of context where it does not say."""

    model: str
    context_tokens: int


@dataclass(frozen=True, slots=True)
class AddedPool:
    """A pool that was added, and where its server is; never its key."""

    name: str
    model: str
    url: str


class PoolDesk(Protocol):
    """Adding and removing pools of kind ``openai``. Pools are the whole server's, so only the first tenant's people may.

    ``offers`` and ``add`` raise ``Forbidden`` for another tenant; to ``remove`` and ``added`` there is nothing of theirs.
    """

    async def offers(self, by: TenantId, url: str, key: str) -> tuple[OfferedModel, ...]:
        """What the server at ``url`` (up to ``/v1``) lists. Raises ``InvalidRequest`` where it cannot be asked."""
        ...

    async def add(self, by: TenantId, pool: AddedPool, key: str) -> AddedPool:
        """Serve one of its models from now on, and after every start; without a name it gets one from its model.

        Raises ``InvalidRequest`` where the server cannot be asked or does not list the model, ``Conflict`` for a name in use.
        """
        ...

    async def remove(self, by: TenantId, name: str) -> None:
        """Take an added pool away; answers under way on it fail. Raises ``NotFound`` for a name of none, ``Conflict`` for one that the
        configuration holds or needs.
        """
        ...

    async def added(self, by: TenantId) -> tuple[AddedPool, ...]:
        """Every pool that was added; none for another tenant."""
        ...
