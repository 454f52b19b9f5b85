"""Whether a user lets training data be kept for others, as every backend keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Consent:
    """What a user said; None is not asked, or not answered yet."""

    install_date: datetime
    opt_in: bool | None = None
    last_prompted_at: datetime | None = None


class ConsentReads(Protocol):
    """What can be asked about a consent, also within a transaction."""

    def consent(self, user: str) -> Consent | None:
        """What a user said; None before the first start."""


class ConsentVerbs(ConsentReads, Protocol):
    """What a transaction can do with a consent."""

    def put_consent(self, user: str, consent: Consent) -> None:
        """Keeps what a user said, in place of what was there."""
