"""A real HTTP server with one finished log that obeys cursors, but cuts, repeats, skips, refuses and sends snapshots as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True, slots=True)
class Whim:
    """What one connection does. ``status`` other than 200 refuses; ``cut`` bytes are sent at most (``None``: all of them).

    ``back``: so many events are repeated; ``snapshot``: so many events ahead, one snapshot stands for all before; ``skipped``: so
    many events ahead, one is missing; ``asks``: so many events ahead, the reader is asked to reconnect.
    """

    status: int = 200
    cut: int | None = None
    back: int = 0
    snapshot: int = 0
    skipped: int = 0
    asks: int = 0


@dataclass(slots=True)
class Story:
    """The log: ``texts`` are its deltas; ``whims`` what connections do, in order, after which they do what they should."""

    texts: Sequence[str] = ()
    whims: list[Whim] = field(default_factory=list[Whim])
    cursors: list[str | None] = field(default_factory=list["str | None"])

    @property
    def last(self) -> int:
        return len(self.texts) + 2

    def frame(self, seq: int) -> bytes:
        if seq == 1:
            return _frame(seq, "meta", {"generation_id": "gen_1", "model": "m", "requested_model": "m"})
        if seq == self.last:
            return _frame(seq, "done", {"finish_reason": "stop"})
        return _frame(seq, "delta", {"text": self.texts[seq - 2]})

    def snapshot(self, seq: int) -> bytes:
        return _frame(seq, "snapshot", {"text": "".join(self.texts[: max(0, seq - 1)])})

    def answer(self, cursor: str | None) -> tuple[int, bytes]:
        self.cursors.append(cursor)
        whim = self.whims.pop(0) if self.whims else Whim()
        if whim.status != 200:
            return whim.status, b"{}"
        after = 0 if cursor is None else int(cursor.rpartition("-")[2])
        parts = [b"retry: 2000\n\n"]
        start = max(0, after - whim.back)
        if after > self.last or whim.snapshot:
            start = self.last - 1 if after > self.last else min(after + whim.snapshot, self.last - 1)
            parts.append(self.snapshot(start))
        for seq in range(start + 1, self.last + 1):
            if whim.asks and seq == start + whim.asks:
                parts.append(b'event: reconnect\ndata: {"after_ms":1}\n\n')
            if not whim.skipped or seq != start + whim.skipped:
                parts.append(self.frame(seq) + b": ping\n\n")
        return 200, b"".join(parts)[: whim.cut]


def _frame(seq: int, kind: str, data: dict[str, str]) -> bytes:
    return f"id: {1 + seq // 5}-{seq}\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode()


@contextmanager
def whimsical() -> Iterator[tuple[str, Story]]:
    """The server's address, and its story, which may be rewritten between two answers."""
    story = Story()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, body = story.answer(self.headers.get("Last-Event-ID"))
            self.send_response(status)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", story
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
