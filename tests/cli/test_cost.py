"""``antiphon cost``: sums of the ledger, and levers with their sources; what is unknown is said to be."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from antiphon.app.config import Flags, load_config
from antiphon.app.wiring import open_stores
from antiphon.core.ids import UserId
from antiphon.core.usage import UsageRecord
from tests.cli.conftest import Antiphon
from tests.contracts.test_usage import record

CONFIG = """
[[pools]]
name = "small"
engine = "reference"
model = "m"
[[pools]]
name = "large"
engine = "reference"
model = "l"
[[prices]]
model = "small"
input = "1"
cached_input = "0.25"
output = "2"
accelerator_hour = "3.6"
[[prices]]
model = "large"
input = "10"
output = "20"
"""
BENCH = {
    "name": "first_answer",
    "machine": "two cores",
    "commit": "abc",
    "results": {"output_tok_s_1": 40.0, "output_tok_s_8": 150.0},
    "ratios": {},
}


def priced(number: int, cost: str | None, **changes: object) -> UsageRecord:
    one = record(number, at=datetime.now(UTC), cost=cost)
    return replace(one, **changes)  # type: ignore[arg-type]


def kept(antiphon: Antiphon, tmp_path: Path, records: list[UsageRecord]) -> list[str]:
    """The ledger holds ``records`` of the home tenant; the flags that lead to it."""
    file = tmp_path / "antiphon.toml"
    file.write_text(CONFIG)
    flags = ["--config", str(file), "--data", str(tmp_path / "data")]
    tenant = json.loads(antiphon("users", "list", "--json", *flags).out or "[]")
    assert tenant is not None
    antiphon("users", "create", "ada", *flags)
    (home,) = json.loads(antiphon("tenants", "list", "--json", *flags).out)

    async def put() -> None:
        async with open_stores(load_config(Flags(config=file, data=tmp_path / "data"), os.environ)) as stores:
            await stores.ledger.put([replace(one, tenant_id=home["id"]) for one in records])

    asyncio.run(put())
    return flags


def test_costs_add_up_and_levers_name_their_sources(antiphon: Antiphon, tmp_path: Path) -> None:
    records = [priced(number, "0.001", user_id=UserId("user_u1")) for number in range(3)]
    records.append(priced(3, "0.001", requested_model="large", user_id=UserId("user_u2")))
    flags = kept(antiphon, tmp_path, records)
    bench = tmp_path / "bench.json"
    bench.write_text("progress\n" + json.dumps(BENCH) + "\n")
    found = json.loads(antiphon("cost", "--json", "--measured", str(bench), *flags).out)
    assert (found["total"]["messages"], found["total"]["cost"], found["total"]["cost_per_message"]) == (4, "0.004", "0.001")
    assert Decimal(found["total"]["cost_per_1000_tokens"]) == (Decimal("0.004") * 1000 / 60).quantize(Decimal("0.000000001"))
    assert found["total"]["accelerator_cost"] == "0.00016"
    assert {row["user"]: row["cost"] for row in found["users"]} == {"user_u1": "0.003", "user_u2": "0.001"}
    levers = {lever["lever"]: lever for lever in found["levers"]}
    assert (levers["batching"]["factor"], levers["batching"]["source"]) == ("3.75", "first_answer, commit abc, two cores")
    assert levers["prefix hits"]["saves"] == "0.000012"
    asked = Decimal("0.0002") - Decimal("0.001")
    assert Decimal(levers["routing to a smaller model"]["saves"]) == asked
    assert levers["quantised weights"]["factor"] is None
    assert "no measurement" in levers["quantised weights"]["why"]
    assert "COST_PER_MESSAGE" in antiphon("cost", *flags).out


def test_what_has_no_price_is_unknown_and_never_free(antiphon: Antiphon, tmp_path: Path) -> None:
    flags = kept(antiphon, tmp_path, [priced(0, None), priced(1, "0.5"), priced(2, None, pool="large", model="l")])
    found = json.loads(antiphon("cost", "--json", *flags).out)
    total = found["total"]
    assert (total["messages"], total["unpriced"], total["cost"], total["cost_per_message"]) == (3, 2, "0.5", "0.5")
    assert total["cost_per_1000_tokens"] is None
    assert total["accelerator_cost"] is None
    assert {row["pool"]: row["cost"] for row in found["models"]} == {"large": None, "small": "0.5"}


def test_a_file_that_is_no_result_is_one_sentence(antiphon: Antiphon, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("nothing")
    outcome = antiphon("cost", "--measured", str(tmp_path / "x"))
    assert outcome.code == 1
    assert "holds no benchmark's result" in outcome.err


def test_what_is_no_figure_is_none_of_a_measurement(antiphon: Antiphon, tmp_path: Path) -> None:
    flags = ["--data", str(tmp_path / "data"), "--measured", str(tmp_path / "x")]
    hostile = '{"output_tok_s_1": NaN, "output_tok_s_8": "8", "quantised_cache_tok_s_ratio": null, "quantised_weights_tok_s_ratio": 1e400}'
    (tmp_path / "x").write_text(json.dumps({**BENCH, "results": "here"}).replace('"here"', hostile))
    levers = json.loads(antiphon("cost", "--json", *flags).out)["levers"]
    assert all(lever["factor"] is None for lever in levers)
    for nothing in ("[" * 100_000, json.dumps({**BENCH, "results": [1]}), json.dumps({**BENCH, "results": {"x": 10**400}})):
        (tmp_path / "x").write_text(nothing)
        outcome = antiphon("cost", *flags)
        assert (outcome.code, "holds no benchmark's result" in outcome.err) == (1, True)
    for days in ("abc", "0", "036600", "-1", "\u0663"):
        outcome = antiphon("cost", "--days", days)
        assert (outcome.code, "must be 1 to 3660" in outcome.err) == (2, True)


def test_a_packed_cache_is_worth_the_tokens_that_it_holds_too(antiphon: Antiphon, tmp_path: Path) -> None:
    ratios = {"quantised_cache_tok_s_ratio": 0.94, "quantised_cache_tokens_held_ratio": 1.685}
    (tmp_path / "x").write_text(json.dumps({**BENCH, "ratios": ratios}))
    found = json.loads(antiphon("cost", "--json", "--data", str(tmp_path / "data"), "--measured", str(tmp_path / "x")).out)
    (lever,) = (lever for lever in found["levers"] if lever["lever"] == "quantised cache")
    assert (lever["factor"], "1.685 times as many tokens" in lever["why"]) == ("0.94", True)
