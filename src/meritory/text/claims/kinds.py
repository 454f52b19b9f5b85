"""Reads "tests" and "each test" as the same kind of thing."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from meritory.text.claims.lexicon import Lexicon
from meritory.text.claims.sentences import EACH, PERSONS, Force, Keys, Readings, Sentence, Units


def in_general(readings: Readings, units: Units, words: Lexicon) -> Readings:
    """Return the readings with "tests" and "each test" as "test", unless certain ones are meant."""
    singular: dict[str, str] = {"its": "its", "their": "its"}
    closed = words.quantifiers | words.definite | {"'s"}
    for index, unit in enumerate(units):
        near = units[max(0, index - 2) : index + 1]
        is_certain = any(one.article or one.kind == "number" or one.key in closed for one in near)
        if unit.kind == "word" and (not is_certain or units[0].key == "all"):
            singular.setdefault(unit.key, words.singular(unit.key))
        elif unit.article == "the":
            # "The branch" is a certain one.
            singular.setdefault(unit.key, f"the {unit.key}")

    def general(keys: Keys) -> Keys:
        kept = keys[1:] if keys[:1] and keys[0] in EACH | {"all"} else keys
        kept = kept[:-1] if kept[-1:] == ("each",) else kept
        return tuple(singular.get(key, key) for key in kept)

    found: dict[Sentence, set[Force]] = {}
    for one, forces in readings.items():
        parts = tuple((part[0], *general(part[1:])) for part in one.parts)
        made = replace(one, doer=general(one.doer), thing=general(one.thing), parts=parts)
        found.setdefault(made, set()).update(forces)
    return {sentence: frozenset(forces) for sentence, forces in found.items()}


def subject_kind(units: Units, words: Lexicon) -> str:
    """Return how a text names its subject: one, each, all, many, or a certain one."""
    first = units[0]
    if first.key in EACH:
        return "each"
    if first.key == "all":
        return "all"
    if first.article in words.indefinite:
        return "one"
    closed = words.definite | words.quantifiers | words.prepositions | PERSONS
    if first.article or first.key in closed or (first.is_capital and not first.is_first):
        return "certain"
    return "many" if any(words.singular(u.key) != u.key for u in units[:3]) else "certain"


GENERAL: Final = frozenset(
    {
        frozenset({"one", "many"}),
        frozenset({"each", "many"}),
        frozenset({"each", "all"}),
    }
)
