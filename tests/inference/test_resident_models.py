"""Two models and memory for one, with real replicas: everybody is served, told that the model starts, and nothing is broken off."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from antiphon.core.errors import EngineFailed, QueueTimeout
from antiphon.core.events import Queued
from antiphon.core.generation import FinishReason
from antiphon.core.tenancy import Band
from antiphon.engines.base import Tokens
from antiphon.inference.gateway import Ask, Gateway, Queue
from antiphon.inference.load_limit import LoadLimit
from antiphon.inference.residency import Presence, Residency
from tests.awake import until
from tests.inference.requests import collect, end_of, engine_request, ids_of, in_band, open_gateway, reference_pool
from tests.inference.test_supervisor import alive


@asynccontextmanager
async def two_models(folder: Path, *, tenure_s: float = 0.3, rate: float = 0.0) -> AsyncIterator[tuple[Gateway, Residency]]:
    """``a``, which is loaded, and ``b``, which is not."""
    residency = Residency(100, {"a": 60, "b": 60}, tenure_s=tenure_s)
    pools = [reference_pool(name, output_tokens_per_s=rate, model=f"model-{name}") for name in ("a", "b")]
    async with open_gateway(folder, *pools, residency=residency) as gateway:
        yield gateway, residency


def running(gateway: Gateway) -> dict[str, int]:
    return {name: sum(replica.running for replica in gateway.replicas(name)) for name in ("a", "b")}


@pytest.mark.slow
async def test_who_asks_for_the_other_model_waits_and_is_told_that_it_starts(tmp_path: Path) -> None:
    async with two_models(tmp_path, rate=100.0) as (gateway, residency):
        before = {status.name: status for status in gateway.statuses()}
        assert (before["a"].status, before["a"].load, before["b"].status, before["b"].load) == ("ready", "normal", "ready", "high")
        assert before["b"].wait_ms > 0
        decision = gateway.decide("b", Ask("tenant_a", "", 20, 20, wait_limit_s=0.1))
        assert isinstance(decision, Queue), "its load is no reason to refuse anybody"

        long = asyncio.create_task(collect(gateway, engine_request([1] * 8, request_id="long", max_tokens=60), pool="a"))
        await until(lambda: running(gateway)["a"] == 1)
        events = await collect(gateway, engine_request([2] * 8, request_id="other", max_tokens=8), pool="b", deadline_s=20)
        waits = [event for event in events if isinstance(event, Queued)]
        assert waits
        assert all(wait.starting for wait in waits)
        assert len(ids_of(events)) == 8
        ended = end_of(await long)
        assert (ended.reason, ended.usage.output_tokens) == (FinishReason.LENGTH, 60)
        assert (residency.presence("a"), residency.presence("b")) == (Presence.ABSENT, Presence.RESIDENT)
        assert gateway.ready
        again = await collect(gateway, engine_request([1] * 8, request_id="again", max_tokens=8), pool="a", deadline_s=20)
        assert len(ids_of(again)) == 8


async def test_work_in_the_background_waits_for_its_model(tmp_path: Path) -> None:
    async with two_models(tmp_path, tenure_s=60.0) as (gateway, residency):
        request = in_band(engine_request([2] * 8, request_id="title"), Band.BATCH)
        title = asyncio.create_task(collect(gateway, request, pool="b", deadline_s=20))
        await collect(gateway, engine_request([1] * 8), pool="a")
        await asyncio.sleep(0.3)
        assert residency.presence("a") is Presence.RESIDENT
        title.cancel()
        await asyncio.wait((title,))
        assert sum(gateway.waiting("b").values()) == 0


@pytest.mark.slow
async def test_a_replica_that_dies_while_it_loads_is_started_again(tmp_path: Path) -> None:
    async with two_models(tmp_path) as (gateway, _):
        asked = asyncio.create_task(collect(gateway, engine_request([2] * 8, request_id="other"), pool="b", deadline_s=50))
        await until(lambda: any(replica.pid for replica in gateway.replicas("b")), within_s=10)
        (replica,) = gateway.replicas("b")
        assert replica.pid is not None
        os.kill(replica.pid, signal.SIGKILL)
        assert len(ids_of(await asked)) == 8
        events = await collect(gateway, engine_request([1] * 8), pool="a", deadline_s=50)
        assert len(ids_of(events)) == 8


@asynccontextmanager
async def one_of_two_hangs(folder: Path) -> AsyncIterator[tuple[Gateway, set[int]]]:
    """As ``two_models``; each load may take three seconds, twice as long after one that hung. The set: what was stopped as it loaded."""
    limit = LoadLimit(usual_loads=0.0, least_s=3.0, unknown_s=3.0)
    residency = Residency(100, {"a": 60, "b": 60}, tenure_s=0.3)
    pools = [replace(reference_pool(name, model=f"model-{name}"), load_limit=limit) for name in ("a", "b")]
    async with open_gateway(folder, *pools, residency=residency) as gateway:
        yield gateway, set()


def hang(gateway: Gateway, hung: set[int]) -> bool:
    """Stop the process that loads ``b``, if there is a new one."""
    new = {one.pid for one in gateway.replicas("b") if one.pid is not None and one.state == "loading"} - hung
    for pid in new:
        os.kill(pid, signal.SIGSTOP)
    hung |= new
    return bool(new)


@pytest.mark.slow
async def test_who_waits_for_a_load_that_hangs_is_served_by_the_next_one(tmp_path: Path) -> None:
    async with one_of_two_hangs(tmp_path) as (gateway, hung):
        asked = asyncio.create_task(collect(gateway, engine_request([2] * 8, request_id="other"), pool="b", deadline_s=1))
        await until(lambda: hang(gateway, hung), within_s=10)
        await until(lambda: gateway.statuses()[1].trouble is not None, within_s=10)
        assert gateway.statuses()[1].status == "loading"
        events = await asked
        assert len(ids_of(events)) == 8
        told = [event.eta_ms for event in events if isinstance(event, Queued) and event.starting]
        assert len(told) >= 3, "it hears where it stands meanwhile"
        assert gateway.statuses()[1].trouble is None


@pytest.mark.slow
async def test_who_waits_for_loads_that_hang_is_told_once_that_there_is_no_model(tmp_path: Path) -> None:
    async with one_of_two_hangs(tmp_path) as (gateway, hung):
        asked = asyncio.create_task(collect(gateway, engine_request([2] * 8, request_id="other"), pool="b", deadline_s=1))
        while not asked.done():
            hang(gateway, hung)
            await asyncio.sleep(0.01)
        with pytest.raises(QueueTimeout, match="could not be loaded"):
            await asked
        assert len(hung) == 2
        assert sum(gateway.waiting("b").values()) == 0
        trouble = gateway.statuses()[1].trouble
        assert trouble is not None and "had not finished loading" in trouble
        assert not any(alive(pid) for pid in hung)
        events = await collect(gateway, engine_request([1] * 8), pool="a", deadline_s=50)
        assert len(ids_of(events)) == 8, "the other model has its place again"


@pytest.mark.slow
async def test_two_users_who_take_turns_both_make_progress(tmp_path: Path) -> None:
    async with two_models(tmp_path, tenure_s=2.0) as (gateway, residency):
        served = {"a": 0, "b": 0}
        loads: list[str] = []

        async def user(pool: str) -> None:
            while True:
                request = engine_request([3] * 8, request_id=f"{pool}-{served[pool]}", max_tokens=8)
                assert len(ids_of(await collect(gateway, request, pool=pool, deadline_s=30))) == 8
                served[pool] += 1

        async def watch() -> None:
            while True:
                here = next((name for name in ("a", "b") if residency.presence(name) is Presence.LOADING), "")
                if here and (not loads or loads[-1] != here):
                    loads.append(here)
                await asyncio.sleep(0.02)

        tasks = [asyncio.create_task(user(pool)) for pool in ("a", "b")]
        watching = asyncio.create_task(watch())
        await asyncio.sleep(16)
        for task in (*tasks, watching):
            assert not task.done(), task.exception()
            task.cancel()
        await asyncio.wait((*tasks, watching))
        assert 2 <= len(loads) <= 8
        assert min(served.values()) >= 50


@pytest.mark.slow
async def test_cancels_in_all_phases_while_models_come_and_go_leave_nothing(tmp_path: Path) -> None:
    rng = random.Random(7)
    async with two_models(tmp_path, tenure_s=0.2, rate=200.0) as (gateway, residency):

        async def leave(number: int) -> None:
            await asyncio.sleep(rng.random() * 12)
            prompt, most = [number % 50 + 1] * rng.choice([3, 40, 400]), rng.choice([1, 30, 900])
            request = engine_request(prompt, request_id=f"r{number}", max_tokens=most)
            pool, name = rng.choice("ab"), request.request_id
            if rng.random() < 0.5:
                gateway.accept(name, pool, Ask("tenant_a", str(number % 3), len(request.prompt_ids), 30, wait_limit_s=1e9))
            if rng.random() < 0.1:
                gateway.withdraw(name)
                return
            with suppress(TimeoutError, EngineFailed):
                patience_s, stream = rng.choice([0.0, 0.05, 0.5, 2.0]), gateway.stream(pool, request, deadline_s=30)
                async with asyncio.timeout(patience_s), aclosing(stream) as events:
                    async for event in events:
                        if isinstance(event, Tokens) and rng.random() < 0.02:
                            gateway.cancel(name)
            gateway.withdraw(name)

        async with asyncio.TaskGroup() as group:
            for number in range(200):
                group.create_task(leave(number))
        await until(lambda: sum(running(gateway).values()) == 0, within_s=5)
        for pool in ("a", "b"):
            assert sum(gateway.waiting(pool).values()) == 0
            for replica in gateway.replicas(pool):
                assert replica.held_blocks == 0
        residency.check()
        for pool in ("a", "b"):
            assert len(ids_of(await collect(gateway, engine_request([9] * 8, request_id=f"last-{pool}"), pool=pool, deadline_s=30))) == 8
