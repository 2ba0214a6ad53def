"""The socket that people reach. Held from the first moment of a start: who connects before the server is loaded waits, unrefused."""

from __future__ import annotations

import socket

BACKLOG = 2048


def open_listener(host: str, port: int, *, last_port: int = 0) -> socket.socket:
    """Listen on ``port`` (0: any), or on the first free one up to ``last_port``. Raises ``OSError`` when none can be had."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        _bind(listener, (address[0], port, *address[2:]), last_port)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _bind(listener: socket.socket, address: tuple[object, ...], last_port: int) -> None:
    host, port, *rest = address
    assert isinstance(port, int)
    while True:
        try:
            listener.bind((host, port, *rest))
        except OSError:
            if port >= last_port:
                raise
            port += 1
        else:
            return
