"""What an export carries besides memories, row by row, as every backend hands it out and takes it.

Reports, rules and their events have verbs of their own; these are the small tables around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from meritory.domain.quality import Carried

R = TypeVar("R", bound=Carried)


class CarryVerbs(Protocol):
    """What a transaction can do with carried rows."""

    def carry(self, user: str, rows: Sequence[Carried]) -> None:
        """Puts rows in for a user; what is there already stays as it is."""


class CarryReads(Protocol):
    """What can be asked about rows to carry."""

    def carried(self, user: str, kind: type[R]) -> list[R]:
        """All rows of one kind that a user has, in a fixed order."""
