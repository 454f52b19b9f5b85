"""The route table's types: what a route is, what its handler gets, and what requests share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, Self, TypeVar

import msgspec
from msgspec import Meta

from meritory.api.memory import Memory
from meritory.domain.memory import NAME_LIMIT_CHARS
from meritory.server.payload import encode_reply
from meritory.server.problems import Forbidden
from meritory.server.project import folder_name, project_of
from meritory.server.scoped_memory import AnyMemory, ScopedMemory

if TYPE_CHECKING:
    from meritory.server.auth import Door, Grant
    from meritory.server.state import ServerState


Method = Literal["GET", "POST", "PATCH", "PUT", "DELETE"]
# health: liveness, without a token. read and write: memories. hooks: calls of harnesses.
# admin: irreversible actions and the daemon itself. login: how a browser signs in.
Access = Literal["health", "read", "write", "hooks", "admin", "login"]
# scope: stays within an agent and a project. user: everything of one user. daemon: the daemon
# itself or all users; only the daemon's owner may use it, whatever the token.
Reach = Literal["scope", "user", "daemon"]

T = TypeVar("T")
PAGE_LIMIT = 100
Limit = Annotated[int, Meta(ge=1, le=1_000)]
Moment = Annotated[str, Meta(description="ISO 8601; without an offset it is UTC")]
# The same rule as in the library: printable, and not blank.
_PRINTABLE = r"^[^\x00-\x1f\x7f]*\S[^\x00-\x1f\x7f]*$"
SessionKey = Annotated[str, Meta(min_length=1, max_length=NAME_LIMIT_CHARS, pattern=_PRINTABLE)]


class QueryParams(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The query string of a route without parameters."""


class UserQuery(QueryParams, kw_only=True):
    """The user; by default the setting `user`."""

    user: str | None = None


class Scoped(UserQuery, kw_only=True):
    """The scope of a request; the default user is the setting `user`."""

    agent: str | None = None
    project: str | None = None


class ReplyShape(msgspec.Struct):
    """A reply whose public shape differs from its record.

    A reply that has the fields of its record, and no others, is the record itself.
    """

    @classmethod
    def of(cls, record: object, **changed: Any) -> Self:
        """Copy the fields that the record has too; `changed` names the values of the others."""
        names = (name for name in cls.__struct_fields__ if name not in changed)
        return cls(**{name: getattr(record, name) for name in names}, **changed)


class Results(msgspec.Struct, Generic[T]):
    """A list of replies."""

    results: list[T]


@dataclass(frozen=True, slots=True)
class TextReply:
    """A text reply, or one with a status other than 200."""

    content: str
    media_type: str = "text/plain; charset=utf-8"
    status: int = 200


@dataclass(frozen=True, slots=True)
class Page:
    """A reply for a browser, with its own headers."""

    content: bytes
    media_type: str = "text/html; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


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

    def memory(self) -> AnyMemory:
        """Return the memory for the scope that the body names, else the query."""
        named = next((part for part in (self.body, self.query) if hasattr(part, "user")), Scoped())
        return self.view(
            named.user,
            getattr(named, "agent", None),
            getattr(named, "project", None),
            everywhere=getattr(named, "everywhere", False),
        )

    def user_memory(self) -> Memory:
        """Return all memories of the user that the body names, else the query.

        Only for routes that reach the whole user: the table refuses them to narrow tokens before.
        """
        memory = self.view((self.query if self.body is None else self.body).user)
        if isinstance(memory, ScopedMemory):
            raise Forbidden("this route needs a token for the whole user")
        return memory

    def view(
        self,
        user: str | None,
        agent: str | None = None,
        project: str | None = None,
        *,
        everywhere: bool = False,
    ) -> AnyMemory:
        """Return the memory for a scope, as the caller may use it; refuse names outside a token.

        A scope without agent and project is a person's: its ids may name any memory of the user.
        With `everywhere` searches cover all of the user's memories too.
        """
        named = Scoped(user=user, agent=agent, project=project)
        return self.server.view(self.grant, named, everywhere=everywhere)

    def project(self, named: str | None, cwd: str | None) -> str | None:
        """Return the project that a request or its token names, else that of its directory.

        The holder of a token may be on another machine, so their directory is not looked up here.
        """
        if named is not None or self.grant.project is not None:
            return named
        return folder_name(cwd) if self.grant.caller == "token" else project_of(cwd)


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
    # The name under which the observer records the duration.
    operation: str | None = None
    # Whether the handler only reads memory, so that it needs no worker thread.
    is_quick: bool = False

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
