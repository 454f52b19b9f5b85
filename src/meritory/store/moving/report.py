"""What came of a move: by user and table what was copied, compared, and found to differ."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from meritory.store.moving.comparing import NAMED_LIMIT, Comparison, Difference
from meritory.store.moving.tables import TABLES, Part


@dataclass(slots=True)
class TableTally:
    """The rows of one table."""

    found: int = 0
    copied: int = 0
    compared: int = 0
    differing: int = 0
    # By embedder where there are several, else one.
    digests: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Tally:
    """The rows of one user."""

    user: str
    new_user: str
    tables: dict[str, TableTally] = field(
        default_factory=lambda: {table.name: TableTally() for table in TABLES}
    )
    differences: list[Difference] = field(default_factory=list)
    # Rows that earlier calls had copied.
    copied_before: int = 0
    was_complete: bool = False
    was_begun_anew: bool = False
    # Embedders whose vectors stayed behind, to be made anew.
    left_behind: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """Whether nothing was found to differ."""
        return not any(one.differing for one in self.tables.values())

    def compared(self, part: Part, found: Comparison) -> None:
        """Takes in what comparing a part brought."""
        one = self.tables[part.table.name]
        one.compared += found.row_count
        one.differing += found.difference_count
        one.digests.append(found.digest)
        self.differences += found.differences


@dataclass(slots=True)
class Report:
    """What came of it, user by user."""

    source: str
    target: str
    is_copy: bool = True
    users: list[Tally] = field(default_factory=list)
    # Users whose rows changed in the source while they were read.
    changed_meanwhile: list[str] = field(default_factory=list)

    def tally(self, user: str, new_user: str) -> Tally:
        """A new tally for a user."""
        self.users.append(Tally(user, new_user))
        return self.users[-1]

    @property
    def is_equal(self) -> bool:
        """Whether both sides are the same as far as they were compared."""
        return all(tally.is_equal for tally in self.users)

    @property
    def differences(self) -> list[Difference]:
        """The first few rows that are not the same."""
        return [one for tally in self.users for one in tally.differences][:NAMED_LIMIT]

    def total(self, what: str) -> Counter[str]:
        """By table the sum over all users of `found`, `copied`, `compared` or `differing`."""
        sums: Counter[str] = Counter()
        for tally in self.users:
            for name, one in tally.tables.items():
                sums[name] += getattr(one, what)
        return sums
