"""The route table's types: what a route is, what its handler gets, and what requests share."""

from __future__ import annotations

import inspect
import itertools
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from pathlib import PurePath
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    Self,
    TypeVar,
    cast,
    get_type_hints,
)
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta
from starlette.responses import Response

from meritory.api.embedded import EmbeddedBackend, open_embedded
from meritory.api.memory import Memory
from meritory.connect.files import InstallRecord
from meritory.domain.folder import clean_name
from meritory.domain.memory import NAME_LIMIT_CHARS, EveryScope
from meritory.domain.world import moment_text, parse_moment
from meritory.engine.folders import PATH_LIMIT_CHARS, project_for
from meritory.engine.observe.observer import adopt_durations
from meritory.engine.observe.telemetry import note_start
from meritory.engine.quality.maintenance import Schedule
from meritory.engine.services import Services
from meritory.engine.sessions.delivery import Deliveries
from meritory.server.auth import AnyMemory, Door, Grant, ScopedMemory
from meritory.server.dashboard import Logins, own_address, read_files
from meritory.server.dedupe import DuplicateFilter
from meritory.server.event_stream import LiveEvents, file_number
from meritory.server.problems import Forbidden
from meritory.server.token_cache import Tokens
from meritory.settings import Settings
from meritory.settings.home import LOG_NAME, LOGINS_NAME

Method = Literal["GET", "POST", "PATCH", "PUT", "DELETE"]
# health: liveness, without a token. read and write: memories. hooks: calls of harnesses.
# admin: irreversible actions and the daemon itself. login: how a browser signs in.
Access = Literal["health", "read", "write", "hooks", "admin", "login"]
# scope: stays within an agent and a project. user: everything of one user. daemon: the daemon
# itself or all users; only the daemon's owner may use it, whatever the token.
Reach = Literal["scope", "user", "daemon"]

T = TypeVar("T")
PAGE_LIMIT = 100
SAFE_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
Limit = Annotated[int, Meta(ge=1, le=1_000)]
Moment = Annotated[str, Meta(description="ISO 8601; without an offset it is UTC")]
# The same rule as in the library: printable, and not blank.
_PRINTABLE = r"^[^\x00-\x1f\x7f]*\S[^\x00-\x1f\x7f]*$"
_QUERY_NUMBERS = itertools.count(1)
SessionKey = Annotated[str, Meta(min_length=1, max_length=NAME_LIMIT_CHARS, pattern=_PRINTABLE)]


class QueryParams(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The query string of a route without parameters."""

    def to(self, record: Callable[..., T], **given: Any) -> T:
        """Return a record with the parameters of the same names; moments are parsed."""
        names = set(inspect.signature(record).parameters) & set(self.__struct_fields__)
        values = {name: getattr(self, name) for name in names} | given
        for name in ("since", "until"):
            if isinstance(values.get(name), str):
                values[name] = parse_moment(values[name], name)
        return record(**values)

    @classmethod
    def plus(cls, **params: Any) -> type[Self]:
        """Return these parameters and others, each with its type or a pair of type and default."""
        fields = [(name, *(p if isinstance(p, tuple) else (p,))) for name, p in params.items()]
        # OpenAPI tells schemas apart by their names, so each needs its own.
        name = f"{cls.__name__}{next(_QUERY_NUMBERS)}"
        return cast("type[Self]", msgspec.defstruct(name, fields, bases=(cls,), kw_only=True))


class UserQuery(QueryParams, kw_only=True):
    """The user; by default the setting `user`."""

    user: str | None = None


class Scoped(UserQuery, kw_only=True):
    """The scope of a request; the default user is the setting `user`."""

    agent: str | None = None
    project: str | None = None


class ShapeMeta(msgspec.StructMeta):
    """Gives a reply the fields of a record, with their types.

    `names` lists them: `id=key` shows the record's field `key` under the name `id`, and `*` stands
    for all fields but those of `without`. The class itself declares other types and more fields.
    """

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        record: type | None = None,
        names: str = "*",
        without: str = "",
        **options: Any,
    ) -> Any:
        if record is not None:
            own, types = namespace.get("__annotations__", {}), get_type_hints(record)
            every = " ".join(field for field in types if field not in without.split())
            pairs = (word.partition("=") for word in names.replace("*", every).split())
            sources = {field: source or field for field, _, source in pairs}
            namespace["__annotations__"] = {
                field: own[field] if field in own else types[source]
                for field, source in sources.items()
            }
            namespace["_sources"] = sources
        return super().__new__(cls, name, bases, namespace, **options)


class ReplyShape(msgspec.Struct, metaclass=ShapeMeta):
    """A reply whose public shape differs from its record.

    A reply that has the fields of its record, and no others, is the record itself.
    """

    _sources: ClassVar[Mapping[str, str]] = {}

    if TYPE_CHECKING:

        def __init_subclass__(
            cls,
            record: type | None = None,
            names: str = "*",
            without: str = "",
            kw_only: bool = False,
        ) -> None: ...

    @classmethod
    def of(cls, record: object, **changed: Any) -> Self:
        """Copy the fields that the record has too; `changed` names the values of the others."""
        names = (name for name in cls.__struct_fields__ if name not in changed)
        sources = {name: cls._sources.get(name, name) for name in names}
        return cls(**{name: getattr(record, sources[name]) for name in sources}, **changed)


class Results(msgspec.Struct, Generic[T]):
    """A list of replies."""

    results: list[T]


class TextReply(Response):
    """A text reply, or one with a status other than 200."""

    def __init__(self, content: str, media_type: str = "text/plain", status: int = 200) -> None:
        super().__init__(content, status, SAFE_HEADERS, media_type)


class Page(Response):
    """A reply for a browser, with its own headers."""

    media_type = "text/html"


def encode_reply(reply: object) -> bytes:
    """Return a reply as JSON."""
    return msgspec.json.encode(to_json(reply))


def to_json(reply: object) -> Any:
    """Return records and structs as JSON values; times are UTC text of one width."""
    # Not by msgspec alone: it writes "Z" and drops zero microseconds, so that widths differ.
    return _write_times(msgspec.to_builtins(reply, builtin_types=(datetime,)))


def _write_times(value: Any) -> Any:
    if isinstance(value, datetime):
        return moment_text(value)
    if isinstance(value, dict):
        return {name: _write_times(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_write_times(inner) for inner in value]
    return value


class ServerState:
    """What all requests share: the open engine, its observer, and the dashboard."""

    def __init__(self, settings: Settings, url: str) -> None:
        options = {"everywhere": True, "background": True, "apart": True}
        self.engine = open_embedded(
            None, settings, None, names=(None, None, None), actor="daemon", **options
        )
        services, works = self.engine.services, self.engine.works
        connected = InstallRecord(settings.home)
        self.engine.services = services = replace(services, has_tools=connected.has)
        # The first request must not wait for the embedder and the index to load.
        works.warm_up(self.engine.scope)
        works.schedule(Schedule(services).look)
        note_start(services, settings.user)
        # Continue jobs that other processes left behind, and find later ones.
        works.nudge()
        self.settings = settings
        self.world = services.world
        self.observer = services.observer
        adopt_durations(services, settings.user)
        self.tokens = Tokens(services)
        # Held by the one request that runs jobs, or waits for running ones.
        self.draining = threading.Lock()
        self.deliveries = Deliveries(services)
        self.duplicates = DuplicateFilter(self.world.monotonic_ms)
        self.logins = Logins(
            lambda: self.world.now().timestamp() * 1000,
            urlsplit(url).port or 80,
            settings.home / LOGINS_NAME,
        )
        self.page_url, self.pages = own_address(url), read_files()
        self.live = LiveEvents(self._numbers, services.store.follow)
        self.started_at: datetime = self.world.now()
        self._started_ms = self.world.monotonic_ms()

    def _numbers(self) -> dict[str, int]:
        """Return a number by topic that changes whenever something of the topic changes."""
        return {
            **self.engine.services.store.change_numbers(),
            "error": sum(self.observer.failure_counts().values()),
            "log": file_number(self.settings.home / LOG_NAME),
        }

    def uptime_s(self) -> float:
        """Return how long the engine has been open."""
        return (self.world.monotonic_ms() - self._started_ms) / 1000

    def close(self) -> None:
        """Finish running work and close the store."""
        self.tokens.close()
        self.engine.close()


@dataclass(frozen=True, slots=True)
class Call:
    """One decoded request: everything a handler may read."""

    server: ServerState
    grant: Grant
    path: Mapping[str, str]
    query: Any
    body: Any
    request_id: str
    door: Door = "tcp"
    # Names are lower case; of a repeated header the first value counts.
    headers: Mapping[str, str] = field(default_factory=dict)
    # Whether the route is an agent's surface, for every caller.
    is_agent: bool = False

    def engine(
        self,
        user: str | None,
        agent: str | None = None,
        project: str | None = None,
        *,
        everywhere: bool = False,
        any_id: bool | None = None,
        actor: str | None = None,
    ) -> EmbeddedBackend:
        """Return the engine for a scope; refuse names outside the caller's token.

        A scope without agent and project is a person's: its ids may name any memory of the user,
        unless `any_id` says otherwise. With `everywhere` searches cover all of them too.
        """
        user, agent, project = self.grant.scope(
            user, agent, project, everywhere=everywhere or any_id is True
        )
        if any_id is None:
            any_id = everywhere or (agent is None and project is None)
        view = self.server.engine.view(user, agent, project, everywhere=any_id, actor=actor)
        if everywhere:
            view.scope = EveryScope(view.scope.user)
        is_person = self.grant.is_person and not self.is_agent
        view.services = replace(view.services, is_person=is_person)
        return view

    def memory(self) -> AnyMemory:
        """Return the memory for the scope that the body names, else the query."""
        named = next((part for part in (self.body, self.query) if hasattr(part, "user")), Scoped())
        return self.open(
            self.engine(
                named.user,
                getattr(named, "agent", None),
                getattr(named, "project", None),
                everywhere=getattr(named, "everywhere", False),
            )
        )

    def open(self, engine: EmbeddedBackend) -> AnyMemory:
        """Return the memory of an engine, limited to the caller's token."""
        memory = Memory(backend=engine)
        return ScopedMemory(memory, self.grant) if self.grant.is_narrow else memory

    def user_memory(self) -> Memory:
        """Return all memories of the user that the body names, else the query.

        Only for routes that reach the whole user: the table refuses them to narrow tokens before.
        """
        return self.whole(self.engine((self.query if self.body is None else self.body).user))

    def whole_user(self) -> tuple[Services, str]:
        """Return the services and the user, for routes that reach everything of one user."""
        memory = self.user_memory()
        return memory.services, memory.scope.user

    def whole(self, engine: EmbeddedBackend) -> Memory:
        """Return the memory of an engine for a caller who may use all methods."""
        if self.grant.is_narrow:
            raise Forbidden("this route needs a token for the whole user")
        return Memory(backend=engine)

    def project(self, named: str | None, cwd: str | None, user: str | None) -> str | None:
        """Return the project that a request or its token names, else that of its directory.

        The holder of a token may be on another machine, so their directory is not looked up here.
        """
        if named is not None or self.grant.project is not None:
            return named
        if not cwd or not os.path.isabs(cwd) or len(cwd) > PATH_LIMIT_CHARS:
            return None
        if self.grant.caller == "token":
            return clean_name(PurePath(cwd).name)
        services = self.server.engine.services
        return project_for(services, user or services.user, cwd)


Handler = Callable[[Call], object]


@dataclass(frozen=True, slots=True)
class Route:
    """One row of the table.

    The handler's docstring is the summary, and its return type the type of the reply.
    """

    method: Method
    path: str
    handler: Handler
    access: Access
    reach: Reach
    _: KW_ONLY
    query: type[QueryParams] = QueryParams
    # None: the route takes no body. bytes: the handler gets the body as it came.
    body: type[msgspec.Struct] | type[bytes] | None = None
    # Only for handlers that do not say it themselves.
    summary: str = ""
    reply: Any = None
    encode: Callable[[object], bytes] = encode_reply
    # Whether the handler only reads memory, so that it needs no worker thread.
    is_quick: bool = False

    @property
    def is_agent(self) -> bool:
        """Return whether agents use this route: hooks and MCP, also by the owner's socket."""
        return self.path == "/mcp" or self.path.startswith("/api/hooks/")

    def __post_init__(self) -> None:
        if not self.summary:
            summary = (self.handler.__doc__ or "").partition("\n")[0]
            object.__setattr__(self, "summary", summary)
        if self.method == "GET" and self.access in ("write", "hooks"):
            raise ValueError(f"GET {self.path} must not change anything")
        if self.method == "GET" and self.body is not None:
            raise ValueError(f"GET {self.path} must not have a body")
        if self.is_quick and self.body is not None:
            raise ValueError(f"quick route {self.path} must not have a body")
