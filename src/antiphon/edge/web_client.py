"""The built web client, held in memory: a handful of files, looked up by exact path, so no path can lead elsewhere."""

from __future__ import annotations

import asyncio
import mimetypes
import re
from dataclasses import dataclass
from pathlib import Path

from starlette.types import Scope, Send

from antiphon.edge.auth import header

_CLIENT_PAGE = re.compile(r"/(?:c/[A-Za-z0-9_-]{1,64}|operator)?\Z")
_IMMUTABLE = b"public, max-age=31536000, immutable"
_REVALIDATE = b"no-cache"
_ENCODINGS = (("br", ".br"), ("gzip", ".gz"))
_EXTRA_TYPES = {".js": "text/javascript", ".woff2": "font/woff2", ".webmanifest": "application/manifest+json", ".svg": "image/svg+xml"}

_NOT_BUILT = b"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Antiphon</title>
<h1>The web client is not built</h1>
<p>The API works. To build the client run <code>make setup</code> in the source tree, then start Antiphon again.</p>
</html>
"""


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    content_type: bytes
    cache_control: bytes
    encoded: tuple[tuple[str, bytes], ...] = ()
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Instead of those that every other answer has."""
    built: bool = True
    """False of the page that stands in for a client that is not built."""


class StaticFiles:
    """Serves ``folder``; without an ``index.html`` in it, a page that says so. Files are read once, at the first request."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, StaticFile] | None = None
        self._loading = asyncio.Lock()

    async def find(self, path: str) -> StaticFile | None:
        """The file for a request's path; ``/``, ``/c/{id}`` and ``/operator`` are the client itself."""
        if self._files is None:
            async with self._loading:
                if self._files is None:
                    self._files = await asyncio.to_thread(_load, self._folder)
        return self._files.get("/index.html" if _CLIENT_PAGE.match(path) else path)

    async def page(self) -> StaticFile:
        """The client itself, which says of an address that it does not know that there is nothing."""
        page = await self.find("/")
        assert page is not None
        return page


async def send_file(file: StaticFile, send: Send, *, accept_encoding: str, status: int = 200) -> None:
    """Answer with ``file``, in the best encoding there is of it."""
    headers = [(b"content-type", file.content_type), (b"cache-control", file.cache_control), (b"vary", b"accept-encoding")]
    headers += file.headers
    content = file.content
    accepted = {part.partition(";")[0].strip().lower() for part in accept_encoding.split(",") if not _refused(part)}
    for encoding, encoded in file.encoded:
        if encoding in accepted:
            headers.append((b"content-encoding", encoding.encode("ascii")))
            content = encoded
            break
    headers.append((b"content-length", str(len(content)).encode("ascii")))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def wants_page(scope: Scope) -> bool:
    """Whether a person's browser goes to an address that is none of the API's."""
    accepted = header(scope["headers"], b"accept") or ""
    return scope["method"] == "GET" and not scope["path"].startswith("/v1/") and "text/html" in accepted


def _refused(part: str) -> bool:
    return re.search(r";\s*q=0(\.0*)?\s*\Z", part) is not None


def _load(folder: Path) -> dict[str, StaticFile]:
    files: dict[str, StaticFile] = {"/index.html": StaticFile(_NOT_BUILT, b"text/html; charset=utf-8", _REVALIDATE, built=False)}
    suffixes = tuple(suffix for _, suffix in _ENCODINGS)
    if not folder.is_dir():
        return files
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.suffix not in suffixes:
            name = "/" + path.relative_to(folder).as_posix()
            files[name] = StaticFile(
                content=path.read_bytes(),
                content_type=_content_type(path),
                cache_control=_IMMUTABLE if name.startswith("/assets/") else _REVALIDATE,
                encoded=tuple(_encoded(path)),
                headers=_frame_headers(name),
            )
    return files


def _frame_headers(name: str) -> tuple[tuple[bytes, bytes], ...]:
    """What lies under ``/frame/`` runs in frames of the client, without an origin and without a network."""
    if not name.startswith("/frame/"):
        return ()
    pictures = "https: http:" if name == "/frame/picture.html" else "'none'"
    policy = (
        "sandbox allow-scripts; default-src 'none'; script-src 'self'; style-src 'self'; "
        f"img-src {pictures}; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    )
    return (
        (b"content-security-policy", policy.encode("ascii")),
        (b"x-frame-options", b"SAMEORIGIN"),
        (b"cross-origin-resource-policy", b"cross-origin"),
    )


def _encoded(path: Path) -> list[tuple[str, bytes]]:
    candidates = [(encoding, path.with_name(path.name + suffix)) for encoding, suffix in _ENCODINGS]
    return [(encoding, file.read_bytes()) for encoding, file in candidates if file.is_file()]


def _content_type(path: Path) -> bytes:
    kind = _EXTRA_TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    charset = "; charset=utf-8" if kind.startswith("text/") or kind.endswith(("json", "xml")) else ""
    return f"{kind}{charset}".encode("ascii")
