"""Whatever is sent to any operation: no 5xx, and no status, type or body that the server's own document does not name."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.system.served import Person, Server, reference_config, started

pytestmark = pytest.mark.system

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
FEW, MANY = 2, 200


@dataclass(frozen=True, slots=True)
class Asked:
    """How one run of schemathesis ended."""

    code: int
    cases: int
    operations: int
    text: str


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("fast") / "data", reference_config(output_tokens_per_s=100_000.0)) as server:
        yield server


def ask(server: Server, folder: Path, examples: int, *flags: str, document: Path | None = None) -> Asked:
    """Let schemathesis call every operation that ``flags`` choose, with generated values good and bad."""
    phases = "fuzzing" if examples == FEW else "coverage,fuzzing"
    place = [server.url + "/openapi.json"] if document is None else [str(document), "--url", server.url]
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("schemathesis")),
            *("--config-file", str(folder / "schemathesis.toml"), "run", *place),
            *("--max-examples", str(examples), "--checks", CHECKS, "--phases", phases, "--seed", "1"),
            *("--continue-on-failure", "--no-shrink", "--max-response-time", "30", "--request-timeout", "60", *flags),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    text = done.stdout + done.stderr
    cases, tested = re.search(r"(\d+) generated", text), re.search(r"Tested: (\d+)", text)
    return Asked(done.returncode, int(cases[1]) if cases else 0, int(tested[1]) if tested else 0, text[-20_000:])


def belongings(person: Person) -> dict[str, str]:
    """One of each thing that addresses name, so that calls get beyond 404."""
    conversation = person.new_conversation()
    sent = person.send(conversation, "hello", params={"max_tokens": 3})
    person.read(sent["generation_id"])
    share = person.http.post(f"/v1/conversations/{conversation}/share").json()
    return {
        "conversation_id": conversation,
        "message_id": sent["message_id"],
        "generation_id": sent["generation_id"],
        "share_id": share["id"],
        "token": share["url"].rpartition("/")[2],
        "memory_id": person.http.post("/v1/me/memory", json={"text": "tea"}).json()["id"],
        "key_id": person.http.post("/v1/keys", json={"name": "spare", "scopes": ["chat"]}).json()["id"],
        "user_id": person.http.post("/v1/admin/users", json={"name": f"colleague-{conversation[-12:]}"}).json()["user"]["id"],
    }


def session_cookie(server: Server) -> str:
    answer = httpx.post(f"{server.url}/v1/session", json={"token": server.link.partition("token=")[2]})
    assert answer.status_code == 204, answer.text
    return answer.headers["set-cookie"].partition(";")[0]


def ask_everything(server: Server, folder: Path, examples: int) -> int:
    """By key all operations, by session those of one's own account; what deletes comes last. The number of calls."""
    person = server.person()
    lines = [f'"path.{name}" = "{value}"' for name, value in belongings(person).items()]
    (folder / "schemathesis.toml").write_text("[parameters]\n" + "\n".join(lines) + "\n")
    key = ("--header", f"Authorization: Bearer {server.key()}")
    session = ("--header", f"Cookie: {session_cookie(server)}", "--header", "Sec-Fetch-Site: same-origin")
    own = "^/v1/(me|keys)"
    runs = (
        (*key, "--exclude-method", "DELETE"),
        (*session, "--include-path-regex", own, "--exclude-method", "DELETE"),
        (*key, "--include-method", "DELETE"),
        (*session, "--include-path-regex", own, "--include-method", "DELETE"),
    )
    cases = 0
    for flags in runs:
        asked = ask(server, folder, examples, *flags)
        assert asked.code == 0, asked.text
        cases += asked.cases
    return cases


@pytest.mark.slow
def test_a_few_calls_of_every_kind(fast: Server, tmp_path: Path) -> None:
    operations = sum(len(methods) for methods in httpx.get(f"{fast.url}/openapi.json").json()["paths"].values())
    assert ask_everything(fast, tmp_path, FEW) > operations


@pytest.mark.slow
def test_a_status_that_the_document_does_not_name_is_found(fast: Server, tmp_path: Path) -> None:
    document = httpx.get(f"{fast.url}/openapi.json").json()
    del document["paths"]["/v1/conversations/{conversation_id}"]["get"]["responses"]["404"]
    (tmp_path / "holed.json").write_text(json.dumps(document))
    (tmp_path / "schemathesis.toml").write_text("")
    asked = ask(
        fast, tmp_path, 20, "--header", f"Authorization: Bearer {fast.key()}", "--include-path", "/v1/conversations/{conversation_id}",
        "--include-method", "GET", document=tmp_path / "holed.json",
    )  # fmt: skip
    assert asked.code == 1
    assert "Undocumented status code" in asked.text


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_two_hundred_examples_of_every_operation(fast: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = ask_everything(fast, tmp_path, MANY)
    with capsys.disabled():
        print(f"\n{cases} calls")
    assert cases > 5000
