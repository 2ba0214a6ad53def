"""The contract of cases: one for an account, changed with its audit entry, and never by who has not seen the last change."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from antiphon.core.abuse import Case, CaseState, Signal
from antiphon.core.errors import Conflict
from antiphon.core.ids import TenantId, UserId
from antiphon.core.tenancy import User
from antiphon.stores.conversations.base import Owner
from tests.contracts.scene import Scene


def case_of(user: User, scene: Scene) -> Case:
    signals = (Signal("fan_out", 1.0), Signal("many_keys", 0.25))
    return Case(user.tenant_id, user.id, CaseState.FLAGGED, 0.625, signals, scene.clock.now())


async def test_a_case_is_kept_whole_and_told_in_the_audit(scene: Scene) -> None:
    tenant = await scene.tenant()
    ann = await scene.user(tenant)
    assert await scene.cases.get(tenant.id, ann.id) is None
    first = case_of(ann, scene)
    by = Owner(tenant.id, ann.id)
    await scene.cases.put(first, by, "abuse.flag", now=scene.clock.now(), by_server=True)
    assert await scene.cases.get(tenant.id, ann.id) == first
    trusted = replace(
        first, state=CaseState.CLEAR, version=2, reviewed_by=UserId("user_admin"), trusted_until=first.since + timedelta(days=7)
    )
    await scene.cases.put(trusted, Owner(tenant.id, UserId("user_admin")), "abuse.clear", now=scene.clock.now())
    assert await scene.cases.open() == await scene.cases.of_tenant(tenant.id) == (trusted,)
    told = (await scene.custody.audit_page(tenant.id, limit=5, after=None)).entries
    assert [(entry.action, entry.subject, entry.user_id) for entry in told] == [
        ("abuse.clear", ann.id, "user_admin"),
        ("abuse.flag", ann.id, None),
    ]


async def test_who_has_not_seen_the_last_change_changes_nothing(scene: Scene) -> None:
    tenant = await scene.tenant()
    ann = await scene.user(tenant)
    first, by = case_of(ann, scene), Owner(tenant.id, ann.id)
    await scene.cases.put(first, by, "abuse.flag", now=scene.clock.now())
    for stale in (first, replace(first, version=3), replace(first, state=CaseState.THROTTLED)):
        with pytest.raises(Conflict):
            await scene.cases.put(stale, by, "abuse.throttle", now=scene.clock.now())
    assert await scene.cases.of_tenant(tenant.id) == (first,)
    assert len((await scene.custody.audit_page(tenant.id, limit=5, after=None)).entries) == 1


async def test_tenants_see_their_own_newest_first(scene: Scene) -> None:
    tenant, other = await scene.tenant(), await scene.tenant("other")
    for name in ("ann", "bob"):
        user = await scene.user(tenant, name)
        await scene.cases.put(case_of(user, scene), Owner(tenant.id, user.id), "abuse.flag", now=scene.clock.now())
        scene.clock.advance(1)
    cid = await scene.user(other, "cid")
    await scene.cases.put(case_of(cid, scene), Owner(other.id, cid.id), "abuse.flag", now=scene.clock.now())
    listed = await scene.cases.of_tenant(tenant.id)
    assert [case.since for case in listed] == sorted((case.since for case in listed), reverse=True)
    assert len(listed) == 2
    assert len(await scene.cases.open()) == 3
    assert await scene.cases.get(other.id, listed[0].user_id) is None
    assert await scene.cases.of_tenant(TenantId("tenant_none")) == ()
