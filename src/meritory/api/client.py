"""The HTTP client of the daemon: find it, start it, stop it, and send requests to it."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import select
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from meritory.api.address import OWN_NAMES, Address
from meritory.domain.errors import BadReply, InputError, MeritoryError, PortError, PortTimeout
from meritory.settings.home import (
    DAEMON_NAME,
    LOCK_NAME,
    LOG_NAME,
    TOKEN_NAME,
    TOKEN_VARIABLE,
    URL_VARIABLE,
    prepare_home,
)

REQUEST_TIMEOUT_MS = 30_000
# For verbs that take long: jobs, vectors, a copy of the whole store.
LONG_TIMEOUT_MS = 600_000
HEALTH_TIMEOUT_MS = 1_000
START_WAIT_MS = 10_000
# A busy machine may need minutes; this is the longest wait.
START_LIMIT_S = 300.0
# Longer than a daemon waits for requests and then for a job before it ends.
STOP_WAIT_MS = 15_000
_ERROR_NAME = "daemon.err"
_ERROR_LIMIT_BYTES = 4_096
_PAUSE_S = 0.02
_REPLY_LIMIT_BYTES = 64 * 1024 * 1024
# A kept connection is dropped before the daemon closes it.
_IDLE_LIMIT_S = 4.0
_RETRY_PAUSE_S = 0.05
_DOWN_HINT = "`meritory up --background` starts it"
# Statuses of requests that are wrong in any state of the daemon.
_WRONG_USE = (400, 413, 415, 422, 431)


class DaemonDown(PortError):
    """No daemon answers at its address."""

    code = "daemon_down"
    status = 503


class Refused(MeritoryError):
    """The daemon refused with a code that this version does not know."""

    code = "refused"


class Misused(InputError):
    """The request was wrong, with a code that this version does not know."""

    code = "refused"


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon and how to reach it."""

    home: Path
    url: str
    socket: str | None
    pid: int
    version: str
    started_at: str
    notes: tuple[str, ...] = ()
    # Of a daemon on another machine; the token of the own one is in the data folder.
    token: str | None = field(default=None, repr=False)

    def request(
        self, method: str, path: str, body: Any = None, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> Any:
        """Send a request; return JSON replies as values, others as text."""
        if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
            raise InputError(
                f"a path begins with / and is plain ASCII: {path[:40]!r}",
                hint="write other characters as %20, %C3%A9 and so on",
            )
        headers = {"accept": "application/json"}
        content = None
        if body is not None:
            try:
                content = json.dumps(body, allow_nan=False).encode("ascii")
            except ValueError as error:
                raise InputError("the body holds a number that JSON does not know") from error
            headers["content-type"] = "application/json"
        parts = urlsplit(self.url)
        address = Address(self.socket, parts.netloc, parts.scheme == "https", self.token)
        # A Unix socket knows its owner; over TCP the token proves access to the folder.
        token = self.token
        if self.socket is None and token is None:
            token = (self.home / TOKEN_NAME).read_text("ascii").strip()
        if self.socket is None and token:
            headers["authorization"] = f"Bearer {token}"
        connection = _connection_to(address, timeout_ms / 1000)
        try:
            connection.request(method, path, content, headers)
            reply = connection.getresponse()
            raw = reply.read(_REPLY_LIMIT_BYTES)
        except TimeoutError as error:
            raise PortTimeout(f"the daemon did not answer within {timeout_ms} ms") from error
        except (OSError, http.client.HTTPException) as error:
            raise DaemonDown("the daemon cannot be reached", hint=_DOWN_HINT) from error
        finally:
            connection.close()
        is_json = reply.headers.get_content_type().endswith("json")
        try:
            value = json.loads(raw) if is_json else raw.decode("utf-8")
        except ValueError as error:
            raise BadReply("the daemon's reply cannot be read") from error
        if reply.status >= 400:
            raise refusal(reply.status, value)
        return value


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket's file."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _connection_to(address: Address, timeout_s: float) -> http.client.HTTPConnection:
    """Return a connection that is not open yet."""
    if address.socket is not None:
        return UnixConnection(address.socket, timeout_s)
    kind = http.client.HTTPSConnection if address.is_https else http.client.HTTPConnection
    return kind(str(address.host), timeout=timeout_s)


def refusal(status: int, value: Any) -> MeritoryError:
    """Return the error that a problem reply stands for, of its own class if that is known."""
    problem = value if isinstance(value, dict) else {}
    message, hint = str(problem.get("detail", f"the daemon answered {status}")), problem.get("hint")
    code = problem.get("code")
    for kind in _error_kinds(MeritoryError):
        if kind.code == code and kind.status == status:
            return kind(message, hint=hint)
    error = (Misused if status in _WRONG_USE else Refused)(message, hint=hint)
    error.code, error.status = str(code or "refused"), status
    return error


def _error_kinds(kind: type[MeritoryError]) -> Iterator[type[MeritoryError]]:
    for inner in kind.__subclasses__():
        # Errors of other modules may have other constructors.
        if inner.__module__ == MeritoryError.__module__:
            yield inner
            yield from _error_kinds(inner)


# -- kept connections -----------------------------------------------------------------------


class _Lost(Exception):
    """The connection broke; with `is_sent` the daemon may have received the request."""

    def __init__(self, *, is_sent: bool) -> None:
        self.is_sent = is_sent


class DaemonLink:
    """Sends requests to one daemon from any thread, over connections that stay open."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[tuple[http.client.HTTPConnection, float]] = []
        self._lock = threading.Lock()
        self._owner_pid = os.getpid()
        # Programs that never close must not leave sockets open.
        weakref.finalize(self, _close_all, self._idle)

    def ask(
        self,
        path: str,
        content: bytes,
        *,
        is_repeatable: bool,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> bytes:
        """Return the daemon's reply, or raise the error that the daemon reports."""
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            status, raw = self._reply(path, content, deadline, is_repeatable=is_repeatable)
            if status < 400:
                return raw
            try:
                error = refusal(status, json.loads(raw))
            except ValueError:
                raise BadReply(f"the daemon's reply ({status}) cannot be read") from None
            # Then the daemon has done nothing yet, so any request can be repeated.
            can_retry = (status, error.code) in ((429, "too_many"), (503, "overloaded"))
            if not can_retry or time.monotonic() + _RETRY_PAUSE_S > deadline:
                raise error
            time.sleep(_RETRY_PAUSE_S)

    def _reply(
        self, path: str, content: bytes, deadline: float, *, is_repeatable: bool
    ) -> tuple[int, bytes]:
        connection = self._take_idle()
        while True:
            is_new = connection is None
            try:
                return self._exchange(connection or self._open(), path, content, deadline)
            except _Lost as lost:
                if lost.is_sent and not is_repeatable:
                    raise DaemonDown(
                        "the daemon went away before it replied: the call may have taken effect",
                        hint="check before you repeat it",
                    ) from lost
                if is_new:
                    raise _down(self._address) from lost
                # The daemon closed the kept connection; a new one gets the second attempt.
                connection = None

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
            headers = {"content-type": "application/json", "content-length": str(len(content))}
            token = self._address.token
            if self._address.home is not None:
                token = (self._address.home / TOKEN_NAME).read_text("ascii").strip()
            # A Unix socket knows its owner; over TCP the caller shows the token.
            if token is not None and not isinstance(connection, UnixConnection):
                headers["authorization"] = f"Bearer {token}"
            connection.putrequest("POST", path, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            is_sent = True
            connection.endheaders(content)
            reply = connection.getresponse()
            raw = reply.read()
        except TimeoutError as error:
            connection.close()
            raise PortTimeout(
                "the daemon did not reply in time", hint="see its log, or `meritory status`"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _Lost(is_sent=is_sent) from error
        except BaseException:
            # An interrupted caller must not leave half a reply to the next one.
            connection.close()
            raise
        if reply.will_close:
            connection.close()
        else:
            with self._lock:
                self._idle.append((connection, time.monotonic()))
        return reply.status, raw

    def _take_idle(self) -> http.client.HTTPConnection | None:
        """Return a kept connection that is still open."""
        with self._lock:
            if os.getpid() != self._owner_pid:
                # After a fork both processes would use the same connections.
                self._owner_pid = os.getpid()
                _close_all(self._idle)
            while self._idle:
                connection, since = self._idle.pop()
                if connection.sock is not None and time.monotonic() - since < _IDLE_LIMIT_S:
                    poller = select.poll()
                    poller.register(connection.sock, select.POLLIN)
                    # Nothing arrives between requests but the end of the connection.
                    if not poller.poll(0):
                        return connection
                connection.close()
        return None

    def _open(self) -> http.client.HTTPConnection:
        address = self._address
        if address.home is not None:
            # Read again: a daemon that was restarted may have another port.
            try:
                announced = json.loads((address.home / DAEMON_NAME).read_bytes())
                url, path = str(announced["url"]), announced["socket"]
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise _down(address) from error
            host = url.removeprefix("http://").rstrip("/")
            address = Address(socket=path) if isinstance(path, str) else Address(host=host)
        return _connection_to(address, REQUEST_TIMEOUT_MS / 1000)

    def close(self) -> None:
        """Close the idle connections; a later call opens new ones."""
        with self._lock:
            _close_all(self._idle)


def _close_all(idle: list[tuple[http.client.HTTPConnection, float]]) -> None:
    while idle:
        with contextlib.suppress(OSError):
            idle.pop()[0].close()


def _down(address: Address) -> DaemonDown:
    if address.host is None:
        return DaemonDown("the daemon cannot be reached", hint=_DOWN_HINT)
    return DaemonDown(
        f"the daemon at {address.host} cannot be reached",
        hint="check that it runs, and the host and port of its url",
    )


# -- finding --------------------------------------------------------------------------------


def elsewhere(environ: Mapping[str, str], home: Path) -> Daemon | None:
    """Return the daemon on another machine that the environment names, without asking it."""
    url = environ.get(URL_VARIABLE, "").strip().rstrip("/")
    if not url:
        return None
    token = environ.get(TOKEN_VARIABLE, "").strip()
    # The url is not quoted: it may hold a name or a password.
    if not url.startswith(("http://", "https://")) or "@" in url:
        raise InputError(
            f"{URL_VARIABLE} is not the address of a daemon", hint="write https://NAME:PORT"
        )
    if not token.isascii() or not token.isprintable():
        # A malformed header would be quoted in errors and logs.
        raise InputError(f"{TOKEN_VARIABLE} is not a token", hint="it is one line of plain text")
    return Daemon(home, url, None, 0, "", "", token=token)


def is_exposed(url: str) -> bool:
    """Return whether requests to an address can be read on the way: another machine, no TLS."""
    try:
        address = urlsplit(url)
    except ValueError:
        return False
    return address.scheme == "http" and address.hostname not in OWN_NAMES


def find(home: Path) -> Daemon | None:
    """Return the daemon of a data folder if it answers."""
    try:
        announced = json.loads((home / DAEMON_NAME).read_bytes())
        daemon = Daemon(
            home,
            str(announced["url"]),
            announced["socket"],
            int(announced["pid"]),
            str(announced["version"]),
            str(announced["started_at"]),
            tuple(announced.get("notes", ())),
        )
        health = daemon.request("GET", "/health", timeout_ms=HEALTH_TIMEOUT_MS)
    except (OSError, ValueError, KeyError, TypeError, MeritoryError):
        return None
    is_well = isinstance(health, dict) and health.get("status") == "ok"
    # A copied folder announces the daemon of the original.
    return daemon if is_well and holder_pid(home) == daemon.pid else None


def holder_pid(home: Path) -> int | None:
    """Return the process that holds the daemon's lock; 0 while it starts or ends."""
    try:
        handle = os.open(home / LOCK_NAME, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        try:
            return int(json.loads(os.pread(handle, 1_000, 0))["pid"])
        except (ValueError, KeyError, TypeError):
            return 0
    else:
        return None
    finally:
        os.close(handle)


# -- starting and stopping ------------------------------------------------------------------


def ensure(home: Path, wait_ms: int = START_WAIT_MS, options: Sequence[str] = ()) -> Daemon:
    """Return the daemon of a data folder and start it if needed; many callers start one.

    A daemon that starts slowly is waited for; `wait_ms` is the longest time without progress.
    """
    daemon = find(home)
    if daemon is not None:
        return daemon
    prepare_home(home)
    began = time.monotonic()
    deadline = began + wait_ms / 1000
    child: int | None = None
    seen: object = None
    handle = os.open(home / "daemon.start", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while (daemon := find(home)) is None:
            if time.monotonic() > deadline:
                starter = child or holder_pid(home)
                # Without a known process, another process holds the start lock and is starting one.
                progress = _progress(starter) if starter else time.monotonic()
                if progress == seen or time.monotonic() - began > START_LIMIT_S:
                    raise _no_progress(home, starter, is_own=bool(child))
                seen, deadline = progress, time.monotonic() + wait_ms / 1000
            if child is None:
                # Only the holder of the start lock looks: looking takes the daemon's lock briefly.
                if _try_lock(handle) and holder_pid(home) is None:
                    child = _spawn(home, options)
                    seen = _progress(child)
            elif child and (code := _exit_code(child)) is not None:
                # Another caller may have started one first; then this one waits for it.
                if holder_pid(home) is None and find(home) is None:
                    raise _start_failure(home, code)
                child = 0
            time.sleep(_PAUSE_S)
        return daemon
    finally:
        os.close(handle)


def _progress(pid: int) -> object:
    """Return a value that changes as long as a process works: its page faults and CPU time."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[7:13]
    except OSError:
        # The system does not tell, or the process has ended, which others notice.
        return time.monotonic()


def _no_progress(home: Path, pid: int | None, *, is_own: bool) -> PortTimeout:
    if pid and not is_own:
        return PortTimeout(
            f"a daemon (process {pid}) runs but does not answer",
            hint=f"`meritory down`, or kill -9 {pid}, ends it",
        )
    files = [file for file in (home / LOG_NAME, home / _ERROR_NAME) if _has_text(file)]
    name = f"the daemon (process {pid})" if pid else "the daemon"
    return PortTimeout(
        f"{name} did not start and makes no progress",
        hint=f"see {files[0]}" if files else "`meritory status` shows whether it runs",
    )


def _has_text(file: Path) -> bool:
    try:
        return file.stat().st_size > 0
    except OSError:
        return False


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _spawn(home: Path, options: Sequence[str]) -> int:
    """Start `meritory up` as a process of its own session, which outlives its parent."""
    # -P: a folder named meritory in the working directory must not be imported.
    command = [sys.executable, "-P", "-m", "meritory", "--home", str(home), "up", "--detached"]
    # Variables that a client sets for its children do not concern a process that outlives it.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("CLAUDE")}
    errors = os.open(home / _ERROR_NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        streams = [
            (os.POSIX_SPAWN_DUP2, target, number)
            for number, target in enumerate((nothing, nothing, errors))
        ]
        return os.posix_spawn(
            sys.executable, [*command, *options], environ, file_actions=streams, setsid=True
        )
    finally:
        os.close(nothing)
        os.close(errors)


def _exit_code(child: int) -> int | None:
    """Return the exit code of a child, negative for a signal; None while it runs."""
    try:
        ended, status = os.waitpid(child, os.WNOHANG)
    except ChildProcessError:
        return 0
    return os.waitstatus_to_exitcode(status) if ended else None


def _start_failure(home: Path, code: int) -> PortError:
    with (home / _ERROR_NAME).open("rb") as file:
        output = file.read(_ERROR_LIMIT_BYTES).decode("utf-8", "replace")
    parts = dict(line.split(": ", 1) for line in output.splitlines() if ": " in line)
    how = f"signal {-code} ended it" if code < 0 else f"it ended with exit code {code}"
    # Of an error that is not ours the last line says most. A full disk takes no message at all.
    is_full = not output and not os.statvfs(home).f_bavail
    missing = "no space is left in the data folder" if is_full else "without an error message"
    last = (output.strip().splitlines() or [missing])[-1]
    message = parts.get("error", f"{how}, {last}")
    return DaemonDown(f"the daemon did not start: {message}", hint=parts.get("hint"))


def stop(home: Path, wait_ms: int = STOP_WAIT_MS) -> int | None:
    """Ask the daemon to end, wait until it has, and return its process; None when none ran."""
    pid = holder_pid(home)
    if not pid:
        return None
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + wait_ms / 1000
    while holder_pid(home) in (pid, 0):
        if time.monotonic() > deadline:
            raise PortTimeout(
                f"process {pid} did not end within {wait_ms} ms", hint=f"kill -9 {pid} ends it"
            )
        time.sleep(_PAUSE_S)
    return pid
