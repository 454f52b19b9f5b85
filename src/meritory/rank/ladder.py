"""The ladder of a rule: proposed, warns, blocks, one step at a time, and down again.

A rule weighs as much as the reports behind it, each half as much after seven days. The action at
hand counts as one more case: so the second case of a mistake is warned of and the fourth blocked.
Up it goes only while a replay of harmless actions raised no alarm; down it goes when its weight
has faded, when warnings were followed by no complaint, and at its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from meritory.domain.rule import State

# -- fitting --------------------------------------------------------------------------------


# -- making ---------------------------------------------------------------------------------


STATES: Final[tuple[State, ...]] = ("proposed", "warns", "blocks", "expired", "retired")


ACTIVE: Final[tuple[State, ...]] = ("proposed", "warns", "blocks")


_RUNGS: Final[tuple[State, ...]] = ACTIVE


HALF_LIFE_DAYS: Final = 7.0


WARN_WEIGHT: Final = 1.5


BLOCK_WEIGHT: Final = 3.25


# Once up, a rule stays until it has faded well below what brought it there.
WARN_KEEP_WEIGHT: Final = 0.4


BLOCK_KEEP_WEIGHT: Final = 1.5


# Warnings that nobody complained after, since the last report: the rule was wrong.
UNHEEDED_LIMIT_COUNT: Final = 2


LIFE: Final = timedelta(days=28)


APPROVED_LIFE: Final = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """All that decides where a rule stands."""

    state: State
    # Of the reports, faded to now.
    weight: float
    # How far its trigger may take it.
    reach: State
    # Whether the latest replay raised no alarm.
    is_clear: bool
    is_approved: bool
    # Whether somebody took its last step back, and nothing was reported since.
    is_held: bool
    expires_at: datetime
    unheeded_count: int = 0


def faded(weight: float, weighed_at: datetime, now: datetime) -> float:
    """A weight after some time; a clock that went back changes nothing."""
    days = max(0.0, (now - weighed_at).total_seconds() / 86_400)
    return float(weight * 0.5 ** (days / HALF_LIFE_DAYS))


def settled(standing: RuleStatus, now: datetime) -> tuple[State, str]:
    """Where a rule stands without anything new: where it was, or further down, and why."""
    state = standing.state
    if state not in ACTIVE:
        return state, ""
    if now >= standing.expires_at:
        return "expired", "nothing was reported for long"
    if state == "proposed":
        return state, ""
    if standing.unheeded_count >= UNHEEDED_LIMIT_COUNT:
        return _down(state), f"{standing.unheeded_count} warnings without a complaint after"
    if standing.is_approved:
        return state, ""
    keep = BLOCK_KEEP_WEIGHT if state == "blocks" else WARN_KEEP_WEIGHT
    if standing.weight < keep:
        return _down(state), "its reports have faded"
    return state, ""


def stepped(standing: RuleStatus, case_count: int) -> tuple[State, str]:
    """Where a rule stands with so many new cases at hand: one step up at most, and why."""
    state, weight = standing.state, standing.weight + case_count
    if state not in ("proposed", "warns") or standing.is_held:
        return state, ""
    wanted: State = "warns" if state == "proposed" else "blocks"
    needed = WARN_WEIGHT if state == "proposed" else BLOCK_WEIGHT
    is_within = _RUNGS.index(wanted) <= _RUNGS.index(standing.reach)
    if weight < needed or not is_within or not standing.is_clear:
        return state, ""
    return wanted, f"a weight of {weight:.1f}, and no alarm on harmless actions"


def _down(state: State) -> State:
    return _RUNGS[max(0, _RUNGS.index(state) - 1)]


def above(state: State) -> State | None:
    """The next rung, None when there is none."""
    if state not in _RUNGS or state == "blocks":
        return None
    return _RUNGS[_RUNGS.index(state) + 1]
