"""Checks of what a server stands on and of one that runs: store, log, clock, and the proxy before it. Blocking."""

from __future__ import annotations

import os
import sqlite3
import urllib.error
import urllib.request
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPResponse
from pathlib import Path
from typing import Literal, cast

from antiphon.app.admin import server_url
from antiphon.app.config import Config
from antiphon.app.data_folder import DataFolder, DataFolderInUse
from antiphon.app.system import SystemClock
from antiphon.core.errors import ConfigErrors, StoreUnavailable
from antiphon.edge.routes.health import PIECES_APART_S

State = Literal["ok", "warn", "fail"]

_ASK_SECONDS = 5.0
_LOOKS = 3  # a machine that stands still for a moment reads together what came apart
_CLOCKS_DIFFER_S = 30.0
_SLOW_SYNC_MS = 50.0
_OLDEST = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Check:
    """``detail`` says what was found and, where it is not ``ok``, what to do."""

    state: State
    name: str
    detail: str


def existing(folder: Path) -> Path:
    """``folder``, else its nearest ancestor that exists."""
    return next(place for place in (folder, *folder.parents) if place.exists())


def server_of(config: Config) -> str | None:
    """Where the server listens that has this data folder, ``None`` where none has."""
    folder = DataFolder(config.data_dir)
    if not folder.lock.exists():
        return None
    try:
        with folder.held():
            return None
    except DataFolderInUse:
        return server_url(config)


def store_check(config: Config) -> Check:
    """The database: there, readable, whole as far as a quick look tells, and quick to sync."""
    if config.store.scheme != "sqlite":
        return _postgres_check(config)
    database = config.store.sqlite_path
    if not database.exists():
        return Check("ok", "store", f"{database} will be made")
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=_ASK_SECONDS)) as opened:
            version = opened.execute("SELECT version_num FROM alembic_version").fetchone()
            opened.execute("SELECT count(*) FROM users").fetchone()
    except sqlite3.Error as error:
        return Check("fail", "store", f"{database}: {error}: antiphon restore FILE puts a backup back")
    size = f"schema {version[0] if version else '?'}, {database.stat().st_size / 2**20:.0f} MiB"
    took_ms = _sync_ms(config.data_dir)
    if took_ms > _SLOW_SYNC_MS:
        return Check(
            "warn", "store", f"{size}; this disk takes {took_ms:.0f} ms to sync: every accepted message waits for it; a local SSD is better"
        )
    return Check("ok", "store", f"{size}, {took_ms:.1f} ms to sync")


def _postgres_check(config: Config) -> Check:
    from antiphon.app.wiring import postgres_report

    place = config.store.place
    try:
        found = postgres_report(config)
    except StoreUnavailable as refusal:
        return Check("fail", "store", f"{refusal}: start it, or set [store] url; the password may be in PGPASSWORD or ~/.pgpass")
    except ConfigErrors as fault:
        return Check("fail", "store", str(fault))
    told = f"{place}, PostgreSQL {found.version}, schema {found.schema or 'none yet'}, {found.megabytes:.0f} MiB"
    if found.encoding != "UTF8":
        return Check("fail", "store", f"{place} is encoded in {found.encoding}: createdb --encoding=UTF8 --template=template0 NAME")
    if found.schema is not None and found.schema < found.newest_schema:
        return Check("fail", "store", f"{told}: copy it (pg_dump), then antiphon migrate")
    if found.schema is not None and found.schema > found.newest_schema:
        return Check("fail", "store", f"{told}; this Antiphon knows {found.newest_schema}: install the newer one")
    if not found.durable:
        return Check("warn", "store", f"{told}; it may forget what it accepted: set fsync, full_page_writes and synchronous_commit to on")
    if server_of(config) is None and found.free_connections < found.wanted_connections:
        wanted = f"{found.free_connections} connections are free and a server opens {found.wanted_connections}"
        return Check("warn", "store", f"{told}; {wanted}: raise max_connections")
    apart = abs(found.clock_ms / 1000 - SystemClock().now().timestamp())
    if apart > _CLOCKS_DIFFER_S:
        return Check("warn", "store", f"{told}; its clock is {apart:.0f} s from this machine's: timedatectl set-ntp true on both")
    if found.commit_ms > _SLOW_SYNC_MS:
        return Check("warn", "store", f"{told}; {found.commit_ms:.0f} ms to commit: every accepted message waits for it")
    return Check("ok", "store", f"{told}, {found.commit_ms:.1f} ms to commit{'' if found.encrypted else ', not encrypted'}")


def log_check(config: Config) -> Check:
    """The journal of what was shown."""
    if config.log.scheme == "memory":
        return Check("warn", "log", 'memory: a killed server loses the answers being written; set [log] url = "journal:"')
    folder = DataFolder(config.data_dir).log
    if not os.access(existing(folder), os.W_OK | os.X_OK):
        return Check("fail", "log", f"{folder} cannot be written: chown it to who runs the server")
    held = sum(file.stat().st_size for file in folder.glob("*.seg")) if folder.is_dir() else 0
    return Check("ok", "log", f"{folder}, {held / 2**20:.0f} MiB")


def clock_check(config: Config) -> Check:
    """Sessions, limits and tokens of providers depend on the time."""
    now = SystemClock().now()
    told = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    if now < _OLDEST:
        return Check("fail", "clock", f"{told} is past: set it (timedatectl set-ntp true)")
    answer = _asked(config.server.public_url, "/healthz") if config.server.public_url else None
    date = None if answer is None else answer.headers.get("Date")
    if date is not None:
        apart = abs((parsedate_to_datetime(date) - now).total_seconds())
        if apart > _CLOCKS_DIFFER_S:
            return Check("warn", "clock", f"{told}, {apart:.0f} s from what the public address says: timedatectl set-ntp true on both")
    return Check("ok", "clock", told)


def proxy_check(config: Config) -> Check:
    """Whether what is written in pieces arrives in pieces at the address that people use."""
    url = server_of(config)
    if url is None:
        return Check("ok", "proxy", "no server runs on this data folder; ask again when it does")
    clock = SystemClock()
    answer = _asked(url, "/healthz/stream")
    if answer is None:
        return Check("warn", "proxy", f"{url} does not answer from here: check server.public_url, the proxy and the name")
    for _ in range(_LOOKS):
        with answer:
            answer.read(1)
            began = clock.monotonic()
            answer.read()
            apart = clock.monotonic() - began
        if apart >= PIECES_APART_S / 2:
            break
        answer = _asked(url, "/healthz/stream") or answer
    else:
        return Check("fail", "proxy", f"{url}: what is written in pieces arrives at once: turn its buffering off (deploy/nginx.conf)")
    if answer.headers.get("Content-Encoding"):
        return Check("warn", "proxy", f"{url}: the proxy compresses event streams; leave text/event-stream out")
    return Check("ok", "proxy", f"{url}: streams arrive as they are written")


def _asked(url: str, path: str) -> HTTPResponse | None:
    request = urllib.request.Request(url + path, headers={"Accept-Encoding": "gzip"})  # noqa: S310
    try:
        return cast("HTTPResponse", urllib.request.urlopen(request, timeout=_ASK_SECONDS))  # noqa: S310
    except (urllib.error.URLError, OSError, ValueError):
        return None


def _sync_ms(folder: Path) -> float:
    """How long a small write takes to reach the disk; 0 where it cannot be tried."""
    clock = SystemClock()
    try:
        descriptor = os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600)
    except (OSError, AttributeError):
        return 0.0
    try:
        os.write(descriptor, b"antiphon")
        began = clock.monotonic()
        os.fsync(descriptor)
        return 1000 * (clock.monotonic() - began)
    finally:
        os.close(descriptor)
