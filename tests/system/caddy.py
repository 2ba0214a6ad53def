"""The distribution's Caddy in front of a server of ours, with a certificate of its own authority."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.system.nginx import Proxy, free_ports, wait_for

_GLOBAL = """{{
	admin off
	http_port {http}
	https_port {https}
	skip_install_trust
	storage file_system {folder}
	default_bind 127.0.0.1
}}
"""


def missing_programs() -> list[str]:
    return [name for name in ("caddy", "curl") if shutil.which(name) is None]


@contextmanager
def caddy(folder: Path, upstream: str, recipe: str, name: str) -> Iterator[Proxy]:
    """Run it until the context ends. Of the ``recipe`` only the upstream is replaced, and whom the certificate of ``name`` is from."""
    ports = free_ports(2)
    for theirs, ours in ((f"{name} {{\n", f"{name} {{\n\ttls internal\n"), ("127.0.0.1:8484", upstream.removeprefix("http://"))):
        assert recipe.count(theirs) == 1, theirs
        recipe = recipe.replace(theirs, ours)
    (folder / "Caddyfile").write_text(_GLOBAL.format(http=ports[0], https=ports[1], folder=folder) + recipe)
    command = ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]
    environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    try:
        wait_for(ports[1], process)
        yield Proxy(f"http://127.0.0.1:{ports[0]}", f"https://127.0.0.1:{ports[1]}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
