"""One connection: its peer is checked, its head is bounded, and nobody is waited for for ever."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import ipaddress
import os
import socket
import stat
import struct
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from meritory.domain.errors import Conflict, MeritoryError, SettingsError
from meritory.server.auth import Door, own_hosts
from meritory.server.problems import BadRequest, Forbidden, Overloaded, raw_reply
from meritory.settings import Settings
from meritory.settings.home import SOCKET_NAME

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


# What fits into the address of a Unix socket on Linux and macOS alike.
SOCKET_PATH_LIMIT_BYTES = 103


@dataclass(frozen=True, slots=True)
class Listeners:
    """The open sockets and how to reach them."""

    url: str
    hosts: frozenset[str]
    tcp: socket.socket
    unix: socket.socket | None = None
    unix_path: Path | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def sockets(self) -> list[socket.socket]:
        """All of them."""
        return [self.tcp] if self.unix is None else [self.unix, self.tcp]


@contextlib.contextmanager
def open_doors(settings: Settings, allow_hosts: Sequence[str] = ()) -> Iterator[Listeners]:
    """Binds both sockets, and takes the Unix socket's file away in the end."""
    notes: list[str] = []
    tcp = _bind_tcp(settings, allow_hosts, notes)
    unix = path = None
    try:
        path = _socket_path(settings.home, notes)
        unix = None if path is None else _bind_unix(path)
        port = int(tcp.getsockname()[1])
        host = settings.daemon.host
        shown = f"[{host}]" if ":" in host else host
        more = [shown, *allow_hosts] if is_loopback(host) else allow_hosts
        doors = Listeners(f"http://{shown}:{port}", own_hosts(port, more), tcp, unix, path, notes)
        yield doors
    finally:
        tcp.close()
        if unix is not None and path is not None:
            unix.close()
            path.unlink(missing_ok=True)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bind_tcp(settings: Settings, allow_hosts: Sequence[str], notes: list[str]) -> socket.socket:
    host, port = settings.daemon.host, settings.daemon.port
    if not is_loopback(host):
        if not allow_hosts:
            raise SettingsError(
                f"other machines can reach {host}, so the names they use must be given",
                hint="add --allow-host NAME for each, or listen on 127.0.0.1",
            )
        notes.append(
            f"{host} can be reached from other machines and this server speaks no TLS: "
            "put a proxy that does in front"
        )
    try:
        return _listening(host, port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise SettingsError(
                f"cannot listen on {host} port {port}: {error.strerror or error}",
                hint="the settings daemon.host and daemon.port choose another",
            ) from error
        if settings.origins.get("daemon.port", "default") != "default":
            raise Conflict(
                f"port {port} on {host} is in use",
                hint="choose another with --port, or 0 for any free one",
            ) from error
        notes.append(f"port {port} is in use, so any free one was taken")
        return _listening(host, 0)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def _socket_path(home: Path, notes: list[str]) -> Path | None:
    """The socket in the data folder, or in a short private folder when its path is too long."""
    if not hasattr(socket, "AF_UNIX"):
        return None
    own = home / SOCKET_NAME
    if len(os.fsencode(own)) <= SOCKET_PATH_LIMIT_BYTES:
        return own
    try:
        folder = _private_folder()
    except (OSError, MeritoryError) as error:
        notes.append(f"the path of the data folder is too long for a socket, and {error}; TCP only")
        return None
    short = folder / (hashlib.sha256(os.fsencode(own)).hexdigest()[:16] + ".sock")
    notes.append(f"the path of the data folder is too long for a socket; it is {short}")
    return short


def _private_folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"meritory-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = os.stat(folder, follow_symlinks=False)
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    if not private or found.st_uid != os.geteuid():
        raise SettingsError(f"{folder} is open to others")
    return folder


def _bind_unix(path: Path) -> socket.socket:
    """Binds the socket's file; one that a killed daemon left behind is replaced.

    Whoever comes here holds the lock, so that no other daemon can be listening.
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
