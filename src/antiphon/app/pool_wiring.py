"""The configured pools, their replicas starting: everything that a start waits for, and little else to import."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from antiphon.app.config import Config
from antiphon.app.load_times import read_load_times, write_load_times
from antiphon.app.logging import LogFormat
from antiphon.app.models import model_folder
from antiphon.core.clock import Clock
from antiphon.core.errors import ConfigErrors
from antiphon.core.pools import PoolSpec
from antiphon.core.telemetry import Telemetry
from antiphon.engines.base import ReplicaSpec, Tokenizer
from antiphon.inference.gateway import Gateway, PoolRuntime
from antiphon.inference.residency import Residency


@asynccontextmanager
async def open_gateway(config: Config, clock: Clock, telemetry: Telemetry, log_format: LogFormat) -> AsyncGenerator[Gateway]:
    """A gateway whose replicas are starting; their tokenizers are being read in threads meanwhile.

    Raises ``ModelUnusable`` for a pool whose model is missing.
    """
    with ThreadPoolExecutor(max(1, len(config.pools)), thread_name_prefix="tokenizer") as threads:
        times = await asyncio.to_thread(read_load_times, config.data_dir)
        pools = [replace(_pool_runtime(spec, config, threads), usual_load_s=times.get(spec.model)) for spec in config.pools]
        folder = runtime_folder(config.data_dir)
        gateway = Gateway(pools, clock, telemetry, runtime_dir=folder, log_format=log_format, residency=_residency(config))
        try:
            await gateway.start()
            yield gateway
        finally:
            await gateway.close()
            await asyncio.to_thread(write_load_times, config.data_dir, times | gateway.load_times())


def _residency(config: Config) -> Residency | None:
    if not config.residency.memory_bytes:
        return None
    sizes = {pool.name: pool.all_bytes for pool in config.pools if pool.on_this_machine}
    return Residency(config.residency.memory_bytes, sizes, tenure_s=config.residency.tenure_seconds)


def _pool_runtime(spec: PoolSpec, config: Config, threads: ThreadPoolExecutor) -> PoolRuntime:
    if spec.engine == "reference":
        return PoolRuntime(spec, _replica_spec(spec, config, ""), threads.submit(_reference_tokenizer, spec).result)
    if spec.engine == "openvino":
        folder = model_folder(config.models_dir, spec.model)
        return PoolRuntime(spec, _replica_spec(spec, config, str(folder)), threads.submit(_model_tokenizer, folder).result)
    if spec.engine == "openai":
        return outside_runtime(spec, config)
    raise ConfigErrors([(f"pools.{spec.name}.engine", f"{spec.engine!r} is not available in this version")])


def outside_runtime(spec: PoolSpec, config: Config) -> PoolRuntime:
    """A pool whose server is somebody else's. Raises ``ConfigErrors`` where the variable with its key is missing."""
    if spec.api_key_env and not os.environ.get(spec.api_key_env):
        raise ConfigErrors([(f"pools.{spec.name}.api_key_env", f"the environment has no {spec.api_key_env}")])
    return PoolRuntime(spec, _replica_spec(spec, config, ""), _transcript_tokenizer)


def _reference_tokenizer(spec: PoolSpec) -> Tokenizer:
    from antiphon.engines.reference_tokenizer import ReferenceTokenizer

    return ReferenceTokenizer(spec.vocabulary)


def _transcript_tokenizer() -> Tokenizer:
    from antiphon.engines.transcript import TranscriptTokenizer

    return TranscriptTokenizer()


def _model_tokenizer(folder: Path) -> Tokenizer:
    from antiphon.engines.tokenizer import load_tokenizer

    return load_tokenizer(folder)


def _replica_spec(spec: PoolSpec, config: Config, model_path: str) -> ReplicaSpec:
    """What one replica of a pool is started with: replicas on this machine share its cores and memory."""
    assert spec.engine != "vllm"
    return ReplicaSpec(
        pool=spec.name,
        engine=spec.engine,
        model=spec.model,
        model_path=model_path,
        precision=spec.precision,
        kv_bytes=_kv_bytes(spec, config, model_path),
        context_tokens=spec.context_tokens,
        replicas=max(_at_once(config), 1),
        memory_bytes=spec.memory_bytes,
        prefill_tokens_per_s=spec.prefill_tokens_per_s,
        output_tokens_per_s=spec.output_tokens_per_s,
        blocks=spec.blocks,
        vocabulary=spec.vocabulary,
        url=spec.url,
        api_key_env=spec.api_key_env,
        api_key=spec.api_key,
    )


def _at_once(config: Config) -> int:
    """How many replicas with a model of their own may be in this machine's memory together."""
    budget, count = config.residency.memory_bytes, 0
    for pool in sorted((pool for pool in config.pools if pool.engine == "openvino"), key=lambda pool: pool.all_bytes):
        budget -= pool.all_bytes
        if config.residency.memory_bytes and budget < 0:
            break
        count += pool.replicas
    return count


def _kv_bytes(spec: PoolSpec, config: Config, model_path: str) -> int:
    """The cache's bytes where the configuration says: with a memory budget, what a replica's share leaves beside the weights.

    Raises ``ConfigErrors``.
    """
    if spec.kv_bytes or not config.residency.memory_bytes or not model_path:
        return spec.kv_bytes
    weights = sum(file.stat().st_size for file in Path(model_path).rglob("*") if file.is_file())
    if spec.memory_bytes <= weights:
        raise ConfigErrors([(f"pools.{spec.name}.memory_bytes", f"the model's files alone have {weights} bytes")])
    return spec.memory_bytes - weights


def runtime_folder(data: Path) -> Path:
    """A short private folder for sockets, the same for every start on this data folder, so that a restart finds what to remove."""
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    return base / f"antiphon-{os.getuid()}-{hashlib.sha256(str(data.resolve()).encode()).hexdigest()[:12]}"
