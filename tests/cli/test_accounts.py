"""keys, users, tenants, link: what they print, and what the store then holds."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from antiphon.core.ids import IdKind, is_id
from antiphon.edge.auth import parse_api_key
from tests.cli.conftest import Antiphon


def test_a_key_is_alone_on_stdout_and_listed_without_its_secret(antiphon: Antiphon) -> None:
    created = antiphon("keys", "create", "--name", "laptop")
    assert created.code == 0
    assert re.fullmatch(r"ak_[A-Za-z0-9_-]+\n", created.out)
    parsed = parse_api_key(created.out.strip())
    assert parsed is not None
    (listed,) = json.loads(antiphon("keys", "list", "--json").out)
    assert listed["id"] == parsed[0]
    assert (listed["name"], listed["scopes"], listed["revoked_at"]) == ("laptop", ["chat", "usage"], None)
    assert created.out.strip() not in antiphon("keys", "list").out


def test_a_key_for_a_folder_that_no_server_has_used_says_so(antiphon: Antiphon, tmp_path: Path) -> None:
    first, second = antiphon("keys", "create", "--name", "a"), antiphon("keys", "create", "--name", "b")
    assert str(tmp_path / ".local/share/antiphon") in first.err
    assert re.fullmatch(r"ak_[A-Za-z0-9_-]+\n", first.out)
    assert second.err == ""
    assert antiphon("keys", "create", "--name", "c", "--data", str(tmp_path / "named")).err == ""


def test_who_runs_a_server_without_plans_is_slowed_by_none(antiphon: Antiphon) -> None:
    antiphon("users", "create", "ada")
    rows = json.loads(antiphon("users", "list", "--json").out)
    assert {row["name"]: row["plan"] for row in rows} == {"owner": "owner", "ada": "free"}


def test_a_key_of_a_user_with_scopes_is_revoked(antiphon: Antiphon) -> None:
    user = antiphon("users", "create", "ada", "--role", "admin").out.strip()
    assert is_id(user, IdKind.USER)
    antiphon("keys", "create", "--name", "own")
    antiphon("keys", "create", "--name", "a", "--user", "ada", "--scopes", "admin, metrics")
    (listed,) = json.loads(antiphon("keys", "list", "--user", user, "--json").out)
    assert (listed["user_id"], listed["scopes"]) == (user, ["admin", "metrics"])
    assert antiphon("keys", "revoke", listed["id"]).code == 0
    rows = json.loads(antiphon("keys", "list", "--json").out)
    assert {row["name"]: row["revoked_at"] is not None for row in rows} == {"own": False, "a": True}


@pytest.mark.parametrize(
    "arguments",
    [
        ["keys", "create", "--name", "x", "--user", "nobody"],
        ["keys", "revoke", "key_0"],
        ["users", "disable", "nobody"],
        ["users", "create", "bo", "--tenant", "nowhere"],
        ["users", "create", "bo", "--plan", "gold"],
        ["link", "--user", "nobody"],
    ],
)
def test_what_does_not_exist_is_one_sentence_and_exit_code_1(arguments: list[str], antiphon: Antiphon) -> None:
    outcome = antiphon(*arguments)
    assert (outcome.code, outcome.out) == (1, "")
    assert re.fullmatch(r"antiphon: .+\n", outcome.err)


def test_a_name_does_not_steer_the_terminal(antiphon: Antiphon) -> None:
    antiphon("users", "create", "\x1b]0;x\x07\x9b31m\nada")
    (heading, _, row) = antiphon("users", "list").out.splitlines()
    assert heading.startswith("ID") and "\N{REPLACEMENT CHARACTER}31m ada" in row and not re.search(r"[\x00-\x1f\x7f-\x9f]", row)


def test_unknown_scopes_are_usage(antiphon: Antiphon) -> None:
    outcome = antiphon("keys", "create", "--name", "x", "--scopes", "chat,root")
    assert outcome.code == 2
    assert "scopes are chat, usage, admin, metrics" in outcome.err


def test_users_of_tenants(antiphon: Antiphon) -> None:
    tenant = antiphon("tenants", "create", "acme").out.strip()
    assert is_id(tenant, IdKind.TENANT)
    first = antiphon("users", "create", "ada", "--tenant", "acme").out.strip()
    assert antiphon("users", "create", "ada", "--tenant", tenant).code == 1
    assert antiphon("users", "create", "ada").code == 0
    assert antiphon("users", "disable", first).code == 0
    (row,) = json.loads(antiphon("users", "list", "--tenant", "acme", "--json").out)
    assert (row["id"], row["role"], row["plan"], row["disabled"]) == (first, "member", "free", True)
    assert antiphon("users", "list").out.splitlines()[0].split()[:2] == ["ID", "NAME"]
    assert {row["name"] for row in json.loads(antiphon("tenants", "list", "--json").out)} == {"acme", "home"}


def test_a_link_leads_to_the_server_that_runs(antiphon: Antiphon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:8484/\?token=[\w-]{43}\n", antiphon("link").out)
    data = tmp_path / ".local" / "share" / "antiphon"
    (data / "serve.lock").write_text(f"{os.getpid()}\nhttp://127.0.0.1:9009\n", encoding="utf-8")
    assert antiphon("link").out.startswith("http://127.0.0.1:9009/?token=")
    (data / "serve.lock").write_text("99999999\nhttp://127.0.0.1:9009\n", encoding="utf-8")
    assert antiphon("link").out.startswith("http://127.0.0.1:8484/?token=")
    monkeypatch.setenv("ANTIPHON_SERVER__PUBLIC_URL", "https://chat.example")
    assert antiphon("link").out.startswith("https://chat.example/?token=")


def test_the_data_folder_is_the_owners_alone(antiphon: Antiphon, tmp_path: Path) -> None:
    antiphon("keys", "create", "--name", "x", "--data", str(tmp_path / "elsewhere"))
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o700
