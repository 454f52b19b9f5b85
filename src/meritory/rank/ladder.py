"""The ladder of a rule: proposed, warns, blocks, one step at a time, and down again.

A rule weighs as much as the reports behind it, each half as much after seven days. The current
action counts as one more case: the second case of a mistake causes a warning, the fourth a block. A
rule goes up only while a replay of harmless actions raises no alarm. It goes down when its weight
has decayed, when no complaint followed its warnings, and when it expires.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from meritory.domain.rule import State

STATES: Final[tuple[State, ...]] = ("proposed", "warns", "blocks", "expired", "retired")
ACTIVE: Final[tuple[State, ...]] = ("proposed", "warns", "blocks")
HALF_LIFE_DAYS: Final = 7.0
WARN_WEIGHT: Final = 1.5
BLOCK_WEIGHT: Final = 3.25
# A rule keeps its state until its weight is well below the one that raised it.
WARN_KEEP_WEIGHT: Final = 0.4
BLOCK_KEEP_WEIGHT: Final = 1.5
# After this many warnings without a complaint since the last report, the rule was wrong.
UNHEEDED_LIMIT_COUNT: Final = 2
LIFE: Final = timedelta(days=28)
APPROVED_LIFE: Final = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """The facts that decide the state of a rule."""

    state: State
    # Of the reports, decayed to now.
    weight: float
    # The highest state that its trigger allows.
    reach: State
    # Whether the latest replay raised no alarm.
    is_clear: bool
    is_approved: bool
    # Whether a user undid its last step, and nothing was reported since.
    is_held: bool
    expires_at: datetime
    unheeded_count: int = 0


def faded(weight: float, weighed_at: datetime, now: datetime) -> float:
    """Return a weight decayed to now; a clock that went back changes nothing."""
    days = max(0.0, (now - weighed_at).total_seconds() / 86_400)
    return float(weight * 0.5 ** (days / HALF_LIFE_DAYS))


def settled(status: RuleStatus, now: datetime) -> tuple[State, str]:
    """Return the state of a rule without new cases, the same or lower, and why."""
    state = status.state
    if state not in ACTIVE:
        return state, ""
    if now >= status.expires_at:
        return "expired", "nothing was reported for long"
    if state == "proposed":
        return state, ""
    if status.unheeded_count >= UNHEEDED_LIMIT_COUNT:
        return _down(state), f"{status.unheeded_count} warnings without a complaint after"
    if status.is_approved:
        return state, ""
    keep = BLOCK_KEEP_WEIGHT if state == "blocks" else WARN_KEEP_WEIGHT
    if status.weight < keep:
        return _down(state), "its reports have faded"
    return state, ""


def stepped(status: RuleStatus, case_count: int) -> tuple[State, str]:
    """Return the state of a rule with new cases, at most one step up, and why."""
    state, weight = status.state, status.weight + case_count
    if state not in ("proposed", "warns") or status.is_held:
        return state, ""
    wanted: State = "warns" if state == "proposed" else "blocks"
    needed = WARN_WEIGHT if state == "proposed" else BLOCK_WEIGHT
    is_within = ACTIVE.index(wanted) <= ACTIVE.index(status.reach)
    if weight < needed or not is_within or not status.is_clear:
        return state, ""
    return wanted, f"a weight of {weight:.1f}, and no alarm on harmless actions"


def _down(state: State) -> State:
    return ACTIVE[max(0, ACTIVE.index(state) - 1)]


def above(state: State) -> State | None:
    """Return the next state up, None at the top."""
    if state not in ACTIVE or state == "blocks":
        return None
    return ACTIVE[ACTIVE.index(state) + 1]
