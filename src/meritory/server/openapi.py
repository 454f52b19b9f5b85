"""The route table as an OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from meritory import __version__
from meritory.server.event_stream import EventStream
from meritory.server.problems import MEDIA_TYPE, Problem
from meritory.server.table import Page, Route, TextReply

OPENAPI_VERSION = "3.1.0"
_REF = "#/components/schemas/{name}"
# What is no JSON, and what it is instead.
_CONTENT = {TextReply: "text/plain", Page: "text/html", EventStream: "text/event-stream"}
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")


def document(table: Sequence[Route]) -> dict[str, Any]:
    """Every route with its parameters, body, replies and class."""
    types = list(dict.fromkeys([Problem, *_types(table)]))
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    known = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        path = _PARAMETER.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, known, components)
    for kind in {route.query for route in table} - {route.body for route in table}:
        components.pop(_name(known[kind]), None)
    return {
        "openapi": OPENAPI_VERSION,
        "info": {
            "title": "Meritory",
            "version": __version__,
            "description": "Memory for AI agents that has to earn its place.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _types(table: Iterable[Route]) -> Iterator[Any]:
    for route in table:
        yield route.query
        if route.body is not None and route.body is not bytes:
            yield route.body
        yield from _replies(route)


def _replies(route: Route) -> tuple[Any, ...]:
    """The types a route may answer with; a text has none."""
    if route.reply in _CONTENT:
        return ()
    return route.reply if isinstance(route.reply, tuple) else (route.reply,)


def _operation(route: Route, known: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    name = getattr(route.handler, "__name__", "")
    noun = re.sub(r"\W+", "_", _PARAMETER.sub("", route.path)).strip("_")
    made: dict[str, Any] = {
        "operationId": f"{route.method.lower()}_{noun}_{name}",
        "summary": route.summary,
        "x-access": route.access,
        "x-reach": route.reach,
        "parameters": [*_in_path(route), *_in_query(components[_name(known[route.query])])],
        "responses": {"200": _reply(route, known), "default": _problem(known)},
    }
    if route.access not in ("health", "login"):
        made["security"] = [{"token": []}]
    if route.body is not None:
        # What is read as it came describes itself elsewhere.
        schema = {"type": "object"} if route.body is bytes else known[route.body]
        content = {"application/json": {"schema": schema}}
        made["requestBody"] = {"required": True, "content": content}
    return made


def _in_path(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(route.path)
    ]


def _name(schema: dict[str, Any]) -> str:
    """What a type is called here; two of one name have more of their module's in front."""
    return str(schema["$ref"]).rpartition("/")[2]


def _in_query(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema["required"],
            "schema": _without_null(field),
        }
        for name, field in schema["properties"].items()
    ]


def _without_null(field: dict[str, Any]) -> dict[str, Any]:
    """A query parameter is left out rather than null."""
    kinds = [kind for kind in field.get("anyOf", []) if kind != {"type": "null"}]
    if len(kinds) == 1:
        return dict(kinds[0])
    return {name: value for name, value in field.items() if name != "default" or value is not None}


def _reply(route: Route, known: dict[Any, Any]) -> dict[str, Any]:
    if route.reply in _CONTENT:
        content = {_CONTENT[route.reply]: {"schema": {"type": "string"}}}
        return {"description": "Done", "content": content}
    schemas = [known[kind] for kind in _replies(route)]
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return {"description": "Done", "content": {"application/json": {"schema": schema}}}


def _problem(known: dict[Any, Any]) -> dict[str, Any]:
    return {"description": "What went wrong", "content": {MEDIA_TYPE: {"schema": known[Problem]}}}
