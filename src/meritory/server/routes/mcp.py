"""MCP over HTTP: one endpoint, one message per request, with the same authentication."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import partial
from typing import Any

from meritory.domain.errors import MeritoryError
from meritory.domain.memory import NAME_LIMIT_CHARS
from meritory.mcp import protocol
from meritory.mcp.protocol import Json, McpFault, McpRequest, failed, framed
from meritory.mcp.table import BY_NAME
from meritory.server.mcp_tools import Caller, call_tool, list_resources, read_resource
from meritory.server.table import Call, Route, Scoped, TextReply

ACTOR = "mcp"
_JSON = "application/json"
_VERSION, _METHOD, _NAME = "mcp-protocol-version", "mcp-method", "mcp-name"
# The parameter of a method that a header repeats.
_NAMED = {"tools/call": "name", "resources/read": "uri"}
_ENCODED_START, _ENCODED_END = "=?base64?", "?="
# Where clients put their session; the first one present counts.
_SESSION_META = ("sessionId", "threadId", "session_id")
# The client's harness, session and directory.
McpQuery = Scoped.plus(**dict.fromkeys(("harness", "session_key", "cwd"), (str | None, None)))
# A request without the header uses the last version that had none.
_UNNAMED_VERSION = "2025-03-26"
_STATUSES = {protocol.NO_METHOD: 404, protocol.INTERNAL: 200}


def endpoint(call: Call) -> TextReply:
    """Answer one JSON-RPC message of MCP, or a list of them in versions that have lists."""
    try:
        message = protocol.parse(call.body)
    except McpFault as fault:
        return _reply(protocol.refusal(None, fault), is_strict=True)
    header = call.headers.get(_VERSION)
    is_stateless = protocol.is_stateless(message) or header in protocol.STATELESS
    try:
        if is_stateless:
            _check_headers(call.headers, message)
        elif header is not None and header not in protocol.HANDSHAKE:
            raise protocol.unsupported(header)
    except McpFault as fault:
        return _reply(protocol.refusal(message, fault), is_strict=True)
    version = None if is_stateless else header or _UNNAMED_VERSION
    reply = protocol.respond(message, partial(_dispatch, call), version)
    if reply is None:
        return TextReply("", _JSON, 202)
    return _reply(reply, is_strict=is_stateless)


def _reply(reply: Any, *, is_strict: bool) -> TextReply:
    """Return a reply; older versions put the error only into the message, unless the id is lost."""
    fault = reply.get("error") if isinstance(reply, dict) else None
    status = 200
    if fault is not None and (is_strict or reply.get("id") is None):
        status = _STATUSES.get(fault["code"], 400)
    # Not by msgspec, which refuses ids that a client may send: huge numbers, lone surrogates.
    return TextReply(framed(reply).decode("ascii"), _JSON, status)


def _check_headers(headers: Mapping[str, str], message: Any) -> None:
    """Refuse headers that differ from the body: a proxy may have decided by them."""
    if not isinstance(message, dict) or "id" not in message:
        return
    names = list(headers.keys())
    params = message.get("params")
    inside = params if isinstance(params, dict) else {}
    meta = inside.get("_meta")
    if not isinstance(meta, dict) or protocol.VERSION_KEY not in meta:
        raise McpFault(protocol.INVALID_PARAMS, f"params._meta needs {protocol.VERSION_KEY}")
    method = message.get("method")
    wanted: Json = {_VERSION: meta[protocol.VERSION_KEY], _METHOD: method}
    field = _NAMED.get(method) if isinstance(method, str) else None
    if field is not None and field in inside:
        wanted[_NAME] = inside[field]
    for name, value in wanted.items():
        given = headers.get(name)
        if names.count(name) != 1 or given is None or _header_value(given) != value:
            text = f"Header mismatch: {name} must occur once and match the body"
            raise McpFault(protocol.HEADER_MISMATCH, text)


def _header_value(value: str) -> str | None:
    """Return the value of a header; None if its encoding is wrong."""
    if not (value.startswith(_ENCODED_START) and value.endswith(_ENCODED_END)):
        return value
    inner = value[len(_ENCODED_START) : -len(_ENCODED_END)]
    try:
        return base64.b64decode(inner, validate=True).decode("utf-8")
    except ValueError:
        return None


# -- tools and resources ---------------------------------------------------------------------


def _dispatch(call: Call, request: McpRequest) -> Json:
    query = call.query
    project = call.project(query.project, query.cwd, query.user)
    engine = call.engine(query.user, query.agent, project, actor=ACTOR)
    given = [request.meta.get(name) for name in _SESSION_META]
    keys = [key for key in (*given, query.session_key) if isinstance(key, str) and _is_name(key)]
    keys = [key for key in keys if call.grant.can_use_session(engine.services, key)]
    harness = query.harness if query.harness and _is_name(query.harness) else None
    caller = Caller(call.open(engine), call.grant, harness, tuple(dict.fromkeys(keys)))
    if request.method != "tools/call":
        try:
            if request.method == "resources/list":
                return list_resources(caller, request.params.get("cursor"))
            return read_resource(caller, request.params.get("uri"))
        except MeritoryError as error:
            if error.status >= 500:
                caller.memory.services.observer.failed("mcp", error, None)
            raise McpFault(protocol.INTERNAL, str(error)) from error
    name, arguments = request.params.get("name"), request.params.get("arguments")
    if not isinstance(name, str):
        raise McpFault(protocol.INVALID_PARAMS, "a call must name its tool")
    if not isinstance(arguments, dict | None):
        raise McpFault(protocol.INVALID_PARAMS, "arguments must be an object")
    if call.grant.role == "read" and name in BY_NAME and not BY_NAME[name].reads_only:
        return failed(f"{name} needs a token with the role write; this one may only read.")
    return call_tool(caller, name, arguments or {})


def _is_name(text: str) -> bool:
    return 0 < len(text) <= NAME_LIMIT_CHARS and text.isprintable() and bool(text.strip())


# Read access is enough here: `_dispatch` checks the role for tools that change something.
_REPLY = dict[str, Any]
ROUTES = (
    Route("POST", "/mcp", endpoint, "read", "scope", query=McpQuery, body=bytes, reply=_REPLY),
)
