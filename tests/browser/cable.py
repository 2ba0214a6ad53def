"""A network cable that can be pulled: a browser that is told to be offline keeps the connections it has, and this does not."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit


class Cable:
    """Carries bytes between browsers and one server; ``pull`` breaks every connection and takes no new one until ``plug``."""

    def __init__(self, server_url: str) -> None:
        address = urlsplit(server_url)
        assert address.hostname is not None
        assert address.port is not None
        self._target = (address.hostname, address.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._pulled = False
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._listen, daemon=True).start()

    def pull(self) -> int:
        """Break what there is; how many connections that were."""
        with self._lock:
            self._pulled = True
            broken = len(self._open)
            for end in self._open:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        return broken

    def plug(self) -> None:
        with self._lock:
            self._pulled = False

    def close(self) -> None:
        self._listener.close()
        self.pull()

    def _listen(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._pulled:
                    near.close()
                    continue
                far = socket.create_connection(self._target)
                self._open |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open.discard(source)
        source.close()
