"""Poolers between a store and its server: a real pgbouncer, and one that only seems to be one."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from postgres_kit import address_of

_PORT = 6432
_START_LIMIT_S = 20.0
_BACKEND_KEY = b"K"
_SETTINGS = """[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
listen_port = {own_port}
auth_type = any
pool_mode = transaction
default_pool_size = {size}
logfile = {folder}/log
pidfile = {folder}/pid
"""


class Relay:
    """Hands everything on, but tells another number of the connection, as poolers do.

    What clients said is kept, so that it can be seen what they never say.
    """

    def __init__(self, address: str, folder: Path) -> None:
        self._parts = conninfo_to_dict(address)
        self._target = f"{self._parts['host']}/.s.PGSQL.{self._parts.get('port') or 5432}"
        self._folder = folder
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(f"{folder}/.s.PGSQL.{_PORT}")
        self._door.listen(64)
        self.said = bytearray()
        self._ends: list[socket.socket] = []
        # Held while somebody is let in: whoever knocks at the end is not forgotten.
        self._lock = threading.Lock()
        self._is_closed = False
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def address(self) -> str:
        return address_of({**self._parts, "host": str(self._folder), "port": _PORT})

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        for end in (self._door, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._door.accept()
                with self._lock:
                    if self._is_closed:
                        client.close()
                        return
                    server = socket.socket(socket.AF_UNIX)
                    self._ends += [client, server]
                    server.connect(self._target)
                for work in (self._up, self._down):
                    threading.Thread(target=work, args=(client, server), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                self.said += data
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _down(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            with server.makefile("rb") as replies:
                kind = b""
                while kind != _BACKEND_KEY and len(head := replies.read(5)) == 5:
                    kind, length = struct.unpack("!cI", head)
                    body = replies.read(length - 4)
                    if kind == _BACKEND_KEY:
                        body = struct.pack("!I", 1) + body[4:]
                    client.sendall(struct.pack("!cI", kind, length) + body)
                while data := replies.read1(1 << 16):
                    client.sendall(data)
            client.shutdown(socket.SHUT_WR)


def pgbouncer() -> str | None:
    """The program, where this machine has it."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextlib.contextmanager
def pooled(program: str, address: str, size: int) -> Iterator[str]:
    """The same database through pgbouncer: so many connections, another one each transaction."""
    parts = conninfo_to_dict(address)
    # Like PostgreSQL, it refuses to run as root.
    account = "nobody" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="meritory-pooler-") as folder:
        settings = Path(folder) / "pgbouncer.ini"
        settings.write_text(
            _SETTINGS.format(
                host=parts["host"],
                port=parts.get("port") or 5432,
                user=parts.get("user") or pwd.getpwuid(os.geteuid()).pw_name,
                folder=folder,
                own_port=_PORT,
                size=size,
            )
        )
        if account is not None:
            shutil.chown(folder, account)
        process = subprocess.Popen([program, "-q", str(settings)], user=account)
        try:
            until_s = time.monotonic() + _START_LIMIT_S
            while not Path(folder, f".s.PGSQL.{_PORT}").exists():
                assert process.poll() is None and time.monotonic() < until_s, "it does not start"
                time.sleep(0.01)
            yield address_of({**parts, "host": folder, "port": _PORT})
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(_START_LIMIT_S)
