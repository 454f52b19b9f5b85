"""Access tokens and consent to telemetry."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

# Each role includes those before it.
Role = Literal["read", "write", "admin"]
ROLES: tuple[Role, ...] = ("read", "write", "admin")


@dataclass(frozen=True, slots=True)
class AccessToken:
    """An access token of one user, with the hash of its secret.

    A token with an agent or a project gives access to their memories only.
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
        """Return whether the token is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True)
class Consent:
    """A user's consent to telemetry; `opt_in` is None until the user answers."""

    install_date: datetime
    opt_in: bool | None = None
    last_prompted_at: datetime | None = None
