"""JSON-RPC 2.0 over lines: whatever is sent gets an answer, and nothing that is sent ends it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from meritory.domain.errors import InputError, MeritoryError

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
# The first of the codes that JSON-RPC leaves to servers.
CANCELLED = -32000
SHUTDOWN = "shutdown"
_MESSAGE_CHARS = 500
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

T = TypeVar("T")
Id = str | int | float | None
Method = Callable[[msgspec.Raw], object]
Reply = dict[str, Any]


class RpcFault(Exception):
    """Why a call is answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class RpcCall(msgspec.Struct, frozen=True):
    """One request; without an id it gets no answer."""

    jsonrpc: Literal["2.0"]
    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")
    id: Id | msgspec.UnsetType = msgspec.UNSET


_CALLS = msgspec.json.Decoder(RpcCall)
_SHUT_DOWN = RpcFault(CANCELLED, "cancelled by shutdown")
PROCESS_ENDED = RpcFault(CANCELLED, "cancelled: the process ends")


def read_params(raw: msgspec.Raw, shape: type[T]) -> T:
    """The parameters of a call in their shape."""
    try:
        return msgspec.json.decode(raw, type=shape)
    except _UNREADABLE as error:
        raise RpcFault(INVALID_PARAMS, f"the parameters do not fit: {error}") from error


class RpcServer:
    """Answers calls, those that take long beside the others."""

    def __init__(
        self, methods: Mapping[str, Method], slow: frozenset[str], send: Callable[[bytes], None]
    ) -> None:
        self._methods = methods
        self._slow = slow
        self._send = send
        self._sending = threading.Lock()
        # Slow calls without an answer yet, by their number; the lock guards them.
        self._pending: dict[int, RpcCall] = {}
        self._numbers = itertools.count()
        self._has_ended = False

    def take(self, line: bytes | None) -> bool:
        """Answers a line, None being one that was too long; False when it is to end."""
        if line is None:
            self._tell(_refusal(None, RpcFault(INVALID_REQUEST, "the line is too long")))
            return True
        if not line.strip():
            return True
        try:
            call = _CALLS.decode(line)
        except _UNREADABLE as error:
            self._tell(_refusal(*_what_is_wrong(line, error)))
            return True
        if self._has_ended:
            self._tell(_refusal(call.id, _SHUT_DOWN))
        elif call.method in self._slow:
            number = next(self._numbers)
            with self._sending:
                self._pending[number] = call
            threading.Thread(target=self._answer_later, args=(number, call), daemon=True).start()
        else:
            self._has_ended = call.method == SHUTDOWN
            if self._has_ended:
                # First, so that the answer to the shutdown is the last line.
                self.cancel(_SHUT_DOWN)
            self._tell(self._answer(call))
        return not self._has_ended

    def cancel(self, fault: RpcFault) -> None:
        """Answer every slow call that still runs with an error; its result is dropped."""
        with self._sending:
            pending, self._pending = list(self._pending.values()), {}
            for call in pending:
                self._write(_refusal(call.id, fault))

    def _answer_later(self, number: int, call: RpcCall) -> None:
        reply = self._answer(call)
        with self._sending:
            if self._pending.pop(number, None) is not None:
                self._write(reply)

    def _answer(self, call: RpcCall) -> Reply | None:
        """Carry out a call and return its reply; None when the caller wants none."""
        try:
            result = self._result(call)
        except RpcFault as fault:
            return _refusal(call.id, fault)
        if isinstance(call.id, msgspec.UnsetType):
            return None
        return {"jsonrpc": "2.0", "id": call.id, "result": result}

    def _result(self, call: RpcCall) -> object:
        method = self._methods.get(call.method)
        if method is None:
            known = ", ".join(sorted(self._methods))
            raise RpcFault(METHOD_NOT_FOUND, f"there is no such method; known are {known}")
        try:
            return method(call.params)
        except RpcFault:
            raise
        except InputError as error:
            raise RpcFault(INVALID_PARAMS, str(error)) from error
        except MeritoryError as error:
            raise RpcFault(INTERNAL_ERROR, str(error)) from error
        except Exception as error:
            raise RpcFault(INTERNAL_ERROR, f"{type(error).__name__}: {error}") from error

    def _tell(self, reply: Reply | None) -> None:
        with self._sending:
            self._write(reply)

    def _write(self, reply: Reply | None) -> None:
        if reply is not None:
            self._send(msgspec.json.encode(reply) + b"\n")


def _refusal(id_: Id | msgspec.UnsetType, fault: RpcFault) -> Reply | None:
    if isinstance(id_, msgspec.UnsetType):
        return None
    told = fault.message.encode("utf-8", "replace").decode()[:_MESSAGE_CHARS]
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": fault.code, "message": told}}


def _what_is_wrong(line: bytes, error: Exception) -> tuple[Id, RpcFault]:
    """Whether a line is no JSON at all or no request, and whose request it would have been."""
    try:
        known = msgspec.json.decode(line)
    except _UNREADABLE:
        return None, RpcFault(PARSE_ERROR, f"the line is not JSON: {error}")
    id_ = known.get("id") if isinstance(known, dict) else None
    if not isinstance(id_, str | int | float) or isinstance(id_, bool):
        id_ = None
    return id_, RpcFault(INVALID_REQUEST, f"the line is no request: {error}")
