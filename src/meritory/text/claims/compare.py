"""Compares an old and a new text: the same claim, a changed one, or two different ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from meritory.text.claims.read import Claim, read_claim
from meritory.text.normalize import canonical
from meritory.text.words import (
    ADDITIVE,
    BARE_VERBS,
    CHANGE_NOW,
    CHANGE_PHRASES,
    CHANGE_VERBS,
    CLAUSE_VERBS,
    LIGHT_WORDS,
    LIMITS,
    MANY_VALUED,
    NEGATIONS,
    PREPOSITIONS,
    PRONOUNS,
    QUANTIFIERS,
    REPLACE_VERBS,
)

Relation = Literal["merge", "supersede", "chain", "keep_both"]
Survivor = Literal["old", "new"]

# If each text has more words of its own than this, the two are different claims: only articles,
# fillers and a few interchangeable words may differ.
MANY_OWN_WORDS: Final = 8
MAX_FRONTED_UNITS: Final = 6
MIN_ADDED_TO_UNITS: Final = 3
MAX_SLOT_UNITS: Final = 3
MAX_REACH_UNITS: Final = 12
NEGATIVE_CHANGES: Final = frozenset({"ended", "past"})
_WORDS: Final = re.compile(r"\w+")
_SINGLE: Final = CHANGE_NOW | CHANGE_VERBS | REPLACE_VERBS | frozenset({"instead", "anymore"})

_JOINING = frozenset({"and", "because", "so"})
_EXPLAINING = frozenset({"which", "who", "where"})
_CLOSED = NEGATIONS | QUANTIFIERS
_FRONTING = frozenset({"after", "at", "before", "during", "for", "from", "in", "on", "since"})

# "Works with Bob" leaves room for others.
_ACCOMPANYING = frozenset({"with", "and", "or", "about", "against"})


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """What to do with two similar texts, which text survives, and why."""

    relation: Relation
    survivor: Survivor
    reason: str


def words_of(text: str) -> frozenset[str]:
    """Return the distinct words of a text, in lower case."""
    return frozenset(_WORDS.findall(text.lower()))


def says_change(text: str) -> bool:
    """Return whether a text contains a word that a statement of change needs; most do not."""
    lowered = text.lower()
    if any(phrase in lowered for phrase in CHANGE_PHRASES):
        return True
    return not _SINGLE.isdisjoint(_WORDS.findall(lowered))


def clearly_differ(old: frozenset[str], new: frozenset[str]) -> bool:
    """Return whether both texts have many words of their own, so that comparing is needless."""
    return min(len(old - new), len(new - old)) > MANY_OWN_WORDS


def compare(old: str, new: str) -> ClaimVerdict:
    """Return the verdict on an old text and a newer one that is similar to it."""
    return compare_claims(read_claim(old), read_claim(new))


def compare_claims(old: Claim, new: Claim) -> ClaimVerdict:
    """Return the verdict on two texts that are already read."""
    # The more specific text: more values, then fewer hedges, then the longer one.
    preferred: Survivor = "new" if new.specificity > old.specificity else "old"
    if canonical(old.text) == canonical(new.text):
        return ClaimVerdict("merge", preferred, "same text")
    if old.keys and old.changes & NEGATIVE_CHANGES == new.changes & NEGATIVE_CHANGES:
        if old.keys == new.keys:
            return ClaimVerdict("merge", preferred, "same words in the same order")
        if _fronted(old) == _fronted(new):
            return ClaimVerdict("merge", preferred, "same words, one part moved to the front")
        if _is_turned(old, new):
            return ClaimVerdict("merge", preferred, "same words, turned around the verb")
        if _adds_to(old, new):
            return ClaimVerdict("merge", "new", "the new text says all of the old one and more")
        if _adds_to(new, old):
            return ClaimVerdict("merge", "old", "the old text says all of the new one and more")
    if reason := superseded(old, new):
        return ClaimVerdict("supersede", "new", reason)
    if not old.keys or not new.keys:
        return ClaimVerdict("keep_both", preferred, "nothing to compare")
    if reason := _other_value(old, new):
        return ClaimVerdict("chain", "new", reason)
    only_old = [key for key in dict.fromkeys(old.keys) if key not in new.keys]
    only_new = [key for key in dict.fromkeys(new.keys) if key not in old.keys]
    difference = "same words in another order"
    if only_old or only_new:
        left, right = (" ".join(only[:4]) or "(nothing)" for only in (only_old, only_new))
        difference = f"different: {left} / {right}"
    return ClaimVerdict("keep_both", preferred, difference)


def _fronted(claim: Claim) -> tuple[str, ...]:
    """Return the keys with a leading "on Fridays," moved to the end."""
    units = claim.units
    if not units or units[0].key not in _FRONTING:
        return claim.keys
    for spot, unit in enumerate(units[1 : MAX_FRONTED_UNITS + 1], 1):
        if unit.before:
            is_one_sentence = not any(later.is_first for later in units[1:])
            if unit.before == "," and is_one_sentence:
                return claim.keys[spot:] + claim.keys[:spot]
            break
    return claim.keys


def _is_turned(old: Claim, new: Claim) -> bool:
    """Return whether "A is B" became "B is A", where one side is a described thing."""
    if len(old.keys) != len(new.keys) or "an" in old.raw | new.raw or "a" in old.raw | new.raw:
        return False
    blocked = NEGATIONS | PREPOSITIONS | QUANTIFIERS | LIMITS | {"what", "who", "where"}
    for verb in ("is", "was"):
        if old.keys.count(verb) != 1 or new.keys.count(verb) != 1 or blocked & set(old.keys):
            continue
        spot = old.keys.index(verb)
        left, right = old.keys[:spot], old.keys[spot + 1 :]
        is_described = len(left) > 1 or len(right) > 1
        if left and right and is_described and new.keys == (*right, verb, *left):
            return True
    return False


def _adds_to(short: Claim, long: Claim) -> bool:
    """Return whether the long claim is the whole short one followed by more, or names the user."""
    if short.opening in BARE_VERBS and long.keys == ("user", *short.keys):
        return True
    size = len(short.keys)
    tail = long.units[size:]
    if size < MIN_ADDED_TO_UNITS or len(tail) < 2 or long.keys[:size] != short.keys:
        return False
    keys = {unit.key.rstrip(",") for unit in tail}
    if keys & (NEGATIONS | LIMITS | {"?"}) or long.changes or short.changes:
        return False
    first, *rest = tail
    if first.is_first and first.before[:1] in {".", ";", "!", "\n"}:
        return True
    # "People, who smoke" explains; "people who smoke" narrows.
    if first.key in _EXPLAINING:
        return first.before == ","
    # "Does not like gin" is more than "does not like gin and tonic".
    if first.key not in _JOINING or set(short.keys) & _CLOSED:
        return False
    if first.key != "and":
        return rest[0].kind == "word"
    # "Rock and roll" does not add a clause.
    return any(unit.key in CLAUSE_VERBS or unit.key.endswith("ed") for unit in rest[:2])


def superseded(old: Claim, new: Claim) -> str | None:
    """Return why the new claim replaces the old one, or None if it does not say so."""
    if not new.changes or not old.keys or not new.keys or "?" in new.keys:
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
    """Return how the new claim denies the old one or confirms it again, None if neither."""
    if new.changes & NEGATIVE_CHANGES and not old.changes & NEGATIVE_CHANGES:
        return "the new text says that it no longer holds" if old_keys == new_keys else None
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
    """Return whether the new text has "from X to Y", "Y instead of X" or "replaced X with Y"."""
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
    """Return the words with which the new text names the replaced value."""
    keys = new.keys
    for start, key in enumerate(keys):
        if key == "instead" and keys[start + 1 : start + 2] == ("of",):
            return frozenset(_loose(keys[start + 2 : start + 6]))
        if key == "from" and new.raw & (CHANGE_VERBS | REPLACE_VERBS):
            end = _next_of(keys, start, {"to"})
            if end:
                return frozenset(_loose(keys[start + 1 : end]))
        if key in REPLACE_VERBS and "from" not in new.raw:
            end = _next_of(keys, start, {"to", "with", "by"})
            is_passive = start > 1 and keys[start - 1] in {"is", "was", "been"}
            if end:
                return frozenset(_loose(keys[1 : start - 1] if is_passive else keys[start:end]))
    return frozenset()


def _next_of(keys: Sequence[str], start: int, wanted: set[str]) -> int:
    """Return the index of the next wanted word within reach, or 0."""
    for index in range(start + 1, min(len(keys), start + 1 + MAX_REACH_UNITS)):
        if keys[index] in wanted:
            return index
    return 0


def _new_value(
    old: Claim, new: Claim, old_keys: tuple[str, ...], new_keys: tuple[str, ...]
) -> str | None:
    """Return the reason if the new text says that a single value is another one now."""
    return _differing_slot(old, new, old_keys, new_keys) if "now" in new.changes else None


def _other_value(old: Claim, new: Claim) -> str | None:
    """Return the reason if the texts give one claim two values, without a word of change."""
    if old.changes | new.changes or "?" in (*old.keys, *new.keys):
        return None
    return _differing_slot(old, new, _loose(old.keys), _loose(new.keys))


def _differing_slot(
    old: Claim, new: Claim, old_keys: tuple[str, ...], new_keys: tuple[str, ...]
) -> str | None:
    """Return the reason if the texts differ in one short slot only, and it has a single value."""
    lead = _common_prefix(old_keys, new_keys)
    tail = _common_prefix(old_keys[lead:][::-1], new_keys[lead:][::-1])
    was, now = old_keys[lead : len(old_keys) - tail], new_keys[lead : len(new_keys) - tail]
    context = old_keys[:lead] + old_keys[len(old_keys) - tail :]
    if not lead or len(context) < 2 or not (0 < len(was) <= MAX_SLOT_UNITS >= len(now) > 0):
        return None
    closed = PREPOSITIONS | PRONOUNS | NEGATIONS | QUANTIFIERS | LIMITS | {"and", "is", "was"}
    if (set(was) | set(now)) & closed:
        return None
    if not all(len(slot) == 1 and slot[0][:1].isdigit() for slot in (was, now)):
        # Only numbers replace each other in any slot.
        subject = old.units[0]
        is_named = subject.is_capital or subject.kind != "word"
        is_named = is_named or subject.key in PRONOUNS | {"user"}
        # "Redis is now deprecated" does not end "Redis is fast": a thing is many things.
        is_bare_subject = lead == 2 and old.keys[1] in {"is", "was"} and is_named
        is_many_valued = (old.raw | new.raw) & MANY_VALUED
        if is_many_valued or is_bare_subject or old.keys[lead - 1] in _ACCOMPANYING:
            return None
    was_said, now_said = old.keys[lead : lead + len(was)], new.keys[lead : lead + len(now)]
    return f"the new text gives another value: {' '.join(was_said)} is now {' '.join(now_said)}"


def _common_prefix(left: Sequence[str], right: Sequence[str]) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    differing = (index for index, (one, other) in pairs if one != other)
    return next(differing, min(len(left), len(right)))


def _loose(keys: Sequence[str]) -> tuple[str, ...]:
    """Return the keys without the endings that a change of phrasing alters.

    Not `terms.stem`: the rules for superseded claims were tuned on these endings.
    """
    loose: list[str] = []
    for key in keys:
        for ending in ("ing", "ed", "es", "s"):
            if len(key) - len(ending) >= 3 and key.endswith(ending) and not key.endswith("ss"):
                loose.append(key[: -len(ending)])
                break
        else:
            loose.append(key.removesuffix("e") if len(key) > 4 else key)
    return tuple(loose)
