"""``antiphon serve``: take the data folder, start the replicas, and while they load everything above them; serve; end.

Little is imported here, so that the replicas start at once; ``serving`` holds the rest.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from types import ModuleType

import uvloop

from antiphon.app.config import Config, ServerConfig
from antiphon.app.data_folder import DataFolder, DataFolderInUse, FolderHold
from antiphon.app.interpreter import load_without_collector
from antiphon.app.logging import LogFormat, configure_logging
from antiphon.app.models import pull_missing_default
from antiphon.app.pool_wiring import open_gateway, runtime_folder
from antiphon.app.system import SystemClock
from antiphon.core.errors import AntiphonError, ConfigErrors
from antiphon.edge.listener import open_listener
from antiphon.edge.metrics import PrometheusTelemetry
from antiphon.inference.supervisor import remove_runtime_dir

_SAME_SIGNAL_S = 1.0
_EXIT_FAILED = 1
_EXIT_USAGE = 2
_PORTS_TRIED = 50


def serve(config: Config, *, log_format: LogFormat, ready_file: Path | None) -> int:
    """Run a server with every role until SIGTERM or SIGINT; returns the exit code. Faults are one sentence on stderr."""
    load_without_collector()
    configure_logging(log_format)
    try:
        with DataFolder(config.data_dir).held() as hold:
            pull_missing_default(config.models_dir, config.pools)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_serve(config, hold, log_format=log_format, ready_file=ready_file))
        return 0
    except (ConfigErrors, DataFolderInUse) as fault:
        sys.stderr.write(f"{fault}\n")
        return _EXIT_USAGE
    except AntiphonError as fault:
        sys.stderr.write(f"{fault}\n")
        return _EXIT_FAILED


async def _serve(config: Config, hold: FolderHold, *, log_format: LogFormat, ready_file: Path | None) -> None:
    stop = StopWish(runtime_folder(config.data_dir))
    stop.listen()
    clock, telemetry = SystemClock(), PrometheusTelemetry()
    with _listening(config.server) as listener:
        async with open_gateway(config, clock, telemetry, log_format) as gateway:
            await asyncio.to_thread(_import_the_rest)
            await gateway.tokenizers_read()

            from antiphon.app.serving import serve_until
            from antiphon.app.wiring import open_server

            async with open_server(config, gateway, clock, telemetry) as server:
                stop.loading = False
                await serve_until(stop.asked, server, listener, config, hold, ready_file)


def _listening(server: ServerConfig) -> socket.socket:
    """The port, or where nobody chose it the next free one, is ours before anything is loaded: no client is refused meanwhile."""
    last = server.port + _PORTS_TRIED if server.next_free_port and server.port else server.port
    try:
        return open_listener(server.host, server.port, last_port=min(last, 65_535))
    except OSError as failure:
        reason = f"cannot listen on {server.host}:{server.port}: {failure.strerror or failure}"
        raise ConfigErrors([("server.port", reason)]) from failure


def _import_the_rest() -> ModuleType:
    import antiphon.app.serving

    return antiphon.app.serving


class StopWish:
    """SIGTERM and SIGINT. While the server loads, the first ends the process: nothing was accepted that its end could harm.

    Later the first sets ``asked``, and another one, ``_SAME_SIGNAL_S`` after it or more, ends the process without a drain: one wish
    may arrive twice, from a terminal's or supervisor's process group, and forwarded by ``make``.
    """

    def __init__(self, runtime_dir: Path) -> None:
        self.asked = asyncio.Event()
        self.loading = True
        self._runtime_dir = runtime_dir
        self._first_at = 0.0

    def listen(self) -> None:
        """From now on signals are wishes. In the running loop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._take, number)

    def _take(self, number: int) -> None:
        now = asyncio.get_running_loop().time()
        if self.loading:
            remove_runtime_dir(self._runtime_dir)
            os._exit(0)
        if not self.asked.is_set():
            self._first_at = now
            self.asked.set()
        elif now - self._first_at >= _SAME_SIGNAL_S:
            os._exit(128 + number)
