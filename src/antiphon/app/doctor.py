"""Checks of a machine and an installation, before anything goes wrong. Blocking; they change nothing."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

from antiphon.app.config import Config
from antiphon.engines.model_source import ModelStore

GIB = 1024**3
State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    state: State
    name: str
    detail: str


def examine(config: Config) -> tuple[Check, ...]:
    """Every check, in the order a person would mend them."""
    checks: tuple[Callable[[Config], Check], ...] = (_python, _cpu, _cores, _memory, _data, _disk, _port, _models, _browser_client)
    return tuple(check(config) for check in checks)


def _python(_: Config) -> Check:
    version = platform.python_version()
    return Check("ok" if sys.version_info >= (3, 11) else "fail", "python", f"{version} ({platform.python_implementation()})")


def _cpu(_: Config) -> Check:
    flags = _cpu_flags()
    if not flags:
        return Check("ok", "cpu", platform.machine())
    useful = [flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_tile", "asimd", "sve") if flag in flags]
    if "avx2" in useful or "asimd" in useful:
        return Check("ok", "cpu", " ".join(useful))
    return Check("warn", "cpu", "no AVX2: answers will be slow")


def _cores(_: Config) -> Check:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cpu_quota()
    if quota is not None and quota < cores:
        return Check("warn" if quota < 2 else "ok", "cores", f"{cores}, of which the container may use {quota:g}")
    return Check("warn" if cores < 2 else "ok", "cores", str(cores))


def _memory(_: Config) -> Check:
    free = _meminfo("MemAvailable")
    limit = _cgroup("memory.max")
    if limit is not None and limit.isdigit():
        used = int(_cgroup("memory.current") or 0)
        free = min(free or sys.maxsize, max(int(limit) - used, 0))
    if free is None:
        return Check("ok", "memory", "unknown")
    return Check("ok" if free >= 2 * GIB else "warn" if free >= GIB else "fail", "memory", f"{free / GIB:.1f} GiB free")


def _data(config: Config) -> Check:
    existing = _existing(config.data_dir)
    if not existing.is_dir():
        return Check("fail", "data", f"{existing} is not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        return Check("fail", "data", f"{existing} cannot be written")
    return Check("ok", "data", str(config.data_dir))


def _disk(config: Config) -> Check:
    free = min(shutil.disk_usage(_existing(folder)).free for folder in (config.data_dir, config.models_dir))
    return Check("ok" if free >= 2 * GIB else "warn" if free >= GIB // 4 else "fail", "disk", f"{free / GIB:.1f} GiB free")


def _port(config: Config) -> Check:
    host, port = config.server.host, config.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return Check("warn" if config.server.next_free_port else "fail", "port", f"{host}:{port}: {error.strerror}")
    return Check("ok", "port", f"{host}:{port} is free")


def _models(config: Config) -> Check:
    store = ModelStore(config.models_dir)
    missing = [pool.model for pool in config.pools if pool.engine == "openvino" and store.find(pool.model) is None]
    if missing:
        return Check("fail", "models", f"not installed: {', '.join(missing)} (antiphon models pull, or models add)")
    return Check("ok", "models", ", ".join(pool.model for pool in config.pools))


def _browser_client(_: Config) -> Check:
    built = resources.files("antiphon.edge").joinpath("static", "index.html").is_file()
    return Check("ok", "browser client", "built") if built else Check("fail", "browser client", "not built (make setup)")


def _existing(folder: Path) -> Path:
    """``folder``, else its nearest ancestor that exists."""
    return next(place for place in (folder, *folder.parents) if place.exists())


def _cpu_flags() -> frozenset[str]:
    for line in _read("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"flags", "Features"}:
            return frozenset(value.split())
    return frozenset()


def _cpu_quota() -> float | None:
    """Cores that the container's control group grants, ``None`` for all."""
    quota, _, period = (_cgroup("cpu.max") or "").partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.strip().isdigit() else None


def _meminfo(field: str) -> int | None:
    """Bytes of a line of /proc/meminfo."""
    for line in _read("/proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    return None


def _cgroup(file: str) -> str | None:
    return _read(f"/sys/fs/cgroup/{file}").strip() or None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
