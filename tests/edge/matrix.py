"""The authorisation matrix: every route of the server's own document × every kind of caller × every way to carry a credential.

``Matrix.judge`` asks the real server over a real connection and returns what it found wrong, one sentence each. A route that the
table of rules does not know is such a finding, and so is a rule without a route.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

import httpx

from antiphon.core.ids import IdKind, TenantId, UserId
from antiphon.core.tenancy import ApiKey, Scope, Tenant, User, UserRole
from antiphon.edge.auth import new_api_key
from antiphon.edge.pool_desk import AddedPool
from tests.edge.access_table import RULES, Access, Rule
from tests.edge.site import Site

CANARY = "canary"
ALL = "{conversation_id} {memory_id} {key_id} {session_id}"
Headers = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Someone:
    """A person with a key of every scope their role has, and a session."""

    user: User
    key: str
    cookie: str

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    @property
    def session(self) -> dict[str, str]:
        return {"Cookie": self.cookie}


@dataclass(frozen=True, slots=True)
class Cell:
    """One caller as a row of the matrix has it."""

    name: str
    headers: Headers
    query: Headers


class Matrix:
    """The people, their belongings, and the questions. ``only`` limits the routes, for a hole that concerns few."""

    def __init__(self, site: Site, *, only: Callable[[str], bool] = lambda route: True) -> None:
        self._site = site
        self._only = only
        self._found: list[str] = []
        self._numbers = itertools.count()
        self.asked = 0
        self.covered: set[str] = set()

    async def judge(self) -> list[str]:
        """Everything that is not as the table says."""
        await self._meet()
        document = (await self._http.get("/openapi.json")).json()
        routes = {f"{method.upper()} {path}" for path, operations in document["paths"].items() for method in operations}
        routes |= {"GET /openapi.json", "GET /docs"}
        self._found += [f"{route}: is in no rule" for route in sorted(routes - RULES.keys()) if self._only(route)]
        self._found += [f"{route}: is in the table only" for route in sorted(RULES.keys() - routes) if self._only(route)]
        before = self._standing_of_victim()
        for route in sorted(routes & RULES.keys()):
            if self._only(route):
                await self._judge_route(route, RULES[route])
                self.covered.add(route)
        if self._standing_of_victim() != before:
            self._found.append("what belongs to the victim has changed")
        return self._found

    # --- people --------------------------------------------------------------------------------------

    async def _meet(self) -> None:
        site = self._site
        self._http = site.client()
        here, there = site.tenant, Tenant(TenantId(site.ids.new(IdKind.TENANT)), f"elsewhere {next(self._numbers)}", site.clock.now())
        await site.accounts.create_tenant(there)
        self._victim = await self._someone(here, UserRole.MEMBER)
        self._things = await self._belongings(self._victim, text=CANARY) | {
            "user_id": self._victim.user.id,
            "provider": "none",
            "pool": "none",
        }
        self._roles = {role.value: await self._someone(here, role) for role in UserRole}
        self._foreign = {
            "other tenant": await self._someone(there, UserRole.OWNER),
            "same tenant's other user": await self._someone(here, UserRole.MEMBER),
            "same tenant's admin": await self._someone(here, UserRole.ADMIN),
            "same tenant's owner": await self._someone(here, UserRole.OWNER),
        }
        self._disabled = await self._someone(here, UserRole.OWNER)
        await site.accounts.disable_user(self._disabled.user.id)
        self._left = await self._someone(here, UserRole.OWNER)
        assert (await self._http.delete("/v1/session", headers=self._left.session)).status_code == 204

    async def _someone(self, tenant: Tenant, role: UserRole) -> Someone:
        site = self._site
        name = f"{role.value} {next(self._numbers)}"
        user = User(UserId(site.ids.new(IdKind.USER)), tenant.id, name, role, "free", False, site.clock.now())
        await site.accounts.create_user(user)
        answer = await self._http.post("/v1/session", json={"token": await site.link(user)})
        self._http.cookies.clear()
        return Someone(user, await self._key(user, frozenset(Scope)), answer.headers["set-cookie"].partition(";")[0])

    async def _key(self, user: User, scopes: frozenset[Scope]) -> str:
        key_id, text, sha256, last4 = new_api_key(self._site.ids)
        key = ApiKey(key_id, user.tenant_id, user.id, "matrix", scopes, last4, self._site.clock.now())
        await self._site.accounts.create_key(key, sha256)
        return text

    async def _belongings(self, person: Someone, named: str = ALL, *, text: str = "mine") -> dict[str, str]:
        """One of each thing whose name stands in ``named``."""
        http, headers = self._http, person.session
        things: dict[str, str] = {}
        if any(f"{{{name}}}" in named for name in ("conversation_id", "message_id", "generation_id", "share_id", "token")):
            things |= await self._conversation(headers, text)
        if "{session_id}" in named:
            await http.post("/v1/session", json={"token": await self._site.link(person.user)})
            http.cookies.clear()
            sessions = (await http.get("/v1/me/sessions", headers=headers)).json()["data"]
            things["session_id"] = next(one["id"] for one in sessions if not one["current"])
        if "{user_id}" in named:
            things["user_id"] = (await self._someone(self._site.tenant, UserRole.MEMBER)).user.id
        if "{pool}" in named:
            pool = AddedPool(f"pool-{next(self._numbers)}", "quick", f"{self._site.url}/v1")
            things["pool"] = (await self._site.services.pools.add(self._site.tenant.id, pool, self._roles["owner"].key)).name
        if "{memory_id}" in named:
            things["memory_id"] = (await http.post("/v1/me/memory", json={"text": text}, headers=headers)).json()["id"]
        if "{key_id}" in named:
            things["key_id"] = (await http.post("/v1/keys", json={"name": text, "scopes": ["chat"]}, headers=headers)).json()["id"]
        return things

    async def _conversation(self, headers: Headers, text: str) -> dict[str, str]:
        http = self._http
        conversation = (await http.post("/v1/conversations", json={"title": text}, headers=headers)).json()["id"]
        body = {"content": text, "model": "quick", "params": {"max_tokens": 2}}
        told = {**headers, "Accept": "application/json"}
        sent = (await http.post(f"/v1/conversations/{conversation}/messages", json=body, headers=told)).json()
        await http.get(f"/v1/generations/{sent['generation_id']}/stream", headers=headers)
        share = (await http.post(f"/v1/conversations/{conversation}/share", headers={**headers, "Content-Type": "application/json"})).json()
        return {
            "conversation_id": conversation,
            "message_id": sent["message_id"],
            "generation_id": sent["generation_id"],
            "share_id": share["id"],
            "token": share["url"].rpartition("/")[2],
        }

    def _standing_of_victim(self) -> tuple[object, ...]:
        state, things = self._site.state, self._things
        conversation = things["conversation_id"]
        return (
            {name: one for name, one in state.conversations.items() if name == conversation},
            [message for message in state.messages.values() if message.conversation_id == conversation],
            [kept.updated_at for (user, _), kept in state.feedback.items() if user == self._victim.user.id],
            conversation in state.deleted,
            [share for share in state.shares.values() if share.conversation_id == conversation],
            state.personal.get((self._victim.user.tenant_id, self._victim.user.id)),
            len([one for one in state.sessions.values() if one.user_id == self._victim.user.id]),
            self._victim.user.id in state.passwords,
            state.users[self._victim.user.id],
        )

    # --- questions -----------------------------------------------------------------------------------

    async def _judge_route(self, route: str, rule: Rule) -> None:
        if rule.access is Access.PUBLIC:
            await self._expect(route, rule, Cell("anonymous", {}, {}), self._things, {rule.anonymous})
            return
        async for cell in self._strangers():
            await self._expect(route, rule, cell, self._things, {401})
        await self._judge_scopes(route, rule)
        await self._judge_forgery(route, rule)
        await self._judge_foreigners(route, rule)
        await self._judge_roles(route, rule)

    async def _strangers(self) -> AsyncIterator[Cell]:
        """Callers that nobody knows, and everybody's credentials where no credential belongs."""
        yield Cell("anonymous", {}, {})
        for who, person in (("disabled user", self._disabled), ("ended session", self._left)):
            yield Cell(f"{who}, cookie", person.session, {})
            if who == "disabled user":
                yield Cell(f"{who}, bearer", person.bearer, {})
        owner = self._roles["owner"]
        token = owner.cookie.partition("=")[2]
        basic = base64.b64encode(f"{owner.user.name}:{owner.key}".encode()).decode()
        for name in ("X-API-Key", "Api-Key", "X-Auth-Token", "Proxy-Authorization", "X-Antiphon-Key"):
            yield Cell(f"key in {name}", {name: owner.key}, {})
        for scheme in ("Basic", "Token", "ApiKey", "Bearer:"):
            yield Cell(f"key as {scheme}", {"Authorization": f"{scheme} {basic if scheme == 'Basic' else owner.key}"}, {})
        yield Cell("key as cookie", {"Cookie": f"antiphon_session={owner.key}"}, {})
        yield Cell("session as bearer", {"Authorization": f"Bearer {token}"}, {})
        yield Cell("session under another cookie", {"Cookie": f"__Host-antiphon_session={token}"}, {})
        for name in ("key", "api_key", "apikey", "token", "access_token", "authorization"):
            yield Cell(f"key in ?{name}=", {}, {name: owner.key})
        for name in ("token", "antiphon_session"):
            yield Cell(f"session in ?{name}=", {}, {name: token})
        forged = base64.b64encode(json.dumps({"user_id": owner.user.id, "role": "owner"}).encode()).decode()
        for name in ("X-Forwarded-User", "X-User-Id", "Remote-User", "X-Forwarded-Email"):
            yield Cell(f"a name in {name}", {name: owner.user.id}, {})
        for name in ("X-Auth", "X-Antiphon-User"):
            yield Cell(f"a claim in {name}", {name: forged}, {})
        yield Cell("bad key beside a good session", {**owner.session, "Authorization": f"Bearer {owner.key[:-1]}x"}, {})

    async def _judge_scopes(self, route: str, rule: Rule) -> None:
        owner = self._roles["owner"]
        if rule.access is Access.BROWSER:
            await self._expect(route, rule, Cell("a key of every scope", owner.bearer, {}), self._things, {403})
        needed = rule.access.scope
        if needed is not None:
            less = await self._key(owner.user, frozenset(scope for scope in Scope if scope.value != needed))
            await self._expect(route, rule, Cell(f"key without {needed}", {"Authorization": f"Bearer {less}"}, {}), self._things, {403})
        for role in {"member", "admin", "owner"} - rule.access.roles:
            for way, headers in (("cookie", self._roles[role].session), ("bearer", self._roles[role].bearer)):
                await self._expect(route, rule, Cell(f"{role}, {way}", headers, {}), self._things, {403})

    async def _judge_forgery(self, route: str, rule: Rule) -> None:
        """A cookie's write that another site caused."""
        if route.startswith("GET "):
            return
        session = self._victim.session if rule.access is not Access.ADMIN else self._roles["owner"].session
        for name, headers in (
            ("other origin", {"Origin": "https://evil.example"}),
            ("null origin", {"Origin": "null"}),
            ("cross-site fetch", {"Sec-Fetch-Site": "cross-site"}),
            ("sibling site", {"Sec-Fetch-Site": "same-site"}),
        ):
            await self._expect(route, rule, Cell(name, {**session, **headers}, {}), self._things, {403})
        if not route.startswith("DELETE ") and not rule.upload:
            await self._expect(route, rule, Cell("form", {**session, "Content-Type": "text/plain"}, {}), self._things, {415})

    async def _judge_foreigners(self, route: str, rule: Rule) -> None:
        """Others with all their own rights, at the victim's things."""
        if "{" not in route and not any("{" in value for value in rule.query.values()):
            return
        for who, person in self._foreign.items():
            if rule.by_admins and who in {"same tenant's admin", "same tenant's owner"}:
                spare = await self._belongings(self._victim, route)
                await self._expect(route, rule, Cell(who, person.session, {}), spare, {200, 201, 204})
                continue
            for way, headers in (("cookie", person.session), ("bearer", person.bearer)):
                if way == "bearer" and rule.access is Access.BROWSER:
                    continue
                allowed = {404} if person.user.role.value in rule.access.roles else {403}
                if rule.access is Access.NO_LESSER_KEY and way == "bearer" and person.user.role is UserRole.MEMBER:
                    allowed = {403}
                await self._expect(route, rule, Cell(f"{who}, {way}", headers, {}), self._things, allowed)

    async def _judge_roles(self, route: str, rule: Rule) -> None:
        """Everybody who may, at their own things."""
        for role in sorted(rule.access.roles):
            for way in ("cookie", "bearer"):
                person = self._roles[role]
                if rule.ends:
                    person = await self._someone(self._site.tenant, UserRole(role))
                refused = way == "bearer" and (rule.access is Access.BROWSER or (rule.access is Access.NO_LESSER_KEY and role == "member"))
                things = await self._belongings(person, f"{route} {rule.query}")
                headers = person.session if way == "cookie" else person.bearer
                await self._expect(route, rule, Cell(f"{role}, {way}", headers, {}), things, {403} if refused else {200, 201, 202, 204})

    async def _expect(self, route: str, rule: Rule, cell: Cell, things: Mapping[str, str], allowed: set[int]) -> None:
        method, _, path = route.partition(" ")
        headers = dict(cell.headers)
        content: bytes | None = None
        files: dict[str, tuple[str, bytes]] | None = None
        if rule.upload:
            files = {"file": ("export.jsonl", self._stolen_export())}
            headers.setdefault("Sec-Fetch-Site", "same-origin")
        elif method not in {"GET", "DELETE"}:
            content = b"" if rule.body is None else self._filled(rule.body)
            headers.setdefault("Content-Type", "application/json")
        query = {name: value.format_map(things) for name, value in rule.query.items()} | dict(cell.query)
        request = self._http.build_request(method, path.format_map(things), params=query, content=content, files=files, headers=headers)
        answer = await self._http.send(request)
        self._http.cookies.clear()
        self.asked += 1
        if answer.status_code not in allowed:
            self._found.append(f"{route}: {cell.name} gets {answer.status_code}, not {sorted(allowed)}")
        self._look_for_leaks(route, cell, answer, things)

    def _filled(self, body: dict[str, object]) -> bytes:
        """A body as it is sent: with a name that nothing has yet, and for an OpenAI-compatible server the site itself."""
        text = json.dumps(body).replace("unique", f"unique-{next(self._numbers)}")
        return text.replace("https://site", self._site.url).replace("key-of-site", self._roles["owner"].key).encode()

    def _look_for_leaks(self, route: str, cell: Cell, answer: httpx.Response, things: Mapping[str, str]) -> None:
        """Nobody but the victim may be shown the victim's text; what is shared is shown to all, and searched words are echoed."""
        if RULES[route].access is Access.PUBLIC or cell.headers.get("Cookie") == self._victim.cookie:
            return
        if RULES[route].by_admins and cell.name.partition(",")[0] in {"admin", "owner"}:
            return  # they manage it, and see the name that its holder gave it
        shown = answer.text.replace('"q":"canary"', "")
        if CANARY in shown:
            self._found.append(f"{route}: {cell.name} is shown what belongs to the victim")
        if route == "POST /v1/import" and answer.status_code == 200:
            taken = [line["id"] for line in answer.json()["conversations"]]
            if self._things["conversation_id"] in taken:
                self._found.append(f"{route}: {cell.name} imports into the victim's conversation")

    def _stolen_export(self) -> bytes:
        """A file in our format that names the victim's conversation, messages and user as its own."""
        things, at = self._things, "2026-01-01T00:00:00.000Z"
        message = {
            "id": things["message_id"], "conversation_id": things["conversation_id"], "parent_id": None, "role": "user",
            "content": f"planted {next(self._numbers)}", "status": "complete", "created_at": at,
        }  # fmt: skip
        head = {
            "id": things["conversation_id"], "title": "planted", "created_at": at, "updated_at": at, "user_id": self._victim.user.id,
            "tenant_id": self._victim.user.tenant_id, "current_leaf_id": things["message_id"], "messages": [message],
        }  # fmt: skip
        fresh = {**head, "id": self._site.ids.new(IdKind.CONVERSATION)}
        return b'{"antiphon_export":1}\n' + json.dumps(head).encode() + b"\n" + json.dumps(fresh).encode() + b"\n"
