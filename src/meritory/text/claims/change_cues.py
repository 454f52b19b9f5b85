"""Decides whether a new text says that what an old one claims has changed."""

from __future__ import annotations

from collections.abc import Sequence

from meritory.text.claims.read import Claim
from meritory.text.claims.words import (
    ADDITIVE,
    CHANGE_VERBS,
    LIGHT_WORDS,
    LIMITS,
    MANY_VALUED,
    NEGATIONS,
    PREPOSITIONS,
    PRONOUNS,
    QUANTIFIERS,
    REPLACE_VERBS,
)

MAX_SLOT_UNITS = 3
MAX_REACH_UNITS = 12
NEGATIVE_CHANGES = frozenset({"ended", "past"})
# "Works with Bob" leaves room for others.
_ACCOMPANYING = frozenset({"with", "and", "or", "about", "against"})


def superseded(old: Claim, new: Claim) -> str | None:
    """Return why the new claim replaces the old one, or None if it does not say so."""
    if not new.changes or not old.keys or not new.keys:
        return None
    if "?" in new.keys:
        return None
    old_keys, new_keys = _loose(old.keys), _loose(new.keys)
    flipped = _flipped(old, new, old_keys, new_keys)
    if flipped:
        return flipped
    if _names_old_value(old, new, old_keys, new_keys):
        return "the new text names the old value as replaced"
    if new.raw & ADDITIVE:
        return None
    return _new_value(old, new, old_keys, new_keys)


def _flipped(
    old: Claim, new: Claim, old_keys: tuple[str, ...], new_keys: tuple[str, ...]
) -> str | None:
    if new.changes & NEGATIVE_CHANGES and not old.changes & NEGATIVE_CHANGES:
        if old_keys == new_keys:
            return "the new text says that it no longer holds"
        return None
    if "now" not in new.changes:
        return None
    if old.changes & NEGATIVE_CHANGES and old_keys == new_keys:
        return "the new text says that it holds again"
    without_not = tuple(key for key in old_keys if key != "not")
    if len(without_not) == len(old_keys) - 1 and without_not == new_keys:
        return "the new text says that it holds now"
    now_without = tuple(key for key in new_keys if key != "not")
    if len(now_without) == len(new_keys) - 1 and now_without == old_keys:
        return "the new text says that it does not hold now"
    return None


def _names_old_value(
    old: Claim, new: Claim, old_keys: tuple[str, ...], new_keys: tuple[str, ...]
) -> bool:
    """Tell whether the new text has "from X to Y", "Y instead of X" or "replaced X with Y"."""
    if old.raw & (MANY_VALUED - {"has", "have"}) or set(old_keys) & NEGATIONS:
        return False
    span = _replaced_span(new)
    strong = [
        loose for key, loose in zip(old.keys, old_keys, strict=True) if key not in LIGHT_WORDS
    ]
    subject = old_keys[0]
    values = [key for key in strong if key != subject]
    if not span or not values or subject not in new_keys:
        return False
    return set(strong) <= set(new_keys) and values[-1] in span


def _replaced_span(new: Claim) -> frozenset[str]:
    """Return the words that stand where the new text names what was replaced."""
    keys = new.keys
    for start, key in enumerate(keys):
        if key == "instead" and keys[start + 1 : start + 2] == ("of",):
            return frozenset(_loose(keys[start + 2 : start + 6]))
        if key == "from" and new.raw & (CHANGE_VERBS | REPLACE_VERBS):
            closer = _next_of(keys, start, {"to"})
            if closer:
                return frozenset(_loose(keys[start + 1 : closer]))
        if key in REPLACE_VERBS and "from" not in new.raw:
            closer = _next_of(keys, start, {"to", "with", "by"})
            passive = start > 1 and keys[start - 1] in {"is", "was", "been"}
            if closer:
                return frozenset(_loose(keys[1 : start - 1] if passive else keys[start:closer]))
    return frozenset()


def _next_of(keys: Sequence[str], start: int, wanted: set[str]) -> int:
    """Return the place of the next wanted word within reach, or 0."""
    for place in range(start + 1, min(len(keys), start + 1 + MAX_REACH_UNITS)):
        if keys[place] in wanted:
            return place
    return 0


def _new_value(
    old: Claim, new: Claim, old_keys: tuple[str, ...], new_keys: tuple[str, ...]
) -> str | None:
    """Tell whether the texts differ in one short slot only, and the slot can hold one value."""
    if "now" not in new.changes:
        return None
    lead = _common_prefix(old_keys, new_keys)
    tail = _common_prefix(old_keys[lead:][::-1], new_keys[lead:][::-1])
    was, now = old_keys[lead : len(old_keys) - tail], new_keys[lead : len(new_keys) - tail]
    context = old_keys[:lead] + old_keys[len(old_keys) - tail :]
    if not lead or len(context) < 2 or not (0 < len(was) <= MAX_SLOT_UNITS >= len(now) > 0):
        return None
    both_numbers = _is_number(was) and _is_number(now)
    closed = PREPOSITIONS | PRONOUNS | NEGATIONS | QUANTIFIERS | LIMITS | {"and", "is", "was"}
    if (set(was) | set(now)) & closed:
        return None
    if (old.raw | new.raw) & MANY_VALUED and not both_numbers:
        return None
    if not both_numbers and (_is_bare_subject(old, lead) or old.keys[lead - 1] in _ACCOMPANYING):
        return None
    was_said, now_said = old.keys[lead : lead + len(was)], new.keys[lead : lead + len(now)]
    return f"the new text gives another value: {' '.join(was_said)} is now {' '.join(now_said)}"


def _is_bare_subject(old: Claim, lead: int) -> bool:
    # "Redis is now deprecated" does not end "Redis is fast": a thing is many things.
    subject = old.units[0]
    named = subject.is_capital or subject.kind != "word" or subject.key in PRONOUNS | {"user"}
    return lead == 2 and old.keys[1] in {"is", "was"} and named


def _is_number(slot: Sequence[str]) -> bool:
    return len(slot) == 1 and slot[0][:1].isdigit()


def _common_prefix(one: Sequence[str], two: Sequence[str]) -> int:
    size = 0
    for left, right in zip(one, two, strict=False):
        if left != right:
            break
        size += 1
    return size


def _loose(keys: Sequence[str]) -> tuple[str, ...]:
    """Return the keys without the endings that a change of phrasing alters."""
    return tuple(_stem(key) for key in keys)


def _stem(key: str) -> str:
    for ending in ("ing", "ed", "es", "s"):
        if len(key) - len(ending) >= 3 and key.endswith(ending) and not key.endswith("ss"):
            return key[: -len(ending)]
    return key.removesuffix("e") if len(key) > 4 else key
