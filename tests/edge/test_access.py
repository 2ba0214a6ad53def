"""What a route must be before the server starts with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import pytest
from fastapi import APIRouter, Depends

from antiphon.edge.access import PUBLIC as EVERYBODY
from antiphon.edge.access import GuardedRoute, guarded


async def in_the_loop() -> int:
    return 1


def in_a_thread() -> int:
    return 1


async def behind(inner: Annotated[int, Depends(in_a_thread)]) -> int:
    return inner


def test_a_route_says_who_may_call_it() -> None:
    router = APIRouter(route_class=GuardedRoute)

    async def open_to_all() -> None: ...

    with pytest.raises(TypeError, match="who may call it"):
        router.get("/x")(open_to_all)
    router.get("/x")(guarded(EVERYBODY)(open_to_all))


@guarded(EVERYBODY)
async def direct(value: Annotated[int, Depends(in_the_loop)]) -> int:
    return value


@guarded(EVERYBODY)
async def threaded(value: Annotated[int, Depends(in_a_thread)]) -> int:
    return value


@guarded(EVERYBODY)
async def threaded_behind(value: Annotated[int, Depends(behind)]) -> int:
    return value


@guarded(EVERYBODY)
def plain() -> int:
    return 1


@pytest.mark.parametrize("endpoint", [threaded, threaded_behind, plain])
def test_nothing_of_a_route_runs_in_a_thread(endpoint: Callable[..., object]) -> None:
    router = APIRouter(route_class=GuardedRoute)
    router.get("/direct")(direct)
    with pytest.raises(TypeError, match="not a coroutine function"):
        router.get("/x")(endpoint)
