"""How much a report gives to work with, by plain rules: shown to people, never a gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WEIGHTS: Final = {
    "is_actionable": 0.30,
    "has_context": 0.15,
    "has_advice": 0.15,
    "has_action": 0.15,
    "has_rubric": 0.15,
    "has_tags": 0.10,
}


@dataclass(frozen=True, slots=True)
class QualityFacts:
    """What is known about a report."""

    is_actionable: bool
    has_context: bool
    # What to change after a mistake; why it worked after a success.
    has_advice: bool
    has_action: bool
    has_rubric: bool
    has_tags: bool


def quality(facts: QualityFacts) -> float:
    """The sum of the weights of all that holds, 0 to 1."""
    return round(sum((w for name, w in WEIGHTS.items() if getattr(facts, name)), 0.0), 6)
