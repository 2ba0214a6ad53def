"""The JSON routes of the edge, one module per resource."""

from __future__ import annotations

from fastapi import APIRouter

from antiphon.edge.routes import account, admin, conversations, docs, generations, health, keys, messages, models, openai, session, transfer

ROUTERS: tuple[APIRouter, ...] = tuple(
    module.router
    for module in (session, account, keys, conversations, messages, generations, transfer, models, openai, admin, health, docs)
)
