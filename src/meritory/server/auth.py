"""What a caller may do: which routes, and whose memories they are let at."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qsl

from meritory.domain.access import ROLES, AccessToken, Role
from meritory.domain.errors import MeritoryError, SettingsError, translate_system
from meritory.engine.access import TokenClaim, read_claim
from meritory.server.dashboard import OFFERED, Logins
from meritory.server.problems import BadRequest, Forbidden, TooMany, Unauthorized
from meritory.settings.home import TOKEN_NAME

if TYPE_CHECKING:
    from meritory.server.table import Access, Route


# owner: by the token of the data folder, or by the socket. dashboard: a browser that was let in.
# token: somebody with a token of one user. anyone: nobody was asked.
Caller = Literal["owner", "dashboard", "token", "anyone"]
# The least role that a class of routes needs.
_NEEDED: dict[Access, Role] = {"read": "read", "write": "write", "hooks": "write", "admin": "admin"}


@dataclass(frozen=True, slots=True)
class Grant:
    """Who asks, and how far it goes; without a user all users are meant."""

    caller: Caller
    role: Role = "read"
    user: str | None = None
    agent: str | None = None
    project: str | None = None
    token_id: str | None = None

    @classmethod
    def of(cls, token: AccessToken) -> Grant:
        """What a token that was proved lets one do."""
        return cls(
            "token",
            token.role,
            token.user,
            token.agent,
            token.project,
            token.id,
        )

    @property
    def is_narrow(self) -> bool:
        """Whether it reaches one agent or project of its user alone."""
        return self.agent is not None or self.project is not None

    def demand(self, route: Route) -> None:
        """Refuses a route that is not for this caller."""
        if self.caller == "dashboard":
            is_plain = route.access in ("read", "write")
            if not is_plain and (route.method, route.path) not in OFFERED:
                raise Forbidden("the dashboard does not offer this", hint="use the command line")
        elif self.caller == "token":
            self._demand_role(route)
        elif self.caller == "anyone" and route.access not in ("health", "login"):
            raise Forbidden("nobody was asked for a token")

    def _demand_role(self, route: Route) -> None:
        if route.access in ("health", "login"):
            return
        if route.reach == "daemon":
            raise Forbidden(
                "this is about the daemon itself, or about everybody",
                hint="only its owner may, by the token in the data folder or on its machine",
            )
        needed = _NEEDED[route.access]
        if ROLES.index(self.role) < ROLES.index(needed):
            raise Forbidden(
                f"this needs a token with the role {needed}, and this one has {self.role}"
            )
        if route.reach == "user" and self.is_narrow:
            raise Forbidden(
                f"this is about all of a user's memories, and the token is {self._narrowed()} only"
            )

    def scope(
        self, user: str | None, agent: str | None, project: str | None, *, everywhere: bool = False
    ) -> tuple[str | None, str | None, str | None]:
        """The names that a request means: its own, else the token's; never others than those."""
        if everywhere and self.is_narrow:
            raise Forbidden(f"the token is {self._narrowed()} only, not everywhere")
        return (
            self._named("user", self.user, user),
            self._named("agent", self.agent, agent),
            self._named("project", self.project, project),
        )

    def fits(self, agent: str | None, project: str | None) -> bool:
        """Whether something of this agent and project lies within."""
        return self.agent in (None, agent) and self.project in (None, project)

    def _named(self, what: str, own: str | None, given: str | None) -> str | None:
        if own is None or given is None or given == own:
            return own if given is None else given
        raise Forbidden(f"the token is for another {what}", hint=f"leave the {what} out")

    def _narrowed(self) -> str:
        named = (("agent", self.agent), ("project", self.project))
        return " and ".join(f"for {what} {name!r}" for what, name in named if name is not None)


OWNER = Grant("owner", "admin")
DASHBOARD = Grant("dashboard", "admin")
ANYONE = Grant("anyone")


Door = Literal["socket", "tcp"]
Headers = Sequence[tuple[bytes, bytes]]
TOKEN_BYTES = 32
WRONG_TOKENS_PER_MINUTE = 20
OWN_NAMES = ("localhost", "127.0.0.1", "[::1]")
_TOKEN_WORDS = frozenset({"token", "access_token", "auth", "authorization", "api_key", "bearer"})
_OWN_FETCHES = frozenset({b"same-origin", b"none"})
_MINUTE_MS = 60_000
_HTTP_PORT = 80


def load_token(home: Path) -> tuple[str, bool]:
    """The token of a data folder and whether it is new; one that others could read is replaced."""
    path = home / TOKEN_NAME
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return _new_token(path), True
    if not stat.S_ISREG(found.st_mode):
        raise SettingsError(f"{path} is not a plain file", hint="move it away; a new one is made")
    token = _private_token(path, found)
    return (_new_token(path), True) if token is None else (token, False)


def rotate_token(home: Path) -> str:
    """A new token in the place of the old one, which a running daemon takes at once."""
    return _new_token(home / TOKEN_NAME)


def _new_token(path: Path) -> str:
    token = secrets.token_hex(TOKEN_BYTES)
    write_private(path, token + "\n")
    return token


def _private_token(path: Path, found: os.stat_result) -> str | None:
    """The token in a file, unless others could read it or it is none."""
    token = path.read_text("ascii", errors="replace").strip()
    private = not found.st_mode & 0o077 and found.st_uid == os.geteuid()
    return token if private and len(token) == 2 * TOKEN_BYTES and token.isalnum() else None


def write_private(path: Path, text: str) -> None:
    """Writes a file only its owner can read, whole or not at all."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.unlink(missing_ok=True)
    try:
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise translate_system(error, path) from error


def own_hosts(port: int, allowed: Iterable[str] = ()) -> frozenset[str]:
    """The Host headers that name this daemon, exactly as they must be written.

    Names that somebody allowed count without the port too: a proxy may stand in front.
    """
    more = list(allowed)
    with_port = {f"{name}:{port}" for name in (*OWN_NAMES, *more)}
    return frozenset(with_port.union(more, OWN_NAMES if port == _HTTP_PORT else ()))


@dataclass(frozen=True, slots=True)
class Visit:
    """What the guard looks at."""

    door: Door
    headers: Headers
    query_string: bytes
    # Whether the route answers anybody on this machine.
    is_public: bool
    # Whether it only reads: what changes something has to come from a page of ours.
    is_reading: bool = False

    def all(self, name: bytes) -> list[bytes]:
        """Every value of a header."""
        return [value for key, value in self.headers if key == name]


class OwnToken:
    """The owner's token, as its file has it now; of the token itself only a hash is kept."""

    def __init__(self, token: str, file: Path | None = None) -> None:
        # Comparing hashes of equal length gives nothing away.
        self._digest = _digest(token.encode("ascii"))
        self._file = file
        self._seen: os.stat_result | None = None

    def is_right(self, token: bytes) -> bool:
        """Whether this is the owner's token."""
        self._renew()
        return hmac.compare_digest(_digest(token), self._digest)

    def _renew(self) -> None:
        """Takes a token that was put in place of the former one; what is none changes nothing."""
        found = self._look()
        if self._file is None or found is None or _mark(found) == _mark(self._seen):
            return
        try:
            token = _private_token(self._file, found)
        except OSError:
            return
        self._seen = found
        if token is not None:
            self._digest = _digest(token.encode("ascii"))

    def _look(self) -> os.stat_result | None:
        try:
            found = None if self._file is None else os.stat(self._file, follow_symlinks=False)
        except OSError:
            return None
        return found if found is not None and stat.S_ISREG(found.st_mode) else None


def _mark(found: os.stat_result | None) -> tuple[int, ...]:
    """What is another one when a file was replaced or written."""
    return () if found is None else (found.st_ino, found.st_mtime_ns, found.st_mode, found.st_uid)


class Guard:
    """Checks every request before anything else is done with it."""

    def __init__(
        self,
        token: str | OwnToken,
        hosts: frozenset[str],
        now_ms: Callable[[], float],
        logins: Logins,
    ) -> None:
        self._own = OwnToken(token) if isinstance(token, str) else token
        self._hosts = {host.encode("ascii") for host in hosts}
        self._origins = {b"http://" + host for host in self._hosts}
        self._origins |= {b"https://" + host for host in self._hosts}
        self._now_ms = now_ms
        self._logins = logins
        self._wrong: deque[float] = deque(maxlen=WRONG_TOKENS_PER_MINUTE)

    def check(self, visit: Visit) -> Grant | TokenClaim:
        """Who it is, or claims to be, or what is wrong; the order never depends on the token."""
        if visit.door == "tcp":
            self._check_host(visit)
        self._check_origin(visit)
        _refuse_token_in_url(visit.query_string)
        if visit.door == "socket":
            return OWNER
        if visit.is_public:
            return ANYONE
        return self._checked_caller(visit)

    def _check_host(self, visit: Visit) -> None:
        """Another name in Host is how a foreign web page reaches a port of this machine."""
        named = visit.all(b"host")
        if len(named) != 1 or named[0] not in self._hosts:
            raise Forbidden(
                "this name is not one of the daemon's own",
                hint="use the url of `meritory status`; other names need --allow-host",
            )

    def _check_origin(self, visit: Visit) -> None:
        origins, sites = visit.all(b"origin"), visit.all(b"sec-fetch-site")
        foreign = any(origin not in self._origins for origin in origins)
        if foreign or any(site not in _OWN_FETCHES for site in sites):
            raise Forbidden("requests from other web pages are refused")

    def _checked_caller(self, visit: Visit) -> Grant | TokenClaim:
        given = visit.all(b"authorization")
        if not given:
            return self._checked_cookie(visit)
        if len(given) != 1:
            raise Unauthorized
        scheme, _, token = given[0].partition(b" ")
        is_own, claim = self._own.is_right(token.strip()), read_claim(token.strip())
        if scheme.lower() == b"bearer" and (is_own or claim is not None):
            return OWNER if is_own or claim is None else claim
        raise self.wrong_secret()

    def _checked_cookie(self, visit: Visit) -> Grant:
        """A browser sends its cookie whoever made it ask, so that more is wanted for a change."""
        found = [
            secret
            for header in visit.all(b"cookie")
            for secret in self._logins.secrets_in(header.decode("latin-1"))
        ]
        if not found:
            raise Unauthorized
        if not any(self._logins.knows(secret) for secret in found):
            raise self.wrong_secret()
        is_own_page = visit.all(b"origin") or b"same-origin" in visit.all(b"sec-fetch-site")
        if not visit.is_reading and not is_own_page:
            raise Forbidden("only the dashboard's own pages may change something")
        return DASHBOARD

    def wrong_secret(self) -> MeritoryError:
        """What somebody is told who does not know a secret; whoever guesses has to wait."""
        now = self._now_ms()
        full = len(self._wrong) == WRONG_TOKENS_PER_MINUTE
        if full and now - self._wrong[0] < _MINUTE_MS:
            return TooMany(
                f"more than {WRONG_TOKENS_PER_MINUTE} wrong tokens in a minute",
                hint="ask for a token that still opens",
            )
        self._wrong.append(now)
        return Unauthorized()


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _refuse_token_in_url(query_string: bytes) -> None:
    """Addresses end up in logs and histories, where a token must not be."""
    # Most requests have none, and most of the others no word that could be one.
    if not query_string:
        return
    words = {name.lower() for name, _ in parse_qsl(query_string.decode("latin-1"), True)}
    if words & _TOKEN_WORDS:
        raise BadRequest(
            "a token does not belong into an address",
            hint="send it as `Authorization: Bearer TOKEN`",
        )
