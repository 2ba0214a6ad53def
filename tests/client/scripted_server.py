"""A real HTTP server on a loopback port that plays a script: each request takes the next scene."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True, slots=True)
class Scene:
    """What one request is answered with; the connection then closes, whatever the content promised.

    ``holds``: it stays open until the script ends.
    """

    body: bytes
    status: int = 200
    media: str = "text/event-stream; charset=utf-8"
    holds: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class ScriptedServer:
    scenes: list[Scene]
    url: str = ""
    requests: list[Request] = field(default_factory=list)


@contextmanager
def scripted(*scenes: Scene) -> Iterator[ScriptedServer]:
    script = ScriptedServer(list(scenes))
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            script.requests.append(Request(self.command, self.path, headers, body))
            scene = script.scenes.pop(0)
            self.send_response(scene.status)
            self.send_header("Content-Type", scene.media)
            self.end_headers()
            self.wfile.write(scene.body)
            if scene.holds:
                ended.wait()

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    script.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield script
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
