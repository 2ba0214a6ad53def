"""What the list of models tells."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from antiphon.core.money import Price, PriceList
from tests.edge.site import Person, Site


async def test_models_tell_the_price_in_force(ada: Person, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    past, now = datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)
    prices = {
        "reference-quick": [Price(past, Decimal(9), None, Decimal(9)), Price(now, Decimal("0.40"), Decimal("0.1"), Decimal("1.6E+1"))],
        "slow": [Price(now, accelerator_hour=Decimal(2))],
    }
    monkeypatch.setattr(site.services.allowances, "prices", PriceList(prices))
    models = (await ada.http.get("/v1/models")).json()["data"]
    assert [model["price"] for model in models] == [{"input": "0.40", "cached_input": "0.1", "output": "16"}, None]
