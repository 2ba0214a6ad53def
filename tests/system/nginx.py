"""The distribution's nginx, with the distribution's own configuration, in front of a server of ours."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# What an administrator adds to the default configuration: where to pass requests, and for HTTP/2 a certificate. Nothing else.
_SITE = """
server {{
    listen 127.0.0.1:{http};
    listen 127.0.0.1:{https} ssl http2;
    ssl_certificate {folder}/cert.pem;
    ssl_certificate_key {folder}/key.pem;
    location / {{
        proxy_pass {upstream};
    }}
}}
"""
_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@dataclass(frozen=True, slots=True)
class Proxy:
    """``http`` speaks HTTP/1.1, ``https`` HTTP/2 as well."""

    http: str
    https: str


def missing_programs() -> list[str]:
    return [name for name in ("nginx", "curl", "openssl") if _program(name) is None]


@contextmanager
def nginx(folder: Path, upstream: str, recipe: str | None = None) -> Iterator[Proxy]:
    """Run it until the context ends; everything it writes goes into ``folder``. ``recipe``: an administrator's site."""
    ports = free_ports(2)
    if recipe is None:
        site = _SITE.format(http=ports[0], https=ports[1], folder=folder, upstream=upstream)
    else:
        site = _led_here(recipe, ports, folder, upstream)
    _certificate(folder)
    program = _program("nginx")
    assert program is not None
    (folder / "nginx.conf").write_text(_configuration(Path(program), folder, site))
    command = [program, "-e", str(folder / "error.log"), "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", "daemon off;"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_for(ports[0], process)
        yield Proxy(f"http://127.0.0.1:{ports[0]}", f"https://127.0.0.1:{ports[1]}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)


def _led_here(recipe: str, ports: list[int], folder: Path, upstream: str) -> str:
    """The recipe with its ports, its certificate and the server's address replaced, and nothing else."""
    for theirs, ours in (
        ("listen 80;", f"listen 127.0.0.1:{ports[0]};"),
        ("listen 443 ", f"listen 127.0.0.1:{ports[1]} "),
        ("/etc/letsencrypt/live/chat.example.com/fullchain.pem", f"{folder}/cert.pem"),
        ("/etc/letsencrypt/live/chat.example.com/privkey.pem", f"{folder}/key.pem"),
        ("http://127.0.0.1:8484", upstream),
    ):
        assert recipe.count(theirs) == 1, theirs
        recipe = recipe.replace(theirs, ours)
    return recipe


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


def _configuration(program: Path, folder: Path, site: str) -> str:
    """The packaged ``nginx.conf`` with its sites replaced by ours, and every path that it writes to led into ``folder``."""
    root = program.resolve().parents[2]
    text = (root / "etc/nginx/nginx.conf").read_text()
    text = re.sub(r"^user .*;$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^pid .*;$", f"pid {folder}/nginx.pid;", text, flags=re.MULTILINE)
    text = re.sub(r"^include .*/modules-enabled/.*;$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^(\s*(?:error|access)_log) \S+;$", rf"\1 {folder}/log.txt;", text, flags=re.MULTILINE)
    text = re.sub(r"include /etc/nginx/(?:conf\.d|sites-enabled)/\S+;", "", text)
    text = text.replace("include /etc/nginx/", f"include {root}/etc/nginx/")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in _TEMPORARY)
    # The http block is the last one that is not commented out.
    head, _, tail = text.partition("http {")
    end = re.search(r"^}$", tail, flags=re.MULTILINE)
    assert end is not None
    return f"{head}http {{{tail[: end.start()]}{temporary}{site}}}\n"


def _certificate(folder: Path) -> None:
    program = _program("openssl")
    assert program is not None
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(folder / "key.pem")]
    certificate = ["-x509", "-days", "2", "-subj", "/CN=localhost", "-out", str(folder / "cert.pem")]
    subprocess.run([program, "req", *key, *certificate], check=True, capture_output=True)


def free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def wait_for(port: int, process: subprocess.Popen[str]) -> None:
    for _ in range(200):
        if process.poll() is not None:
            raise AssertionError(process.communicate()[0])
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the proxy does not listen")
