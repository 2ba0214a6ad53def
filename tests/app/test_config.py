"""Configuration: precedence, defaults, and every fault at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.app.config import Config, Flags, load_config
from antiphon.core.errors import ConfigErrors
from antiphon.core.plans import OWNER_PLAN, MessageCap, Plan
from antiphon.core.pools import PoolSpec
from antiphon.core.tenancy import Band
from antiphon.orchestrator.settings import Timing

HOME = {"HOME": "/home/ada"}


def load(text: str, tmp_path: Path, environ: dict[str, str] | None = None) -> Config:
    file = tmp_path / "antiphon.toml"
    file.write_text(text, encoding="utf-8")
    return load_config(Flags(config=file), {**HOME, **(environ or {})})


def faults(text: str, tmp_path: Path, environ: dict[str, str] | None = None) -> dict[str, str]:
    with pytest.raises(ConfigErrors) as caught:
        load(text, tmp_path, environ)
    return dict(caught.value.faults)


def test_nothing_given_is_a_small_pool_and_a_free_plan() -> None:
    config = load_config(Flags(), HOME)
    assert config.pools == (PoolSpec(name="small", model="smollm2-135m-instruct"),)
    assert config.plans == (Plan(name="free"), OWNER_PLAN)
    assert config.timing == Timing()
    assert (config.server.host, config.server.port, config.server.next_free_port) == ("127.0.0.1", 8484, True)
    assert config.data_dir == Path("/home/ada/.local/share/antiphon")
    assert config.models_dir == Path("/home/ada/.cache/antiphon/models")
    assert config.store.sqlite_path == config.data_dir / "antiphon.db"


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text('[server]\nhost = "10.0.0.1"\nport = 1001\n[timing]\nlease_seconds = 7', encoding="utf-8")
    environ = {**HOME, "ANTIPHON_CONFIG": str(file), "ANTIPHON_SERVER__PORT": "1002"}
    assert load_config(Flags(), environ).server.host == "10.0.0.1"
    assert load_config(Flags(), environ).server.port == 1002
    assert load_config(Flags(port=0), environ).server.port == 0
    assert not load_config(Flags(), environ).server.next_free_port
    assert load_config(Flags(), environ).timing.lease_seconds == 7.0
    assert load_config(Flags(data=tmp_path), {**HOME, "ANTIPHON_DATA": "/elsewhere"}).data_dir == tmp_path
    assert load_config(Flags(), {**HOME, "ANTIPHON_DATA": "/elsewhere"}).data_dir == Path("/elsewhere")


def test_the_contracts_example_is_read(tmp_path: Path) -> None:
    config = load(
        """
        [server]
        public_url = "https://chat.example/"
        [defaults]
        plan = "team"
        [[pools]]
        name = "small"
        engine = "reference"
        vocabulary = "nasty"
        blocks = 64
        output_tokens_per_s = 100
        [[pools]]
        name = "large"
        model = "a-model"
        precision = "exact"
        downgrade_to = "small"
        [[plans]]
        name = "team"
        models = ["small", "large"]
        priority = "high"
        caps = [{ model = "large", messages = 20, window_seconds = 10800 }]
        on_abandon = "cancel"
        """,
        tmp_path,
    )
    assert config.server.public_url == "https://chat.example"
    assert config.pools[0] == PoolSpec("small", "reference", "reference", blocks=64, output_tokens_per_s=100.0, vocabulary="nasty")
    assert config.pools[1] == PoolSpec("large", "a-model", precision="exact", downgrade_to="small")
    plans = config.plans_by_name()
    assert plans["team"].band is Band.HIGH
    assert plans["team"].caps == (MessageCap("large", 20, 10800),)
    assert plans["owner"] is plans["team"]


def test_every_fault_is_listed_at_once(tmp_path: Path) -> None:
    found = faults(
        """
        spare = 1
        [server]
        port = 99999
        prot = 1
        [store]
        url = "mysql://db/antiphon"
        [timing]
        heartbeat_seconds = 20
        ping_seconds = "often"
        [[pools]]
        name = "small"
        blocks = 3
        replicas = 0
        [[pools]]
        name = "Grand Pool"
        [[plans]]
        models = ["nowhere"]
        downgrade = "yes"
        caps = [{ model = "nowhere" }]
        """,
        tmp_path,
    )
    assert found == {
        "spare": "unknown section",
        "server.port": "must be between 0 and 65535",
        "server.prot": "unknown key",
        "store.url": "this version takes sqlite: or postgresql://, not 'mysql'",
        "timing.heartbeat_seconds": "must be shorter than lease_seconds, or a living generation loses its lease",
        "timing.ping_seconds": "must be a number",
        "pools.small.blocks": 'only engine = "reference" has this setting',
        "pools.small.replicas": "must be between 1 and 1024",
        "pools[1].name": "must be 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit",
        "plans.free.models": "no pool serves 'nowhere'",
        "plans.free.downgrade": "must be true or false",
        "plans.free.caps[0].model": "no pool serves 'nowhere'",
        "plans.free.caps[0].messages": "is missing",
    }


def test_the_error_reads_as_the_contract_says(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors) as caught:
        load("[server]\nprot = 1", tmp_path)
    assert str(caught.value) == "config: server.prot: unknown key"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("[[pools]]\nname = 'a'\n[[pools]]\nname = 'a'", "pools[1].name"),
        ("[[pools]]\nname = 'a'\ndowngrade_to = 'a'", "pools.a.downgrade_to"),
        ("pools = 3", "pools"),
        ("pools = []", "pools"),
        ("server = 3", "server"),
        ("[server]\nhost = 1", "server.host"),
        ("[server]\nport = true", "server.port"),
        ("[server]\npublic_url = 'ftp://x'", "server.public_url"),
        ("[timing]\nlease_seconds = inf", "timing.lease_seconds"),
        ("[timing]\nlease_seconds = nan", "timing.lease_seconds"),
        ("[defaults]\nplan = 'gold'", "defaults.plan"),
        ("[store]\nurl = 'sqlite:///relative.db'", "store.url"),
        ("[[pools]]\nengine = 'vllm'", "pools.small.engine"),
        ("[[plans]]\nname = 'free'\nmodels = [1]", "plans.free.models"),
    ],
)
def test_a_fault_names_its_key(text: str, path: str, tmp_path: Path) -> None:
    assert path in faults(text, tmp_path)


def test_environment_reaches_every_setting(tmp_path: Path) -> None:
    environ = {
        "ANTIPHON_LOG__URL": "memory:",
        "ANTIPHON_TIMING__COALESCE_MS": "12.5",
        "ANTIPHON_POOLS__SMALL__KV_BYTES": "1_000_000",
        "ANTIPHON_PLANS__FREE__MODELS": "small, smollm2-135m-instruct",
        "ANTIPHON_PLANS__FREE__DOWNGRADE": "false",
    }
    config = load("", tmp_path, environ)
    assert config.log.scheme == "memory"
    assert config.timing.coalesce_ms == 12.5
    assert config.pools[0].kv_bytes == 1_000_000
    assert config.plans[0].models == ("small", "smollm2-135m-instruct")
    assert not config.plans[0].downgrade


def test_a_faulty_variable_is_named(tmp_path: Path) -> None:
    found = faults("", tmp_path, {"ANTIPHON_SERVER__PORT": "many", "ANTIPHON_SERVE__PORT": "1", "ANTIPHON_POOLS__GRAND__BLOCKS": "1"})
    assert found == {
        "server.port": "must be a whole number (ANTIPHON_SERVER__PORT)",
        "serve.port": "unknown key (ANTIPHON_SERVE__PORT)",
        "pools.grand.blocks": "unknown key (ANTIPHON_POOLS__GRAND__BLOCKS)",
    }


@pytest.mark.parametrize("content", [b"[server", b"\xff\xfe"])
def test_an_unreadable_file_is_one_fault(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigErrors) as caught:
        load_config(Flags(config=file), HOME)
    assert [path for path, _ in caught.value.faults] == [str(file)]


def test_a_named_file_must_exist_and_ones_own_need_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors):
        load_config(Flags(config=tmp_path / "absent.toml"), HOME)
    own = tmp_path / "antiphon" / "antiphon.toml"
    own.parent.mkdir()
    own.write_text("[server]\nport = 9", encoding="utf-8")
    assert load_config(Flags(), {**HOME, "XDG_CONFIG_HOME": str(tmp_path)}).server.port == 9
    assert load_config(Flags(), {**HOME, "XDG_CONFIG_HOME": "relative"}).server.port == 8484


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["server", "timing", "pools", "plans", "store", "other"]).flatmap(
            lambda section: st.sampled_from(["port", "host", "url", "name", "small__blocks", "free__caps", ""]).map(
                lambda key: f"ANTIPHON_{section}__{key}".upper()
            )
        ),
        st.text(max_size=12).filter(lambda text: "\0" not in text),
    )
)
def test_any_environment_gives_a_config_or_faults(environ: dict[str, str]) -> None:
    try:
        load_config(Flags(), {"HOME": "/nowhere", **environ})
    except ConfigErrors as error:
        assert error.faults


def test_the_shipped_example_has_two_pools_of_one_model_and_three_plans() -> None:
    config = load_config(Flags(config=Path(__file__).parents[2] / "deploy" / "antiphon.toml"), HOME)
    assert [(pool.name, pool.downgrade_to) for pool in config.pools] == [("small", ""), ("large", "small")]
    assert len({pool.model for pool in config.pools}) == 1
    assert [(plan.name, plan.band, plan.ttft_limit_ms) for plan in config.plans] == [
        ("free", Band.LOW, 10_000),
        ("plus", Band.STANDARD, 3_000),
        ("team", Band.HIGH, 1_500),
    ]
    free, plus, team = config.plans
    assert (free.allows("large", "other"), plus.allows("large", "other"), free.allows("other", "small")) == (False, True, True)
    assert not team.downgrade
    assert plus.caps == (MessageCap("large", 80, 10_800),)


def test_providers_and_their_faults(tmp_path: Path) -> None:
    good = """
[[providers]]
name = "work"
issuer = "https://id.example.com"
client_id = "antiphon"
client_secret_env = "OIDC_SECRET"
domains = ["Example.com", "*"]
"""
    (provider,) = load(good, tmp_path).providers
    assert (provider.label, provider.tenant, provider.domains) == ("work", "home", ("example.com", "*"))
    bad = good.replace("https://", "http://").replace('"OIDC_SECRET"', '"s3cret-itself"').replace("Example.com", "ada@example.com")
    found = faults(bad + 'colour = "red"\n', tmp_path)
    assert found.keys() == {f"providers[0].{key}" for key in ("issuer", "client_secret_env", "domains", "colour")}
    assert "s3cret" not in str(found)
    assert faults(good + good, tmp_path) == {"providers.work": "has more than one entry"}
    with pytest.raises(ConfigErrors, match="OIDC_SECRET"):
        provider.secret()


def test_starter_prompts_are_none_unless_they_are_named(tmp_path: Path) -> None:
    assert load("", tmp_path).starter_prompts == ()
    assert load('[response_cache]\nprompts = ["Hello, you!", "b"]', tmp_path).starter_prompts == ("Hello, you!", "b")
    assert faults('[response_cache]\nprompts = [" "]', tmp_path).keys() == {"response_cache.prompts"}


def test_with_a_memory_budget_every_model_says_what_it_takes_and_fits_alone(tmp_path: Path) -> None:
    pools = """
        [residency]
        memory_bytes = 1000
        [[pools]]
        name = "one"
        engine = "reference"
        {first}
        [[pools]]
        name = "two"
        engine = "reference"
        replicas = 2
        memory_bytes = {second}
        [[pools]]
        name = "far"
        engine = "openai"
        model = "m"
        url = "http://127.0.0.1:1/v1"
        """
    config = load(pools.format(first="memory_bytes = 600", second=500), tmp_path)
    assert (config.residency.memory_bytes, config.residency.tenure_seconds) == (1000, 10.0)
    found = faults(pools.format(first="", second=501), tmp_path)
    assert found.keys() == {"pools.one.memory_bytes", "pools.two.memory_bytes"}
    assert load("", tmp_path).residency.memory_bytes == 0


def test_amounts_and_rates_stay_where_limiters_count_exactly(tmp_path: Path) -> None:
    text = """
    [[plans]]
    name = "free"
    tokens_per_minute = 1000000000000000000
    concurrency = 5000000000
    caps = [{ model = "small", messages = 3, window_seconds = 999999999999 }]
    [[prices]]
    model = "small"
    input = "1e30"
    output = "1"
    accelerator_hour = "1e400"
    [[tiers]]
    spend = "1"
    requests_per_minute = 99999999999
    """
    assert set(faults(text, tmp_path)) == {
        "plans.free.tokens_per_minute",
        "plans.free.concurrency",
        "plans.free.caps[0].window_seconds",
        "prices[0].input",
        "prices[0].accelerator_hour",
        "tiers[0].requests_per_minute",
    }
