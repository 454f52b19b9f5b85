"""What a caller may do: which routes, and whose memories they are let at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from meritory.domain.access import ROLES, AccessToken, Role
from meritory.server.dashboard import OFFERED
from meritory.server.problems import Forbidden

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
