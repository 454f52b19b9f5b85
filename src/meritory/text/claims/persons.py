"""Names the persons of a text: "I" is the user, "we" is the team, and an order has no subject."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from meritory.text.claims.lexicon import Lexicon, lexicon
from meritory.text.claims.read import Unit

_SUBJECTS: Final = frozenset({"user", "we"})
_ADVERBS: Final = frozenset({"always", "often", "usually", "never", "not", "only", "sometimes"})


MAX_DENIED_UNITS: Final = 6
_WE_FORM: Final = re.compile(r"[a-zñáéí]+[aei]mos$")
_I_FORM: Final = re.compile(r"[a-zñáéíóú]{2,}(?:o|oy)$")
_SE_FORM: Final = re.compile(r"[a-zñáéíóú]{2,}[aei]rse$")

_PERFECT: Final = frozenset({"have", "has", "had", "was", "were", "did", "been", "ever", "'d"})


def orders(units: list[Unit]) -> list[Unit]:
    """Return the units of an order without "you must"."""
    keys = [unit.key for unit in units]
    if keys[:2] == ["you", "must"] and len(keys) > 2:
        return [replace(units[2], is_first=True), *units[3:]]
    return units


def not_but(units: list[Unit]) -> list[Unit]:
    """Return the units of "not in Ulm but in Kiel" as "in Kiel, not in Ulm"."""
    keys = [unit.key for unit in units]
    if "not" not in keys or "but" not in keys:
        return units
    start, middle = keys.index("not"), keys.index("but")
    if not 1 < middle - start <= MAX_DENIED_UNITS or middle + 1 >= len(units):
        return units
    denied = [replace(units[start], before=","), *units[start + 1 : middle]]
    return [*units[:start], *units[middle + 1 :], *denied]


def without_never(units: list[Unit]) -> list[Unit]:
    """Return the units with "never" as "do not", unless the text is about the past."""
    keys = [unit.key for unit in units]
    if "never" not in keys or "not" in keys or set(keys) & _PERFECT:
        return units
    spot = keys.index("never")
    if keys[spot + 1 : spot + 2] == ["to"]:
        units, keys = (
            [*units[: spot + 1], *units[spot + 2 :]],
            [*keys[: spot + 1], *keys[spot + 2 :]],
        )
    verb = keys[spot + 1] if spot + 1 < len(keys) else ""
    if not verb.isalpha() or lexicon("en").is_past(verb):
        return units
    changed = [replace(units[spot], key="not"), replace(units[spot + 1], key=_plain_verb(verb))]
    if _plain_verb(verb) != verb:
        changed.insert(0, Unit("word", "does"))
    return [*units[:spot], *changed, *units[spot + 2 :]]


def one_subject(units: Iterator[Unit]) -> Iterator[Unit]:
    """Yield the units without a subject that is said again: "I sing and I dance"."""
    seen: set[str] = set()
    previous = ""
    for unit in units:
        if unit.key in _SUBJECTS:
            if unit.key in seen and previous in {"and", "but"}:
                continue
            seen.add(unit.key)
        # "And the user sings" says the subject again, too.
        previous = previous if unit.key == "the" else unit.key
        yield unit


_USER: Final = {"i": "user", "me": "user", "my": "user's", "mine": "user's", "myself": "themselves"}
_WE: Final = {"we": "we", "us": "we", "our": "we's", "ours": "we's", "ourselves": "themselves"}
_THEIR: Final = {"their": "user's", "his": "user's", "her": "user's", "they": "user"}
_TEAM: Final = {"its": "we's", "their": "we's", "they": "we"}
_SELVES: Final = {"himself": "themselves", "herself": "themselves"}


def persons(units: Sequence[Unit], words: Lexicon) -> Iterator[Unit]:
    """Yield the units with "I" and "my" as the user, "we" and "our" as the team."""
    keys = [unit.key for unit in units]
    is_note = "user" in keys[:3]
    starts_bare = len(keys) > 1 and (keys[0] in words.bare_verbs or keys[0] == "prefer")
    if starts_bare:
        yield Unit("word", "user")
        is_note = True
    index = 0
    agrees = starts_bare
    is_team = False
    while index < len(units):
        unit = units[index]
        key = unit.key
        following = keys[index + 1] if index + 1 < len(keys) else ""
        step = 1
        if key in _SUBJECTS and following == "'s":
            key, step = f"{key}'s", 2
        elif key == "team" and index and keys[index - 1] in {"the", "our", "we's"}:
            if following == "'s":
                key, step = "we's", 2
            elif index == 1 and not _has_head(keys[2:], words):
                key = "we"
        elif unit.kind == "word" or key == "I":
            key = _USER.get(key) or _WE.get(key) or (_THEIR.get(key) if is_note else None) or key
            key = (_TEAM.get(key) if is_team else None) or _SELVES.get(key, key)
        if agrees and unit.kind == "word" and key not in _ADVERBS:
            key = _plain_verb(key)
            agrees = False
        is_team |= key == "we" and unit.key == "team"
        is_late = keys[0] in words.fronting and keys[index - 1] == "the"
        if (key == "user" == unit.key and (index <= 2 or is_late)) or (
            key == "we" and unit.key == "team"
        ):
            agrees = True
        elif unit.key in {"and", "but"} and is_note and following.removesuffix("s") != following:
            agrees = following in words.bare_verbs
        yield unit if key == unit.key else replace(unit, key=key)
        index += step


def _has_head(keys: Sequence[str], words: Lexicon) -> bool:
    """Return whether "the team" only begins a noun: "the team lead is", "the team lunch has"."""
    return (
        len(keys) > 1 and keys[0] not in words.be and keys[1] in words.be | words.modals | {"has"}
    )


def _plain_verb(key: str) -> str:
    """Return "write" for "writes", the form after "I"."""
    if key == "does":
        return "do"
    if key in {"is", "was", "has"} or "'" in key or not key.endswith("s") or key.endswith("ss"):
        return key
    if key.endswith("ies") and len(key) > 4:
        return key[:-3] + "y"
    if re.search(r"(?:ch|sh|ss|x|z|o)es$", key):
        return key[:-2]
    return key[:-1]


# -- Spanish ----------------------------------------------------------------------------------


def with_subjects(units: Sequence[Unit], words: Lexicon) -> Iterator[Unit]:
    """Yield Spanish units with the subject that a verb has in it, and one negation."""
    keys = {unit.key for unit in units}
    previous, mark, is_first = "", "", False
    for unit in units:
        if unit.key in {"nunca", "jamás"} and "no" in keys:
            continue
        if previous == "me" and _I_FORM.search(unit.key):
            # "Me levanto": the user gets up.
            yield Unit("word", "user", mark, False, is_first)
            yield Unit("word", "se")
            yield replace(unit, before="", is_first=False)
            previous = unit.key
            continue
        if previous == "me":
            yield Unit("word", "me", mark, False, is_first)
        previous, mark, is_first = unit.key, unit.before, unit.is_first
        if unit.key == "me":
            continue
        if _SE_FORM.search(unit.key):
            yield Unit("word", "se", unit.before, False, unit.is_first)
            unit = replace(unit, key=unit.key.removesuffix("se"), before="", is_first=False)
        if unit.key in words.first_person and "yo" not in keys:
            yield Unit("word", "user", unit.before, False, unit.is_first)
            unit = replace(unit, before="", is_first=False)
        elif _WE_FORM.search(unit.key) and not keys & {"nosotros", "nosotras"}:
            yield Unit("word", "we", unit.before, False, unit.is_first)
            unit = replace(unit, before="", is_first=False)
        yield unit
    if previous == "me":
        yield Unit("word", "me", mark, False, is_first)


# -- negation ---------------------------------------------------------------------------------


def one_negation(units: list[Unit], words: Lexicon) -> list[Unit]:
    """Return the units with one word for "ne ... pas" and for "ne ... que"."""
    first = words.named("negation_first")
    keys = [unit.key for unit in units]
    start = next((index for index, key in enumerate(keys) if key in first), None)
    if start is None:
        return units
    second, only = words.named("negation_second"), words.named("negation_only")
    for end in range(start + 1, len(keys)):
        if keys[end] in second:
            # "Pas de café": the "de" only follows the negation.
            has_de = keys[end + 1 : end + 2] and keys[end + 1] in words.named("negation_after")
            after = end + 2 if has_de else end + 1
            return _paired(units, start, end, after, "not")
    for end in range(start + 1, len(keys)):
        if keys[end] in only:
            return _paired(units, start, end, end + 1, *words.named("only"))
    return units


def _paired(units: list[Unit], start: int, end: int, after: int, key: str) -> list[Unit]:
    """Return the units without the first half of a pair, and with a key for the second."""
    before = units[start]
    made = [*units[:start], *units[start + 1 : end], replace(units[end], key=key), *units[after:]]
    made[start] = replace(made[start], before=before.before, is_first=before.is_first)
    return made
