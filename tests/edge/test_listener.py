from __future__ import annotations

import socket

import pytest

from antiphon.edge.listener import open_listener


def test_the_next_free_port_is_taken_where_one_may_be() -> None:
    with open_listener("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(OSError):
            open_listener("127.0.0.1", port)
        with open_listener("127.0.0.1", port, last_port=port + 20) as second:
            assert port < second.getsockname()[1] <= port + 20


def test_who_connects_before_anybody_serves_is_not_refused() -> None:
    with open_listener("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname(), timeout=1) as early:
        early.sendall(b"hello")
        listener.setblocking(True)
        served, _ = listener.accept()
        with served:
            assert served.recv(5) == b"hello"


def test_an_address_that_is_not_ours() -> None:
    with pytest.raises(OSError):
        open_listener("192.0.2.1", 0)
