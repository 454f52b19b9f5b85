"""Whether a newer text replaces an older one whose words it says in another order or form."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from meritory.text.claims.frames import same_frame
from meritory.text.claims.reading import Claim, read_claim
from meritory.text.claims.values import mixes_name
from meritory.text.claims.vetoes import veto

LANGUAGES: Final = frozenset({"de", "fr", "es", "zh"})
MAX_VALUE_UNITS: Final = 6
MAX_ADDED: Final = 9
MIN_CHARS: Final = 2
MAX_OPENING_UNITS: Final = 8
MAX_LEAD_CHARS: Final = 40
_COLON: Final = re.compile(r"(?<!\d)\s?[:：]\s?(?!\d|//)")
# Chinese characters before those with which the old text begins.
MAX_LEAD: Final = 6
_PERSONS: Final = frozenset({"user", "we"})
_OWNERS: Final = frozenset({"user's", "we's"})
_ENDED: Final = frozenset({"ended", "past"})
_STATED: Final = frozenset({"now", "correction", "since", "new", "change"})
_NAMED: Final = frozenset({"change", "gone", "left"})


@dataclass(frozen=True, slots=True)
class _Parts:
    """The content of two claims, by index: what both say, and what only one says."""

    kept: frozenset[str]
    removed: tuple[int, ...]
    added: tuple[int, ...]


def restated(old: Claim, new: Claim, cues: frozenset[str], dates: frozenset[int]) -> str | None:
    """Return the reason if the new text states a change of what the old one says, or None."""
    if new.language not in LANGUAGES or old.cues & _ENDED or new.cues & _ENDED:
        return None
    dates = dates or _opening_date(old, new)
    cues = cues | {"since"} if dates else cues - {"since"}
    if _negations(old) != _negations(new) and (reason := denied(old, new)):
        return reason if cues & {"now", "correction"} else None
    if _negations(old):
        return None
    if reason := _contrasted(old, new):
        return reason
    if _negations(new):
        return None
    if _is_corrected(old, new):
        return "the new text corrects a value of the old one"
    parts = _parts(old, new, dates)
    if "stopped" in cues and _is_dropped(old, new, parts):
        return "the new text says that it no longer holds"
    if cues & _NAMED and _is_handed_over(old, new, parts, cues):
        return "the new text names the old value as replaced"
    if cues & _STATED and _is_restated(old, new, parts, cues):
        return "the new text gives another value of the same claim"
    return None


def _opening_date(old: Claim, new: Claim) -> frozenset[int]:
    """Return the indexes of a date or an event since which the new text holds, if it opens it."""
    words = new.lexicon
    end = next((i for i, stem in enumerate(new.stems) if stem in old.topic), 0)
    if not 0 < end <= MAX_OPENING_UNITS:
        return frozenset()
    if new.language == "zh":
        closing = [i for i in range(end) if new.keys[i] in words.named("since_after")]
        closed = words.dates | words.named("since_after")
        is_date = all(key in closed or key.isdigit() for key in new.keys[:end])
        return frozenset(range(end)) if closing and is_date else frozenset()
    heads = [
        tuple(words.same.get(word, word) for word in phrase if word not in words.articles)
        for phrase in words.cues["since"]
    ]
    if any(
        new.keys[: len(head)] == head for head in heads if head and head[0] in words.named("since")
    ):
        return frozenset(range(end))
    return frozenset()


def _is_corrected(old: Claim, new: Claim) -> bool:
    """Return whether the new text says the old one with another value after "wrong digits:"."""
    lead, mark, rest = _COLON.sub("\0", new.text, count=1).partition("\0")
    if not mark or len(lead) > MAX_LEAD_CHARS or old.text.startswith(lead):
        return False
    said = read_claim(rest.strip(), new.language)
    left, right = _middle(old, said)
    if not left or not right or max(len(left), len(right)) > MAX_VALUE_UNITS:
        return False
    numbers = [any(c.units[i].kind == "number" for i in r) for c, r in ((old, left), (said, right))]
    is_apart = not {old.stems[i] for i in left} & {said.stems[i] for i in right}
    rest_size = len(old.keys) - len(left)
    return is_apart and numbers[0] == numbers[1] and rest_size >= len(left) and left[0] > 0


def _negations(claim: Claim) -> int:
    words = claim.lexicon.negations
    return sum(key.rstrip(",") in words or key == "not" for key in claim.keys)


def _parts(old: Claim, new: Claim, dates: frozenset[int]) -> _Parts:
    said = _said(new)
    mine = [i for i in old.content if old.keys[i] not in _PERSONS]
    theirs = [i for i in new.content if new.keys[i] not in _PERSONS and i not in dates]
    left = Counter(old.stems[i] for i in mine)
    right = Counter(new.stems[i] for i in theirs)
    removed = _surplus(mine[::-1], old, left - right)
    added = [i for i in _surplus(theirs, new, right - left) if new.stems[i] not in said]
    kept = left & right
    # A value that is said twice counts once.
    firsts = {new.stems[i]: i for i in reversed(added)}
    added = [i for i in added if firsts[new.stems[i]] == i and _is_new(new, i, kept)]
    return _Parts(frozenset(kept), tuple(removed), tuple(added))


def _surplus(indexes: Sequence[int], claim: Claim, surplus: Counter[str]) -> list[int]:
    """Return the first units, in the given order, of which a claim has more than the other."""
    found: list[int] = []
    for index in indexes:
        if surplus[claim.stems[index]] > 0:
            surplus[claim.stems[index]] -= 1
            found.append(index)
    return sorted(found)


def _is_new(claim: Claim, index: int, kept: Counter[str]) -> bool:
    """Return whether a word is no repetition of one that both texts have."""
    return claim.units[index].kind == "number" or claim.stems[index] not in kept


def _said(claim: Claim) -> frozenset[str]:
    """Return the stems of the words with which a text states a change."""
    words = claim.lexicon
    return frozenset(
        words.stem(words.same.get(word, word))
        for kind, phrase in claim.marks
        if kind not in {"origin", "contrast"}
        for word in phrase
    )


def _runs(indexes: Sequence[int], claim: Claim) -> int:
    """Return the number of runs of adjacent units."""
    closed = claim.lexicon.prepositions
    count = 0
    for place, index in enumerate(indexes):
        before = indexes[place - 1] if place else -9
        gap = range(before + 1, index)
        is_joined = place > 0 and len(gap) <= 1 and all(claim.keys[i] in closed for i in gap)
        count += not is_joined
    return count


def denied(old: Claim, new: Claim) -> str | None:
    """Return the reason if two texts differ in a negation only, whatever the order."""
    if abs(_negations(old) - _negations(new)) != 1 or new.language not in LANGUAGES:
        return None
    is_same = same_frame(old, new, without_negation=True)
    return "one text denies the other" if is_same else None


# -- the old value is denied ------------------------------------------------------------------


def _contrasted(old: Claim, new: Claim) -> str | None:
    """Return the reason if the new text says "not A but B" of what the old one calls A."""
    words = new.lexicon
    spots = [i for i, key in enumerate(new.keys) if key.rstrip(",") in words.negations | {"not"}]
    joints = [i for i, key in enumerate(new.keys[:-1]) if key in words.named("instead")]
    if len(spots) == 1 and _is_appended(old, new, spots[0]):
        return "the new text names the old value as replaced"
    if len(spots) != 1 or not joints or spots[0] + 1 >= joints[-1]:
        return None
    gone = {new.stems[i] for i in new.content if spots[0] < i < joints[-1]}
    rest = {new.stems[i] for i in new.content if i > joints[-1]} - old.topic
    if not gone or not gone <= old.topic or not rest:
        return None
    if len(old.topic - new.topic) * 2 > len(old.topic):
        return None
    return "the new text names the old value as replaced"


def _is_appended(old: Claim, new: Claim, spot: int) -> bool:
    """Return whether "and not A" at the end names the old value."""
    is_joined = new.units[spot].before[:1] in {",", "，"} or new.keys[
        spot - 1
    ] in new.lexicon.named("joints")
    gone = {new.stems[i] for i in new.content if i > spot}
    added = {new.stems[i] for i in new.content if i < spot} - old.topic
    is_same = 2 * len(old.topic - new.topic) <= len(old.topic)
    return spot > 0 and is_joined and bool(gone) and gone <= old.topic and bool(added) and is_same


# -- the claim is dropped ---------------------------------------------------------------------


def _is_dropped(old: Claim, new: Claim, parts: _Parts) -> bool:
    """Return whether the new text ends what the old one says: "the meeting is cancelled"."""
    if parts.added or set(new.keys) & new.lexicon.limits:
        return False
    # "We removed it": who ends a thing need not be who has it.
    if _PERSONS & set(new.keys) - {"we"} != _PERSONS & set(old.keys) - {"we"}:
        return False
    least = MIN_CHARS if new.language == "zh" else 1
    if len(parts.kept) < least:
        return False
    if new.language == "zh" and 2 * len(parts.kept) < len(parts.removed):
        return False
    # A text about the user needs no more than the thing that ended.
    persons = bool(_PERSONS & set(old.keys) & set(new.keys))
    return persons or len(parts.kept) >= 2


# -- another one takes over -------------------------------------------------------------------


def _is_handed_over(old: Claim, new: Claim, parts: _Parts, cues: frozenset[str]) -> bool:
    """Return whether the new text repeats the old one with its value and says what follows it."""
    if not parts.added or len(parts.added) > MAX_ADDED:
        return False
    if _runs(parts.added, new) > 1 + ("gone" in cues):
        return False
    words = new.lexicon
    if new.language == "zh" and 2 * len(parts.kept) <= len(old.topic):
        return False
    # A verb may be another one; what the claim is about and its value may not.
    lost = [index for index in parts.removed if not _is_verb(old, index)]
    if lost or len(parts.kept) < 2 or 3 * len(parts.removed) > 2 * len(old.topic):
        return False
    spots = [index for index in new.content if new.stems[index] in parts.kept]
    takes = {phrase[0] for _, phrase in new.marks} & words.named("takes")
    if takes and parts.added[0] > spots[-1]:
        # "Ann took over from Bob" changes what Bob does, not what Ann does.
        return False
    return (
        bool(cues & {"gone", "left"}) or bool(takes) or bool(words.named("swaps") & set(new.words))
    )


def _is_verb(claim: Claim, index: int) -> bool:
    """Return whether a word of the old text is a verb rather than a thing."""
    unit = claim.units[index]
    if unit.kind != "word":
        return False
    if claim.language == "zh":
        return True
    if claim.language == "de":
        return not unit.is_capital or unit.is_first
    before = claim.words[claim.words.index(unit.key) - 1 :][:1] if unit.key in claim.words else ()
    words = claim.lexicon
    closed = words.articles | words.prepositions | words.definite | _OWNERS
    return not (set(before) & closed) and not unit.is_capital


# -- another value ----------------------------------------------------------------------------


def _is_restated(old: Claim, new: Claim, parts: _Parts, cues: frozenset[str]) -> bool:
    """Return whether the new text says the old one with one other value, and that it is new."""
    words = new.lexicon
    if not parts.kept or not _same_persons(old, new) or not _same_subject(old, new, parts):
        return False
    changed = frozenset(map(words.stem, words.attributes)) if "change" in cues else frozenset[str]()
    added = [
        index
        for index in parts.added
        if new.stems[index] not in changed and new.keys[index] not in words.limits
    ]
    removed = [index for index in parts.removed if old.keys[index] not in words.named("naming")]
    owners = set(old.keys) & _OWNERS - set(new.keys)
    if not added or not (removed or owners):
        return False
    if _runs(added, new) > 1 or _runs(removed, old) > 1 + ("change" in cues):
        return False
    if max(len(added), len(removed)) > MAX_VALUE_UNITS:
        return False
    if mixes_name(old, removed) and mixes_name(new, added):
        # "The office in Lyon closes" and "the office in Lille opens" differ in two things.
        return False
    numbers = [new.units[index].kind == "number" for index in added]
    old_numbers = [old.units[index].kind == "number" for index in removed]
    if any(numbers) != any(old_numbers):
        return False
    if set(old.words) & words.many_valued and not any(numbers):
        return False
    if _scope(old) != _scope(new):
        return False
    if len(removed) > len(parts.kept) + 1:
        return False
    # A Chinese word has two characters or more, so that two in common say little.
    if new.language == "zh" and 5 * len(parts.kept) < 2 * len(old.topic):
        return False
    if any(numbers) or cues & {"now", "correction", "since"} or not removed:
        return True
    # "Moved" and "renamed" say nothing about what a thing is.
    places = _follows_preposition(old, removed) and _follows_preposition(new, added)
    return places or "new" in cues or bool(set(old.keys) & words.named("naming"))


def _scope(claim: Claim) -> tuple[frozenset[str], list[str]]:
    """Return the quantifiers and the modal verbs of a claim."""
    words = claim.lexicon
    modals = [unit.key for unit in claim.units if unit.key in words.modals]
    return frozenset(claim.keys) & words.quantifiers, modals


def _follows_preposition(claim: Claim, indexes: Sequence[int]) -> bool:
    closed = claim.lexicon.prepositions
    return indexes[0] > 0 and claim.keys[indexes[0] - 1] in closed


def _same_persons(old: Claim, new: Claim) -> bool:
    return _PERSONS & set(old.keys) == _PERSONS & set(new.keys)


def _same_subject(old: Claim, new: Claim, parts: _Parts) -> bool:
    """Return whether the new text is about what the old one begins with."""
    if not old.content or not new.content:
        return False
    heads = [i for i in old.content if old.keys[i] not in _PERSONS]
    if not heads:
        return False
    if _PERSONS & set(old.keys):
        return True
    if new.language == "zh":
        pair = tuple(old.stems[i] for i in heads[:2])
        said = [new.stems[i] for i in new.content]
        return any(tuple(said[i : i + 2]) == pair for i in range(MAX_LEAD))
    return old.stems[heads[0]] in parts.kept


# -- another value without a word of change ---------------------------------------------------


def another_value(old: Claim, new: Claim) -> str | None:
    """Return the reason if two texts differ in one value that a thing has one of at a time."""
    if new.language not in LANGUAGES or old.cues or new.cues:
        return None
    if reason := denied(old, new):
        return reason
    if veto(old, new, same_values=False) or _values_beside(old) != _values_beside(new):
        return None
    left, right = _middle(old, new)
    if not left or not right or max(len(left), len(right)) > MAX_VALUE_UNITS:
        return None
    if {old.stems[i] for i in left} & {new.stems[i] for i in right}:
        return None
    words = old.lexicon
    if set(old.words) & words.many_valued or _is_past(old) or _is_past(new):
        return None
    if _owners(old) != _owners(new) or not _same_persons(old, new):
        return None
    if not any(index < left[0] for index in old.content):
        return None
    if not (_has_value(old, left) and _has_value(new, right)):
        return None
    was, now = (" ".join(c.keys[i] for i in run) for c, run in ((old, left), (new, right)))
    return f"another value of the same claim: {was} is now {now}"


def _owners(claim: Claim) -> list[str]:
    return [key for key in claim.keys if key in _OWNERS]


def _values_beside(claim: Claim) -> int:
    return sum(unit.kind == "number" for unit in claim.units)


def _middle(old: Claim, new: Claim) -> tuple[range, range]:
    """Return where two texts differ between a common start and a common end."""
    size = min(len(old.keys), len(new.keys))
    start = next((i for i in range(size) if old.stems[i] != new.stems[i]), size)
    rest = size - start
    end = next((i for i in range(rest) if old.stems[-1 - i] != new.stems[-1 - i]), rest)
    return range(start, len(old.keys) - end), range(start, len(new.keys) - end)


def _is_past(claim: Claim) -> bool:
    return bool(set(claim.words) & claim.lexicon.named("past_words"))


def _has_value(claim: Claim, run: range) -> bool:
    """Return whether a run of units is the one value of its relation."""
    words = claim.lexicon
    first, before = claim.keys[run[0]], claim.keys[run[0] - 1]
    is_last = run[-1] == len(claim.keys) - 1
    units = [claim.units[i] for i in run]
    be = {words.same.get(key, key) for key in words.be}
    closed = words.pronouns | words.negations | words.quantifiers | be | words.additive
    if any(unit.key in closed for unit in units):
        return False
    if any(claim.keys[i] in words.prepositions for i in run[1:]):
        return False
    if before in be | words.named("naming") | words.agents or first in words.agents:
        return _is_definite(claim)
    if set(claim.words) & words.one_valued and not is_last:
        return before not in words.prepositions
    preposition = first if first in words.prepositions else before
    if preposition in words.named("accompanying"):
        return False
    if preposition in words.places and is_last:
        return _is_definite(claim)
    if claim.language == "zh":
        return bool(set(claim.keys[: run[0]]) & words.one_valued)
    is_name = is_last and units[0].is_capital and before not in words.prepositions
    if claim.language == "de":
        # Without an article a noun in the singular is a name.
        spot = max((i for i, w in enumerate(claim.words) if w == first), default=0)
        is_name = is_name and claim.words[spot - 1] not in words.articles and len(units) == 1
        return is_name and _is_definite(claim) and claim.units[run[0] - 1].is_capital is False
    return is_name and _is_definite(claim)


def _is_definite(claim: Claim) -> bool:
    """Return whether a claim is about a certain thing: "the code", "our tasks", "Ann"."""
    words = claim.lexicon
    if claim.language == "zh" or set(claim.keys[:3]) & (_OWNERS | _PERSONS):
        return True
    definite = words.articles - words.indefinite
    return bool(set(claim.words[:2]) & (definite | words.definite)) or claim.units[0].is_capital
