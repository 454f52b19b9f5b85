"""Belief in a memory's own claim, from weighted evidence that fades; its mean is the usefulness.

Evidence is kept as three masses: for the claim, against it, and undecided. A value of 1
counts for the claim with its whole weight, -1 against it. 0 means that the memory was present and
decided nothing; it moves the mean to the middle without making the claim contested.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from meritory.domain.feedback import Belief, Witness

# The weight of one event.
EVENT_WEIGHTS: dict[Witness, float] = {"person": 1.0, "agent": 0.5, "judge": 0.2}
# The largest weight of all events of one witness in one session.
SESSION_CAPS: dict[Witness, float] = {"person": 2.0, "agent": 1.0, "judge": 0.2}
EVIDENCE_HALF_LIFE_DAYS = 90.0


@dataclass(frozen=True, slots=True)
class BeliefEvent:
    """One witness's evidence on a memory's claim, -1 against it to 1 for it.

    A repeated mistake is evidence for the lesson that warns of it.
    """

    day: float
    witness: Witness
    value: float
    # Without a session, a day counts as one.
    session: str | None = None


def faded(belief: Belief, day: float) -> Belief:
    """Return the belief decayed to a later day; an earlier day changes nothing."""
    if not day > belief.as_of_day:
        return belief
    left = _left(day - belief.as_of_day)
    return Belief(belief.support * left, belief.doubt * left, belief.undecided * left, day)


def update(
    belief: Belief, events: Sequence[BeliefEvent], counted: Sequence[BeliefEvent] = ()
) -> Belief:
    """Return the belief with new events added, as of the latest of all days.

    `counted` are the events of the same sessions that the belief already includes. The cap of a
    session covers both, so that the split of events over updates does not matter.
    """
    new = _usable(events)
    old = _usable(counted)
    day = max([belief.as_of_day, *(event.day for event in new)])
    now = faded(belief, day)
    before = _masses(old, day)
    after = _masses([*old, *new], day)
    # Rounding must not leave a negative mass.
    support, doubt, undecided = (
        max(0.0, held + more - less)
        for held, more, less in zip(
            (now.support, now.doubt, now.undecided), after, before, strict=True
        )
    )
    return Belief(support, doubt, undecided, day)


def believe(events: Sequence[BeliefEvent]) -> Belief:
    """Return the belief of all events; their order does not matter."""
    return update(Belief(), events)


def _usable(events: Iterable[BeliefEvent]) -> list[BeliefEvent]:
    return [event for event in events if math.isfinite(event.day) and math.isfinite(event.value)]


def _masses(events: Iterable[BeliefEvent], day: float) -> tuple[float, float, float]:
    groups: defaultdict[tuple[str | int, Witness], list[BeliefEvent]] = defaultdict(list)
    for event in events:
        session = math.floor(event.day) if event.session is None else event.session
        groups[session, event.witness].append(event)
    parts: list[tuple[float, float, float]] = []
    for (_, witness), group in groups.items():
        # The total weight of a witness's events in one session nears the cap.
        cap = SESSION_CAPS[witness]
        total = cap * (1.0 - (1.0 - EVENT_WEIGHTS[witness] / cap) ** len(group))
        for event in group:
            mass = total / len(group) * _left(day - event.day)
            value = min(1.0, max(-1.0, event.value))
            parts.append(
                (mass * max(0.0, value), mass * max(0.0, -value), mass * (1.0 - abs(value)))
            )
    # Exact sums, so that the order of the events does not matter.
    support, doubt, undecided = zip(*parts, strict=True) if parts else ((), (), ())
    return math.fsum(support), math.fsum(doubt), math.fsum(undecided)


def _left(elapsed_days: float) -> float:
    return float(0.5 ** (max(0.0, elapsed_days) / EVIDENCE_HALF_LIFE_DAYS))
