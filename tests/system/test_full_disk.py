"""A disk with no room left: writing is refused with 507 and loses nothing, reading goes on, and room is all it takes to go on."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.served import Person, Server, eventually, reference_config

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

DISK_BYTES = 24 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    made = mount is not None and subprocess.run(
        [mount, "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)], check=False, capture_output=True
    )
    if not made or made.returncode != 0:
        pytest.skip("This machine lets nobody mount a file system.")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextlib.contextmanager
def filled(disk: Path) -> Iterator[None]:
    """No byte is left on the disk."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while file.write(b"\0" * size):
                    pass
    try:
        yield
    finally:
        ballast.unlink()


def post(person: Person, conversation: str, parent: str | None) -> tuple[int, str]:
    answer = person.http.post(
        f"/v1/conversations/{conversation}/messages",
        json={"content": "now? " * 200, "parent_message_id": parent, "params": {"max_tokens": 5}},
        headers={"Accept": "application/json"},
    )
    return answer.status_code, answer.json().get("code", "")


def test_507_while_it_is_full_and_on_without_a_restart(disk: Path) -> None:
    server = Server(disk / "data", reference_config(output_tokens_per_s=30))
    server.start()
    try:
        person = server.person()
        conversation = person.new_conversation()
        sent = person.send(conversation, "where do herons nest?", params={"max_tokens": 5})
        whole = person.read(sent["generation_id"]).text
        running = person.send(person.new_conversation(), "a long one", params={"max_tokens": 120})
        before = person.http.get(f"/v1/conversations/{conversation}/tree").json()
        with filled(disk):
            answers = {post(person, conversation, sent["message_id"]) for _ in range(100)}
            assert (507, "disk_full") in answers
            assert answers <= {(202, ""), (507, "disk_full")}, "the log beside the database had room for a few"
            for _ in range(3):
                assert person.message(conversation, sent["message_id"])["content"] == whole
            assert person.http.get("/v1/conversations").status_code == 200
            assert person.http.get("/v1/search", params={"q": "herons"}).json()["data"]
            assert person.http.get("/healthz").status_code == 200
            assert person.http.patch(f"/v1/conversations/{conversation}", json={"title": "t" * 200}).status_code == 507
            eventually(lambda: person.http.get("/readyz").status_code == 503, within_s=30, what="not ready while it is full")
        eventually(lambda: post(person, conversation, sent["message_id"])[0] == 202, within_s=30, what="writes are taken again")
        after = person.http.get(f"/v1/conversations/{conversation}/tree").json()
        assert after["data"][: len(before["data"])] == before["data"]
        reading = person.read(running["generation_id"])
        assert reading.kinds[-1] == "done"
        assert person.message(running["conversation_id"], running["message_id"])["content"] == reading.text
        eventually(lambda: person.http.get("/readyz").status_code == 200, within_s=30, what="ready again")
        assert "Traceback" not in server.log()
    finally:
        server.end()
