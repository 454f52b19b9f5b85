"""Tokens: who else may come in, what they may do, and for whose memories; for every backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

# Each may do what those before it may.
Role = Literal["read", "write", "admin"]
ROLES: tuple[Role, ...] = ("read", "write", "admin")


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token as it is kept: of its secret only a hash.

    It is of one user; an agent or a project that it names is all it reaches of that user.
    """

    user: str
    id: str
    name: str
    role: Role
    agent: str | None
    project: str | None
    digest: bytes
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        """Whether it still opens anything."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class AccessReads(Protocol):
    """What can be asked about tokens, also within a transaction."""

    def access_token(self, user: str, token_id: str) -> AccessToken | None:
        """The token of a user with exactly this id, valid or not."""

    def access_tokens(self, user: str) -> Sequence[AccessToken]:
        """All tokens of a user, valid or not, oldest first."""


class AccessVerbs(AccessReads, Protocol):
    """What a transaction can do with tokens."""

    def put_access_token(self, token: AccessToken) -> None:
        """Keeps a token, in place of the one with its id."""

    def note_access(self, user: str, token_id: str, at: datetime) -> None:
        """Notes that a token was used, unless it was used later than that already."""
