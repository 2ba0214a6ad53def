"""Adding a server that people already have: look at it first, then write it into the configuration as a pool of its own."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from antiphon.app.config import Flags, config_file, load_config
from antiphon.app.pool_table import DEFAULT_POOL
from antiphon.core.errors import ConfigErrors, EngineFailed, ModelUnusable
from antiphon.edge.pool_desk import OfferedModel
from antiphon.engines.model_source import ModelStore
from antiphon.engines.openai_http import Endpoint, OpenAiEngine

_NOT_IN_NAMES = re.compile(r"[^a-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Added:
    """A pool that the next start of the server has, and the file that says so."""

    pool: str
    model: str
    file: Path


def add_endpoint(flags: Flags, url: str, *, model: str | None, name: str | None, key_env: str) -> Added:
    """Ask the server at ``url`` what it serves and add a pool for one of its models. Blocking.

    Raises ``ModelUnusable`` where it cannot be asked or the model is not among them, ``ConfigErrors`` where the result would be no
    valid configuration; the file is as it was then.
    """
    key = os.environ.get(key_env, "") if key_env else ""
    if key_env and not key:
        raise ConfigErrors([("api_key_env", f"the environment has no {key_env}")])
    served = _choose(url, asyncio.run(served_models(url, key)), model)
    pool = name or pool_name(served)
    entry = {"name": pool, "engine": "openai", "model": served, "url": url.rstrip("/"), "api_key_env": key_env}
    file = config_file(flags, os.environ)
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    if "pools" not in tomllib.loads(text) and _default_is_installed(flags):
        text += _table({"name": DEFAULT_POOL.name, "model": DEFAULT_POOL.model})
    _replace(file, text + _table({key: value for key, value in entry.items() if value}), flags)
    return Added(pool, served, file)


def pool_name(model: str) -> str:
    """What a pool is called that serves ``model`` and was given no name; empty where nothing of it can be in a name."""
    return _NOT_IN_NAMES.sub("-", model.lower()).strip("-._")[:64]


async def served_models(url: str, key: str) -> tuple[OfferedModel, ...]:
    """What the server at ``url`` (up to ``/v1``) lists. Raises ``ModelUnusable``, one sentence, where it cannot be asked."""
    from antiphon.app.system import SystemClock

    engine = OpenAiEngine(Endpoint(url.rstrip("/"), "", key), SystemClock())
    try:
        return tuple(OfferedModel(model.name, model.context_tokens) for model in await engine.models())
    except EngineFailed as failure:
        raise ModelUnusable(failure.detail) from failure
    finally:
        await engine.close()


def _choose(url: str, models: tuple[OfferedModel, ...], wanted: str | None) -> str:
    names = ", ".join(offered.model for offered in models[:20]) or "none"
    matching = [offered.model for offered in models if wanted in {None, offered.model}]
    if len(matching) == 1 or (wanted is not None and matching):
        return matching[0]
    if wanted is None and models:
        raise ModelUnusable(f"{url} serves several models; choose one with --model: {names}.")
    raise ModelUnusable(f"{url} does not serve {wanted or 'any model'!r}; it lists: {names}.")


def _default_is_installed(flags: Flags) -> bool:
    config = load_config(flags, os.environ)
    return ModelStore(config.models_dir).find(DEFAULT_POOL.model) is not None


def _table(entry: dict[str, str]) -> str:
    return "\n[[pools]]\n" + "".join(f"{key} = {_quoted(value)}\n" for key, value in entry.items())


def _quoted(text: str) -> str:
    """A TOML basic string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _replace(file: Path, text: str, flags: Flags) -> None:
    """Put ``text`` in the place of ``file`` in one step, if it is a configuration."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, staged = tempfile.mkstemp(dir=file.parent, prefix=".antiphon-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as content:
            content.write(text.lstrip("\n"))
        load_config(Flags(config=Path(staged), data=flags.data), os.environ)
        if file.is_file():
            Path(staged).chmod(file.stat().st_mode)
        Path(staged).replace(file)
    finally:
        Path(staged).unlink(missing_ok=True)
