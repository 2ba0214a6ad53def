from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.served import Server, reference_config


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start servers of this test; whatever is left of them at its end is killed."""
    made: list[Server] = []

    def make(config: str) -> Server:
        server = Server(tmp_path / f"data{len(made)}", config)
        made.append(server)
        server.start()
        return server

    yield make
    for server in made:
        server.end()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server with a reference pool for all tests of a module."""
    shared = Server(tmp_path_factory.mktemp("shared") / "data", reference_config())
    shared.start()
    yield shared
    shared.end()
