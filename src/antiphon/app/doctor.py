"""Checks of a machine and an installation, before anything goes wrong; what is wrong says what to do. Blocking; they change nothing."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from antiphon.app.config import Config
from antiphon.app.service_checks import Check, clock_check, existing, log_check, proxy_check, server_of, store_check
from antiphon.engines.model_source import ModelStore

GIB = 1024**3


def examine(config: Config) -> tuple[Check, ...]:
    """Every check, in the order a person would mend them."""
    checks: tuple[Callable[[Config], Check], ...] = (
        _python,
        _cpu,
        _cores,
        _memory,
        _data,
        _disk,
        store_check,
        log_check,
        _port,
        _models,
        _browser_client,
        clock_check,
        proxy_check,
    )
    return tuple(check(config) for check in checks)


def _python(_: Config) -> Check:
    return Check("ok", "python", f"{platform.python_version()} ({platform.python_implementation()})")


def _cpu(_: Config) -> Check:
    flags = _cpu_flags()
    if not flags:
        return Check("ok", "cpu", platform.machine())
    useful = [flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_tile", "asimd", "sve") if flag in flags]
    if "avx2" in useful or "asimd" in useful:
        return Check("ok", "cpu", " ".join(useful))
    return Check("warn", "cpu", "no AVX2: answers will be slow; another machine, or antiphon models add --url")


def _cores(_: Config) -> Check:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cpu_quota()
    if quota is not None and quota < cores:
        granted = f"{cores}, of which the container may use {quota:g}"
        return Check("ok", "cores", granted) if quota >= 2 else Check("warn", "cores", f"{granted}: give it two (docker run --cpus 2)")
    return (
        Check("ok", "cores", str(cores)) if cores >= 2 else Check("warn", "cores", f"{cores}: answers and people share it, two are better")
    )


def _memory(_: Config) -> Check:
    free = _meminfo("MemAvailable")
    limit = _cgroup("memory.max")
    if limit is not None and limit.isdigit():
        used = int(_cgroup("memory.current") or 0)
        free = min(free or sys.maxsize, max(int(limit) - used, 0))
    if free is None:
        return Check("ok", "memory", "unknown")
    room = f"{free / GIB:.1f} GiB free"
    if free >= 2 * GIB:
        return Check("ok", "memory", room)
    return Check("warn" if free >= GIB else "fail", "memory", f"{room}: free some, raise the container's limit, or serve a smaller model")


def _data(config: Config) -> Check:
    found = existing(config.data_dir)
    if not found.is_dir():
        return Check("fail", "data", f"{found} is not a folder: choose another with --data")
    if not os.access(found, os.W_OK | os.X_OK):
        return Check("fail", "data", f"{found} cannot be written: chown it, or choose another with --data")
    return Check("ok", "data", str(config.data_dir))


def _disk(config: Config) -> Check:
    free = min(shutil.disk_usage(existing(folder)).free for folder in (config.data_dir, config.models_dir))
    room = f"{free / GIB:.1f} GiB free"
    if free >= 2 * GIB:
        return Check("ok", "disk", room)
    return Check("warn" if free >= GIB // 4 else "fail", "disk", f"{room}: make room, or move --data and ANTIPHON_MODELS to a larger disk")


def _port(config: Config) -> Check:
    host, port = config.server.host, config.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if server_of(config) is not None:
                return Check("ok", "port", f"{host}:{port}: this server has it")
            taken = f"{host}:{port}: {error.strerror}"
            if config.server.next_free_port:
                return Check("warn", "port", f"{taken}: the next free one will be taken; choose with --port")
            return Check("fail", "port", f"{taken}: end what has it, or choose another with --port")
    return Check("ok", "port", f"{host}:{port} is free")


def _models(config: Config) -> Check:
    store = ModelStore(config.models_dir)
    missing = [pool.model for pool in config.pools if pool.engine == "openvino" and store.find(pool.model) is None]
    if missing:
        return Check("fail", "models", f"not installed: {', '.join(missing)} (antiphon models pull NAME, or models add PATH)")
    return Check("ok", "models", ", ".join(pool.model for pool in config.pools))


def _browser_client(_: Config) -> Check:
    built = resources.files("antiphon.edge").joinpath("static", "index.html").is_file()
    return Check("ok", "browser client", "built") if built else Check("fail", "browser client", "not built: make setup")


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
