from __future__ import annotations

import asyncio
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zmq

from antiphon.app.system import SystemClock
from antiphon.core.errors import EngineFailed, ModelUnusable
from antiphon.core.pools import PoolSpec
from antiphon.core.telemetry import NullTelemetry
from antiphon.engines.base import ReplicaSpec
from antiphon.engines.reference_tokenizer import ReferenceTokenizer
from antiphon.inference.gateway import Gateway, PoolRuntime
from antiphon.inference.load_limit import LoadLimit
from antiphon.inference.supervisor import BackOff, SupervisedReplica, Supervisor, SupervisorState, ipc_address, prepare_runtime_dir
from antiphon.inference.wire import ReplicaReady, StepFrame
from tests.awake import awake_s, until
from tests.inference.requests import collect, end_of, engine_request, open_gateway, reference_pool

PARENT = """
import asyncio, sys
from pathlib import Path
from antiphon.app.logging import configure_logging
from tests.inference.requests import open_gateway, reference_pool, engine_request, collect

configure_logging("text")

async def main():
    async with open_gateway(Path(sys.argv[1]), reference_pool(output_tokens_per_s=0.1)) as gateway:
        asyncio.create_task(collect(gateway, engine_request([1, 2, 3], max_tokens=50)))
        while not gateway.replicas("small")[0].running:
            await asyncio.sleep(0.01)
        print(gateway.replicas("small")[0].pid, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def alive(pid: int) -> bool:
    """Whether ``pid`` runs; a zombie does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_back_off_doubles_and_starts_over_after_a_healthy_while() -> None:
    back_off = BackOff()
    assert [back_off.after(0.0, worked=False) for _ in range(8)] == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0])
    assert back_off.after(9.0, worked=False) == 10.0
    assert back_off.after(11.0, worked=False) == 0.2


def test_after_work_a_replica_is_started_again_at_once() -> None:
    back_off = BackOff()
    assert [back_off.after(0.0, worked=False) for _ in range(3)] == pytest.approx([0.2, 0.4, 0.8])
    assert [back_off.after(1.0, worked=True) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert [back_off.after(1.0, worked=False) for _ in range(2)] == pytest.approx([0.2, 0.4])


def test_the_runtime_folder_is_private_and_stale_sockets_go(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o755)
    (folder / "0-1.sock").touch()
    (folder / "kept").touch()
    prepare_runtime_dir(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [entry.name for entry in folder.iterdir()] == ["kept"]


def test_a_path_the_system_would_cut_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too long"):
        ipc_address(tmp_path / ("x" * 100), "0-1.sock")


async def test_close_leaves_no_process_and_no_socket(tmp_path: Path) -> None:
    async with open_gateway(tmp_path / "run", reference_pool(replicas=2)) as gateway:
        pids = [replica.pid for replica in gateway.replicas("small") if replica.pid is not None]
        assert len(pids) == 2
        assert len(list((tmp_path / "run").glob("*.sock"))) == 2
    assert not any(exists(pid) for pid in pids)
    assert not (tmp_path / "run").exists()


async def test_close_leaves_what_others_put_into_the_runtime_folder(tmp_path: Path) -> None:
    (tmp_path / "kept").touch()
    async with open_gateway(tmp_path, reference_pool()):
        pass
    assert [entry.name for entry in tmp_path.iterdir()] == ["kept"]


class NotedBackOff(BackOff):
    """Remembers what it said."""

    def __init__(self) -> None:
        super().__init__()
        self.delays: list[float] = []

    def after(self, ready_s: float, *, worked: bool) -> float:
        self.delays.append(super().after(ready_s, worked=worked))
        return self.delays[-1]


async def test_a_replica_that_dies_at_its_work_comes_back_each_time_without_a_pause(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, reference_pool()) as gateway:
        supervisor = gateway._pools["small"]._replicas._shells[0].supervisor
        supervisor._back_off = noted = NotedBackOff()
        for _ in range(3):
            await collect(gateway, engine_request([1, 2], max_tokens=2))
            pid = gateway.replicas("small")[0].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await until(lambda pid=pid: gateway.ready and supervisor.pid != pid, within_s=30)
    assert noted.delays == [0.0, 0.0, 0.0]


async def test_close_while_loading_is_prompt(tmp_path: Path) -> None:
    gateway = Gateway([reference_pool()], SystemClock(), NullTelemetry(), runtime_dir=tmp_path)
    await gateway.start()
    started = awake_s()
    await gateway.close()
    await gateway.close()
    assert awake_s() - started < 2
    assert not tmp_path.exists()


async def test_a_killed_replica_fails_its_requests_at_once_and_comes_back(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, reference_pool(output_tokens_per_s=20)) as gateway:
        running = asyncio.create_task(collect(gateway, engine_request([1, 2], max_tokens=500)))
        await until(lambda: gateway.replicas("small")[0].running == 1)
        pid = gateway.replicas("small")[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        killed, killed_at = awake_s(), time.monotonic()
        with pytest.raises(EngineFailed):
            await running
        assert awake_s() - killed < 1
        assert gateway.replicas("small")[0].running == 0
        again = gateway.statuses()[0]
        assert again.status == "loading" and again.loading is not None
        assert 0 <= again.loading.elapsed_ms < 1000 * (time.monotonic() - killed_at) + 50
        assert again.loading.usual_ms == round(1000 * gateway.load_times()["reference"])
        waited = await collect(gateway, engine_request([1, 2], request_id="next", max_tokens=2))
        assert end_of(waited).usage.output_tokens == 2
        assert awake_s() - killed < 5
        assert gateway.replicas("small")[0].pid != pid
        assert not exists(pid)
        assert len(list(tmp_path.glob("*.sock"))) == 1


async def test_termination_signals_are_left_to_the_server(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, reference_pool()) as gateway:
        pid = gateway.replicas("small")[0].pid
        assert pid is not None
        assert os.getpgid(pid) == os.getpgid(0)
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid, number)
        events = await collect(gateway, engine_request([1, 2], max_tokens=3))
        assert end_of(events).usage.output_tokens == 3
        assert gateway.replicas("small")[0].pid == pid


async def test_a_worker_dies_with_its_parent_even_inside_a_step(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        try:
            assert parent.stdout is not None
            pid = int(await asyncio.to_thread(parent.stdout.readline))
            assert alive(pid)
        finally:
            parent.kill()
    await until(lambda: not alive(pid), within_s=5)


async def test_a_model_that_cannot_be_served_says_why(tmp_path: Path) -> None:
    broken = PoolRuntime(
        PoolSpec("small", "no-such-model"),
        ReplicaSpec("small", "openvino", "no-such-model", str(tmp_path / "nothing")),
        ReferenceTokenizer,
    )
    gateway = Gateway([broken], SystemClock(), NullTelemetry(), runtime_dir=tmp_path)
    await gateway.start()
    try:
        with pytest.raises(ModelUnusable, match=r"\w+ .*\."):
            await gateway.wait_ready(30)
        assert gateway.statuses()[0].status == "down"
        assert not gateway.ready
    finally:
        await gateway.close()


class Busy:
    """A listener that always waits for something."""

    busy = True

    def __init__(self) -> None:
        self.exits = 0

    def on_ready(self, ready: ReplicaReady) -> None:
        pass

    def on_step(self, frame: StepFrame) -> None:
        pass

    def on_exit(self) -> None:
        self.exits += 1


async def test_nobody_waits_for_a_load_that_hangs_again(tmp_path: Path) -> None:
    listener, context, limit = Busy(), zmq.Context[zmq.Socket[bytes]](), LoadLimit(usual_loads=10.0, least_s=0.1)
    replica = SupervisedReplica(
        "small-0", 0, reference_pool().replica, tmp_path, command=("sleep", "600"), stall_s=0.1, usual_load_s=0.04, load_limit=limit
    )
    supervisor = Supervisor(replica, context, listener, SystemClock())
    supervisor.start()
    try:
        assert await until(lambda: listener.exits == 1) >= 0.4
        assert (supervisor.state, supervisor.hopeless) == (SupervisorState.LOADING, False)
        assert await until(lambda: listener.exits == 2) >= 0.8, "twice as long as the first"
        assert (supervisor.state, supervisor.hopeless) == (SupervisorState.DOWN, True)
        assert supervisor.failure is not None and supervisor.failure == supervisor.trouble
        assert re.fullmatch(r"The model had not finished loading after \d+ s, so its process was ended\.", supervisor.failure.error)
        await until(lambda: supervisor.pid is not None)  # it is tried again all the same
    finally:
        await supervisor.close()
        context.term()
