"""Whom a request is addressed to.

A page of another site may let its own name point to this machine (DNS rebinding): its scripts are then of the same origin as
what answers here, but the name that they ask for stays the other site's.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.types import Scope

from antiphon.edge.problems import BAD_HOST, FOREIGN_HOST, Problem


def host_problem(scope: Scope, *, loopback_only: bool) -> Problem | None:
    """What is wrong with the request's ``Host``: missing, more than one, or with ``loopback_only`` not a name of this machine."""
    hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    if len(hosts) > 1 or (not hosts and scope["http_version"] == "1.1"):
        return BAD_HOST
    if loopback_only and hosts and not names_loopback(hosts[0]):
        return FOREIGN_HOST
    return None


@lru_cache(maxsize=64)
def names_loopback(host: str) -> bool:
    """Whether ``host``, with or without a port, can only mean the machine that the request came from."""
    try:
        parts = urlsplit(f"//{host}")
        name = (parts.hostname or "").removesuffix(".")
    except ValueError:
        return False
    if parts.netloc != host or "@" in host:
        return False
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
