"""What a route is: where it lies, who may use it, what goes in and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from meritory.server.project import folder_name, project_of

if TYPE_CHECKING:
    from meritory.api.memory import Memory
    from meritory.server.auth import Door
    from meritory.server.memories import ServerState
    from meritory.server.permissions import Grant


Method = Literal["GET", "POST", "PATCH", "PUT", "DELETE"]
# health: alive or not, no token. read and write: memories. hooks: what harnesses call.
# admin: what cannot be undone or concerns the daemon itself. login: how a browser gets in.
Access = Literal["health", "read", "write", "hooks", "admin", "login"]
# scope: keeps to an agent and a project. user: all of a user's. daemon: the daemon itself or
# everybody's, which is for its owner alone, whatever token somebody has.
Reach = Literal["scope", "user", "daemon"]


class QueryParams(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The query string of a route without parameters."""


class Scoped(QueryParams, kw_only=True):
    """Whose memories a request is about; without a user it is the setting `user`."""

    user: str | None = None
    agent: str | None = None
    project: str | None = None


@dataclass(frozen=True, slots=True)
class TextReply:
    """A reply that is not JSON, or whose status says more than that it was done."""

    content: str
    media_type: str = "text/plain; charset=utf-8"
    status: int = 200


@dataclass(frozen=True, slots=True)
class Page:
    """A reply for a browser, with headers of its own."""

    content: bytes
    media_type: str = "text/html; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """One request, decoded: everything a handler may look at."""

    engine: ServerState
    grant: Grant
    path: Mapping[str, str]
    query: Any
    body: Any
    request_id: str
    door: Door = "tcp"
    # By name in lower case; the first value of a name that is given several times.
    headers: Mapping[str, str] = field(default_factory=dict)

    def memory(self) -> Memory:
        """The memory for the scope that the request names in its body, else in its query."""
        named = next((part for part in (self.body, self.query) if hasattr(part, "user")), Scoped())
        return self.view(
            named.user, named.agent, named.project, everywhere=getattr(named, "everywhere", False)
        )

    def view(
        self,
        user: str | None,
        agent: str | None = None,
        project: str | None = None,
        *,
        everywhere: bool = False,
    ) -> Memory:
        """The memory for a scope, as whoever asks may use it; other names than theirs are refused.

        One that names neither agent nor project is a person's, and its ids may name any memory of
        the user. With `everywhere` searches see all of the user's too.
        """
        named = Scoped(user=user, agent=agent, project=project)
        return self.engine.view(self.grant, named, everywhere=everywhere)

    def project(self, named: str | None, cwd: str | None) -> str | None:
        """The project that a request names or its token has, else that of its working directory.

        A token's holder may be anywhere: their folders are not looked for on this machine.
        """
        if named is not None or self.grant.project is not None:
            return named
        return folder_name(cwd) if self.grant.caller == "token" else project_of(cwd)


Handler = Callable[[Call], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One row of the table; without a class it cannot be written."""

    method: Method
    path: str
    handler: Handler
    access: Access
    reach: Reach
    summary: str
    # The types of what comes in and goes out; a body of None means that there is none, and one of
    # bytes is handed over as it came.
    query: type[QueryParams] = QueryParams
    body: type[msgspec.Struct] | type[bytes] | None = None
    reply: Any
    # The name under which the observer keeps how long it took.
    operation: str | None = None
    # Whether all it needs is in memory: then no thread is worth it.
    is_quick: bool = False

    def __post_init__(self) -> None:
        if self.method == "GET" and self.access in ("write", "hooks"):
            raise ValueError(f"GET {self.path} must not change anything")
        if self.method == "GET" and self.body is not None:
            raise ValueError(f"GET {self.path} has no body")
        if self.is_quick and self.body is not None:
            raise ValueError(f"{self.path} would have to wait for its body")
