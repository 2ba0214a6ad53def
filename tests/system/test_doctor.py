"""doctor on a real server: what is fine, and a proxy that holds streams back."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from tests.system.served import Server, reference_config

pytestmark = pytest.mark.system


class Holding(BaseHTTPRequestHandler):
    """A proxy that passes an answer on when it has all of it."""

    upstream = ""

    def log_message(self, *arguments: object) -> None: ...

    def do_GET(self) -> None:
        parts = urlsplit(self.upstream)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
        connection.request("GET", self.path, headers={"Host": parts.netloc})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def holding() -> Iterator[str]:
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Holding)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{proxy.server_address[1]}"
    proxy.shutdown()
    proxy.server_close()


def found(server: Server) -> dict[str, tuple[str, str]]:
    command = [
        sys.executable,
        "-m",
        "antiphon",
        "doctor",
        "--json",
        "--data",
        str(server.data),
        "--config",
        str(server.data / "antiphon.toml"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    checks = {check["name"]: (check["state"], check["detail"]) for check in json.loads(done.stdout)}
    assert done.returncode == any(state == "fail" for state, _ in checks.values())
    return checks


def test_a_sound_server_and_a_proxy_that_holds_streams_back(make_server: Callable[[str], Server], holding: str) -> None:
    server = make_server(reference_config())
    checks = found(server)
    assert checks["port"][0] == "ok"
    assert checks["proxy"] == ("ok", f"{server.url}: streams arrive as they are written")
    assert checks["store"][0] in {"ok", "warn"} and "schema" in checks["store"][1]
    assert checks["log"][0] == checks["clock"][0] == "ok"

    Holding.upstream = server.url
    (server.data / "antiphon.toml").write_text(f'{server.config}\n[server]\npublic_url = "{holding}"\n')
    state, detail = found(server)["proxy"]
    assert state == "fail" and "turn its buffering off" in detail
