"""Authentication and authorisation: tokens, headers, guessing limits, and what a caller may do."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qsl

from meritory.api.memory import Memory, require_text
from meritory.api.session import Session
from meritory.domain.access import ROLES, AccessToken, Role
from meritory.domain.errors import (
    InputError,
    MeritoryError,
    NotFound,
    SettingsError,
)
from meritory.domain.memory import (
    Draft,
    Entity,
    EntityView,
    HistoryEntry,
    MemoryRecord,
    Recalled,
    Scope,
    WriteResult,
)
from meritory.domain.quality import KeptText, ReviewPage
from meritory.engine.access import TokenClaim, read_claim
from meritory.engine.feedback.capture import Captured
from meritory.engine.memories import resolution
from meritory.engine.quality.review import PAIR_MARK
from meritory.engine.services import Services
from meritory.server.dashboard import OFFERED, Logins
from meritory.server.problems import BadRequest, Forbidden, TooMany, Unauthorized
from meritory.settings import Settings
from meritory.settings.home import TOKEN_NAME, write_private

if TYPE_CHECKING:
    from meritory.server.table import Access, Route


# owner: by the token of the data folder, or by the socket. dashboard: a browser that signed in.
# token: by an access token of one user. anyone: on public routes, which check nothing.
Caller = Literal["owner", "dashboard", "token", "anyone"]
# The lowest role that may use a class of routes.
_NEEDED: dict[Access, Role] = {"read": "read", "write": "write", "hooks": "write", "admin": "admin"}


@dataclass(frozen=True, slots=True)
class Grant:
    """A caller and their reach; without a user it covers all users."""

    caller: Caller
    role: Role = "read"
    user: str | None = None
    agent: str | None = None
    project: str | None = None
    token_id: str | None = None

    @classmethod
    def of(cls, token: AccessToken) -> Grant:
        """Return the grant of a valid token."""
        return cls("token", token.role, token.user, token.agent, token.project, token.id)

    @property
    def is_narrow(self) -> bool:
        """Return whether the grant covers only one agent or project of its user."""
        return self.agent is not None or self.project is not None

    @property
    def is_person(self) -> bool:
        """Return whether a person's act may come by this grant: the owner's or an admin's."""
        return self.caller in ("owner", "dashboard") or self.role == "admin"

    def require(self, route: Route) -> None:
        """Refuse a route that this caller must not use."""
        if self.caller == "dashboard":
            is_plain = route.access in ("read", "write")
            if not is_plain and (route.method, route.path) not in OFFERED:
                raise Forbidden("the dashboard does not offer this", hint="use the command line")
            return
        if self.caller == "owner" or route.access in ("health", "login"):
            return
        if self.caller == "anyone":
            raise Forbidden("this route needs a token")
        if route.reach == "daemon":
            raise Forbidden(
                "only the daemon's owner may use this route",
                hint="use the token in the data folder, or the socket on the daemon's machine",
            )
        needed = _NEEDED[route.access]
        if ROLES.index(self.role) < ROLES.index(needed):
            raise Forbidden(
                f"this route needs a token with the role {needed}; this one has {self.role}"
            )
        if route.reach == "user" and self.is_narrow:
            raise Forbidden(
                f"this route covers all of a user's memories; the token is only {self._limits()}"
            )

    def scope(
        self, user: str | None, agent: str | None, project: str | None, *, everywhere: bool = False
    ) -> tuple[str | None, str | None, str | None]:
        """Return the names of a request, else the token's; refuse names outside the token."""
        if everywhere and self.is_narrow:
            raise Forbidden(f"the token is only {self._limits()}, not everywhere")
        return (
            self._named("user", self.user, user),
            self._named("agent", self.agent, agent),
            self._named("project", self.project, project),
        )

    @property
    def can_write(self) -> bool:
        """Return whether the caller may use routes that write."""
        return self.caller != "token" or ROLES.index(self.role) >= ROLES.index("write")

    def fits(self, agent: str | None, project: str | None) -> bool:
        """Return whether the grant covers something of this agent and project."""
        return self.agent in (None, agent) and self.project in (None, project)

    def can_use_session(self, services: Services, key: object) -> bool:
        """Return whether a session belongs to the grant's agent and project, or is new."""
        if not self.is_narrow or not isinstance(key, str):
            return True
        session = services.store.find_session(services.user, key)
        return session is None or self.fits(session.agent, session.project)

    def require_session(self, services: Services, key: object) -> None:
        """Refuse a session of another agent or project."""
        if not self.can_use_session(services, key):
            raise Forbidden(
                "the session belongs to another agent or project", hint="choose another session key"
            )

    def require_report(self, memory: AnyMemory, fields: Mapping[str, Any]) -> None:
        """Refuse a report on sessions or memories of others; handles are those of its session."""
        if not self.is_narrow:
            return
        key, ids = fields.get("session_key"), fields.get("memory_ids")
        handles: set[str] = set()
        if isinstance(key, str):
            self.require_session(memory.services, key)
            shown = memory.services.store.shown(memory.scope.user, key)
            handles = {row.handle for row in shown}
        for name in ids if isinstance(ids, list | tuple) else [ids]:
            if isinstance(name, str) and name.lower() not in handles:
                memory.get(name)

    def _named(self, what: str, own: str | None, given: str | None) -> str | None:
        if own is None or given is None or given == own:
            return own if given is None else given
        raise Forbidden(f"the token is for another {what}", hint=f"leave the {what} out")

    def _limits(self) -> str:
        named = (("agent", self.agent), ("project", self.project))
        return " and ".join(f"for {what} {name!r}" for what, name in named if name is not None)


OWNER = Grant("owner", "admin")
DASHBOARD = Grant("dashboard", "admin")
ANYONE = Grant("anyone")


Door = Literal["socket", "tcp"]
TOKEN_BYTES = 32
WRONG_TOKENS_PER_MINUTE = 20
OWN_NAMES = ("localhost", "127.0.0.1", "[::1]")
_TOKEN_WORDS = frozenset({"token", "access_token", "auth", "authorization", "api_key", "bearer"})
_OWN_FETCHES = frozenset({b"same-origin", b"none"})


def load_token(home: Path) -> tuple[str, bool]:
    """Return the token of a data folder and whether it is new; replace one that others can read."""
    path = home / TOKEN_NAME
    try:
        info = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return rotate_token(home), True
    if not stat.S_ISREG(info.st_mode):
        raise SettingsError(
            f"{path} is not a plain file", hint="move it away; the daemon creates a new one"
        )
    token = _private_token(path, info)
    return (rotate_token(home), True) if token is None else (token, False)


def rotate_token(home: Path) -> str:
    """Replace the token; a running daemon uses the new one at once."""
    token = secrets.token_hex(TOKEN_BYTES)
    write_private(home / TOKEN_NAME, token + "\n")
    return token


def _private_token(path: Path, info: os.stat_result) -> str | None:
    """Return the token in a file; None if others can read the file or it is not a token."""
    token = path.read_text("ascii", errors="replace").strip()
    private = not info.st_mode & 0o077 and info.st_uid == os.geteuid()
    return token if private and len(token) == 2 * TOKEN_BYTES and token.isalnum() else None


def own_hosts(port: int, allowed: Iterable[str] = (), address: str = "") -> frozenset[str]:
    """Return the Host headers that name this daemon, exactly as they must be written.

    Allowed names count without the port too: a proxy may be in front. The names of this machine
    do not: another program may serve the default port.
    """
    own, more = {*OWN_NAMES, *filter(None, [address])}, list(allowed)
    with_port = {f"{name}:{port}" for name in (*own, *more)}
    return frozenset(with_port.union(more, own if port == 80 else ()))


class OwnToken:
    """The owner's token, as its file has it now; only a hash stays in memory."""

    def __init__(self, token: str, file: Path | None = None) -> None:
        # Comparing hashes of equal length leaks nothing.
        self._digest = _digest(token.encode("ascii"))
        self._file = file
        # Differs once the file is replaced or written.
        self._mark: tuple[int, ...] = ()

    def is_right(self, token: bytes) -> bool:
        """Return whether this is the owner's token; read its file again if it was replaced."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                info = os.stat(self._file, follow_symlinks=False)
                mark = (info.st_ino, info.st_mtime_ns, info.st_mode, info.st_uid)
                if stat.S_ISREG(info.st_mode) and mark != self._mark:
                    written = _private_token(self._file, info)
                    self._mark = mark
                    self._digest = self._digest if written is None else _digest(written.encode())
        return hmac.compare_digest(_digest(token), self._digest)


class Guard:
    """Checks every request before anything else happens."""

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

    def check(
        self,
        door: Door,
        headers: Iterable[tuple[bytes, bytes]],
        query_string: bytes,
        *,
        is_public: bool = False,
        is_reading: bool = False,
    ) -> Grant | TokenClaim:
        """Return the caller, or a token's claim to look up; the order of checks leaks nothing.

        A public route needs no token. A change by a browser must come from a page of the dashboard.
        """
        values: defaultdict[bytes, list[bytes]] = defaultdict(list)
        for name, value in headers:
            values[name].append(value)
        hosts = values[b"host"]
        if door == "tcp" and (len(hosts) != 1 or hosts[0] not in self._hosts):
            # A foreign web page can reach a port of this machine under a name of its own.
            raise Forbidden(
                "the Host header does not name this daemon",
                hint="use the url of `meritory status`; other names need --allow-host",
            )
        is_foreign = not self._origins.issuperset(values[b"origin"])
        if is_foreign or not _OWN_FETCHES.issuperset(values[b"sec-fetch-site"]):
            raise Forbidden("requests from other web pages are refused")
        query = parse_qsl(query_string.decode("latin-1"), True)
        if _TOKEN_WORDS & {word.lower() for word, _ in query}:
            # Logs and browser histories keep URLs.
            raise BadRequest(
                "a token must not be in the URL",
                hint="send it as `Authorization: Bearer TOKEN`",
            )
        if door == "socket":
            return OWNER
        return ANYONE if is_public else self._check_caller(values, is_reading)

    def _check_caller(
        self, values: Mapping[bytes, list[bytes]], is_reading: bool
    ) -> Grant | TokenClaim:
        given = values[b"authorization"]
        if len(given) > 1:
            raise Unauthorized
        if given:
            scheme, _, token = given[0].partition(b" ")
            if scheme.lower() == b"bearer":
                if self._own.is_right(token.strip()):
                    return OWNER
                claim = read_claim(token.strip())
                if claim is not None:
                    return claim
            raise self.wrong_secret()
        cookies = self._logins.secrets_in(b";".join(values[b"cookie"]).decode("latin-1"))
        if not cookies:
            raise Unauthorized
        if not any(map(self._logins.is_valid, cookies)):
            raise self.wrong_secret()
        # A cookie alone does not authorise a change (CSRF).
        is_own_page = values[b"origin"] or b"same-origin" in values[b"sec-fetch-site"]
        if not is_reading and not is_own_page:
            raise Forbidden("only pages of the dashboard may make changes")
        return DASHBOARD

    def wrong_secret(self) -> MeritoryError:
        """Return the error for a wrong secret; too many of them in a minute must wait."""
        now = self._now_ms()
        full = len(self._wrong) == WRONG_TOKENS_PER_MINUTE
        if full and now - self._wrong[0] < 60_000:
            return TooMany(
                f"more than {WRONG_TOKENS_PER_MINUTE} wrong tokens in a minute",
                hint="wait a minute, and use a valid token",
            )
        self._wrong.append(now)
        return Unauthorized()


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


# -- the memory of a narrow token --------------------------------------------------------------


class ScopedMemory:
    """The methods of `Memory` that a narrow token may use; there are no others.

    A method that `Memory` gains is out of reach until it is added here with its checks. Searches
    and ids keep to their scope by themselves. The other arguments that name a scope are checked:
    fields of a memory to store or change, session keys, and ids of reports.
    """

    # Bound to those of `Memory`, as they need no checks.
    scope: Scope
    settings: Settings
    services: Services
    undo: Callable[[str], list[MemoryRecord]]
    split: Callable[..., list[MemoryRecord]]
    get: Callable[[str], MemoryRecord]
    history: Callable[[str], list[HistoryEntry]]
    merges: Callable[..., list[HistoryEntry]]
    entities: Callable[..., list[Entity]]
    describe: Callable[[str], EntityView]
    related: Callable[[str], list[str]]
    required: Callable[..., list[str]]
    work_meanwhile: Callable[[], None]

    def __init__(self, memory: Memory, grant: Grant) -> None:
        self._memory = memory
        self._grant = grant
        for name in ScopedMemory.__annotations__:
            setattr(self, name, getattr(memory, name))

    def remember_many(self, items: Iterable[str | Mapping[str, Any]]) -> list[WriteResult]:
        """Store many texts; one for another agent or project becomes an error in its place."""
        if isinstance(items, str | Mapping):
            raise InputError("expected a list of memories", hint="for one, call remember")
        drafts = [self._memory._draft(item) for item in items]
        for index, draft in enumerate(drafts):
            if not isinstance(draft, Draft):
                continue
            key = draft.source.session_key if draft.quote and draft.source else None
            is_own = self._grant.fits(draft.agent, draft.project)
            if not (is_own and self._grant.can_use_session(self.services, key)):
                drafts[index] = _outside()
            try:
                for named in draft.resolves:
                    self._require_own_memory(named.memory_id)
            except MeritoryError as error:
                drafts[index] = error
        with self.services.observer.timed("remember"):
            return resolution.remember(self.services, self.scope.user, drafts)

    def forget(
        self, memory_id: str, *, purge: bool = False, why: str = "", origin: str = "user"
    ) -> None:
        """Forget a memory; erase only one of the scope, not one that other projects share."""
        if purge:
            self._require_own_memory(memory_id)
        self._memory.forget(memory_id, purge=purge, why=why, origin=origin)

    def confirm(self, memory_id: str) -> MemoryRecord:
        """Confirm a memory of the scope, not one that other projects share."""
        self._require_own_memory(memory_id)
        return self._memory.confirm(memory_id)

    def proposals(self, limit: int = 100, *, everywhere: bool = False) -> list[MemoryRecord]:
        """Return the proposals of the scope."""
        if everywhere:
            raise _outside()
        return self._memory.proposals(limit)

    def reject(self, memory_id: str) -> MemoryRecord:
        """Reject a proposal of the scope."""
        self._require_own_memory(memory_id)
        return self._memory.reject(memory_id)

    def merge(self, a: str, b: str, keep: KeptText | None = None) -> MemoryRecord:
        """Merge two memories of the scope."""
        for memory_id in (a, b):
            self._require_own_memory(memory_id)
        return self._memory.merge(a, b, keep)

    def review(self, limit: int = 50, offset: int = 0) -> ReviewPage:
        """Return the questions about memories that the scope may see."""
        return self._memory.review(limit, offset)

    def decide(self, item: str, action: str, keep: KeptText | None = None) -> list[MemoryRecord]:
        """Answer a question about memories of the scope."""
        for memory_id in require_text("an item", item).split(PAIR_MARK)[:3]:
            self._require_own_memory(memory_id)
        return self._memory.decide(item, action, keep)

    def update(self, /, memory_id: str, **fields: Any) -> MemoryRecord:
        """Change fields of a memory, but not to another agent or project."""
        self._require_own(fields)
        if not fields.keys().isdisjoint(("kind", "pinned")):
            self._require_own_memory(memory_id)
        return self._memory.update(memory_id, **fields)

    def recall(
        self,
        query: str,
        limit: int | None = None,
        explain: bool = False,
        session: str | None = None,
        *,
        min_score: float | None = None,
        kind: str | Sequence[str] | None = None,
        tags: str | Sequence[str] | None = None,
        projects: str | Sequence[str] | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[Recalled]:
        """Search the scope, in a session and projects of the scope only."""
        self._grant.require_session(self.services, session)
        for name in [projects] if isinstance(projects, str) else projects or ():
            if not self._grant.fits(self.scope.agent, name or None):
                raise _outside()
        return self._memory.recall(
            query,
            limit,
            explain,
            session,
            min_score=min_score,
            kind=kind,
            tags=tags,
            projects=projects,
            since=since,
            until=until,
            metadata=metadata,
        )

    def page(
        self,
        limit: int = 100,
        *,
        kind: str | None = None,
        tag: str | None = None,
        after: str | None = None,
        everywhere: bool = False,
        include_gone: bool = False,
    ) -> list[MemoryRecord]:
        """Return a page of memories of the scope."""
        if everywhere:
            raise _outside()
        return self._memory.page(limit, kind=kind, tag=tag, after=after, include_gone=include_gone)

    def session(
        self,
        key: str,
        project: str | None = None,
        context: str | None = None,
        *,
        harness: str | None = None,
        cwd: str | None = None,
    ) -> Session:
        """Start or continue a session of the scope."""
        if project is not None:
            self._require_own({"project": project})
        self._grant.require_session(self.services, key)
        return self._memory.session(key, project, context, harness=harness, cwd=cwd)

    def capture_feedback(self, /, signal: str, context: str = "", **fields: Any) -> Captured:
        """Store a report on sessions and memories of the scope."""
        self._grant.require_report(self, fields)
        return self._memory.capture_feedback(signal, context, **fields)

    def complete_feedback(
        self, /, event_id: str, signal: str | None = None, **fields: Any
    ) -> Captured:
        """Add missing fields to a report of the scope."""
        scope = self._memory.feedback_event(event_id).scope
        if not self._grant.fits(scope.agent, scope.project):
            # The store's own words: the caller must not learn that the report exists.
            raise NotFound(
                f"no feedback {event_id[:40]!r}", hint="`meritory feedback list` shows the ids"
            )
        self._grant.require_report(self, fields)
        return self._memory.complete_feedback(event_id, signal, **fields)

    def why(self, memory_id: str, session_key: str) -> dict[str, Any]:
        """Explain a memory in a session of the scope."""
        self._grant.require_session(self.services, session_key)
        return self._memory.why(memory_id, session_key)

    def _require_own_memory(self, memory_id: str) -> None:
        record = self.get(memory_id)
        if not self._grant.fits(record.agent, record.project):
            raise _outside()

    def _require_own(self, fields: Mapping[str, Any]) -> None:
        own = {"agent": self._grant.agent, "project": self._grant.project}
        for name, value in own.items():
            if value is not None and name in fields and fields[name] != value:
                raise _outside()


AnyMemory = Memory | ScopedMemory


def _outside() -> MeritoryError:
    return Forbidden("this is outside the token's agent or project", hint="leave it out")
