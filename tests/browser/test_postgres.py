"""The chat window on a server whose store is PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.chat import Chat, words
from tests.postgres_server import PostgresServer
from tests.system.served import Server, reference_config

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Iterator[Server]:
    config = f'{reference_config()}\n[store]\nurl = "{postgres_server.create_database("browser")}"\n'
    server = Server(tmp_path_factory.mktemp("postgres") / "data", config)
    server.start()
    yield server
    server.end()


def test_send_stream_open_again_and_find(chat: Chat) -> None:
    chat.send("Where do herons winter?")
    text = chat.ended()
    assert len(words(text)) > 20
    assert chat.same_as_stored()
    expect(chat.page.get_by_test_id("sidebar-item").first).to_contain_text("Where do herons winter?")
    chat.page.reload()
    expect(chat.messages).to_have_count(2)
    assert chat.shown() == text
