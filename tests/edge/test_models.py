"""What the list of models tells."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from antiphon.core.money import Price, PriceList
from antiphon.core.tenancy import UserRole
from antiphon.inference.load_limit import LoadLimit
from antiphon.inference.residency import Residency
from antiphon.orchestrator import turn
from tests.edge.site import Person, Site
from tests.inference.requests import open_gateway, reference_pool


async def test_models_tell_the_price_in_force(ada: Person, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    past, now = datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)
    prices = {
        "reference-quick": [Price(past, Decimal(9), None, Decimal(9)), Price(now, Decimal("0.40"), Decimal("0.1"), Decimal("1.6E+1"))],
        "slow": [Price(now, accelerator_hour=Decimal(2))],
    }
    monkeypatch.setattr(site.services.allowances, "prices", PriceList(prices))
    models = (await ada.http.get("/v1/models")).json()["data"]
    assert [model["price"] for model in models] == [{"input": "0.40", "cached_input": "0.1", "output": "16"}, None]


@pytest.mark.slow
async def test_a_turn_whose_model_hangs_as_it_loads_ends_in_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "queue_deadline_s", lambda _plan: 1.0)
    pools = [replace(reference_pool(name, model=f"model-{name}"), load_limit=LoadLimit(0.0, 3.0, 3.0)) for name in ("quick", "slow")]
    async with open_gateway(tmp_path, *pools, residency=Residency(100, {"quick": 60, "slow": 60}, tenure_s=0.3)) as gateway:
        site = Site(gateway)
        await site.open()
        try:
            admin = await site.person("olga", role=UserRole.ADMIN)
            sent = await admin.send(await admin.conversation(), model="slow")
            reading = asyncio.create_task(admin.read(sent["generation_id"]))
            hung: set[int] = set()
            while not reading.done():
                loading = {one.pid for one in gateway.replicas("slow") if one.pid is not None and one.state == "loading"}
                for pid in loading - hung:
                    os.kill(pid, signal.SIGSTOP)
                hung |= loading
                await asyncio.sleep(0.01)
            events = await reading
            assert [event.name for event in events if event.name in {"done", "error"}] == ["error"]
            failed = json.loads(events[-1].data)
            assert (failed["code"], failed["retryable"]) == ("queue_timeout", True)
            assert failed["message"].startswith("The model could not be loaded.")
            assert sum('"starting"' in event.data for event in events) >= 3, "it hears where it stands meanwhile"
            assert len(hung) == 2
            told = {pool["name"]: pool["trouble"] for pool in (await admin.http.get("/v1/admin/pools")).json()}
            assert told["quick"] is None and "had not finished loading after" in told["slow"]
        finally:
            await site.close()
