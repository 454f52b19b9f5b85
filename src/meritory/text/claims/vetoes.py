"""What two texts must have in common to be one claim, whatever else differs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from meritory.text.claims.lexicon import folded, lexicon
from meritory.text.claims.reading import Claim
from meritory.text.language import read_language

_ENDED = frozenset({"ended", "past"})
_NAMES_BY_CAPITALS = frozenset({"fr", "es"})
# The endings of a name of a woman and of the same name of a man.
_GENDERS = (("e", ""), ("ne", ""), ("te", ""), ("le", ""), ("a", "o"), ("a", ""), ("ette", "et"))


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
    if is_other_kin(old, new) or (same_values and _other_gender(old, new, "genders")):
        return "person"
    if same_values and _values(old) != _values(new):
        return "value"
    if same_values and (_has_other_name(old, new) or _has_other_name(new, old)):
        return "name"
    return None


def is_other_kin(old: Claim, new: Claim) -> bool:
    """Return whether one text is about a brother and the other about a sister."""
    return _other_gender(old, new, "kin")


def _other_gender(old: Claim, new: Claim, name: str) -> bool:
    """Return whether one text says "brother" where the other says "sister"."""
    both = _gendered(old.language or "", name)
    olds, news = both & old.raw, both & new.raw
    return bool(olds and news) and olds != news


@cache
def _gendered(language: str, name: str) -> frozenset[str]:
    groups = read_language(f"{language}/claims").get("groups", {}) if language else {}
    return frozenset(word for pair in groups.get(name, ()) for word in pair.split())


def _has_other_name(one: Claim, other: Claim) -> bool:
    """Return whether a name of one text is not in the other: endings tell Martin from Martine.

    Only where a capital within a sentence shows a name, and endings of other words may differ.
    """
    if one.language not in _NAMES_BY_CAPITALS:
        return False
    names = [unit.key for unit in one.units if unit.is_capital and not unit.is_first]
    known = {folded(key, one.language) for key in other.keys} if names else set()
    if any(folded(key, one.language) not in known for key in names):
        return True
    # "Martin pays" and "Martine pays"; a verb in that place has other endings.
    first, second = (folded(claim.keys[0], claim.language or "") for claim in (one, other))
    is_gender = any(first == second.removesuffix(e) + m for e, m in _GENDERS) and first != second
    return is_gender and one.units[0].is_capital and other.units[0].is_capital


def _values(claim: Claim) -> list[str]:
    """Return the numbers, units, identifiers, paths, quotes and symbols of a claim."""
    measures = _names_of_units(claim.lexicon.language)
    return sorted([unit.key for unit in claim.units if unit.kind != "word" or unit.key in measures])


@cache
def _names_of_units(language: str) -> frozenset[str]:
    return frozenset(lexicon(language).units.values())


def _question(claim: Claim) -> bool:
    return claim.text.rstrip()[-1:] in "?？" or any(unit.key in "?？" for unit in claim.units)


def _negations(claim: Claim) -> int:
    return claim.negation_count


def _modals(claim: Claim) -> list[str]:
    modals = claim.lexicon.modals
    # "May" within a sentence is a month.
    return sorted(
        [
            unit.key
            for unit in claim.units
            if unit.key in modals and (unit.is_first or not unit.is_capital)
        ]
    )


def _limits(claim: Claim) -> list[str]:
    limits = claim.lexicon.limits
    return sorted([key for key in claim.keys if key in limits])


_CLASSES: dict[str, Callable[[Claim], object]] = {
    "question": _question,
    "negation": _negations,
    "modality": _modals,
    "condition or limit": _limits,
}
