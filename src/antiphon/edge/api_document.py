"""The OpenAPI document: what FastAPI knows of the routes, and what it cannot know: who may call them and how they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import cast

from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts

from antiphon.edge.access import Guard, Responses, guard_of

_PROBLEM = "Problem"
_OPENAI_ERROR = "OpenAIError"
_OPENAI_PREFIX = "/v1/chat/completions"
_ALWAYS = (400, 403, 431, 503)
"""A request without a host or with a wrong one, or with too long headers; a server that starts, drains, or has lost its store."""
_FASTAPIS_OWN = 422
"""What FastAPI says of it is not how we tell it."""
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})

_SCHEMAS: dict[str, dict[str, object]] = {
    _PROBLEM: {
        "title": _PROBLEM,
        "description": "RFC 9457. `code` is stable; some codes have members of their own.",
        "type": "object",
        "required": ["type", "title", "status", "code", "detail", "request_id"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "code": {"type": "string"},
            "detail": {"type": "string"},
            "request_id": {"type": "string"},
            "retry_after_ms": {"type": "integer"},
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["path", "reason"],
                    "properties": {"path": {"type": "string"}, "reason": {"type": "string"}},
                },
            },
        },
    },
    _OPENAI_ERROR: {
        "title": _OPENAI_ERROR,
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "code", "param"],
                "properties": {
                    "message": {"type": "string"},
                    "type": {"type": "string"},
                    "code": {"type": "string"},
                    "param": {"type": ["string", "null"]},
                },
            }
        },
    },
}


def refuses(*statuses: int) -> Responses:
    """How a route refuses beyond what its guard, body and address imply; for its ``responses``."""
    return {status: {"description": HTTPStatus(status).phrase} for status in statuses}


def api_document(application: FastAPI) -> dict[str, object]:
    """The whole document of ``application``, OpenAPI 3.1; made once, then kept by it."""
    made = application.openapi_schema
    if made is not None:
        return made
    document = cast("dict[str, object]", application.openapi())
    components = cast("dict[str, object]", document.setdefault("components", {}))
    schemas = cast("dict[str, object]", components.setdefault("schemas", {}))
    schemas.update(_SCHEMAS)
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    components["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "An API key, `ak_…`."},
        "session": {"type": "apiKey", "in": "cookie", "name": "antiphon_session"},
    }
    paths = cast("dict[str, dict[str, dict[str, object]]]", document["paths"])
    for route in _routes(application):
        for method in route.methods or ():
            operation = paths.get(route.path_format, {}).get(method.lower())
            if operation is not None:
                _complete(operation, route, method)
    return document


def _routes(application: FastAPI) -> Iterator[APIRoute]:
    for context in iter_route_contexts(application.routes):
        if isinstance(context.original_route, APIRoute):
            yield context.original_route


def _complete(operation: dict[str, object], route: APIRoute, method: str) -> None:
    guard = guard_of(route)
    operation["security"] = [] if guard.public or guard.open_on_loopback else [{"key": []}, {"session": []}]
    responses = cast("dict[str, dict[str, object]]", operation["responses"])
    openai = route.path.startswith(_OPENAI_PREFIX)
    media, schema = ("application/json", _OPENAI_ERROR) if openai else ("application/problem+json", _PROBLEM)
    for status in sorted({int(told) for told in responses if int(told) >= 400} | set(_implied(route, guard, method))):
        told = {} if status == _FASTAPIS_OWN else responses.get(str(status), {})
        content = {**cast("dict[str, object]", told.get("content", {})), media: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
        responses[str(status)] = {"description": HTTPStatus(status).phrase, **told, "content": content}


def _implied(route: APIRoute, guard: Guard, method: str) -> Iterator[int]:
    yield from _ALWAYS
    if not guard.public:
        yield 401
    if route.param_convertors:
        yield 404
    if route.dependant.query_params or route.dependant.dependencies or route.body_field is not None:
        yield 422
    if method in _WRITES:
        yield from (413, 415, 507)
