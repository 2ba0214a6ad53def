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
        session,
        providers,
        account,
        own_account,
        personal,
        keys,
        conversations,
        messages,
        generations,
        search,
        shares,
        transfer,
        models,
        openai,
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
