"""A server with its planes open: listen, say so once when ready, serve until asked to stop, drain."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from antiphon import __version__
from antiphon.app.admin import Admin, local_url
from antiphon.app.config import Config
from antiphon.app.data_folder import FolderHold
from antiphon.app.interpreter import tune_interpreter
from antiphon.app.wiring import Server
from antiphon.core.errors import ConfigErrors, DiskFull, StoreUnavailable
from antiphon.edge.http import build_app
from antiphon.edge.metrics import watch_event_loop
from antiphon.edge.server import HttpServer

log = structlog.get_logger(__name__)

_READY_SECONDS = 600.0


async def serve_until(
    stop: asyncio.Event, server: Server, listener: socket.socket, config: Config, hold: FolderHold, ready_file: Path | None
) -> None:
    """Serve until ``stop`` is set, then drain. Raises what keeps a pool from starting."""
    await _check_owner_password(server, config)
    await server.runner.start()
    async with _answering(server, listener) as port, _background(server):
        if await _until_ready(server, stop):
            tune_interpreter()
            url = config.server.public_url or local_url(config.server.host, port)
            link = await _owner_link(server, config, url)
            await asyncio.to_thread(_announce, hold, ready_file, url, link)
            await stop.wait()
        log.info("draining", grace_seconds=config.timing.drain_seconds)
        server.services.state.drain()
        await server.runner.drain(config.timing.drain_seconds)
        server.services.state.leave()


async def _check_owner_password(server: Server, config: Config) -> None:
    """On any address but this machine's own, the owner's password comes first. Raises ``ConfigErrors``."""
    if server.services.loopback or await _admin(server, config).owner_has_password():
        return
    reason = (
        f"other machines reach {config.server.host}, so the owner needs a password first: "
        f"antiphon users password --data {shlex.quote(str(config.data_dir))}"
    )
    raise ConfigErrors([("server.host", reason)])


def _admin(server: Server, config: Config) -> Admin:
    return Admin(server.accounts, config, server.services.clock, server.services.ids)


async def _until_ready(server: Server, stop: asyncio.Event) -> bool:
    """Whether every pool became ready before a stop was asked for. Raises what kept a pool from starting."""
    ready = asyncio.create_task(server.gateway.wait_ready(_READY_SECONDS))
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({ready, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            return False
        ready.result()
        return True
    finally:
        for task in (ready, stopped):
            task.cancel()
        await asyncio.gather(ready, stopped, return_exceptions=True)


@asynccontextmanager
async def _answering(server: Server, listener: socket.socket) -> AsyncGenerator[int]:
    """Serve HTTP and yield the port."""
    http = HttpServer(build_app(server.services), listener)
    try:
        yield await http.start()
    finally:
        await http.stop()


@asynccontextmanager
async def _background(server: Server) -> AsyncGenerator[None]:
    tasks = (
        asyncio.create_task(watch_event_loop(server.services.telemetry, server.services.clock), name="loop-lag"),
        asyncio.create_task(server.upkeep.run_for_ever(), name="upkeep"),
        asyncio.create_task(server.services.background.run_for_ever(), name="background"),
        asyncio.create_task(server.books.run_for_ever(), name="books"),
        *(asyncio.create_task(work) for work in server.accounting.background()),
    )
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _owner_link(server: Server, config: Config, url: str) -> str:
    """A fresh sign-in link for the owner, who is made on the first start; the bare address where the store takes no writes.

    A full disk must not keep people from what is stored.
    """
    try:
        return await _admin(server, config).link(user=None, url=url)
    except (DiskFull, StoreUnavailable) as failure:
        log.warning("no_sign_in_link", reason=failure.detail)
        return f"{url}/"


def _announce(hold: FolderHold, ready_file: Path | None, url: str, link: str) -> None:
    """The one line on stdout, the address for commands, and the ready file, written atomically. Blocking."""
    hold.publish(url)
    if ready_file is not None:
        content = json.dumps({"url": url, "link": link, "pid": os.getpid(), "version": __version__})
        staged = ready_file.with_name(f".{ready_file.name}.{os.getpid()}")
        staged.touch(mode=0o600)
        staged.write_text(content + "\n")
        staged.replace(ready_file)
    sys.stdout.write(f"Antiphon is ready: {link}\n")
    sys.stdout.flush()
