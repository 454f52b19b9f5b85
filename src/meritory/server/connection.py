"""Listening sockets, their HTTP connections and bodies: peer checks, limits and timeouts."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import ipaddress
import os
import resource
import socket
import stat
import struct
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from meritory.domain.errors import Conflict, MeritoryError, SettingsError, TooLarge
from meritory.server.auth import Door, own_hosts
from meritory.server.problems import BadRequest, Forbidden, Overloaded, SlowBody, raw_reply
from meritory.settings import Settings
from meritory.settings.home import SOCKET_NAME

if TYPE_CHECKING:
    from meritory.server.app import App

BODY_LIMIT_BYTES = 2 * 1024 * 1024
BODY_TIMEOUT_S = 10.0
# How much of a refused body is still read, so that the client can read the reply.
DRAIN_LIMIT_BYTES = 4 * BODY_LIMIT_BYTES
DRAIN_TIMEOUT_S = 1.0
HEAD_LIMIT_BYTES = 32 * 1024
HEAD_TIMEOUT_S = 10.0
CONNECTION_LIMIT = 256
# How long a refused client may take to read the reply, and how many such clients may wait.
LINGER_S = 1.0
LINGER_LIMIT = 64
# The body of a refused request up to this size is skipped here; the application drains others.
SKIPPED_BODY_LIMIT_BYTES = 16 * 1024
DOOR_KEY = "meritory.door"
# Closes the connection at once, whatever is still to send.
HANG_UP_KEY = "meritory.hang_up"
_CREDENTIALS = struct.Struct("3i")
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


def connection_limit() -> int:
    """Return how many connections a door may have: fewer where file handles are scarce."""
    handle_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return CONNECTION_LIMIT if handle_limit < 0 else min(CONNECTION_LIMIT, handle_limit // 4)


class HeadTooLarge(MeritoryError):
    """The head of a request is over the limit."""

    code = "head_too_large"
    status = 431


def peer_uid(connection: Any) -> int | None:
    """Return the user at the other end of a Unix socket; None if the system does not say."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    credentials = connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])


class HttpConnection(HttpToolsProtocol):
    """The protocol of uvicorn with limits in front."""

    door: Door = "tcp"
    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _is_head_complete = False
    _waiting_bytes = 0
    _is_refused = False
    _opened_s = 0.0
    # Whether the incoming request was answered already and its rest is skipped.
    _is_skipping = False
    _is_kept = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept or refuse a connection."""
        super().connection_made(transport)
        peer = transport.get_extra_info("socket")
        if peer.family != getattr(socket, "AF_UNIX", None):
            # Otherwise the kernel delays small replies by up to 40 ms.
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            self.door = "socket"
            if peer_uid(peer) not in (None, os.geteuid()):
                self._refuse(Forbidden("the socket belongs to another user"))
                return
        self._opened_s = self.loop.time()
        # Counted for each door: clients of the port must not shut out the owner's socket.
        alike = [
            other
            for other in self._open_connections()
            if other.door == self.door and not other._is_refused
        ]
        if len(alike) > connection_limit():
            # Connections without a request must not keep a request out.
            idle = [other for other in alike if other is not self and other._is_idle]
            if not idle:
                self._refuse(Overloaded("too many connections", hint="try again in a second"))
                return
            min(idle, key=attrgetter("_opened_s"))._give_up()
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer."""
        self._head_arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive bytes; refuse a head beyond the limit."""
        if self._is_refused:
            return
        super().data_received(data)
        if self._head_timer is not None and not self._is_refused and not self._is_skipping:
            self._waiting_bytes += len(data)
            if self._waiting_bytes > HEAD_LIMIT_BYTES:
                self._refuse_head()

    def on_message_begin(self) -> None:
        """A request starts."""
        super().on_message_begin()
        scope = cast("dict[str, Any]", self.scope)
        scope[DOOR_KEY], scope[HANG_UP_KEY] = self.door, self.transport.abort
        self._head_bytes = 0
        self._is_head_complete = False
        self._expect_head()

    def on_url(self, url: bytes) -> None:
        """Receive a part of the URL."""
        self._head_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Receive a header, or a trailer behind the body, which is ignored."""
        self._head_bytes += len(name) + len(value) + 4
        if self._is_head_complete and self._head_bytes > HEAD_LIMIT_BYTES:
            self._refuse_head()
        if not self._is_head_complete:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is complete: act on it if it is within the limit."""
        self._head_arrived()
        self._is_head_complete = True
        if self._head_bytes > HEAD_LIMIT_BYTES:
            self._refuse_head()
        if not self._is_refused and not self._refuse_by_head():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Receive a part of the body."""
        if not self._is_refused and not self._is_skipping:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        if self._is_skipping:
            # A refused request is complete: read the next one, or close.
            self._is_skipping = False
            self._head_arrived()
            if self._is_kept:
                self.on_response_complete()
            else:
                self.transport.close()
        elif not self._is_refused:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Reply 400 to malformed HTTP."""
        self._refuse(BadRequest("this is not a valid HTTP request"))

    def _refuse_by_head(self) -> bool:
        """Answer a request beyond the limits by its head alone; return whether it was one.

        That needs a short body, and no earlier request that is still being answered.
        """
        is_first = self.cycle is None or self.cycle.response_complete
        length = declared_bytes(self.headers)
        is_short = length is not None and length <= SKIPPED_BODY_LIMIT_BYTES
        if not is_first or not is_short or self.parser.get_method() == b"HEAD":
            return False
        if self.expect_100_continue or self.parser.should_upgrade():
            return False
        is_kept = bool(self.parser.should_keep_alive())
        answer = cast("App", self.app).refusal(self.url, is_kept)
        if answer is None:
            return False
        self.transport.write(answer)
        self._is_skipping, self._is_kept = True, is_kept
        # Skip the rest, within the timeout of a head.
        self._expect_head()
        return True

    @property
    def _is_idle(self) -> bool:
        """Whether no request is being answered here."""
        is_answered = self.cycle is None or self.cycle.response_complete
        return is_answered and not self._is_skipping

    def _open_connections(self) -> Iterator[HttpConnection]:
        """Return the open connections, including this one."""
        return (each for each in self.connections if isinstance(each, HttpConnection))

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._waiting_bytes = 0
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self._give_up)

    def _head_arrived(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        # It no longer counts, although its end is reported later.
        self._is_refused = True
        self._head_arrived()
        self.transport.close()

    def _refuse_head(self) -> None:
        self._refuse(
            HeadTooLarge(f"the head of a request may have at most {HEAD_LIMIT_BYTES} bytes")
        )

    def _refuse(self, error: MeritoryError) -> None:
        """Reply before a request was read, and close."""
        if self._is_refused:
            return
        self._is_refused = True
        self._head_arrived()
        self.transport.write(raw_reply(error, None, is_kept=False))
        is_answering = self.cycle is not None and not self.cycle.response_complete
        refused_count = sum(each._is_refused for each in self._open_connections())
        if is_answering or refused_count > LINGER_LIMIT:
            # A connection that still answers an earlier request must not be half closed.
            self.transport.close()
            return
        # Closing on unread bytes makes the kernel drop the reply: let the client read it first.
        self.transport.write_eof()
        self._head_timer = self.loop.call_later(LINGER_S, self._give_up)


def declared_bytes(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """Return the declared length of a body; None if it is chunked."""
    length = 0
    for name, value in headers:
        if name == b"transfer-encoding":
            return None
        if name == b"content-length":
            length = int(value)
    return length


class Body:
    """The body of one request, read at most once."""

    def __init__(self, receive: Receive, declared: int | None) -> None:
        self._receive = receive
        self._declared_bytes = declared
        self.is_complete = declared == 0

    async def read(self) -> bytes:
        """Return the whole body; raise an error if it is too large or too slow."""
        pieces: list[bytes] = []
        size = 0
        is_over = (self._declared_bytes or 0) > BODY_LIMIT_BYTES
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                while not self.is_complete and not is_over:
                    pieces.append(await self._next())
                    size += len(pieces[-1])
                    is_over = size > BODY_LIMIT_BYTES
        except TimeoutError as error:
            raise SlowBody(f"the body did not arrive within {BODY_TIMEOUT_S:g} seconds") from error
        if is_over:
            raise TooLarge(
                f"a request may have at most {BODY_LIMIT_BYTES} bytes", hint="split it into several"
            )
        return b"".join(pieces)

    async def drain(self) -> bool:
        """Read the rest of a refused body; return whether the connection can be used again."""
        size = 0
        with contextlib.suppress(TimeoutError, BadRequest):
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                while not self.is_complete and size <= DRAIN_LIMIT_BYTES:
                    size += len(await self._next())
        return self.is_complete

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] != "http.request":
            raise BadRequest("the connection closed before the body was complete")
        self.is_complete = not message.get("more_body", False)
        piece: bytes = message.get("body", b"")
        return piece


# The longest path of a Unix socket on Linux and macOS.
SOCKET_PATH_LIMIT_BYTES = 103


@dataclass(frozen=True, slots=True)
class Listeners:
    """The listening sockets and their addresses."""

    url: str
    hosts: frozenset[str]
    tcp: socket.socket
    unix: socket.socket | None = None
    unix_path: Path | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def sockets(self) -> list[socket.socket]:
        """Return all sockets."""
        return [self.tcp] if self.unix is None else [self.unix, self.tcp]


@contextlib.contextmanager
def open_listeners(settings: Settings, allow_hosts: Sequence[str] = ()) -> Iterator[Listeners]:
    """Bind both sockets, and remove the file of the Unix socket at the end."""
    notes: list[str] = []
    tcp = _bind_tcp(settings, allow_hosts, notes)
    unix = path = None
    try:
        path = _socket_path(settings.home, notes)
        unix = None if path is None else _bind_unix(path)
        port = int(tcp.getsockname()[1])
        host = settings.daemon.host
        shown = f"[{host}]" if ":" in host else host
        hosts = own_hosts(port, allow_hosts, shown if is_loopback(host) else "")
        yield Listeners(f"http://{shown}:{port}", hosts, tcp, unix, path, notes)
    finally:
        tcp.close()
        if unix is not None and path is not None:
            unix.close()
            path.unlink(missing_ok=True)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bind_tcp(settings: Settings, allow_hosts: Sequence[str], notes: list[str]) -> socket.socket:
    host, port = settings.daemon.host, settings.daemon.port
    if not is_loopback(host):
        if not allow_hosts:
            raise SettingsError(
                f"other machines can reach {host}, but no names for it are allowed",
                hint="add --allow-host for every name they use, or listen on 127.0.0.1",
            )
        notes.append(
            f"other machines can reach {host}, and this server does not speak TLS: "
            "put a TLS proxy in front"
        )
    try:
        return _listening(host, port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise SettingsError(
                f"cannot listen on {host} port {port}: {error.strerror or error}",
                hint="change the settings daemon.host and daemon.port",
            ) from error
        if settings.origins.get("daemon.port", "default") != "default":
            raise Conflict(
                f"port {port} on {host} is in use",
                hint="choose another with --port; 0 takes any free port",
            ) from error
        notes.append(f"port {port} is in use, so the daemon took a free one")
        return _listening(host, 0)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def _socket_path(home: Path, notes: list[str]) -> Path | None:
    """Return the socket's path in the data folder, or in a private folder if it is too long."""
    if not hasattr(socket, "AF_UNIX"):
        return None
    own = home / SOCKET_NAME
    if len(os.fsencode(own)) <= SOCKET_PATH_LIMIT_BYTES:
        return own
    folder = Path(tempfile.gettempdir()) / f"meritory-{os.geteuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        info = os.stat(folder, follow_symlinks=False)
        is_private = stat.S_ISDIR(info.st_mode) and not info.st_mode & 0o077
        if not is_private or info.st_uid != os.geteuid():
            raise OSError(f"other users can access {folder}")
    except OSError as error:
        notes.append(f"the path of the data folder is too long for a socket, and {error}; TCP only")
        return None
    short = folder / (hashlib.sha256(os.fsencode(own)).hexdigest()[:16] + ".sock")
    notes.append(f"the path of the data folder is too long for a socket; the socket is {short}")
    return short


def _bind_unix(path: Path) -> socket.socket:
    """Bind the socket's file; replace one that a killed daemon left behind.

    The caller holds the lock, so no other daemon can be listening.
    """
    if path.exists() or path.is_symlink():
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise SettingsError(f"{path} is not a socket", hint="move it away")
        path.unlink()
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    former = os.umask(0o177)
    try:
        made.bind(os.fspath(path))
    except BaseException:
        made.close()
        raise
    finally:
        os.umask(former)
    return made
