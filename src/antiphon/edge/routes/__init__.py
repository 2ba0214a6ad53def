"""The JSON routes of the edge, one module per resource."""

from __future__ import annotations

from fastapi import APIRouter

from antiphon.edge.routes import (
    abuse,
    account,
    admin,
    conversations,
    docs,
    generations,
    health,
    keys,
    messages,
    models,
    openai,
    organisation,
    oversight,
    own_account,
    personal,
    providers,
    search,
    session,
    shares,
    transfer,
    usage,
    users,
)

ROUTERS: tuple[APIRouter, ...] = tuple(
    module.router
    for module in (
        # Asked for most, and first: a request is held against one route after the other.
        openai,
        messages,
        generations,
        conversations,
        models,
        session,
        providers,
        account,
        own_account,
        personal,
        keys,
        search,
        shares,
        transfer,
        admin,
        organisation,
        oversight,
        users,
        abuse,
        usage,
        health,
        docs,
    )
)
