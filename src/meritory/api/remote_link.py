"""Connections to a daemon: kept open between calls, never trusted to be alive."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any

import msgspec

from meritory.api.backend import Address
from meritory.api.client import DaemonDown, UnixConnection, refusal
from meritory.domain.errors import BadReply, InputError, MeritoryError, PortTimeout
from meritory.settings.home import DAEMON_NAME, TOKEN_NAME

REQUEST_TIMEOUT_MS = 30_000
# What the daemon works through before it answers: jobs, vectors, a copy of everything.
LONG_TIMEOUT_MS = 600_000
# Shorter than the daemon waits for another request on an open connection.
_IDLE_LIMIT_S = 4.0
_PAUSE_S = 0.05
# Told before anything was done: the same request again is right, whatever it is.
_LATER = (429, 503)
_LATER_CODES = ("too_many", "overloaded")
_DOWN_HINT = "`meritory up --background` starts it"
_AWAY_HINT = "check that it runs, and host and port of its url"


class _Lost(Exception):
    """The connection broke; `is_sent` when the daemon may have got the request all the same."""

    def __init__(self, *, is_sent: bool) -> None:
        self.is_sent = is_sent


class DaemonLink:
    """Asks one daemon, from any thread; there are as many connections as threads ask at once."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[tuple[http.client.HTTPConnection, float]] = []
        self._lock = threading.Lock()
        self._owner_pid = os.getpid()
        # Programs that never close shall not leave open sockets behind.
        weakref.finalize(self, _close_all, self._idle)

    def ask(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        is_repeatable: bool,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> bytes:
        """The daemon's answer; raises what the daemon would have raised in this process."""
        content = _encoded(body)
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            status, raw = self._answer(path, content, deadline, is_repeatable=is_repeatable)
            if status < 400:
                return raw
            error = _problem(status, raw)
            waits = status in _LATER and error.code in _LATER_CODES
            if not waits or time.monotonic() + _PAUSE_S > deadline:
                raise error
            time.sleep(_PAUSE_S)

    def _answer(
        self, path: str, content: bytes, deadline: float, *, is_repeatable: bool
    ) -> tuple[int, bytes]:
        kept = self._kept()
        if kept is not None:
            try:
                return self._exchange(kept, path, content, deadline)
            except _Lost as lost:
                # The daemon was restarted, or closed the connection just now.
                if lost.is_sent and not is_repeatable:
                    raise _unknown_end() from lost
        try:
            return self._exchange(self._opened(), path, content, deadline)
        except _Lost as lost:
            if lost.is_sent and not is_repeatable:
                raise _unknown_end() from lost
            raise _down(self._address) from lost

    def _exchange(
        self, connection: http.client.HTTPConnection, path: str, content: bytes, deadline: float
    ) -> tuple[int, bytes]:
        is_sent = False
        try:
            left_s = max(0.001, deadline - time.monotonic())
            connection.timeout = left_s
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(left_s)
            headers = {"content-type": "application/json", **self._authority(connection)}
            connection.putrequest("POST", path, skip_accept_encoding=True)
            for name, value in {**headers, "content-length": str(len(content))}.items():
                connection.putheader(name, value)
            is_sent = True
            connection.endheaders(content)
            reply = connection.getresponse()
            raw = reply.read()
        except TimeoutError as error:
            connection.close()
            raise PortTimeout(
                "the daemon did not answer in time", hint="see its log, or `meritory status`"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _Lost(is_sent=is_sent) from error
        except BaseException:
            # Whoever is interrupted must not leave half an answer to the next caller.
            connection.close()
            raise
        if reply.will_close:
            connection.close()
        else:
            with self._lock:
                self._idle.append((connection, time.monotonic()))
        return reply.status, raw

    def _authority(self, connection: http.client.HTTPConnection) -> dict[str, str]:
        """Over the network whoever asks has to show the token; the socket knows its owner."""
        token = self._address.token
        if isinstance(connection, UnixConnection):
            return {}
        if self._address.home is not None:
            token = (self._address.home / TOKEN_NAME).read_text("ascii").strip()
        return {} if token is None else {"authorization": f"Bearer {token}"}

    def _kept(self) -> http.client.HTTPConnection | None:
        """A connection from before that is still good."""
        with self._lock:
            if os.getpid() != self._owner_pid:
                # After a fork both processes would talk over the same connections.
                self._owner_pid = os.getpid()
                _close_all(self._idle)
            while self._idle:
                connection, since = self._idle.pop()
                if time.monotonic() - since < _IDLE_LIMIT_S and not _is_stale(connection):
                    return connection
                connection.close()
        return None

    def _opened(self) -> http.client.HTTPConnection:
        place = self._address
        if place.home is not None:
            # Read anew: a daemon that was restarted may be somewhere else.
            place = _announced(place)
        if place.socket is not None:
            return UnixConnection(place.socket, REQUEST_TIMEOUT_MS / 1000)
        kind = http.client.HTTPSConnection if place.is_https else http.client.HTTPConnection
        return kind(str(place.host), timeout=REQUEST_TIMEOUT_MS / 1000)

    def close(self) -> None:
        """Closes what is open; a later call opens it again."""
        with self._lock:
            _close_all(self._idle)


def _announced(place: Address) -> Address:
    """Where the daemon of a data folder says that it is."""
    try:
        told = json.loads((place.home / DAEMON_NAME).read_bytes()) if place.home else {}
        url, socket = str(told["url"]), told["socket"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _down(place) from error
    host = url.removeprefix("http://").rstrip("/")
    return Address(socket=socket) if isinstance(socket, str) else Address(host=host)


def _close_all(idle: list[tuple[http.client.HTTPConnection, float]]) -> None:
    while idle:
        with contextlib.suppress(OSError):
            idle.pop()[0].close()


def _is_stale(connection: http.client.HTTPConnection) -> bool:
    """Whether the daemon closed it: between requests there is nothing else to be read."""
    if connection.sock is None:
        return True
    poller = select.poll()
    poller.register(connection.sock, select.POLLIN)
    return bool(poller.poll(0))


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(body, order="deterministic")
    except UnicodeEncodeError as error:
        raise InputError("the text holds half a character (a lone surrogate)") from error
    except RecursionError as error:
        raise InputError("what was given is nested too deeply") from error


def _problem(status: int, raw: bytes) -> MeritoryError:
    try:
        return refusal(status, json.loads(raw))
    except ValueError:
        return BadReply(f"the daemon answered {status}, and nothing that can be read")


def _down(place: Address) -> DaemonDown:
    if place.host is not None:
        return DaemonDown(f"the daemon at {place.host} cannot be reached", hint=_AWAY_HINT)
    return DaemonDown("the daemon cannot be reached", hint=_DOWN_HINT)


def _unknown_end() -> DaemonDown:
    return DaemonDown(
        "the daemon went away before it answered: whether it was done is not known",
        hint="look before you do it again",
    )
