"""Reads the ``[[pools]]`` tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from antiphon.app.toml_table import Table
from antiphon.core.pools import PoolSpec

DEFAULT_MODEL = "smollm2-135m-instruct"
DEFAULT_POOL = PoolSpec(name="small", model=DEFAULT_MODEL)

_KEYS_OF_ENGINES = {
    "reference": ("prefill_tokens_per_s", "output_tokens_per_s", "blocks", "vocabulary"),
    "openai": ("url", "api_key_env"),
}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def pools_of(tables: Sequence[Table] | None) -> tuple[PoolSpec, ...]:
    """The pools that ``tables`` describe, the default one where there are none. Faults are remembered in the tables."""
    if tables is None:
        return (DEFAULT_POOL,)
    pools = tuple(_pool(table) for table in tables)
    names = {pool.name for pool in pools}
    for table, pool in zip(tables, pools, strict=True):
        if pool.downgrade_to and (pool.downgrade_to not in names or pool.downgrade_to == pool.name):
            table.fault("downgrade_to", f"there is no other pool {pool.downgrade_to!r}")
    return pools


def _pool(table: Table) -> PoolSpec:
    engine = table.choice("engine", "openvino", ("openvino", "reference", "openai"))
    for kind, keys in _KEYS_OF_ENGINES.items():
        for key in keys if engine != kind else ():
            if table.has(key):
                table.known.add(key)
                table.fault(key, f'only engine = "{kind}" has this setting')
    pool = PoolSpec(
        name=table.text("name", DEFAULT_POOL.name),
        model=table.text("model", {"openvino": DEFAULT_MODEL, "reference": "reference"}.get(engine, "")),
        engine=engine,
        replicas=table.integer("replicas", 1, at_least=1, at_most=1024),
        precision=table.choice("precision", "fast", ("fast", "exact")),
        kv_bytes=table.integer("kv_bytes", 0),
        context_tokens=table.integer("context_tokens", 0),
        memory_bytes=table.integer("memory_bytes", 0),
        queue_limit=table.integer("queue_limit", DEFAULT_POOL.queue_limit),
        stream_tokens_per_s=table.integer("stream_tokens_per_s", 0),
        downgrade_to=table.text("downgrade_to", ""),
        prefill_tokens_per_s=table.number("prefill_tokens_per_s", DEFAULT_POOL.prefill_tokens_per_s),
        output_tokens_per_s=table.number("output_tokens_per_s", DEFAULT_POOL.output_tokens_per_s),
        blocks=table.integer("blocks", 0),
        vocabulary=table.choice("vocabulary", "ascii", ("ascii", "nasty", "echo", "thinking")),
        url=table.text("url", "").rstrip("/"),
        api_key_env=table.text("api_key_env", ""),
    )
    if engine == "openai":
        reason = address_fault(pool.url)
        if reason:
            table.fault("url", reason)
        if pool.api_key_env and not _VARIABLE.match(pool.api_key_env):
            table.fault("api_key_env", "must be the name of an environment variable, not the key")
    if not pool.model:
        table.fault("model", "must name a model")
    table.finish()
    return pool


def address_fault(url: str) -> str:
    """What is wrong with the address of an OpenAI-compatible server; empty where nothing is."""
    try:
        parts = urlsplit(url)
        port_is_one = parts.port is None or parts.port > 0
    except ValueError:
        return "is no address"
    if parts.scheme not in {"http", "https"} or not parts.hostname or not port_is_one or parts.query or parts.fragment:
        return "must be http://… or https://…, up to /v1"
    if parts.username is not None:
        return "must not hold a key: name the variable that does in api_key_env"
    return ""
