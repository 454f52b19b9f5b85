"""The route table as an OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from meritory import __version__
from meritory.server.event_stream import EventStream
from meritory.server.problems import MEDIA_TYPE, Problem
from meritory.server.table import Page, Route, TextReply

# Media types of replies that are not JSON.
_CONTENT = {TextReply: "text/plain", Page: "text/html", EventStream: "text/event-stream"}
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")


def document(table: Sequence[Route]) -> dict[str, Any]:
    """Return every route with its parameters, body, replies and access class."""
    replies: dict[Route, tuple[Any, ...]] = {}
    for route in table:
        kind = route.reply or get_type_hints(route.handler)["return"]
        # A handler may reply with one of several types.
        is_union = get_origin(kind) in (Union, UnionType)
        replies[route] = get_args(kind) if is_union else (kind,)
    json_replies = [kind for kinds in replies.values() for kind in kinds if kind not in _CONTENT]
    requests = [kind for route in table for kind in (route.query, route.body)]
    types = list(
        dict.fromkeys(
            [Problem, *(kind for kind in requests if kind not in (None, bytes)), *json_replies]
        )
    )
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}", schema_hook=_custom_schema
    )
    by_type = dict(zip(types, schemas, strict=True))
    for record in set(_records(msgspec.inspect.multi_type_info(json_replies))):
        # A record's defaults only matter to its constructor: a reply contains those fields too.
        schema = components[record.__name__]
        for name, described in schema["properties"].items():
            if "default" in described:
                del described["default"]
                schema["required"].append(name)
    paths: dict[str, dict[str, Any]] = {}
    for route in table:
        path = _PARAMETER.sub(r"{\1}", route.path)
        operation = _operation(route, replies[route], by_type, components)
        paths.setdefault(path, {})[route.method.lower()] = operation
    for kind in {route.query for route in table} - {route.body for route in table}:
        components.pop(_name(by_type[kind]), None)
    return {
        "openapi": "3.1.0",
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


def _custom_schema(kind: type) -> dict[str, Any]:
    """Return the schema of `object`, the one type of records that msgspec has none for."""
    if kind is object:
        return {"description": "Any JSON value"}
    raise NotImplementedError


def _records(described: Any) -> Iterator[type]:
    """Yield the dataclasses among types, with those of their fields."""
    if isinstance(described, msgspec.inspect.DataclassType):
        yield described.cls
    inner = [field.type for field in getattr(described, "fields", ())]
    inner += getattr(described, "types", ())
    inner += [getattr(described, name, None) for name in ("item_type", "value_type")]
    for kind in described if isinstance(described, tuple) else inner:
        if kind is not None:
            yield from _records(kind)


def _operation(
    route: Route, replies: Sequence[Any], by_type: dict[Any, Any], components: dict[str, Any]
) -> dict[str, Any]:
    name = getattr(route.handler, "__name__", "")
    noun = re.sub(r"\W+", "_", _PARAMETER.sub("", route.path)).strip("_")
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(route.path)
    ]
    if replies[0] in _CONTENT:
        content: dict[str, Any] = {_CONTENT[replies[0]]: {"schema": {"type": "string"}}}
    else:
        schemas = [by_type[kind] for kind in replies]
        schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        content = {"application/json": {"schema": schema}}
    problem = {MEDIA_TYPE: {"schema": by_type[Problem]}}
    made: dict[str, Any] = {
        "operationId": f"{route.method.lower()}_{noun}_{name}",
        "summary": route.summary,
        "x-access": route.access,
        "x-reach": route.reach,
        "parameters": [*in_path, *_in_query(components[_name(by_type[route.query])])],
        "responses": {
            "200": {"description": "Done", "content": content},
            "default": {"description": "The error", "content": problem},
        },
    }
    if route.access not in ("health", "login"):
        made["security"] = [{"token": []}]
    if route.body is not None:
        # A body of bytes is described elsewhere, by its own protocol.
        schema = {"type": "object"} if route.body is bytes else by_type[route.body]
        made["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    return made


def _name(schema: dict[str, Any]) -> str:
    """Return the name of a component."""
    return str(schema["$ref"]).rpartition("/")[2]


def _in_query(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parameters of a query string; one is left out rather than null."""
    parameters = []
    for name, described in schema["properties"].items():
        kinds = [kind for kind in described.get("anyOf", []) if kind != {"type": "null"}]
        if len(kinds) == 1:
            described = kinds[0]
        elif described.get("default", ...) is None:
            described = {key: value for key, value in described.items() if key != "default"}
        is_required = name in schema["required"]
        parameters.append(
            {"name": name, "in": "query", "required": is_required, "schema": described}
        )
    return parameters
