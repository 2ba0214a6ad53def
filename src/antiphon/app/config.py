"""The configuration: flag > environment > TOML > default, read once into frozen values, every fault at once.

A fault reads ``section.key: reason``. Unknown keys are faults, and so are settings that this version cannot honour.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from antiphon.app.added_pools import AddedPools
from antiphon.app.money_table import LISTS as MONEY_LISTS
from antiphon.app.money_table import MoneyConfig, money_of
from antiphon.app.plan_table import plan_of
from antiphon.app.pool_table import DEFAULT_POOL, pools_of
from antiphon.app.provider_table import ProviderConfig, providers_of
from antiphon.app.toml_table import EnvironmentText, Table
from antiphon.core.errors import ConfigErrors
from antiphon.core.plans import DEFAULT_PLAN, OWNER_PLAN, Plan
from antiphon.core.pools import PoolSpec
from antiphon.orchestrator.background import BackgroundSettings
from antiphon.orchestrator.settings import Timing

DEFAULT_PORT = 8484

_SECTIONS = ("server", "store", "log", "limits", "events", "timing", "defaults", "background", "response_cache", "residency")
_LISTS = ("pools", "plans")
_MOST_STARTERS, _STARTER_CHARACTERS = 64, 1000
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """``next_free_port``: nobody chose the port, so the next free one will do. ``public_url`` has no trailing slash."""

    host: str
    port: int
    public_url: str
    next_free_port: bool


@dataclass(frozen=True, slots=True)
class UrlConfig:
    """Where a capability lives; the scheme names the driver."""

    url: str

    @property
    def scheme(self) -> str:
        return self.url.partition(":")[0]


@dataclass(frozen=True, slots=True)
class StoreConfig(UrlConfig):
    @property
    def sqlite_path(self) -> Path:
        """The database file of a ``sqlite:///`` URL."""
        return Path(self.url.removeprefix("sqlite:///"))

    @property
    def place(self) -> str:
        """Where the database is, for people to read: a file, or an address without its password."""
        if self.scheme == "sqlite":
            return str(self.sqlite_path)
        parts = urlsplit(self.url)
        user, _, host = parts.netloc.rpartition("@")
        return f"{parts.scheme}://{user.partition(':')[0]}{'@' if user else ''}{host}{parts.path}"


@dataclass(frozen=True, slots=True)
class LimitsConfig(UrlConfig):
    """``local_share``: what one server grants of every limit alone, while the shared limits are away. ``abuse``: what is done about
    accounts under suspicion: nothing, a flag, or a throttle.
    """

    expects_most: bool = False
    local_share: float = 0.25
    abuse: str = "throttle"


@dataclass(frozen=True, slots=True)
class ResidencyConfig:
    """``memory_bytes`` are shared by the models of all pools on this machine; 0: all of them are always loaded. ``tenure_seconds``: so
    long one in use stays at least, once others want its room.
    """

    memory_bytes: int = 0
    tenure_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Config:
    """Everything a process needs to know before it starts. Folders are absolute and need not exist."""

    server: ServerConfig
    store: StoreConfig
    log: UrlConfig
    limits: LimitsConfig
    events: UrlConfig
    timing: Timing
    background: BackgroundSettings
    starter_prompts: tuple[str, ...]
    residency: ResidencyConfig
    default_plan: str
    pools: tuple[PoolSpec, ...]
    plans: tuple[Plan, ...]
    money: MoneyConfig
    providers: tuple[ProviderConfig, ...]
    data_dir: Path
    models_dir: Path

    def plans_by_name(self) -> dict[str, Plan]:
        """Every plan. Once plans are configured, an owner who was on the built-in one is on the default plan."""
        named = {plan.name: plan for plan in self.plans}
        return {OWNER_PLAN.name: named.get(self.default_plan, OWNER_PLAN), **named}


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line says; ``None`` leaves the setting to environment, file and default."""

    config: Path | None = None
    data: Path | None = None
    host: str | None = None
    port: int | None = None


def load_config(flags: Flags, environ: Mapping[str, str]) -> Config:
    """Read the file (``--config``, ``ANTIPHON_CONFIG``, else the user's own if there is one) and lay the rest over it.

    Blocking. Raises ``ConfigErrors`` with every fault.
    """
    faults: list[tuple[str, str]] = []
    raw = _with_environment(_read_file(_existing_file(flags, environ), faults), environ, faults)
    for section, key, value in (("server", "host", flags.host), ("server", "port", flags.port)):
        if value is not None:
            _lay(raw, section, key, value)
    data_dir = _folder(flags.data or environ.get("ANTIPHON_DATA"), _xdg("XDG_DATA_HOME", ".local/share", environ) / "antiphon")
    tables = _tables(raw, faults)
    pools = pools_of(_entries(raw, "pools", faults))
    pools = (*pools, *AddedPools(data_dir).read({pool.name for pool in pools}))
    plans = _plans(raw, pools, faults)
    money = money_of(raw, {name for pool in pools for name in (pool.name, pool.model)}, faults)
    config = Config(
        server=_server(tables["server"]),
        store=_store(tables["store"], data_dir),
        log=UrlConfig(_url(tables["log"], "journal:", ("journal:", "memory:"))),
        limits=_limits(tables["limits"]),
        events=UrlConfig(_url(tables["events"], "local:", ("local:", "kafka://"))),
        timing=_timing(tables["timing"]),
        background=_background(tables["background"], pools),
        residency=_residency(tables["residency"], pools),
        starter_prompts=_starter_prompts(tables["response_cache"]),
        default_plan=_default_plan(tables["defaults"], plans),
        pools=pools,
        plans=plans,
        money=money,
        providers=providers_of(raw, faults),
        data_dir=data_dir,
        models_dir=_folder(environ.get("ANTIPHON_MODELS"), _xdg("XDG_CACHE_HOME", ".cache", environ) / "antiphon" / "models"),
    )
    for table in tables.values():
        table.finish()
    if faults:
        raise ConfigErrors(sorted(set(faults), key=faults.index))
    return config


# --- sections ---------------------------------------------------------------------------------------


def _server(table: Table) -> ServerConfig:
    host = table.text("host", "127.0.0.1")
    if not host or any(letter.isspace() for letter in host):
        table.fault("host", "must be a host name or an address")
    public_url = table.text("public_url", "").rstrip("/")
    parts = urlsplit(public_url)
    if public_url and (parts.scheme not in {"http", "https"} or not parts.netloc or parts.path or parts.query or parts.fragment):
        table.fault("public_url", "must be http://… or https://… without a path")
    return ServerConfig(
        host=host,
        port=table.integer("port", DEFAULT_PORT, at_most=65535),
        public_url=public_url,
        next_free_port=not table.has("port"),
    )


def _limits(table: Table) -> LimitsConfig:
    url = _url(table, "memory:", ("memory:", "redis://", "rediss://"))
    estimate = table.choice("estimate", "expected", ("expected", "most"))
    share = table.number("local_share", 0.25)
    if share > 1:
        table.fault("local_share", "must be at most 1")
    abuse = table.choice("abuse", "throttle", ("off", "flag", "throttle"))
    return LimitsConfig(url, expects_most=estimate == "most", local_share=share, abuse=abuse)


def _store(table: Table, data_dir: Path) -> StoreConfig:
    url = _url(table, f"sqlite:///{data_dir}/antiphon.db", ("sqlite:", "postgresql://"))
    if url.startswith("sqlite:") and not url.startswith("sqlite:////"):
        table.fault("url", "must be sqlite:/// followed by an absolute path")
    return StoreConfig(url)


def _url(table: Table, default: str, schemes: Sequence[str]) -> str:
    url = table.text("url", default)
    if not url.startswith(tuple(schemes)):
        table.fault("url", f"this version takes {' or '.join(schemes)}, not {urlsplit(url).scheme or url!r}")
    return url


def _timing(table: Table) -> Timing:
    default = Timing()
    values = {entry.name: table.number(entry.name, cast("float", getattr(default, entry.name))) for entry in fields(Timing)}
    timing = Timing(**values)
    if timing.heartbeat_seconds >= timing.lease_seconds:
        table.fault("heartbeat_seconds", "must be shorter than lease_seconds, or a living generation loses its lease")
    return timing


def _background(table: Table, pools: Sequence[PoolSpec]) -> BackgroundSettings:
    default = BackgroundSettings()
    pool = table.text("pool", default.pool)
    if pool and pool not in {spec.name for spec in pools}:
        table.fault("pool", f"there is no pool {pool!r}")
    return BackgroundSettings(
        pool=pool,
        titles=table.choice("titles", default.titles, ("model", "words")),
        summaries=table.choice("summaries", default.summaries, ("model", "sentences")),
    )


def _residency(table: Table, pools: Sequence[PoolSpec]) -> ResidencyConfig:
    """Every model has to fit alone; which do together is decided while they are used."""
    default = ResidencyConfig()
    budget = table.integer("memory_bytes", default.memory_bytes)
    for pool in pools if budget else ():
        reason = ""
        if pool.on_this_machine and not pool.memory_bytes:
            reason = "is missing: with a memory budget each model says what it takes"
        elif pool.on_this_machine and pool.all_bytes > budget:
            reason = f"needs {pool.all_bytes} bytes, and residency.memory_bytes is {budget}"
        if reason:
            table.faults.append((f"pools.{pool.name}.memory_bytes", reason))
    return ResidencyConfig(budget, table.number("tenure_seconds", default.tenure_seconds))


def _starter_prompts(table: Table) -> tuple[str, ...]:
    prompts = table.texts("prompts")
    if len(prompts) > _MOST_STARTERS or any(not prompt.strip() or len(prompt) > _STARTER_CHARACTERS for prompt in prompts):
        table.fault("prompts", f"must be at most {_MOST_STARTERS} texts of 1 to {_STARTER_CHARACTERS} characters")
    return prompts


def _default_plan(table: Table, plans: Sequence[Plan]) -> str:
    name = table.text("plan", DEFAULT_PLAN)
    if name not in {plan.name for plan in plans}:
        table.fault("plan", f"there is no plan {name!r}")
    return name


def _plans(raw: Mapping[str, object], pools: Sequence[PoolSpec], faults: list[tuple[str, str]]) -> tuple[Plan, ...]:
    tables = _entries(raw, "plans", faults)
    served = {name for pool in pools for name in (pool.name, pool.model)}
    return (Plan(name=DEFAULT_PLAN), OWNER_PLAN) if tables is None else tuple(plan_of(table, served) for table in tables)


# --- raw values -------------------------------------------------------------------------------------


def config_file(flags: Flags, environ: Mapping[str, str]) -> Path:
    """The file that was named, else the user's own, which need not exist."""
    named = flags.config or environ.get("ANTIPHON_CONFIG")
    return Path(named).expanduser() if named else _xdg("XDG_CONFIG_HOME", ".config", environ) / "antiphon" / "antiphon.toml"


def _existing_file(flags: Flags, environ: Mapping[str, str]) -> Path | None:
    """Nobody needs a file; but one that was named must be there."""
    file = config_file(flags, environ)
    return file if flags.config or environ.get("ANTIPHON_CONFIG") or file.is_file() else None


def _read_file(file: Path | None, faults: list[tuple[str, str]]) -> dict[str, object]:
    if file is None:
        return {}
    try:
        return dict(tomllib.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        faults.append((str(file), f"cannot be read: {error.strerror or error}"))
    except UnicodeDecodeError:
        faults.append((str(file), "is not UTF-8"))
    except tomllib.TOMLDecodeError as error:
        faults.append((str(file), f"is not TOML: {error}"))
    return {}


def _with_environment(raw: dict[str, object], environ: Mapping[str, str], faults: list[tuple[str, str]]) -> dict[str, object]:
    """``raw`` with every ``ANTIPHON_<SECTION>__<KEY>`` laid over it; pools and plans are ``ANTIPHON_POOLS__<NAME>__<KEY>``."""
    for variable in sorted(environ):
        section, *rest = variable.removeprefix("ANTIPHON_").lower().split("__")
        if not variable.startswith("ANTIPHON_") or not rest:
            continue
        value = EnvironmentText(environ[variable], variable)
        if section in _SECTIONS and len(rest) == 1:
            _lay(raw, section, rest[0], value)
        elif section not in _LISTS or len(rest) != 2 or not _lay_entry(raw, section, rest, value):
            faults.append((".".join((section, *rest)), f"unknown key ({variable})"))
    return raw


def _lay(raw: dict[str, object], section: str, key: str, value: object) -> None:
    table = raw.get(section, {})
    if isinstance(table, Mapping):
        raw[section] = {**cast("Mapping[str, object]", table), key: value}


def _lay_entry(raw: dict[str, object], section: str, name_and_key: Sequence[str], value: EnvironmentText) -> bool:
    """Lay ``value`` over the entry of that name (dashes and dots read as underscores); false when there is none."""
    name, key = name_and_key
    if section not in raw:
        raw[section] = [{"name": DEFAULT_POOL.name if section == "pools" else DEFAULT_PLAN}]
    listed = raw[section]
    entries = cast("list[object]", listed) if isinstance(listed, list) else []
    for index, entry in enumerate(entries):
        if isinstance(entry, Mapping):
            table = cast("Mapping[str, object]", entry)
            if re.sub(r"[.-]", "_", _entry_name(section, table)) == name:
                raw[section] = [*entries[:index], {**table, key: value}, *entries[index + 1 :]]
                return True
    return False


def _entry_name(section: str, entry: Mapping[str, object]) -> str:
    return str(entry.get("name", DEFAULT_POOL.name if section == "pools" else DEFAULT_PLAN))


def _tables(raw: Mapping[str, object], faults: list[tuple[str, str]]) -> dict[str, Table]:
    """A ``Table`` for every section, empty where absent; other top-level keys are faults."""
    tables: dict[str, Table] = {}
    for section in _SECTIONS:
        values = raw.get(section, {})
        if not isinstance(values, Mapping):
            faults.append((section, "must be a table"))
            values = {}
        tables[section] = Table(section, cast("Mapping[str, object]", values), faults)
    faults.extend((key, "unknown section") for key in raw if key not in (*_SECTIONS, *_LISTS, *MONEY_LISTS, "providers"))
    return tables


def _entries(raw: Mapping[str, object], section: str, faults: list[tuple[str, str]]) -> tuple[Table, ...] | None:
    """The tables of a ``[[section]]``, each with a name of its own; ``None`` where the section is absent or no list of tables."""
    if section not in raw:
        return None
    entries = raw[section]
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in cast("list[object]", entries)):
        faults.append((section, f"must be a list of tables, each under [[{section}]]"))
        return None
    tables: dict[str, Table] = {}
    for index, values in enumerate(cast("list[Mapping[str, object]]", entries)):
        name = _entry_name(section, values)
        table = Table(f"{section}.{name}", values, faults)
        if not isinstance(values.get("name", ""), str) or not _NAME.match(name):
            table.path = f"{section}[{index}]"
            table.fault("name", "must be 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit")
        elif table.path in tables:
            table.path = f"{section}[{index}]"
            table.fault("name", f"there is another {section[:-1]} {name!r}")
        tables[table.path] = table
    if not tables:
        faults.append((section, "must not be empty"))
        return None
    return tuple(tables.values())


def _xdg(variable: str, below_home: str, environ: Mapping[str, str]) -> Path:
    """An XDG base folder; a relative value is ignored, as the specification demands."""
    named = environ.get(variable, "")
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    return Path(named) if Path(named).is_absolute() else home / below_home


def _folder(named: Path | str | None, default: Path) -> Path:
    return Path(named).expanduser().absolute() if named else default
