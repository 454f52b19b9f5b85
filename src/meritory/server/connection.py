"""One connection: its peer is checked, its head is bounded, and nobody is waited for for ever."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any, Protocol, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from meritory.domain.errors import MeritoryError
from meritory.server.auth import Door
from meritory.server.problems import BadRequest, Forbidden, Overloaded, raw_reply

HEAD_LIMIT_BYTES = 32 * 1024
HEAD_TIMEOUT_S = 10.0
CONNECTION_LIMIT = 256
# How long somebody who was turned away may take to read why; nobody waits for more of them.
LINGER_S = 1.0
LINGER_LIMIT = 64
# A longer body is worth a task that takes it in, within bounds, before the answer.
SKIPPED_BODY_LIMIT_BYTES = 16 * 1024
DOOR_KEY = "meritory.door"
# Cuts the connection off, whatever is still to be sent on it.
HANG_UP_KEY = "meritory.hang_up"
_CREDENTIALS = struct.Struct("3i")


class HeadTooLarge(MeritoryError):
    """The head of a request is over the limit."""

    code = "head_too_large"
    status = 431


def peer_uid(connection: Any) -> int | None:
    """The user at the other end of a Unix socket; None where the system does not tell."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    found = connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(found)[1])


class Turnstile(Protocol):
    """What knows whether more can be taken on."""

    def refusal(self, address: bytes, is_kept: bool) -> bytes | None:
        """The answer to a request that is too much, or None when it is not."""


class HttpConnection(HttpToolsProtocol):
    """The server's own protocol, with a doorkeeper in front."""

    door: Door = "tcp"
    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _is_head_complete = False
    _waiting_bytes = 0
    _is_refused = False
    # Whether the request that comes in was answered already, and the connection is used again.
    _is_skipping = False
    _is_kept = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Lets a connection in, or not."""
        super().connection_made(transport)
        peer = transport.get_extra_info("socket")
        if peer.family != getattr(socket, "AF_UNIX", None):
            # Without this the kernel holds small replies back for up to 40 ms.
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            self.door = "socket"
            if peer_uid(peer) not in (None, os.geteuid()):
                self._refuse(Forbidden("the socket belongs to another user"))
                return
        # Counted for each door: whoever fills the port must not shut out the owner's socket.
        alike = (one.door == self.door and not one._is_refused for one in self._known())
        if sum(alike) > CONNECTION_LIMIT:
            self._refuse(Overloaded("too many connections", hint="try again in a second"))
            return
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tidies up."""
        self._head_arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Takes in bytes; a head that grows beyond the limit is not waited for."""
        if self._is_refused:
            return
        super().data_received(data)
        if self._head_timer is not None and not self._is_refused and not self._is_skipping:
            self._waiting_bytes += len(data)
            if self._waiting_bytes > HEAD_LIMIT_BYTES:
                self._refuse_head()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        scope = cast("dict[str, Any]", self.scope)
        scope[DOOR_KEY], scope[HANG_UP_KEY] = self.door, self.transport.abort
        self._head_bytes = 0
        self._is_head_complete = False
        self._expect_head()

    def on_url(self, url: bytes) -> None:
        """A piece of the address."""
        self._head_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or one of those behind a body, which nobody here asks for."""
        self._head_bytes += len(name) + len(value) + 4
        if self._is_head_complete and self._head_bytes > HEAD_LIMIT_BYTES:
            self._refuse_head()
        if not self._is_head_complete:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there: it is only acted on when it keeps to the limit."""
        self._head_arrived()
        self._is_head_complete = True
        if self._head_bytes > HEAD_LIMIT_BYTES:
            self._refuse_head()
        if not self._is_refused and not self._turn_away():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if not self._is_refused and not self._is_skipping:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is there."""
        if self._is_skipping:
            self._skipped()
        elif not self._is_refused:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What cannot be read as HTTP is told so in our own way."""
        self._refuse(BadRequest("this is not a valid HTTP request"))

    def _turn_away(self) -> bool:
        """Answers a request that is too much by its head alone; says whether it was one."""
        if not self._is_plain():
            return False
        is_kept = bool(self.parser.should_keep_alive())
        answer = cast("Turnstile", self.app).refusal(self.url, is_kept)
        if answer is None:
            return False
        self.transport.write(answer)
        self._is_skipping, self._is_kept = True, is_kept
        # The rest is skipped, but not waited for longer than for a head.
        self._expect_head()
        return True

    def _is_plain(self) -> bool:
        """Whether a request can be answered out of hand: nothing before it, little behind it."""
        is_first = self.cycle is None or self.cycle.response_complete
        if not is_first or self.expect_100_continue or self.parser.should_upgrade():
            return False
        length = 0
        for name, value in self.headers:
            if name == b"transfer-encoding":
                return False
            if name == b"content-length":
                length = int(value)
        return length <= SKIPPED_BODY_LIMIT_BYTES and self.parser.get_method() != b"HEAD"

    def _skipped(self) -> None:
        """All of a refused request has come in: on to the next, or the end."""
        self._is_skipping = False
        self._head_arrived()
        if self._is_kept:
            self.on_response_complete()
        else:
            self.transport.close()

    def _known(self) -> Iterator[HttpConnection]:
        """The open connections, this one among them."""
        return (one for one in self.connections if isinstance(one, HttpConnection))

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._waiting_bytes = 0
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._give_up)

    def _head_arrived(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        self.transport.close()

    def _refuse_head(self) -> None:
        self._refuse(HeadTooLarge(f"the head of a request has at most {HEAD_LIMIT_BYTES} bytes"))

    def _refuse(self, error: MeritoryError) -> None:
        """Answers without any request having been read, and closes."""
        if self._is_refused:
            return
        self._is_refused = True
        self._head_arrived()
        self.transport.write(raw_reply(error, None, is_kept=False))
        self._leave()

    def _leave(self) -> None:
        """Closes; where few are at it, after the other side had time to read the answer.

        Whoever closes on unread bytes makes the kernel throw away what it has yet to deliver. An
        earlier request that is still being answered must not find half a connection, though.
        """
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering or sum(one._is_refused for one in self._known()) > LINGER_LIMIT:
            self.transport.close()
            return
        self.transport.write_eof()
        self._head_timer = self.loop.call_later(LINGER_S, self._give_up)
