"""Import, export and account export, over a real connection."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile

import httpx
import pytest

from antiphon.core.tenancy import Scope, UserRole
from antiphon.edge import transferring
from tests.edge.site import Person, Site
from tests.orchestrator.transfer.uploads import as_json, as_zip, chatgpt, fixture


async def upload(person: Person, content: bytes, **headers: str) -> httpx.Response:
    return await person.http.post("/v1/import", files={"file": ("export.zip", content)}, headers=headers)


async def test_an_import_and_its_repeat(site: Site) -> None:
    person = await site.person("importer")
    answer = await upload(person, as_zip(conversations__json=fixture("chatgpt.json")))
    assert answer.status_code == 200, answer.text
    report = answer.json()
    assert (report["imported"], report["skipped"], report["failed"]) == (2, 0, 1)
    first, _, broken = report["conversations"]
    assert broken == {
        "source_id": "6b0f0d9c-0000-4000-8000-00000000000c",
        "status": "failed",
        "id": None,
        "messages": 0,
        "reason": "It has no messages.",
    }
    assert (first["status"], first["messages"]) == ("imported", 7)
    shown = (await person.http.get(f"/v1/conversations/{first['id']}/messages")).json()
    assert [message["role"] for message in shown["data"]] == ["user", "assistant", "assistant", "assistant"]
    assert len(shown["siblings"][shown["data"][0]["id"]]) == 2
    again = await upload(person, fixture("chatgpt.json"))
    assert again.status_code == 422
    told = again.json()
    assert (told["code"], told["detail"], told["imported"], told["skipped"]) == ("invalid_request", "Nothing was imported.", 0, 2)
    assert [line["id"] for line in told["conversations"][:2]] == [line["id"] for line in report["conversations"][:2]]
    assert again.headers["content-type"] == "application/problem+json"


async def test_an_imported_conversation_goes_on(site: Site) -> None:
    person = await site.person("goes-on")
    (line,) = (await upload(person, as_json([chatgpt("x", "hello", "hi there")]))).json()["conversations"]
    sent = await person.send(line["id"], "and now?")
    await person.read(sent["generation_id"])
    shown = (await person.http.get(f"/v1/conversations/{line['id']}/messages")).json()["data"]
    assert [message["role"] for message in shown] == ["user", "assistant", "user", "assistant"]
    assert shown[3]["status"] == "complete"


async def test_what_cannot_be_imported(site: Site, ada: Person) -> None:
    before = site.rows()
    for content in (b"", b"hello", b"[]", b"PK\x03\x04zzz", b"[" * 50_000):
        answer = await upload(ada, content)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), answer.text
        assert answer.json()["errors"][0]["path"] == "file"
    wrong = await ada.http.post("/v1/import", json={"file": "x"})
    assert (wrong.status_code, wrong.json()["code"]) == (415, "media_type")
    other = await ada.http.post("/v1/import", files={"other": ("a", b"[]")})
    assert (other.status_code, other.json()["errors"][0]["path"]) == (422, "file")
    assert site.rows() == before


async def test_an_upload_larger_than_a_body_may_be(site: Site) -> None:
    person = await site.person("large")
    report = (await upload(person, as_json(chatgpt(f"c{number}", "x" * 9000) for number in range(300)))).json()
    assert report["imported"] == 300
    assert (
        await person.http.post("/v1/conversations", content=b"x" * (2 << 20), headers={"content-type": "application/json"})
    ).status_code == 413


async def test_an_upload_beyond_its_own_limit(ada: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transferring, "MAX_IMPORT_BYTES", 100_000)
    answer = await upload(ada, b"x" * 200_000)
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


async def test_one_import_at_a_time(site: Site) -> None:
    person = await site.person("impatient")
    file = as_json(chatgpt(f"c{number}", "hello") for number in range(400))
    answers = await asyncio.gather(*(upload(person, file) for _ in range(3)))
    codes = sorted(answer.status_code for answer in answers)
    assert 200 in codes
    assert set(codes) <= {200, 422, 429}
    assert len(site.state.origins) >= 400
    assert sum(head.user_id == person.user.id for head in site.state.conversations.values()) == 400


async def test_an_upload_that_is_never_finished_leaves_nothing(site: Site) -> None:
    person = await site.person("gone")
    before = site.rows()
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    head = f"POST /v1/import HTTP/1.0\r\nAuthorization: Bearer {person.key}\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    writer.write(f'{head}Content-Length: 100000\r\n\r\n--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n[{{'.encode())
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert await reader.read() == b""
    assert (await upload(person, as_json([chatgpt("x", "hi")]))).status_code in {200, 429}
    assert site.rows()[2:] == before[2:]


async def test_a_cookie_needs_the_same_origin(site: Site) -> None:
    person = await site.person("cookie")
    browser = site.client()
    token = await site.link(person.user)
    signed = await browser.post("/v1/session", json={"token": token}, headers={"Origin": site.url})
    assert signed.status_code == 204
    file = {"file": ("a.json", as_json([chatgpt("x", "hi")]))}
    for headers in ({}, {"Origin": "https://elsewhere.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "none"}):
        assert (await browser.post("/v1/import", files=file, headers=headers)).status_code == 403
    assert (await browser.post("/v1/import", files=file, headers={"Origin": site.url, "Sec-Fetch-Site": "same-origin"})).status_code == 200


async def test_a_key_that_may_not_chat(site: Site) -> None:
    person = await site.person("usage-only", scopes=frozenset({Scope.USAGE}))
    assert (await upload(person, b"[]")).status_code == 403
    assert (await person.http.get("/v1/export")).status_code == 403
    assert (await site.client().get("/v1/export")).status_code == 401


@pytest.mark.parametrize(
    ("form", "kind"), [("antiphon", "application/x-ndjson"), ("markdown", "text/markdown"), ("json", "application/json")]
)
async def test_exports(site: Site, form: str, kind: str) -> None:
    person, other = await site.person(f"exporter-{form}"), await site.person(f"other-{form}")
    report = (await upload(person, fixture("chatgpt.json"))).json()
    answer = await person.http.get("/v1/export", params={"format": form})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(kind)
    assert "attachment" in answer.headers["content-disposition"]
    assert "How far is this from Oslo?" in answer.text
    assert "By ferry." in answer.text or form == "markdown"
    first = report["conversations"][1]["id"]
    one = await person.http.get("/v1/export", params={"format": form, "conversation_id": first})
    assert "Oslo" not in one.text
    foreign = await other.http.get("/v1/export", params={"format": form, "conversation_id": first})
    assert (foreign.status_code, foreign.json()["code"]) == (404, "not_found")
    if form != "markdown":
        assert (await upload(other, answer.content)).json()["imported"] == 2


async def test_an_export_of_another_kind(ada: Person) -> None:
    answer = await ada.http.get("/v1/export", params={"format": "pdf"})
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "format")
    assert (await ada.http.get("/v1/export", params={"conversation_id": "../x"})).status_code == 404


async def test_an_account_as_a_zip(site: Site) -> None:
    person = await site.person("whole", role=UserRole.OWNER)
    await upload(person, fixture("antiphon.jsonl"))
    answer = await person.http.get("/v1/me/export")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert person.key.encode() not in b"".join(archive.read(name) for name in archive.namelist())
        assert json.loads(archive.read("account.json"))["user_id"] == person.user.id
        assert len(archive.read("conversations.jsonl").splitlines()) == 3
    chat_only = await site.person("chat-only", role=UserRole.OWNER, scopes=frozenset({Scope.CHAT}))
    assert (await chat_only.http.get("/v1/me/export")).status_code == 403
