"""Tokens: who else may come in, what they may do, and for whose memories; for every backend."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

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


@dataclass(frozen=True, slots=True)
class Consent:
    """What a user said; None is not asked, or not answered yet."""

    install_date: datetime
    opt_in: bool | None = None
    last_prompted_at: datetime | None = None
