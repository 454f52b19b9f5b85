"""Access tokens, consent to telemetry and the secret of a store.

A token is stored with the hash of its secret; the secret itself is shown once, when it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from meritory.domain.access import AccessToken, Consent


class AccessReads(Protocol):
    """Reads of tokens and consent, also within a transaction."""

    def access_token(self, user: str, token_id: str) -> AccessToken | None:
        """Return the token of a user with exactly this id, valid or not."""

    def access_tokens(self, user: str) -> Sequence[AccessToken]:
        """Return all tokens of a user, valid or not, oldest first."""

    def consent(self, user: str) -> Consent | None:
        """Return the consent of a user; None before the first start."""

    def secret(self) -> bytes:
        """Return the store's secret, from which the codes of injections are made."""


class AccessWrites(AccessReads, Protocol):
    """Changes of tokens and consent."""

    def put_access_token(self, token: AccessToken) -> None:
        """Store a token in place of the one with its id."""

    def note_access(self, user: str, token_id: str, at: datetime) -> None:
        """Record the use of a token, unless a later use is recorded."""

    def put_consent(self, user: str, consent: Consent) -> None:
        """Store the consent of a user in place of the former one."""
