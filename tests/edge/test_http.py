"""What the API says to good and to bad input, over a real connection."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import pytest

from antiphon.core.tenancy import Scope
from antiphon.inference.gateway import Gateway
from tests.edge.site import Person, Site

UNKNOWN = "0193b5a0-0000-7000-8000-000000000000"
JSON = {"Content-Type": "application/json"}

MESSAGES = "/v1/conversations/{conversation}/messages"
CHAT = "/v1/chat/completions"

NASTY: dict[str, tuple[str, str, str | bytes, int, str]] = {
    "broken": ("POST", MESSAGES, '{"content": "x"', 400, "bad_json"),
    "empty": ("POST", MESSAGES, "", 400, "bad_json"),
    "a member twice": ("POST", MESSAGES, '{"content": "x", "content": "y"}', 400, "bad_json"),
    "deep": ("POST", MESSAGES, "[" * 200_000, 400, "bad_json"),
    "deep and closed": ("POST", MESSAGES, '{"params":' * 900 + "1" + "}" * 900, 400, "bad_json"),
    "NaN": ("POST", MESSAGES, '{"content": "x", "params": {"temperature": NaN}}', 400, "bad_json"),
    "1e999": ("POST", MESSAGES, '{"content": "x", "params": {"temperature": 1e999}}', 400, "bad_json"),
    "an integer of 5000 digits": ("POST", MESSAGES, '{"content": "x", "params": {"seed": ' + "9" * 5000 + "}}", 400, "bad_json"),
    "not UTF-8": ("POST", MESSAGES, b'{"content": "\xff"}', 400, "bad_json"),
    "UTF-16": ("POST", MESSAGES, '{"content": "x"}'.encode("utf-16"), 400, "bad_json"),
    "BOM": ("POST", MESSAGES, b'\xef\xbb\xbf{"content": "x"}', 400, "bad_json"),
    "NUL": ("POST", MESSAGES, r'{"content": "a\u0000b"}', 400, "invalid_text"),
    "lone surrogate": ("POST", MESSAGES, r'{"content": "a\ud800b"}', 400, "invalid_text"),
    "lone surrogate in a name": ("POST", MESSAGES, r'{"content": "a", "\udfff": 1}', 400, "invalid_text"),
    "lone surrogate in stop": ("POST", MESSAGES, r'{"content": "a", "params": {"stop": ["\udc00"]}}', 400, "invalid_text"),
    "an array": ("POST", MESSAGES, "[1]", 422, "invalid_request"),
    "null": ("POST", MESSAGES, "null", 422, "invalid_request"),
    "unknown field": ("POST", MESSAGES, '{"content": "x", "api_base": "https://elsewhere"}', 422, "invalid_request"),
    "unknown parameter": ("POST", MESSAGES, '{"content": "x", "params": {"top_k": 4}}', 422, "invalid_request"),
    "no content": ("POST", MESSAGES, "{}", 422, "invalid_request"),
    "white space": ("POST", MESSAGES, r'{"content": " \n\t"}', 422, "invalid_request"),
    "content of another kind": ("POST", MESSAGES, '{"content": 7}', 422, "invalid_request"),
    "max_tokens -1": ("POST", MESSAGES, '{"content": "x", "params": {"max_tokens": -1}}', 422, "invalid_request"),
    "max_tokens true": ("POST", MESSAGES, '{"content": "x", "params": {"max_tokens": true}}', 422, "invalid_request"),
    "max_tokens 1.0": ("POST", MESSAGES, '{"content": "x", "params": {"max_tokens": 1.0}}', 422, "invalid_request"),
    "max_tokens beyond the plan": ("POST", MESSAGES, '{"content": "x", "params": {"max_tokens": 513}}', 422, "invalid_request"),
    "seed 2^63": ("POST", MESSAGES, '{"content": "x", "params": {"seed": 9223372036854775808}}', 422, "invalid_request"),
    "temperature 2.1": ("POST", MESSAGES, '{"content": "x", "params": {"temperature": 2.1}}', 422, "invalid_request"),
    "top_p 0": ("POST", MESSAGES, '{"content": "x", "params": {"top_p": 0}}', 422, "invalid_request"),
    "five stops": ("POST", MESSAGES, '{"content": "x", "params": {"stop": ["a","b","c","d","e"]}}', 422, "invalid_request"),
    "100000 stops": ("POST", MESSAGES, json.dumps({"content": "x", "params": {"stop": ["a"] * 100_000}}), 422, "invalid_request"),
    "a long stop": ("POST", MESSAGES, json.dumps({"content": "x", "params": {"stop": ["a" * 65]}}), 422, "invalid_request"),
    "a file": ("POST", MESSAGES, '{"content": "x", "file_ids": ["file_1"]}', 422, "invalid_request"),
    "no parent of that id": ("POST", MESSAGES, '{"content": "x", "parent_message_id": "msg_' + UNKNOWN + '"}', 404, "not_found"),
    "a parent that is no id": ("POST", MESSAGES, '{"content": "x", "parent_message_id": "../x"}', 404, "not_found"),
    "foreign parent": ("POST", MESSAGES, '{"content": "x", "parent_message_id": "{foreign_message}"}', 404, "not_found"),
    "text under a question": ("POST", MESSAGES, '{"content": "x", "parent_message_id": "{question}"}', 422, "invalid_request"),
    "again under an answer": ("POST", MESSAGES, '{"content": null, "parent_message_id": "{answer}"}', 422, "invalid_request"),
    "no such model": ("POST", MESSAGES, '{"content": "x", "model": "gpt-9"}', 409, "model_gone"),
    "300 kB": ("POST", MESSAGES, json.dumps({"content": "x" * 300_000}), 413, "message_too_large"),
    "300 kB in UTF-8": ("POST", MESSAGES, json.dumps({"content": "é" * 150_000}), 413, "message_too_large"),
    "2 MB": ("POST", MESSAGES, json.dumps({"content": "x" * 2_000_000}), 413, "body_too_large"),
    "too many tokens": ("POST", MESSAGES, json.dumps({"content": "word " * 10_000}), 413, "prompt_too_long"),
    "foreign conversation": ("POST", "/v1/conversations/{foreign_conversation}/messages", '{"content": "x"}', 404, "not_found"),
    "no such conversation": ("POST", "/v1/conversations/conv_" + UNKNOWN + "/messages", '{"content": "x"}', 404, "not_found"),
    "an id of another kind": ("POST", "/v1/conversations/msg_" + UNKNOWN + "/messages", '{"content": "x"}', 404, "not_found"),
    "a path with NUL": ("POST", "/v1/conversations/%00/messages", '{"content": "x"}', 404, "not_found"),
    "foreign cancel": ("POST", "/v1/generations/{foreign_generation}/cancel", "{}", 404, "not_found"),
    "continue of a question": ("POST", "/v1/messages/{question}/continue", "{}", 422, "invalid_request"),
    "foreign continue": ("POST", "/v1/messages/{foreign_message}/continue", "{}", 404, "not_found"),
    "a title of 201": ("POST", "/v1/conversations", json.dumps({"title": "x" * 201}), 422, "invalid_request"),
    "a title with NUL": ("POST", "/v1/conversations", r'{"title": "\u0000"}', 400, "invalid_text"),
    "a foreign leaf": ("PATCH", "/v1/conversations/{conversation}", '{"current_leaf_id": "{foreign_message}"}', 404, "not_found"),
    "rating 2": ("PUT", "/v1/messages/{answer}/feedback", '{"rating": 2}', 422, "invalid_request"),
    "rating true": ("PUT", "/v1/messages/{answer}/feedback", '{"rating": true}', 422, "invalid_request"),
    "rating 1.0": ("PUT", "/v1/messages/{answer}/feedback", '{"rating": 1.0}', 422, "invalid_request"),
    "temperature true": ("POST", MESSAGES, '{"content": "x", "params": {"temperature": true}}', 422, "invalid_request"),
    "seed false": ("POST", MESSAGES, '{"content": "x", "params": {"seed": false}}', 422, "invalid_request"),
    "seen_id garbage": ("POST", "/v1/generations/{generation}/cancel", '{"seen_id": "last"}', 400, "bad_cursor"),
    "seen_id empty": ("POST", "/v1/generations/{generation}/cancel", '{"seen_id": ""}', 400, "bad_cursor"),
    "foreign feedback": ("PUT", "/v1/messages/{foreign_message}/feedback", '{"rating": 1}', 404, "not_found"),
    "key without a name": ("POST", "/v1/keys", "{}", 422, "invalid_request"),
    "key with a priority of nobody": ("POST", "/v1/keys", '{"name": "x", "priority": "first"}', 422, "invalid_request"),
    "key with a scope of nobody": ("POST", "/v1/keys", '{"name": "x", "scopes": ["root"]}', 422, "invalid_request"),
    "no such route": ("POST", "/v1/nothing", "{}", 404, "not_found"),
    "no such method": ("DELETE", "/v1/models", "", 405, "method_not_allowed"),
    "TRACE": ("TRACE", MESSAGES, "", 405, "method_not_allowed"),
}


@pytest.fixture(scope="module")
async def places(ada: Person, bob: Person) -> dict[str, str]:
    """Ids to fill into the table: a finished turn of ada's, and one of bob's."""
    mine, theirs = await ada.conversation(), await bob.conversation()
    sent, foreign = await ada.send(mine), await bob.send(theirs)
    await ada.read(sent["generation_id"])
    await bob.read(foreign["generation_id"])
    return {
        "conversation": mine,
        "question": sent["user_message_id"],
        "answer": sent["message_id"],
        "generation": sent["generation_id"],
        "foreign_conversation": theirs,
        "foreign_message": foreign["message_id"],
        "foreign_generation": foreign["generation_id"],
    }


@pytest.mark.parametrize("name", NASTY)
async def test_nasty_input(site: Site, ada: Person, places: dict[str, str], name: str) -> None:
    method, path, body, status, code = NASTY[name]
    for place, value in places.items():
        path = path.replace(f"{{{place}}}", value)
        body = body.replace(f"{{{place}}}", value) if isinstance(body, str) else body
    before = site.rows()
    answer = await ada.http.request(method, path, content=body, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert site.rows() == before


async def test_faults_are_all_told(ada: Person, places: dict[str, str]) -> None:
    body = {"content": 1, "params": {"max_tokens": 0, "stop": ["a", ""]}, "no": 1}
    answer = await ada.http.post(MESSAGES.format(conversation=places["conversation"]), json=body)
    assert {fault["path"] for fault in answer.json()["errors"]} == {"content", "params.max_tokens", "params.stop.1", "no"}


async def test_a_body_that_lies_about_its_length(ada: Person, places: dict[str, str]) -> None:
    async def chunks() -> object:
        for _ in range(40):
            yield b" " * 65_536

    answer = await ada.http.post(MESSAGES.format(conversation=places["conversation"]), content=chunks(), headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/json-seq", ""])
async def test_other_media_types(ada: Person, places: dict[str, str], kind: str) -> None:
    headers = {"Content-Type": kind} if kind else {}
    path = MESSAGES.format(conversation=places["conversation"])
    answer = await ada.http.post(path, content=b'{"content": "x"}', headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "media_type")


@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip", "x"])
async def test_packed_bodies(ada: Person, places: dict[str, str], encoding: str) -> None:
    headers = JSON | {"Content-Encoding": encoding}
    for path in (MESSAGES.format(conversation=places["conversation"]), "/v1/conversations", "/v1/chat/completions"):
        answer = await ada.http.post(path, content=gzip.compress(b'{"content": "x"}'), headers=headers)
        assert answer.status_code == 415 and "media_type" in answer.text
    answer = await ada.http.post("/v1/import", files={"file": ("export.zip", b"PK")}, headers={"Content-Encoding": encoding})
    assert (answer.status_code, answer.json()["code"]) == (415, "media_type")
    answer = await ada.http.post("/v1/conversations", content=b"{}", headers=JSON | {"Content-Encoding": "identity"})
    assert answer.status_code == 201


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "limit=1e3", "limit=" + "9" * 5000])
async def test_bad_pages(ada: Person, query: str) -> None:
    answer = await ada.http.get(f"/v1/conversations?{query}")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


async def test_bad_cursors(ada: Person, places: dict[str, str]) -> None:
    for path in ("/v1/conversations?after=nonsense", f"/v1/conversations/{places['conversation']}/messages?before=7"):
        assert (await ada.http.get(path)).json()["code"] == "bad_cursor"
    assert (await ada.http.get("/v1/conversations?after=%00")).json()["code"] == "invalid_text"
    assert (await ada.http.get(f"/v1/conversations/{places['conversation']}/messages?leaf=7")).json()["code"] == "not_found"


async def test_wrong_credentials(site: Site, ada: Person) -> None:
    wrong = ada.key[:-1] + ("0" if ada.key[-1] != "0" else "1")
    for value in ("", "Bearer", "Bearer nonsense", f"Bearer {wrong}", f"Basic {ada.key}", f"Bearer {ada.key} x", "Bearer ' OR '1'='1"):
        answer = await site.client().get("/v1/me", headers={"Authorization": value})
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert (await site.client().get("/v1/me", headers={"x-api-key": ada.key})).status_code == 401
    assert (await site.client().post(CHAT, json={})).json()["error"]["code"] == "unauthenticated"


async def test_authentication_comes_before_parsing(site: Site) -> None:
    answer = await site.client().post("/v1/conversations", content=b"{", headers=JSON)
    assert answer.status_code == 401


async def test_scopes(site: Site) -> None:
    reader = await site.person("metrics only", scopes=frozenset({Scope.METRICS}))
    assert (await reader.http.get("/v1/me")).status_code == 200
    for path in ("/v1/conversations", "/v1/models", "/v1/admin/pools"):
        answer = await reader.http.get(path)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


async def test_a_member_is_no_admin_whatever_the_key_says(bob: Person, ada: Person) -> None:
    assert (await bob.http.get("/v1/admin/pools")).status_code == 403
    pools = (await ada.http.get("/v1/admin/pools")).json()
    assert [pool["name"] for pool in pools] == ["quick", "slow"]
    assert set(pools[0]["replicas"][0]["blocks"]) == {"free", "held", "cached"}


async def test_keys(site: Site, ada: Person) -> None:
    made = await ada.http.post("/v1/keys", json={"name": "laptop", "scopes": ["chat", "usage"], "priority": "batch"})
    assert made.status_code == 201
    key = made.json()
    assert key["priority"] == "batch"
    client = site.client(Authorization=f"Bearer {key['key']}")
    me = (await client.get("/v1/me")).json()
    assert me == {
        "user_id": ada.user.id,
        "tenant_id": site.tenant.id,
        "name": "ada",
        "role": "owner",
        "plan": "free",
        "scopes": ["chat", "usage"],
    }
    assert (await client.post("/v1/keys", json={"name": "more"})).status_code == 403
    listed = (await ada.http.get("/v1/keys")).json()["data"]
    assert key["key"] not in json.dumps(listed)
    assert {("laptop", "batch")} <= {(entry["name"], entry["priority"]) for entry in listed}
    assert (await ada.http.delete(f"/v1/keys/{key['id']}")).status_code == 204
    assert (await client.get("/v1/me")).status_code == 401


async def test_every_answer_has_its_headers(site: Site, ada: Person) -> None:
    for path in ("/", "/c/conv_1", "/v1/me", "/v1/none", "/healthz", "/docs", "/assets/none.js"):
        answer = await ada.http.get(path)
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy and "default-src 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-request-id"].startswith("req_")
        assert "cache-control" in answer.headers
        assert "server" not in answer.headers


async def test_the_description(site: Site) -> None:
    schema = (await site.client().get("/openapi.json")).json()
    assert {"/v1/conversations/{conversation_id}/messages", "/v1/chat/completions", "/v1/generations/{generation_id}/stream"} <= set(
        schema["paths"]
    )
    page = await site.client().get("/docs")
    assert "/v1/generations/{generation_id}/cancel" in page.text
    assert "<script" not in page.text


async def test_metrics_are_open_on_loopback_only(site: Site, ada: Person, gateway: Gateway) -> None:
    assert "antiphon_requests_running" in (await site.client().get("/metrics")).text
    public = Site(gateway, loopback=False)
    await public.open()
    try:
        assert (await public.client().get("/metrics")).status_code == 401
        member = await public.person("m")
        owner = await public.person("o", scopes=frozenset({Scope.METRICS}))
        assert (await member.http.get("/metrics")).status_code == 403
        del owner
    finally:
        await public.close()


async def test_health_and_models(site: Site, ada: Person) -> None:
    assert (await site.client().get("/healthz")).status_code == 200
    ready = await site.client().get("/readyz")
    assert ready.json() == {"ready": True, "checks": {"store": True, "log": True, "pools": True}}
    models = (await ada.http.get("/v1/models")).json()
    assert models["object"] == "list"
    assert [(model["id"], model["status"], model["allowed"]) for model in models["data"]] == [
        ("quick", "ready", True),
        ("slow", "ready", True),
    ]
    assert [(model["price"], model["loading"]) for model in models["data"]] == [(None, None), (None, None)]


async def test_the_web_client(gateway: Gateway, tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><title>chat</title>")
    (tmp_path / "assets" / "app-1a2b.js").write_text("let a = 1")
    (tmp_path / "assets" / "app-1a2b.js.br").write_bytes(b"brotli")
    (tmp_path / "assets" / "app-1a2b.js.gz").write_bytes(b"gzip")
    (tmp_path / "secret").symlink_to("/etc/hostname")
    site = Site(gateway, static_dir=tmp_path)
    await site.open()
    try:
        client = site.client(**{"Accept-Encoding": "identity"})
        for path in ("/", "/?token=abc", "/c/conv_0193b5a0-0000-7000-8000-000000000000"):
            page = await client.get(path)
            assert (page.status_code, page.text) == (200, "<!doctype html><title>chat</title>")
            assert page.headers["cache-control"] == "no-cache"
        script = await client.get("/assets/app-1a2b.js")
        assert script.headers["content-type"] == "text/javascript; charset=utf-8"
        assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert (await client.head("/")).status_code == 200
        for accepted, encoding, content in (("gzip, br", "br", b"brotli"), ("gzip", "gzip", b"gzip"), ("br;q=0", None, b"let a = 1")):
            async with client.stream("GET", "/assets/app-1a2b.js", headers={"Accept-Encoding": accepted}) as answer:
                raw = b"".join([chunk async for chunk in answer.aiter_raw()])
            assert (answer.headers.get("content-encoding"), raw) == (encoding, content)
        for path in ("/assets/..%2findex.html", "/assets/%2e%2e/index.html", "/assets//app-1a2b.js", "/c/../../etc/passwd", "/secret"):
            assert (await client.get(path)).status_code == 404
    finally:
        await site.close()


async def test_without_a_built_client_a_page_says_so(site: Site) -> None:
    page = await site.client().get("/")
    assert page.status_code == 200
    assert "make setup" in page.text


async def test_an_unexpected_error_tells_nothing(site: Site, ada: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret path /srv/x")

    monkeypatch.setattr(type(site.services.conversations), "page", broken)
    answer = await ada.http.get("/v1/conversations")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8484", 200),
        ("app.localhost:80", 200),
        ("127.0.0.1", 200),
        ("127.8.9.10:1", 200),
        ("[::1]:8484", 200),
        ("evil.example", 403),
        ("evil.example:8484", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("evil@127.0.0.1", 403),
        ("evil/localhost", 403),
        ("0.0.0.0", 403),
        ("192.168.1.2", 403),
        ("[::1", 403),
        ("", 403),
    ],
)
async def test_another_sites_name_for_this_machine_is_refused(site: Site, host: str, status: int) -> None:
    for path in ("/healthz", "/", "/v1/me"):
        answer = await site.client().get(path, headers={"Host": host})
        assert (answer.status_code == 403) is (status == 403), path
        if status == 403:
            assert (answer.json()["code"], answer.headers["content-type"]) == ("forbidden", "application/problem+json")


@pytest.mark.parametrize(("public_url", "loopback"), [("", False), ("http://chat.example", True)])
async def test_a_server_with_a_name_or_on_a_network_takes_any(gateway: Gateway, public_url: str, loopback: bool) -> None:
    site = Site(gateway, public_url=public_url, loopback=loopback)
    await site.open()
    try:
        assert (await site.client().get("/healthz", headers={"Host": "chat.example"})).status_code == 200
    finally:
        await site.close()


async def test_a_request_names_its_host_once(site: Site) -> None:
    for head, status in ((b" HTTP/1.1\r\n", b"400"), (b" HTTP/1.1\r\nhost: localhost\r\nhost: x\r\n", b"400"), (b" HTTP/1.0\r\n", b"200")):
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        writer.write(b"GET /healthz" + head + b"connection: close\r\n\r\n")
        async with asyncio.timeout(30):
            answer = await reader.read()
        writer.close()
        assert answer.split(b" ")[1] == status, answer


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/openapi.json"])
async def test_monitors_may_ask_with_head(site: Site, ada: Person, path: str) -> None:
    answer = await ada.http.head(path)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"] == (await ada.http.get(path)).headers["content-type"]
    assert (await ada.http.head("/v1/none")).status_code == 404


async def test_a_store_that_takes_no_writes_is_not_ready_until_it_does(site: Site, ada: Person) -> None:
    takes_writes = False

    async def ask() -> bool:
        return takes_writes

    before, site.services.state.store_takes_writes = site.services.state.store_takes_writes, ask
    try:
        answer = await ada.http.get("/readyz")
        assert (answer.status_code, answer.json()["checks"]["store"]) == (503, False)
        takes_writes = True
        assert (await ada.http.get("/readyz")).status_code == 200
    finally:
        site.services.state.store_takes_writes = before
