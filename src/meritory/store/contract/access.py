"""Tokens: who else may come in, what they may do, and for whose memories; for every backend."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from meritory.domain.access import AccessToken, Consent


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


class ConsentReads(Protocol):
    """What can be asked about a consent, also within a transaction."""

    def consent(self, user: str) -> Consent | None:
        """What a user said; None before the first start."""


class ConsentVerbs(ConsentReads, Protocol):
    """What a transaction can do with a consent."""

    def put_consent(self, user: str, consent: Consent) -> None:
        """Keeps what a user said, in place of what was there."""
