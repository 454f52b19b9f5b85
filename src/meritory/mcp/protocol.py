"""The protocol in both of its eras: messages read, checked and answered, whatever carries them.

Handshake: a client opens with `initialize` and agrees on a version. Stateless: every request names
its version in `_meta`, and every result says what it is. Each request shows which era it is of.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, NoReturn

from meritory import __version__
from meritory.mcp.table import INSTRUCTIONS, TEMPLATES, TOOLS

STATELESS: Final = ("2026-07-28",)
HANDSHAKE: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
VERSIONS: Final = STATELESS + HANDSHAKE
# Later ones send every message alone.
WITH_BATCHES: Final = ("2025-03-26", "2024-11-05")
BATCH_LIMIT_COUNT: Final = 50
ID_LIMIT_CHARS: Final = 1_000
TTL_MS: Final = 3_600_000

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, INTERNAL = (
    *(-32700, -32600, -32601),
    *(-32602, -32603),
)
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022
# What the handshake era says where the stateless one says INVALID_PARAMS.
NO_RESOURCE: Final = -32002

_META: Final = "io.modelcontextprotocol/"
VERSION_KEY: Final = _META + "protocolVersion"
CAPABILITIES_KEY: Final = _META + "clientCapabilities"
SERVER_KEY: Final = _META + "serverInfo"
_SERVER: Final = {"name": "meritory", "title": "Meritory", "version": __version__}
# What only a daemon can answer.
LIVE: Final = frozenset({"tools/call", "resources/list", "resources/read"})
_CACHEABLE: Final = frozenset(
    {
        *("server/discover", "tools/list"),
        *("resources/list", "resources/templates/list", "resources/read"),
    }
)
_LASTING: Final = _CACHEABLE - LIVE

Json = dict[str, Any]


class McpFault(Exception):
    """What is answered as an error of the protocol."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class McpRequest(NamedTuple):
    """One request whose form was checked."""

    id: str | int
    method: str
    params: Json
    is_stateless: bool

    @property
    def meta(self) -> Json:
        """What the client tells beside the parameters."""
        found = self.params.get("_meta")
        return found if isinstance(found, dict) else {}


Live = Callable[[McpRequest], Json]


# -- reading --------------------------------------------------------------------------------


def parse(raw: bytes) -> Any:
    """The message in some bytes, as strict JSON."""
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_no_json, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise McpFault(PARSE_ERROR, f"not UTF-8: byte {error.start + 1} does not fit") from error
    except RecursionError as error:
        raise McpFault(PARSE_ERROR, "the JSON is nested too deeply") from error
    except ValueError as error:
        raise McpFault(PARSE_ERROR, f"not JSON: {str(error)[:200]}") from error


def _no_json(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def is_request(message: object) -> bool:
    """Whether a message is one that has to be answered."""
    return isinstance(message, dict) and "id" in message and "method" in message


def id_of(message: object) -> str | int | None:
    """The id of a message, where it has one that can be told back."""
    found = message.get("id") if isinstance(message, dict) else None
    is_fit = isinstance(found, int | str) and not isinstance(found, bool)
    if not is_fit or (isinstance(found, str) and len(found) > ID_LIMIT_CHARS):
        return None
    return found


def is_stateless(message: object) -> bool:
    """Whether a message is of the era in which every request stands for itself."""
    if not isinstance(message, dict):
        return False
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return message.get("method") == "server/discover" or (
        isinstance(meta, dict) and VERSION_KEY in meta
    )


def needs_daemon(message: object) -> bool:
    """Whether the answer to a message may take a while."""
    if isinstance(message, list):
        return True
    method = message.get("method") if isinstance(message, dict) else None
    return isinstance(method, str) and method in LIVE and is_request(message)


def read(message: object) -> McpRequest:
    """The request that a message is; a Fault says what is wrong with it."""
    if not isinstance(message, dict):
        raise McpFault(INVALID_REQUEST, "a message is a JSON object")
    method, params = message.get("method"), message.get("params")
    request_id = id_of(message)
    if message.get("jsonrpc") != "2.0":
        raise McpFault(INVALID_REQUEST, 'a message says "jsonrpc": "2.0"')
    if not isinstance(method, str):
        raise McpFault(INVALID_REQUEST, "a request names its method")
    if request_id is None:
        raise McpFault(INVALID_REQUEST, "the id of a request is a text or a whole number")
    if not isinstance(params, dict | None):
        raise McpFault(INVALID_PARAMS, "params must be an object")
    request = McpRequest(request_id, method, params or {}, is_stateless(message))
    if request.is_stateless:
        _check_envelope(request.meta)
    return request


def _check_envelope(meta: Mapping[str, Any]) -> None:
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


def unsupported(version: str) -> McpFault:
    """What a client hears whose version is not spoken, or begins with a handshake."""
    told = {"supported": list(VERSIONS), "requested": version[:100]}
    hint = "; open with initialize" if version in HANDSHAKE else ""
    return McpFault(UNSUPPORTED_VERSION, f"Unsupported protocol version{hint}", told)


# -- answering ------------------------------------------------------------------------------


def respond(message: object, live: Live, version: str | None = None) -> Any:
    """The answer to a message, or None where none is due; `version` is the one agreed on."""
    if isinstance(message, list):
        return _respond_batch(message, live, version)
    is_owed = not isinstance(message, dict) or "id" in message or "method" not in message
    if not is_owed or _is_reply(message):
        return None
    try:
        request = read(message)
        return answer(request, _result(request, live))
    except McpFault as fault:
        return refusal(message, fault)


def _is_reply(message: object) -> bool:
    """Nothing is ever asked of a client, so there is nothing to do with what it answers."""
    return (
        isinstance(message, dict)
        and "method" not in message
        and ("result" in message or "error" in message)
    )


def _respond_batch(messages: list[Any], live: Live, version: str | None) -> Any:
    if version not in WITH_BATCHES:
        return refusal(
            None, McpFault(INVALID_REQUEST, "every message is sent alone, not in a list")
        )
    if not 1 <= len(messages) <= BATCH_LIMIT_COUNT:
        told = f"a list holds 1 to {BATCH_LIMIT_COUNT} messages"
        return refusal(None, McpFault(INVALID_REQUEST, told))
    found = [
        refusal(one, McpFault(INVALID_REQUEST, "this message is sent alone"))
        if isinstance(one, list) or (isinstance(one, dict) and one.get("method") == "initialize")
        else respond(one, live)
        for one in messages
    ]
    return [one for one in found if one is not None] or None


def _result(request: McpRequest, live: Live) -> Json:
    if request.method in LIVE:
        return live(request)
    known = _STATELESS_ONLY if request.is_stateless else _HANDSHAKE_ONLY
    make = known.get(request.method) or _EITHER.get(request.method)
    if make is None:
        raise McpFault(NO_METHOD, f"there is no method {request.method[:80]!r}")
    return make(request)


def answer(request: McpRequest, result: Json) -> Json:
    """A result as it is sent, with what its era adds to it."""
    if request.is_stateless:
        told = result.get("_meta")
        meta = {**(told if isinstance(told, dict) else {}), SERVER_KEY: _SERVER}
        result = {**result, "resultType": "complete", "_meta": meta}
        if request.method in _CACHEABLE:
            # What is remembered changes at any time, and belongs to one user.
            result["ttlMs"] = TTL_MS if request.method in _LASTING else 0
            result["cacheScope"] = "private"
    return {"jsonrpc": "2.0", "id": request.id, "result": result}


def refusal(message: object, fault: McpFault) -> Json:
    """A fault as it is sent."""
    code = fault.code
    if code == NO_RESOURCE and is_stateless(message):
        code = INVALID_PARAMS
    error: Json = {"code": code, "message": fault.message}
    if fault.data is not None:
        error["data"] = fault.data
    return {"jsonrpc": "2.0", "id": id_of(message), "error": error}


def failed(text: str) -> Json:
    """The result of a tool that could not do it, in words that say what to do."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


# -- what needs no daemon -------------------------------------------------------------------


def _initialize(request: McpRequest) -> Json:
    asked = request.params.get("protocolVersion")
    if not isinstance(asked, str):
        raise McpFault(INVALID_PARAMS, "initialize names its protocolVersion")
    return {
        "protocolVersion": asked if asked in HANDSHAKE else HANDSHAKE[0],
        "capabilities": {
            "tools": {"listChanged": False},
            "resources": {"subscribe": False, "listChanged": False},
        },
        "serverInfo": _SERVER,
        "instructions": INSTRUCTIONS,
    }


def _discover(request: McpRequest) -> Json:
    return {
        "supportedVersions": list(VERSIONS),
        "capabilities": {"tools": {}, "resources": {}},
        "instructions": INSTRUCTIONS,
    }


def _ping(request: McpRequest) -> Json:
    return {}


def _tools(request: McpRequest) -> Json:
    _refuse_cursor(request)
    return {"tools": [tool.described() for tool in TOOLS]}


def _templates(request: McpRequest) -> Json:
    _refuse_cursor(request)
    return {"resourceTemplates": list(TEMPLATES)}


def _refuse_cursor(request: McpRequest) -> None:
    if request.params.get("cursor") is not None:
        raise McpFault(INVALID_PARAMS, "there is no such cursor: this list has one page")


_HANDSHAKE_ONLY: Final = {"initialize": _initialize, "ping": _ping}
_STATELESS_ONLY: Final = {"server/discover": _discover}
_EITHER: Final = {"tools/list": _tools, "resources/templates/list": _templates}
