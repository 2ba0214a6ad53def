"""A hub of models on this machine: the part of the Hugging Face Hub's protocol that its own client speaks when it downloads."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class SmallHub(ThreadingHTTPServer):
    """``repositories`` maps ``owner/name`` to a folder; ``lies`` maps a file's name to the SHA-256 that is said of it."""

    daemon_threads = True

    def __init__(self, repositories: dict[str, Path]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories = repositories
        self.gated: set[str] = set()
        self.lies: dict[str, str] = {}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def small_hub(repositories: dict[str, Path]) -> Iterator[SmallHub]:
    hub = SmallHub(repositories)
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: SmallHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None: ...

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(path)
        if path.startswith("/api/models/"):
            self._info("/".join(path.split("/")[3:5]), body=body)
            return
        parts = path.strip("/").split("/")
        if len(parts) < 5:
            self._refuse(404, "EntryNotFound")
            return
        owner, name, _, revision, *rest = parts
        folder = self.server.repositories.get(f"{owner}/{name}")
        file = None if folder is None else folder / "/".join(rest)
        if file is None or not file.is_file() or revision not in {"main", COMMIT}:
            self._refuse(404, "EntryNotFound")
            return
        content = file.read_bytes()
        self.send_response(200)
        for header, value in (
            ("Content-Length", str(len(content))),
            ("ETag", f'"{hashlib.sha256(content).hexdigest()}"'),
            ("X-Repo-Commit", COMMIT),
            ("Accept-Ranges", "bytes"),
        ):
            self.send_header(header, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def _info(self, repository: str, *, body: bool) -> None:
        folder = self.server.repositories.get(repository)
        if folder is None:
            self._refuse(401, "RepoNotFound")
        elif repository in self.server.gated:
            self._refuse(403, "GatedRepo")
        else:
            files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
            siblings = [self._sibling(file, folder) for file in files]
            answer = json.dumps({"id": repository, "modelId": repository, "sha": COMMIT, "tags": [], "siblings": siblings}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            if body:
                self.wfile.write(answer)

    def _sibling(self, file: Path, folder: Path) -> dict[str, object]:
        size, sha256 = file.stat().st_size, hashlib.sha256(file.read_bytes()).hexdigest()
        lfs = {"size": size, "sha256": self.server.lies.get(file.name, sha256), "pointerSize": 134}
        said: dict[str, object] = {"rfilename": str(file.relative_to(folder)), "size": size, "blobId": "b"}
        return said | ({"lfs": lfs} if file.suffix in {".gguf", ".bin"} else {})

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", code)
        self.send_header("Content-Length", "0")
        self.end_headers()
