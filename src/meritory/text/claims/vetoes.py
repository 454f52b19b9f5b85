"""What two texts must have in common to be one claim, whatever else differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from meritory.text.claims.reading import Claim

_ENDED = frozenset({"ended", "past"})


def veto(old: Claim, new: Claim, *, same_values: bool = True) -> str | None:
    """Return the class in which two claims differ, or None; no wording outweighs a veto.

    An update keeps all but its value, so it is held against the other classes only.
    """
    if old.language != new.language:
        return "language"
    if old.cues & _ENDED != new.cues & _ENDED:
        return "validity"
    for name, part in _CLASSES.items():
        if part(old) != part(new):
            return name
    if same_values and _values(old) != _values(new):
        return "value"
    return None


def _values(claim: Claim) -> Counter[str]:
    """Return the numbers, units, identifiers, paths, quotes and symbols of a claim."""
    words = claim.lexicon
    measures = set(words.units.values())
    return Counter(unit.key for unit in claim.units if unit.kind != "word" or unit.key in measures)


def _question(claim: Claim) -> bool:
    return any(unit.key in "?？" for unit in claim.units) or claim.text.rstrip()[-1:] in "?？"


def _negations(claim: Claim) -> int:
    words = claim.lexicon
    return sum(key.rstrip(",") in words.negations or key == "not" for key in claim.keys)


def _modals(claim: Claim) -> Counter[str]:
    words = claim.lexicon
    # "May" within a sentence is a month.
    return Counter(
        unit.key
        for unit in claim.units
        if unit.key in words.modals and (unit.is_first or not unit.is_capital)
    )


def _limits(claim: Claim) -> Counter[str]:
    words = claim.lexicon
    return Counter(key for key in claim.keys if key in words.limits)


_CLASSES: dict[str, Callable[[Claim], object]] = {
    "question": _question,
    "negation": _negations,
    "modality": _modals,
    "condition or limit": _limits,
}
