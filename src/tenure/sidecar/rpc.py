"""JSON-RPC 2.0 over lines: whatever is sent gets an answer, and nothing that is sent ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from tenure.errors import InputError, TenureError

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
SHUTDOWN = "shutdown"
_MESSAGE_CHARS = 500
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

T = TypeVar("T")
Id = str | int | float | None
Method = Callable[[msgspec.Raw], object]


class Fault(Exception):
    """Why a call is answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Call(msgspec.Struct, frozen=True):
    """One request; without an id nobody waits for its answer."""

    jsonrpc: Literal["2.0"]
    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")
    id: Id | msgspec.UnsetType = msgspec.UNSET


_CALLS = msgspec.json.Decoder(Call)


def read_params(raw: msgspec.Raw, shape: type[T]) -> T:
    """The parameters of a call in their shape."""
    try:
        return msgspec.json.decode(raw, type=shape)
    except _UNREADABLE as error:
        raise Fault(INVALID_PARAMS, f"the parameters do not fit: {error}") from error


class Server:
    """Answers calls, those that take long beside the others."""

    def __init__(
        self, methods: Mapping[str, Method], slow: frozenset[str], send: Callable[[bytes], None]
    ) -> None:
        self._methods = methods
        self._slow = slow
        self._send = send
        self._sending = threading.Lock()

    def take(self, line: bytes | None) -> bool:
        """Answers a line, None being one that was too long; False when it is to end."""
        if line is None:
            self._refuse(None, Fault(INVALID_REQUEST, "the line is too long"))
            return True
        if not line.strip():
            return True
        try:
            call = _CALLS.decode(line)
        except _UNREADABLE as error:
            self._refuse(*_what_is_wrong(line, error))
            return True
        if call.method in self._slow:
            threading.Thread(target=self._answer, args=(call,), daemon=True).start()
        else:
            self._answer(call)
        return call.method != SHUTDOWN

    def _answer(self, call: Call) -> None:
        try:
            result = self._result(call)
            if not isinstance(call.id, msgspec.UnsetType):
                self._tell({"jsonrpc": "2.0", "id": call.id, "result": result})
        except Fault as fault:
            if not isinstance(call.id, msgspec.UnsetType):
                self._refuse(call.id, fault)

    def _result(self, call: Call) -> object:
        method = self._methods.get(call.method)
        if method is None:
            known = ", ".join(sorted(self._methods))
            raise Fault(METHOD_NOT_FOUND, f"there is no such method; known are {known}")
        try:
            return method(call.params)
        except Fault:
            raise
        except InputError as error:
            raise Fault(INVALID_PARAMS, str(error)) from error
        except TenureError as error:
            raise Fault(INTERNAL_ERROR, str(error)) from error
        except Exception as error:
            raise Fault(INTERNAL_ERROR, f"{type(error).__name__}: {error}") from error

    def _refuse(self, id_: Id, fault: Fault) -> None:
        told = fault.message.encode("utf-8", "replace").decode()[:_MESSAGE_CHARS]
        error = {"code": fault.code, "message": told}
        self._tell({"jsonrpc": "2.0", "id": id_, "error": error})

    def _tell(self, answer: dict[str, Any]) -> None:
        line = msgspec.json.encode(answer) + b"\n"
        with self._sending:
            self._send(line)


def _what_is_wrong(line: bytes, error: Exception) -> tuple[Id, Fault]:
    """Whether a line is no JSON at all or no request, and whose request it would have been."""
    try:
        known = msgspec.json.decode(line)
    except _UNREADABLE:
        return None, Fault(PARSE_ERROR, f"the line is not JSON: {error}")
    id_ = known.get("id") if isinstance(known, dict) else None
    if not isinstance(id_, str | int | float) or isinstance(id_, bool):
        id_ = None
    return id_, Fault(INVALID_REQUEST, f"the line is no request: {error}")
