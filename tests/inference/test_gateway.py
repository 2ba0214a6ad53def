from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from antiphon.app.system import SystemClock
from antiphon.core.errors import EngineFailed, Forbidden, ModelGone, QueueTimeout
from antiphon.core.events import Queued
from antiphon.core.generation import FinishReason
from antiphon.core.telemetry import NullTelemetry
from antiphon.core.tenancy import Band
from antiphon.engines.base import Tokens
from antiphon.inference.gateway import Admit, Ask, Gateway, Queue, Shed
from tests.awake import until
from tests.inference.requests import (
    Recorder,
    collect,
    end_of,
    engine_request,
    ids_of,
    open_gateway,
    prompt_ids,
    reference_pool,
    text_of,
    unlike,
)


async def test_eight_streams_at_once_each_get_their_own_answer(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, reference_pool()) as gateway:
        requests = [engine_request(prompt_ids(f"question {n}"), request_id=f"r{n}", max_tokens=30) for n in range(8)]
        alone = [await collect(gateway, request) for request in requests]
        together = await asyncio.gather(*(collect(gateway, request) for request in requests))
        assert [text_of(events) for events in together] == [text_of(events) for events in alone]
        assert len({text_of(events) for events in together}) == 8
        for events in together:
            end = end_of(events)
            assert end.reason is FinishReason.LENGTH
            assert len(ids_of(events)) == end.usage.output_tokens == 30


async def test_a_tenants_second_request_is_cached_and_anothers_is_not(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, reference_pool()) as gateway:
        ids = prompt_ids("the same long question " * 20)
        cached = [
            end_of(await collect(gateway, engine_request(ids, tenant=tenant))).usage.cached_tokens
            for tenant in ("tenant_a", "tenant_a", "tenant_b")
        ]
        assert cached[0] == cached[2] == 0
        assert cached[1] >= len(ids) // 32 * 32


async def test_closing_a_stream_frees_its_blocks_within_a_step(tmp_path: Path) -> None:
    recorder = Recorder()
    async with open_gateway(tmp_path, reference_pool(output_tokens_per_s=50, blocks=64), telemetry=recorder) as gateway:
        async with aclosing(gateway.stream("small", engine_request(range(20), max_tokens=900), deadline_s=5)) as events:
            async for event in events:
                if isinstance(event, Tokens):
                    break
        assert await until(lambda: gateway.replicas("small")[0].running == 0) < 0.5
        replica = gateway.replicas("small")[0]
        assert (replica.held_blocks, replica.free_blocks + replica.cached_blocks) == (0, 64)
        assert recorder.values["antiphon_requests_running", "small", "small-0"] == 0
        assert recorder.values["antiphon_output_tokens_total", "small"] >= 1


async def test_cancel_ends_the_stream_with_what_it_cost(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, reference_pool(output_tokens_per_s=50)) as gateway:
        running = asyncio.create_task(collect(gateway, engine_request(range(20), max_tokens=900)))
        await until(lambda: gateway.replicas("small")[0].running == 1)
        assert gateway.cancel("r")
        await until(running.done, within_s=1, what="the stream ends")
        events = await running
        end = end_of(events)
        assert end.reason is FinishReason.CANCELLED
        assert end.usage.prompt_tokens == 20
        assert end.usage.output_tokens == len(ids_of(events))
        assert not gateway.cancel("r")


async def test_a_request_changes_its_band_in_the_line_and_inside_the_replica(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, reference_pool(output_tokens_per_s=20, blocks=4, queue_limit=3)) as gateway:
        lengths = {"first": 50, "second": 5, "third": 5}
        requests = [engine_request(unlike(name, 70), request_id=name, max_tokens=length) for name, length in lengths.items()]
        tasks = [asyncio.create_task(collect(gateway, request)) for request in requests]
        await until(lambda: gateway.replicas("small")[0].running == 1 and gateway.waiting("small")[Band.STANDARD] == 2)
        assert gateway.set_band("first", Band.BATCH)
        assert gateway.set_band("second", Band.BATCH)
        assert gateway.waiting("small") == {Band.HIGH: 0, Band.STANDARD: 1, Band.LOW: 0, Band.BATCH: 1}
        assert gateway.cancel("first")
        ends = [end_of(events) for events in await asyncio.gather(*tasks)]
        assert ends[1].usage.queued_ms > ends[2].usage.queued_ms
        assert not gateway.set_band("first", Band.HIGH)


async def test_a_full_replica_lets_requests_wait_with_a_place(tmp_path: Path) -> None:
    recorder = Recorder()
    pool = reference_pool(output_tokens_per_s=100, blocks=4, queue_limit=2)
    async with open_gateway(tmp_path, pool, telemetry=recorder) as gateway:

        def send(name: str) -> asyncio.Task[list[object]]:
            return asyncio.create_task(collect(gateway, engine_request(unlike(name, 70), request_id=name, max_tokens=20)))

        def decision() -> object:
            return gateway.decide("small", Ask("tenant_a", "", 70, 20))

        await collect(gateway, engine_request(unlike("warm", 70), request_id="warm", max_tokens=4))  # its pace is known after a few steps
        assert decision() == Admit()
        assert gateway.statuses()[0].load == "normal"
        first = send("first")
        await until(lambda: gateway.replicas("small")[0].running == 1)
        assert isinstance(waits := decision(), Queue)
        assert waits.position == 1
        assert waits.eta_ms is not None
        assert 20 < waits.eta_ms < 400
        second, third = send("second"), send("third")
        await asyncio.sleep(0)
        shed = gateway.accept("fourth", "small", Ask("tenant_a", "", 70, 20))
        assert isinstance(shed, Shed)
        assert shed.code == "high_demand"
        assert gateway.statuses()[0].load == "full"
        assert gateway.waiting("small")[Band.STANDARD] == 2
        assert recorder.values["antiphon_requests_waiting", "small", "standard"] == 2
        ends = await asyncio.gather(first, second, third)
        positions = [[event.position for event in events if isinstance(event, Queued)] for events in ends]
        assert [sorted(set(places), reverse=True) for places in positions] == [[], [1], [2, 1]]
        assert all(places == sorted(places, reverse=True) for places in positions)
        assert end_of(ends[2]).usage.queued_ms > end_of(ends[1]).usage.queued_ms > 100
        assert recorder.values["antiphon_requests_waiting", "small", "standard"] == 0
        assert recorder.values["antiphon_shed_total", "small", "high_demand"] == 1


async def test_a_wait_ends_at_its_deadline_or_with_its_reader(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, reference_pool(output_tokens_per_s=20, blocks=4)) as gateway:
        first = asyncio.create_task(collect(gateway, engine_request(range(70), max_tokens=40)))
        await until(lambda: gateway.replicas("small")[0].running == 1)
        with pytest.raises(QueueTimeout):
            await collect(gateway, engine_request(unlike("late", 70), request_id="late"), deadline_s=0.1)
        assert sum(gateway.waiting("small").values()) == 0
        stopped = asyncio.create_task(collect(gateway, engine_request(unlike("stopped", 70), request_id="stopped", max_tokens=40)))
        await until(lambda: sum(gateway.waiting("small").values()) == 1)
        assert gateway.cancel("stopped")
        assert end_of(await stopped).reason is FinishReason.CANCELLED
        assert sum(gateway.waiting("small").values()) == 0
        first.cancel()
        await until(lambda: gateway.replicas("small")[0].running == 0)


async def test_requests_spread_over_replicas(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, reference_pool(replicas=2, output_tokens_per_s=50)) as gateway:
        requests = [engine_request([n, 1], request_id=f"r{n}", max_tokens=200) for n in range(6)]
        streams = asyncio.gather(*(collect(gateway, request) for request in requests))
        await until(lambda: [replica.running for replica in gateway.replicas("small")] == [3, 3])
        assert all(gateway.cancel(request.request_id) for request in requests)
        assert all(end_of(events).reason is FinishReason.CANCELLED for events in await streams)


async def test_a_stop_string_never_leaks_over_the_wire(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, reference_pool()) as gateway:
        text = text_of(await collect(gateway, engine_request(prompt_ids("hi"), max_tokens=40)))
        stop = " ".join(text.split()[10:12])
        events = await collect(gateway, engine_request(prompt_ids("hi"), max_tokens=40, stop=(stop,)))
        assert end_of(events).reason is FinishReason.STOP
        assert text_of(events) == text[: text.index(stop)]


async def test_metrics_add_up(tmp_path: Path) -> None:
    recorder = Recorder()
    async with open_gateway(tmp_path, reference_pool(blocks=64), telemetry=recorder) as gateway:
        for _ in range(2):
            await collect(gateway, engine_request(range(100), max_tokens=10))
        values = recorder.values
        assert values["antiphon_prompt_tokens_total", "small"] == 200
        assert values["antiphon_cached_tokens_total", "small"] == 96
        assert values["antiphon_output_tokens_total", "small"] == 20
        assert values["antiphon_inter_token_latency_seconds", "small"] == 18
        assert values["antiphon_queue_seconds", "small", "standard"] == 2
        assert sum(values["antiphon_kv_blocks", "small", "small-0", state] for state in ("free", "held", "cached")) == 64
        for part in ("plan", "infer", "sample", "emit"):
            assert values["antiphon_step_seconds", "small", "small-0", part] == 20


async def test_models_are_found_by_pool_or_model_name(tmp_path: Path) -> None:
    pools = [reference_pool("small", model="tiny-1"), reference_pool("large", model="huge-1")]
    gateway = Gateway(pools, SystemClock(), NullTelemetry(), runtime_dir=tmp_path)
    assert gateway.resolve(None, []).name == "small"
    assert gateway.resolve(None, ["huge-1"]).name == "large"
    assert gateway.resolve("huge-1", []).name == "large"
    assert gateway.resolve("large", ["large"]).model == "huge-1"
    assert gateway.resolve("large", ["huge-1"]).name == "large"
    with pytest.raises(Forbidden):
        gateway.resolve("large", ["small"])
    with pytest.raises(ModelGone):
        gateway.resolve("gone", [])
    with pytest.raises(ModelGone):
        gateway.resolve(None, ["gone"])
    with pytest.raises(ModelGone):
        gateway.tokenizer("gone")


async def test_before_the_first_model_is_loaded_there_is_no_capacity(tmp_path: Path) -> None:
    gateway = Gateway([reference_pool()], SystemClock(), NullTelemetry(), runtime_dir=tmp_path)
    began = time.monotonic()
    await gateway.start()
    try:
        decision = gateway.decide("small", Ask("tenant_a", "", 1, 1))
        assert isinstance(decision, Shed)
        assert decision.code == "no_capacity"
        assert (gateway.ready, gateway.statuses()[0].status, gateway.load_times()) == (False, "loading", {})
        first, later = gateway.statuses()[0].loading, await asyncio.sleep(0.05, gateway.statuses)
        assert first is not None and first.usual_ms is None and first.elapsed_ms < 1000 * (time.monotonic() - began) + 50
        assert (more := later()[0].loading) is not None and more.elapsed_ms >= first.elapsed_ms + 40
        with pytest.raises(EngineFailed, match="small"):
            await gateway.wait_ready(0.01)
        early = asyncio.create_task(collect(gateway, engine_request([1], max_tokens=1)))
        started = time.monotonic()
        assert end_of(await early).usage.queued_ms <= 1000 * (time.monotonic() - started) + 50
        assert gateway.statuses()[0].loading is None and 0 < gateway.load_times()["reference"] < 60
    finally:
        await gateway.close()


async def test_closing_the_gateway_fails_what_still_runs(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, reference_pool(output_tokens_per_s=20, blocks=4)) as gateway:
        streams = [
            asyncio.create_task(collect(gateway, engine_request(unlike(name, 70), request_id=name, max_tokens=40))) for name in ("a", "b")
        ]
        await until(lambda: gateway.replicas("small")[0].running == 1)
    for stream in streams:
        with pytest.raises(EngineFailed):
            await stream


async def test_a_replica_that_dies_twice_in_a_row_is_waited_for_and_its_start_is_told(tmp_path: Path) -> None:
    """Killed at work, and once more while it loads: newcomers wait, are told that the model is starting, and are answered."""
    async with open_gateway(tmp_path, reference_pool(output_tokens_per_s=50)) as gateway:
        running = asyncio.create_task(collect(gateway, engine_request(range(20), max_tokens=900)))
        await until(lambda: gateway.replicas("small")[0].running == 1)
        decisions: list[object] = []
        for _ in range(2):
            pid = gateway.replicas("small")[0].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            while gateway.replicas("small")[0].pid in {pid, None}:
                decisions.append(gateway.decide("small", Ask("tenant_a", "", 70, 20, wait_limit_s=60.0)))
                await asyncio.sleep(0.01)
        with pytest.raises(EngineFailed):
            await running
        assert not any(isinstance(decision, Shed) for decision in decisions)
        events = await collect(gateway, engine_request(prompt_ids("late"), request_id="late", max_tokens=4), deadline_s=30)
        waits = [event for event in events if isinstance(event, Queued)]
        assert waits
        assert waits[0].starting
        assert waits[0].eta_ms is not None
        assert end_of(events).usage.output_tokens == 4
