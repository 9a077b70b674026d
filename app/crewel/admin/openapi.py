"""The OpenAPI document, made of the same rows as the routes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from crewel.admin.routes import API, Field, Route

_VARIABLE: Final = re.compile(r"{(\w+)}")
_VARIABLES: Final = {
    "subject": "Whose session it is: joe of client/joe/1.",
    "number": "The session's number: 1 of client/joe/1.",
    "id": "The dead id.",
    "channel": "The channel's name with its slashes, without the first one: a/b of /a/b.",
}
_ERROR: Final = {
    "type": "object",
    "required": ["errorCode", "message"],
    "properties": {"errorCode": {"type": "string"}, "message": {"type": "string"}},
}
_ALWAYS: Final = {
    400: "A field is unknown or has a wrong value; the message names it (user.illegalArgument).",
    403: "The page is of an origin that may not talk to the server, or the token is no operator's.",
    503: "The store cannot be asked at the moment, or the server keeps none (resource.unavailable).",
}
_CLOSED: Final = {401: "There is no token, or one that does not hold."}


def document(routes: Iterable[Route], version: str) -> dict[str, Any]:
    """OpenAPI 3.1 for these routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(API + route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Crewel administration",
            "version": version,
            "description": "What operators see and do. Whoever asks shows the admin token, or a JSON Web Token that makes"
            " an operator, as `Authorization: Bearer …`. Times are milliseconds since 1970.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "responses": _responses(route),
    }
    parameters = [*_path_parameters(route.path), *(_query_parameter(each) for each in route.query)]
    if parameters:
        operation["parameters"] = parameters
    if route.body:
        schema = {
            "type": "object",
            "additionalProperties": False,
            "properties": {each.name: _described(each) for each in route.body},
        }
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    if route.is_public:
        operation["security"] = []
    return operation


def _operation_id(route: Route) -> str:
    words = [word for word in re.split(r"[^A-Za-z]+", route.path) if word]
    return route.method.lower() + "".join(word.title() for word in words)


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "description": _VARIABLES[name], "schema": {"type": "string"}}
        for name in _VARIABLE.findall(path)
    ]


def _query_parameter(field: Field) -> dict[str, Any]:
    return {"name": field.name, "in": "query", "description": field.meaning, "schema": dict(field.schema)}


def _described(field: Field) -> dict[str, Any]:
    return {**field.schema, "description": field.meaning}


def _responses(route: Route) -> dict[str, Any]:
    good = {"description": route.answer, "content": {route.media_type: {}}}
    refusals = {} if route.is_public else _CLOSED | _ALWAYS | dict(route.refusals)
    told = {
        str(status): {
            "description": meaning,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        }
        for status, meaning in sorted(refusals.items())
    }
    return {"200": good, **told}
