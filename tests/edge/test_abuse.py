"""An admin's word on accounts under suspicion."""

from __future__ import annotations

from antiphon.core.abuse import Case, CaseState, Signal
from antiphon.core.tenancy import UserRole
from antiphon.stores.conversations.base import Owner
from tests.edge.site import Site


async def test_a_case_is_listed_decided_on_and_told_in_the_audit(site: Site) -> None:
    ada = await site.person("mallory")
    admin = await site.person("admin of cases", role=UserRole.ADMIN)
    now = site.clock.now()
    case = Case(ada.user.tenant_id, ada.user.id, CaseState.THROTTLED, 0.84, (Signal("fan_out", 1.0),), now)
    await site.services.cases.put(case, Owner(ada.user.tenant_id, ada.user.id), "abuse.throttle", now=now, by_server=True)
    (listed,) = (await admin.http.get("/v1/admin/abuse")).json()["data"]
    assert (listed["user_id"], listed["state"], listed["score"], listed["reviewed_by"]) == (ada.user.id, "throttled", 0.84, None)
    assert listed["signals"] == [{"name": "fan_out", "level": 1.0}]
    cleared = await admin.http.put(f"/v1/admin/abuse/{ada.user.id}", json={"state": "clear", "trusted_days": 3})
    assert cleared.status_code == 200
    assert (cleared.json()["state"], cleared.json()["reviewed_by"]) == ("clear", admin.user.id)
    assert cleared.json()["trusted_until"] > cleared.json()["since"]
    again = await admin.http.put(f"/v1/admin/abuse/{ada.user.id}", json={"state": "throttled"})
    assert (again.json()["state"], again.json()["trusted_until"]) == ("throttled", None)
    told = [(entry["action"], entry["user_id"]) for entry in (await admin.http.get("/v1/admin/audit")).json()["data"]]
    assert told[:3] == [("abuse.uphold", admin.user.id), ("abuse.clear", admin.user.id), ("abuse.throttle", None)]


async def test_nobody_decides_on_who_is_not_theirs_to_manage(site: Site) -> None:
    ada = await site.person("eve")
    admin, owner = await site.person("admin two", role=UserRole.ADMIN), await site.person("owner two", role=UserRole.OWNER)
    assert (await admin.http.put(f"/v1/admin/abuse/{owner.user.id}", json={"state": "throttled"})).status_code == 403
    assert (await ada.http.put(f"/v1/admin/abuse/{ada.user.id}", json={"state": "clear"})).status_code == 403
    for body in ({}, {"state": "flagged"}, {"state": "clear", "trusted_days": 0}, {"state": "clear", "why": "x"}):
        assert (await admin.http.put(f"/v1/admin/abuse/{ada.user.id}", json=body)).status_code == 422
    unknown = ada.user.id[:-12] + "0" * 12
    assert (await admin.http.put(f"/v1/admin/abuse/{unknown}", json={"state": "clear"})).status_code == 404
