"""How an import is done and what it did, for whoever takes lines in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from meritory.domain.errors import InputError, MeritoryError
from meritory.domain.memory import Draft, OnSimilar
from meritory.store.contract.store import Transaction

PROBLEM_LIMIT = 100
REASON_LIMIT_CHARS = 300
SAMPLE_LIMIT = 5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class How:
    """How an import treats what is similar to what is there, and whether it only looks."""

    on_similar: OnSimilar = "gate"
    is_dry: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of one batch, and how far into the file it reached."""

    line_count: int
    outcomes: Counter[str]
    problems: list[tuple[int, str]]
    seen: list[Draft] = field(default_factory=list)


@dataclass(slots=True)
class ImportReport:
    """What an import did: lines read, outcomes, and the first problems with their line numbers."""

    line_count: int = 0
    resumed_at: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    problems: list[tuple[int, str]] = field(default_factory=list)
    # What a dry run would bring: the first few, and all by kind.
    samples: list[Draft] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, taken: Taken) -> None:
        """Adds what became of one batch."""
        self.line_count = taken.line_count
        self.outcomes.update(taken.outcomes)
        room = PROBLEM_LIMIT - len(self.problems)
        self.problems += [(n, reason[:REASON_LIMIT_CHARS]) for n, reason in taken.problems[:room]]
        self.samples += taken.seen[: SAMPLE_LIMIT - len(self.samples)]
        self.kinds.update(draft.kind for draft in taken.seen)


# Runs in the writer's thread; the report is only changed where the lines are read.
Store = Callable[[], Taken]
Note = Callable[[Transaction], None]


def checked(check: Callable[[Any], T], value: Any) -> T | MeritoryError:
    """What a line holds, or why it cannot be taken in: one bad line must not stop the others."""
    if isinstance(value, MeritoryError):
        return value
    try:
        return check(value)
    except MeritoryError as error:
        return error
    except (OverflowError, RecursionError):
        return InputError("a number is too large, or the line is nested too deeply")
