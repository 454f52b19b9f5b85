"""Where the daemon listens: a Unix socket of its owner's, and a TCP port of this machine."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import ipaddress
import os
import socket
import stat
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from meritory.domain.errors import Conflict, MeritoryError, SettingsError
from meritory.server.auth import own_hosts
from meritory.settings import Settings
from meritory.settings.home import SOCKET_NAME

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
