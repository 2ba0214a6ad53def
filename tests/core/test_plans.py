from __future__ import annotations

import itertools

from antiphon.core.plans import Plan
from antiphon.core.tenancy import Band


def test_a_keys_band_lowers_its_plans_and_never_lifts_it() -> None:
    for of_plan, of_key in itertools.product(Band, Band):
        plan = Plan("free", band=of_plan)
        assert plan.within(of_key).band is min(of_plan, of_key)
        assert plan.within(None) == plan
