"""Whether a newer text ends or changes the claim of an older one: superseded, chained or neither."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from meritory.text.claims.lexicon import Phrase, find_phrase
from meritory.text.claims.reading import MAX_SHORT_UNITS, Claim
from meritory.text.claims.vetoes import veto

Update = tuple[Literal["supersede", "chain"], str]
# Runs of the indexes of units.
Run = tuple[int, ...]

MAX_VALUE_UNITS: Final = 6
MAX_NAMED_UNITS: Final = 7
MAX_DATE_UNITS: Final = 4
MIN_COMMON_LEAD: Final = 3
PERSONS: Final = frozenset({"user", "we"})
_ENDED: Final = frozenset({"ended", "past"})
# "Works with Bob" leaves room for others.
_ACCOMPANYING: Final = frozenset({"with", "and", "or", "about", "against"})
_SAYS_OTHER_VALUE: Final = frozenset({"now", "correction", "since", "new", "change"})


def update(old: Claim, new: Claim) -> Update | None:
    """Return whether the new claim replaces or follows the old one, and why."""
    if not old.topic or not new.topic or old.language != new.language or old.language is None:
        return None
    if max(len(old.keys), len(new.keys)) > MAX_SHORT_UNITS or _asks(old) or _asks(new):
        return None
    if reason := _ended(old, new) or _flipped(old, new) or _named(old, new):
        return "supersede", reason
    if new.raw & new.lexicon.additive or old.cues & _ENDED or new.cues & _ENDED:
        return None
    return _other_value(old, new)


def _asks(claim: Claim) -> bool:
    return claim.text.rstrip()[-1:] in {"?", "？"}


# -- ended ------------------------------------------------------------------------------------


def _ended(old: Claim, new: Claim) -> str | None:
    """Return the reason if the new text says that the old claim holds no more."""
    if old.cues & _ENDED or _negation_count(old):
        return None
    said = set(new.topic)
    if not new.cues & _ENDED:
        if "stopped" not in new.cues:
            return None
        for phrase in new.lexicon.cues["stopped"]:
            if find_phrase(new.words, phrase) >= 0:
                said -= {new.lexicon.stem(word) for word in phrase}
                break
    if _negation_count(new):
        return None
    rest = said - PERSONS
    is_same_subject = bool(said & PERSONS) or _subject(old) in said
    if len(said) >= 2 and rest and rest <= old.topic and is_same_subject:
        if said <= old.topic or new.cues & {"stopped"}:
            return "the new text says that it no longer holds"
    return None


def _flipped(old: Claim, new: Claim) -> str | None:
    """Return the reason if the new text says that the claim holds again, or not now."""
    if "now" not in new.cues or new.cues & _ENDED:
        return None
    if old.cues & _ENDED and _plain(old) == _plain(new):
        return "the new text says that it holds again"
    olds, news = _negation_count(old), _negation_count(new)
    if old.cues & _ENDED or abs(olds - news) != 1 or _plain(old) != _plain(new):
        return None
    held = "does not hold now" if news > olds else "holds now"
    return f"the new text says that it {held}"


def _plain(claim: Claim) -> tuple[str, ...]:
    """Return the stems of a claim without its negations."""
    words = claim.lexicon
    pairs = zip(claim.keys, claim.stems, strict=True)
    return tuple(stem for key, stem in pairs if key != "not" and key not in words.negations)


def _negation_count(claim: Claim) -> int:
    words = claim.lexicon
    return sum(key.rstrip(",") in words.negations or key == "not" for key in claim.keys)


def _subject(claim: Claim) -> str:
    """Return the stem of the first unit with a topic."""
    return claim.stems[claim.content[0]] if claim.content else ""


# -- the old value is named -------------------------------------------------------------------


def _named(old: Claim, new: Claim) -> str | None:
    """Return the reason if the new text names the old value as replaced, and is about the same."""
    if not new.cues & {"gone", "left"} or old.cues & _ENDED or _negation_count(old):
        return None
    gone = _gone(new)
    values = [stem for stem in gone if stem in old.topic]
    if not values or len(values) < len(gone):
        return None
    verbs = _change_stems(new)
    added = _runs(new, without=old.topic | verbs | gone)
    if len(added) > 1 or not _is_value(added, new):
        return None
    subject, last = _subject(old), old.stems[old.content[-1]]
    left_out = old.topic - new.topic - PERSONS
    if subject in gone and last not in gone and left_out and len(old.topic) > len(gone):
        # "Redis is fast" does not end with "we replaced Redis".
        return None
    is_same = subject in new.topic or subject in PERSONS
    if not is_same and not new.topic & PERSONS:
        # "Our accountant is Anna", "Bob has replaced Anna as the accountant".
        others = new.topic - gone - verbs - {new.stems[i] for run in added for i in run}
        is_same = bool(others & old.topic)
    if not is_same and not (new.topic - gone - verbs - PERSONS) & old.topic:
        return None
    first = new.stems[new.content[0]]
    starts_with_value = bool(added) and new.content[0] in added[0]
    if first not in old.topic | PERSONS | verbs and not starts_with_value:
        return None
    return "the new text names the old value as replaced"


def _gone(new: Claim) -> frozenset[str]:
    """Return the stems with which the new text names the replaced value."""
    words = new.lexicon
    stops = words.prepositions | words.agents | {"to", "with", "as", "and", "instead"}
    for kind in ("left", "gone"):
        for phrase in words.cues[kind]:
            start = _phrase_place(new, phrase)
            if start < 0:
                continue
            if phrase[0] in {"not", "was", "were", "pas", "nicht", "no", "de", "von"}:
                if not _may_stand_alone(new, phrase, start):
                    continue
            indexes: Sequence[int]
            if kind == "left":
                indexes = range(start - 1, -1, -1)
            else:
                indexes = range(start + len(phrase), len(new.keys))
            found: set[str] = set()
            for count, index in enumerate(indexes):
                is_end = new.keys[index] in stops or (count and new.units[index].before == ",")
                if count >= MAX_NAMED_UNITS or (is_end and found):
                    break
                if index in new.content:
                    found.add(new.stems[index])
            found -= _change_stems(new)
            if found:
                return frozenset(found)
    return frozenset()


def _may_stand_alone(new: Claim, phrase: Phrase, start: int) -> bool:
    """Return whether a common word stands where it names a replaced value."""
    if phrase[0] in {"not", "pas", "nicht", "no"}:
        return new.units[start].before == ","
    return bool(new.cues & {"change"})


def _phrase_place(claim: Claim, phrase: Phrase) -> int:
    """Return the index of the first word of a phrase among the keys, or -1."""
    same = claim.lexicon.same
    return find_phrase(claim.keys, tuple(same.get(word, word) for word in phrase))


def _change_stems(claim: Claim) -> frozenset[str]:
    """Return the stems of the words with which a text says that something changed."""
    words = claim.lexicon
    found: set[str] = set()
    for kind in ("change", "gone", "left", "new", "since"):
        for phrase in words.cues[kind]:
            if kind in claim.cues and _phrase_place(claim, phrase) >= 0:
                found |= {words.stem(words.same.get(word, word)) for word in phrase}
    return frozenset(found)


# -- another value ----------------------------------------------------------------------------


def _other_value(old: Claim, new: Claim) -> Update | None:
    """Return the relation of two claims that differ in one value of the same subject."""
    says = bool(new.cues & _SAYS_OTHER_VALUE)
    if veto(old, new, same_values=False):
        return None
    dropped = _dates(new) if "since" in new.cues else frozenset[int]()
    verbs = _change_stems(new) if says else frozenset[str]()
    # "The price was raised to 5 euros" is about what "it costs 4 euros" is about.
    vague = new.lexicon.attributes if not old.topic & new.lexicon.attributes else frozenset[str]()
    added = _runs(new, without=old.topic | verbs | vague, dropped=dropped)
    removed = _runs(old, without=new.topic)
    if not added or not removed:
        return None
    common = [i for i in new.content if new.stems[i] in old.topic and i not in dropped]
    if not common or not (old.topic & new.topic):
        return None
    lead = _common_lead(old, new)
    if len(added) > 1 or len(removed) > 1:
        if says and lead >= MIN_COMMON_LEAD and "now" in new.cues:
            return "supersede", "the new text says what holds now of the same subject"
        return None
    was, now = removed[0], added[0]
    if len(was) > MAX_VALUE_UNITS or len(now) > MAX_VALUE_UNITS:
        return None
    reason = f"{_text(old, was)} is now {_text(new, now)}"
    if _is_subject(now, new, dropped) or _is_subject(was, old, frozenset()):
        if _is_definite(new, now) and _is_definite(old, was) and says:
            return "chain", f"another value: {reason}"
        return None
    if not _is_same_kind(old, new, was, now):
        return None
    if not says or new.cues & _SAYS_OTHER_VALUE == {"change"} and not verbs:
        return _chained(old, new, was, now, reason)
    return "supersede", f"the new text gives another value: {reason}"


def _is_same_kind(old: Claim, new: Claim, was: Run, now: Run) -> bool:
    """Return whether two values may stand for each other: one ends the other."""
    words = new.lexicon
    closed = words.pronouns | words.negations | words.quantifiers | words.limits
    if any(old.keys[i] in closed for i in was) or any(new.keys[i] in closed for i in now):
        return False
    if all(_is_numeric(old, i) for i in was) and all(_is_numeric(new, i) for i in now):
        return True
    before, after = _before(old, was), _before(new, now)
    places = words.places
    if before in words.prepositions and after in words.prepositions and before != after:
        if not (before in places and after in places) and after not in {"to", "auf", "à", "a"}:
            return False
    if (old.raw | new.raw) & words.many_valued or before in _ACCOMPANYING:
        return False
    if after in words.be and not _is_definite_subject(old):
        # "Redis is now deprecated" does not end "Redis is fast": a thing is many things.
        return False
    return True


def _is_definite_subject(claim: Claim) -> bool:
    """Return whether a claim is about "my boss" or "the port", not about "Redis"."""
    first = claim.units[0]
    if first.kind != "word" or first.key in claim.lexicon.pronouns | PERSONS:
        return False
    typed = claim.words[:3]
    if set(typed) & (claim.lexicon.definite | claim.lexicon.articles | {"'s", "user's", "we's"}):
        return True
    return not first.is_capital or claim.language in {"de", "zh"}


def _chained(old: Claim, new: Claim, was: Run, now: Run, reason: str) -> Update | None:
    """Return a chain if the relation has one value at a time, though the text states no change."""
    words = new.lexicon
    is_numeric = all(_is_numeric(old, i) for i in was) and all(_is_numeric(new, i) for i in now)
    verbs = set(old.words) & words.one_valued
    copula = set(old.keys[: was[0]]) & {words.same.get(key, key) for key in words.be}
    is_last = was[-1] == old.content[-1] and now[-1] == new.content[-1]
    if not is_last and not is_numeric:
        return None
    if is_numeric or verbs or (copula and _is_definite_subject(old)):
        return "chain", f"another value of the same claim: {reason}"
    return None


def _is_numeric(claim: Claim, index: int) -> bool:
    unit = claim.units[index]
    return unit.kind == "number" or unit.key in claim.lexicon.units.values()


def _is_subject(run: Run, claim: Claim, dropped: frozenset[int]) -> bool:
    """Return whether a value stands first, where the subject does."""
    first = next((i for i in claim.content if i not in dropped), 0)
    return run[0] <= first


def _is_definite(claim: Claim, run: Run) -> bool:
    """Return whether "the winner" or the like follows a value at the start and a copula."""
    be = {claim.lexicon.same.get(key, key) for key in claim.lexicon.be}
    after = run[-1] + 1
    if claim.keys[after : after + 1] == () or claim.keys[after] not in be:
        return False
    return bool(set(claim.words) & (claim.lexicon.articles | claim.lexicon.definite))


def _before(claim: Claim, run: Run) -> str:
    return claim.keys[run[0] - 1] if run[0] else ""


def _text(claim: Claim, run: Run) -> str:
    return " ".join(claim.keys[index] for index in run)


def _common_lead(old: Claim, new: Claim) -> int:
    """Return how many units of content both texts begin with."""
    count = 0
    for left, right in zip(old.content, new.content, strict=False):
        if old.stems[left] != new.stems[right]:
            break
        count += 1
    return count


def _dates(claim: Claim) -> frozenset[int]:
    """Return the indexes of the date since which the claim holds."""
    words = claim.lexicon
    for phrase in words.cues["since"]:
        start = _phrase_place(claim, phrase)
        if start < 0:
            continue
        end = start + len(phrase)
        while end < len(claim.keys) and end - start <= MAX_DATE_UNITS + len(phrase):
            unit = claim.units[end]
            if end > start + len(phrase) and unit.before == ",":
                break
            if unit.kind != "number" and unit.key not in words.dates | words.articles | {"on"}:
                break
            end += 1
        if end > start + len(phrase):
            return frozenset(range(start, end))
    return frozenset()


def _is_value(runs: Sequence[Run], claim: Claim) -> bool:
    return all(len(run) <= MAX_VALUE_UNITS for run in runs)


def _runs(
    claim: Claim, *, without: frozenset[str], dropped: frozenset[int] = frozenset()
) -> list[Run]:
    """Return the runs of adjacent content that the other text lacks."""
    breaks = claim.lexicon.prepositions - {"of", "de", "von", "del", "du"}
    runs: list[list[int]] = []
    is_open = False
    content = set(claim.content)
    for index, key in enumerate(claim.keys):
        if index in dropped:
            continue
        if index not in content:
            if key in breaks:
                is_open = False
            continue
        if claim.stems[index] in without:
            is_open = False
            continue
        if is_open:
            runs[-1].append(index)
        else:
            runs.append([index])
            is_open = True
    return [tuple(run) for run in runs]
