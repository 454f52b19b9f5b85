"""What extraction proposed and was refused, as every backend keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from meritory.types import Kind, Origin, Provenance, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A candidate that did not become a memory, and why; it can be restored."""

    id: str
    at: datetime
    scope: Scope
    session_key: str | None
    content: str
    kind: Kind
    provenance: Provenance
    origin: Origin
    confidence: float
    # Where in the transcript, and the words it rests on.
    turn: str | None
    quote: str
    reason: str
    # Which extractor and version of its prompt or rules.
    extractor: str
    # The memory it became after all.
    memory_id: str | None = None


class RefusalReads(Protocol):
    """What can be asked about refusals, also within a transaction."""

    def refusals(self, user: str, limit: int, offset: int = 0) -> list[Refusal]:
        """What was refused and not restored, latest first."""

    def refusal(self, user: str, prefix: str) -> Refusal:
        """The refusal whose id starts so; NotFound for none, InputError for several."""


class RefusalVerbs(RefusalReads, Protocol):
    """What a transaction can do with refusals."""

    def put_refusals(self, refusals: Sequence[Refusal]) -> None:
        """Keeps what was refused; one that is known already is replaced."""

    def mark_restored(self, user: str, refusal_id: str, memory_id: str) -> None:
        """Notes which memory a refusal became."""
