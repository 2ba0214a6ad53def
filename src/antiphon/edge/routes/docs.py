"""The API's description: for machines, and for people on a page without scripts or anything remote."""

from __future__ import annotations

from html import escape
from typing import cast

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from antiphon.edge.access import PUBLIC, GuardedRoute, guarded
from antiphon.edge.api_document import api_document

router = APIRouter(tags=["docs"], route_class=GuardedRoute)


@router.get("/openapi.json", include_in_schema=False)
@guarded(PUBLIC)
async def openapi(request: Request) -> Response:
    """OpenAPI 3.1."""
    return JSONResponse(_schema(request))


@router.get("/docs", include_in_schema=False)
@guarded(PUBLIC)
async def docs(request: Request) -> Response:
    """Every operation on one page."""
    return HTMLResponse(_page(_schema(request)))


def _schema(request: Request) -> dict[str, object]:
    return api_document(cast("FastAPI", request.app))


def _page(schema: dict[str, object]) -> str:
    paths = cast("dict[str, dict[str, dict[str, object]]]", schema["paths"])
    rows = [
        f"<tr><td><code>{escape(method.upper())}</code></td><td><code>{escape(path)}</code></td>"
        f"<td>{escape(str(operation.get('description', '')))}</td></tr>"
        for path, operations in paths.items()
        for method, operation in operations.items()
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Antiphon: the API</title><h1>The API</h1>'
        '<p>Send <code>Authorization: Bearer ak_…</code>. The full description is <a href="/openapi.json">openapi.json</a>.</p>'
        f"<table><thead><tr><th>Method</th><th>Address</th><th>What it does</th></tr></thead><tbody>{''.join(rows)}</tbody></table></html>"
    )
