"""MCP in both of its eras: parse, check and answer messages, on any transport.

Handshake era: a client opens with `initialize` and agrees on a version. Stateless era: every
request names its version in `_meta`, and every result its type. Each request shows its era.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, NoReturn

from meritory import __version__
from meritory.mcp.table import INSTRUCTIONS, TEMPLATES, TOOLS

STATELESS: Final = ("2026-07-28",)
HANDSHAKE: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
VERSIONS: Final = STATELESS + HANDSHAKE
# Later versions send every message alone.
WITH_BATCHES: Final = ("2025-03-26", "2024-11-05")
BATCH_LIMIT_COUNT: Final = 50
ID_LIMIT_CHARS: Final = 1_000
TTL_MS: Final = 3_600_000

PARSE_ERROR, INTERNAL = -32700, -32603
INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32600, -32601, -32602
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022
# The code of the handshake era for what is INVALID_PARAMS in the stateless one.
NO_RESOURCE: Final = -32002

_META: Final = "io.modelcontextprotocol/"
VERSION_KEY: Final = _META + "protocolVersion"
CAPABILITIES_KEY: Final = _META + "clientCapabilities"
SERVER_KEY: Final = _META + "serverInfo"
_SERVER: Final = {"name": "meritory", "title": "Meritory", "version": __version__}
# Methods that only the daemon can answer.
LIVE: Final = frozenset({"tools/call", "resources/list", "resources/read"})
_STATIC: Final = frozenset({"server/discover", "tools/list", "resources/templates/list"})
_CACHEABLE: Final = _STATIC | (LIVE - {"tools/call"})

Json = dict[str, Any]


class McpFault(Exception):
    """An error that is sent as a protocol error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class McpRequest(NamedTuple):
    """A request whose form is valid."""

    id: str | int
    method: str
    params: Json
    is_stateless: bool

    @property
    def meta(self) -> Json:
        """Return the metadata of the request."""
        found = self.params.get("_meta")
        return found if isinstance(found, dict) else {}


Live = Callable[[McpRequest], Json]


# -- reading --------------------------------------------------------------------------------


def parse(raw: bytes) -> Any:
    """Parse a message as strict JSON."""
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=refuse_constant, parse_float=finite)
    except UnicodeDecodeError as error:
        raise McpFault(PARSE_ERROR, f"not UTF-8: byte {error.start + 1} is invalid") from error
    except RecursionError as error:
        raise McpFault(PARSE_ERROR, "the JSON is nested too deeply") from error
    except ValueError as error:
        raise McpFault(PARSE_ERROR, f"not JSON: {str(error)[:200]}") from error


def refuse_constant(word: str) -> NoReturn:
    """Refuse NaN and the infinities, which are not JSON."""
    raise ValueError(f"{word} is not JSON")


def finite(text: str) -> float:
    """Return a number; refuse one that is too large for a float."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def id_of(message: object) -> str | int | None:
    """Return the id of a message, None without a valid one."""
    found = message.get("id") if isinstance(message, dict) else None
    is_fit = isinstance(found, int | str) and not isinstance(found, bool)
    if not is_fit or (isinstance(found, str) and len(found) > ID_LIMIT_CHARS):
        return None
    return found


def is_stateless(message: object) -> bool:
    """Return whether a message is of the stateless era."""
    if not isinstance(message, dict):
        return False
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return message.get("method") == "server/discover" or (
        isinstance(meta, dict) and VERSION_KEY in meta
    )


def needs_daemon(message: object) -> bool:
    """Return whether only the daemon can answer a message."""
    if not isinstance(message, dict):
        return isinstance(message, list)
    method = message.get("method")
    return isinstance(method, str) and method in LIVE and "id" in message


def read(message: object) -> McpRequest:
    """Read a request; raise McpFault if it is invalid."""
    if not isinstance(message, dict):
        raise McpFault(INVALID_REQUEST, "a message must be a JSON object")
    method, params = message.get("method"), message.get("params")
    request_id = id_of(message)
    if message.get("jsonrpc") != "2.0":
        raise McpFault(INVALID_REQUEST, 'a message must have "jsonrpc": "2.0"')
    if not isinstance(method, str):
        raise McpFault(INVALID_REQUEST, "a request needs a method")
    if request_id is None:
        raise McpFault(INVALID_REQUEST, "the id of a request must be text or an integer")
    if not isinstance(params, dict | None):
        raise McpFault(INVALID_PARAMS, "params must be an object")
    request = McpRequest(request_id, method, params or {}, is_stateless(message))
    if request.is_stateless:
        meta = request.meta
        missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
        if missing:
            raise McpFault(INVALID_PARAMS, f"params._meta needs {' and '.join(missing)}")
        version = meta[VERSION_KEY]
        if not isinstance(version, str):
            raise McpFault(INVALID_PARAMS, f"{VERSION_KEY} must be text")
        if not isinstance(meta[CAPABILITIES_KEY], dict):
            raise McpFault(INVALID_PARAMS, f"{CAPABILITIES_KEY} must be an object")
        if version not in STATELESS:
            raise unsupported(version)
    return request


def unsupported(version: str) -> McpFault:
    """Return the error for an unsupported version."""
    data = {"supported": list(VERSIONS), "requested": version[:100]}
    hint = "; open with initialize" if version in HANDSHAKE else ""
    return McpFault(UNSUPPORTED_VERSION, f"Unsupported protocol version{hint}", data)


# -- answering ------------------------------------------------------------------------------


def respond(message: object, live: Live, version: str | None = None) -> Any:
    """Answer a message, None if it needs no answer; `version` is the agreed one."""
    if isinstance(message, list):
        return _respond_batch(message, live, version)
    if isinstance(message, dict):
        is_notification = "method" in message and "id" not in message
        # The server never asks a client, so a reply means nothing.
        is_reply = "method" not in message and ("result" in message or "error" in message)
        if is_notification or is_reply:
            return None
    try:
        request = read(message)
        return answer(request, _result(request, live))
    except McpFault as fault:
        return refusal(message, fault)


def _respond_batch(messages: list[Any], live: Live, version: str | None) -> Any:
    if version not in WITH_BATCHES:
        return refusal(None, McpFault(INVALID_REQUEST, "send every message alone, not in a list"))
    if not 1 <= len(messages) <= BATCH_LIMIT_COUNT:
        limit = f"a list must hold 1 to {BATCH_LIMIT_COUNT} messages"
        return refusal(None, McpFault(INVALID_REQUEST, limit))
    replies = [
        refusal(one, McpFault(INVALID_REQUEST, "send this message alone"))
        if isinstance(one, list) or (isinstance(one, dict) and one.get("method") == "initialize")
        else respond(one, live)
        for one in messages
    ]
    return [reply for reply in replies if reply is not None] or None


def _result(request: McpRequest, live: Live) -> Json:
    """Return the result of a request; only those in LIVE need the daemon."""
    if request.method in LIVE:
        return live(request)
    method, is_stateless = request.method, request.is_stateless
    if method == "initialize" and not is_stateless:
        asked = request.params.get("protocolVersion")
        if not isinstance(asked, str):
            raise McpFault(INVALID_PARAMS, "initialize needs a protocolVersion")
        return {
            "protocolVersion": asked if asked in HANDSHAKE else HANDSHAKE[0],
            "capabilities": {
                "tools": {"listChanged": False},
                "resources": {"subscribe": False, "listChanged": False},
            },
            "serverInfo": _SERVER,
            "instructions": INSTRUCTIONS,
        }
    if method == "ping" and not is_stateless:
        return {}
    if method == "server/discover" and is_stateless:
        return {
            "supportedVersions": list(VERSIONS),
            "capabilities": {"tools": {}, "resources": {}},
            "instructions": INSTRUCTIONS,
        }
    if method not in ("tools/list", "resources/templates/list"):
        raise McpFault(NO_METHOD, f"unknown method {method[:80]!r}")
    if request.params.get("cursor") is not None:
        raise McpFault(INVALID_PARAMS, "unknown cursor: this list has one page")
    if method == "tools/list":
        return {"tools": [tool.described() for tool in TOOLS]}
    return {"resourceTemplates": list(TEMPLATES)}


def answer(request: McpRequest, result: Json) -> Json:
    """Return the message of a result, with the fields of its era."""
    if request.is_stateless:
        given = result.get("_meta")
        meta = {**(given if isinstance(given, dict) else {}), SERVER_KEY: _SERVER}
        result = {**result, "resultType": "complete", "_meta": meta}
        if request.method in _CACHEABLE:
            # Memories change at any time and belong to one user.
            result["ttlMs"] = 0 if request.method in LIVE else TTL_MS
            result["cacheScope"] = "private"
    return {"jsonrpc": "2.0", "id": request.id, "result": result}


def refusal(message: object, fault: McpFault) -> Json:
    """Return the message of an error."""
    code = fault.code
    if code == NO_RESOURCE and is_stateless(message):
        code = INVALID_PARAMS
    error: Json = {"code": code, "message": fault.message}
    if fault.data is not None:
        error["data"] = fault.data
    return {"jsonrpc": "2.0", "id": id_of(message), "error": error}


def failed(text: str) -> Json:
    """Return the result of a failed tool call."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


# -- lines ----------------------------------------------------------------------------------

LINE_LIMIT_BYTES: Final = 2 * 1024 * 1024
_PIECE_BYTES: Final = 64 * 1024


def lines(
    read: Callable[[int], bytes], limit_bytes: int = LINE_LIMIT_BYTES
) -> Iterator[bytes | None]:
    """Yield the lines that are not blank; None for one over the limit, which is skipped."""
    held = bytearray()
    is_too_long = False
    while piece := read(_PIECE_BYTES):
        *ends, rest = piece.split(b"\n")
        for end in ends:
            held += end
            if is_too_long or len(held) > limit_bytes:
                yield None
            elif line := bytes(held).strip():
                yield line
            held.clear()
            is_too_long = False
        held += rest
        if len(held) > limit_bytes:
            held.clear()
            is_too_long = True
    if is_too_long:
        yield None
    elif line := bytes(held).strip():
        yield line


def framed(message: Any) -> bytes:
    """Return a message as one line of ASCII."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"
