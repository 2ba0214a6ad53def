"""Reads ``[[providers]]``: where people may sign in."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from antiphon.app.toml_table import Table
from antiphon.core.errors import ConfigErrors

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}\Z")
_DOMAIN = re.compile(r"(\*|[a-z0-9-]+(\.[a-z0-9-]+)+)\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """One identity provider. ``domains``: whose verified addresses let new people in; none lets in nobody new."""

    name: str
    label: str
    issuer: str
    client_id: str
    client_secret_env: str
    domains: tuple[str, ...]
    tenant: str

    def secret(self) -> str:
        """From the environment. Raises ``ConfigErrors`` where it, or the library that this needs, is missing."""
        if importlib.util.find_spec("authlib") is None:
            raise ConfigErrors([(f"providers.{self.name}", "signing in at a provider needs: pip install 'antiphon[oidc]'")])
        secret = os.environ.get(self.client_secret_env, "")
        if not secret:
            raise ConfigErrors([(f"providers.{self.name}.client_secret_env", f"the environment has no {self.client_secret_env}")])
        return secret


def providers_of(raw: Mapping[str, object], faults: list[tuple[str, str]]) -> tuple[ProviderConfig, ...]:
    """All of them. Faults are added to ``faults``."""
    tables = Table("", {"providers": raw.get("providers", [])}, faults).tables("providers")
    found = tuple(_provider(Table(table.path.lstrip("."), table.values, faults)) for table in tables)
    names = [one.name for one in found]
    faults.extend((f"providers.{name}", "has more than one entry") for name in sorted(set(names)) if names.count(name) > 1)
    return found


def _provider(table: Table) -> ProviderConfig:
    from antiphon.edge.oidc import is_provider_url

    name = table.text("name", "")
    provider = ProviderConfig(
        name=name,
        label=table.text("label", name),
        issuer=table.text("issuer", ""),
        client_id=table.text("client_id", ""),
        client_secret_env=table.text("client_secret_env", ""),
        domains=tuple(domain.lower() for domain in table.texts("domains")),
        tenant=table.text("tenant", "home"),
    )
    for key, fine, reason in (
        ("name", _NAME.match(name), "must be a-z, 0-9 and dashes"),
        ("issuer", is_provider_url(provider.issuer), "must be https://…, or http:// on this machine"),
        ("client_id", provider.client_id, "is missing"),
        ("client_secret_env", _VARIABLE.match(provider.client_secret_env), "must be the name of an environment variable, not the secret"),
        ("domains", all(_DOMAIN.match(domain) for domain in provider.domains), 'must be names like "example.com", or "*" for everybody'),
    ):
        if not fine:
            table.fault(key, reason)
    table.finish()
    return provider
