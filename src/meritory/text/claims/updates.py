"""Whether a newer text ends or changes the claim of an older one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from meritory.text.claims.changes import another_value, restated
from meritory.text.claims.lexicon import GAP
from meritory.text.claims.reading import MAX_SHORT_UNITS, Claim
from meritory.text.claims.sentences import PERSONS
from meritory.text.claims.values import (
    MAX_VALUE_UNITS,
    NONE,
    TITLES,
    Update,
    change_stems,
    dates_of,
    one_value,
    other_value,
    phrase_place,
    runs,
    stems_of,
)
from meritory.text.claims.vetoes import is_other_kin, veto

MAX_NAMED_UNITS: Final = 7
MAX_SUBJECT_UNITS: Final = 4
# At least one in so many units of the old claim is said again by a text that replaces it.
MIN_SHARED: Final = 3
_ENDED: Final = frozenset({"ended", "past"})
# Common words that only count beside a verb of change or a comma.
_PLACED: Final = frozenset({"origin", "contrast"})
_NAMING: Final = frozenset({"gone", "left", "origin", "contrast"})
_STATING: Final = frozenset({"now", "correction"})
_RENAMED: Final = frozenset({"renam", "rebrand"})
# Words within the name of a thing.
_LINKS: Final = frozenset({"of", "de", "mr", "ms", "mrs", "dr"})


def update(old: Claim, new: Claim) -> Update | None:
    """Return whether the new claim replaces or follows the old one, and why."""
    if not old.topic or not new.topic or old.language != new.language or old.language is None:
        return None
    if max(len(old.keys), len(new.keys)) > MAX_SHORT_UNITS or _asks(old) or _asks(new):
        return None
    if is_other_kin(old, new):
        return None
    # A phrase that both texts have states no change.
    said = old.marks - {mark for mark in old.marks if mark[0] in _PLACED}
    cues = new.cues | {kind for kind, _ in new.marks - said}
    both = old.cues & new.cues
    if "henceforth" in both or "correction" in both:
        # Two rules, each "from now on"; two mistakes, each "mistake to avoid".
        cues -= {"now", "correction"}
    if reason := _ended(old, new, cues) or _flipped(old, new) or _named(old, new, cues):
        return "supersede", reason
    if reason := _taken_over(old, new, cues):
        return "supersede", reason
    said_more = new.raw & new.lexicon.additive
    # In English "also" may stand in both texts and still add in the second.
    said_more = said_more if new.language == "en" else said_more - old.raw
    if said_more or old.cues & _ENDED or new.cues & _ENDED:
        return None
    if reason := restated(old, new, cues, dates_of(new)):
        return "supersede", reason
    if reason := _opposite(old, new):
        return ("supersede" if new.cues & _STATING else "chain"), reason
    if found := other_value(old, new, cues):
        return found
    reason = another_value(old, new)
    return ("chain", reason) if reason else None


def _asks(claim: Claim) -> bool:
    return claim.text.rstrip()[-1:] in {"?", "？"}


# -- ended ------------------------------------------------------------------------------------


def _ended(old: Claim, new: Claim, cues: frozenset[str]) -> str | None:
    """Return the reason if the new text says that the old claim holds no more."""
    if old.cues & _ENDED:
        return None
    if new.cues & _ENDED and old.keys == new.keys:
        return "the new text says that it no longer holds"
    if old.negation_count or new.negation_count:
        return None
    if not new.cues & _ENDED and "stopped" not in cues:
        return None
    said = new.topic - (frozenset() if new.cues & _ENDED else stems_of(new, "stopped"))
    rest = said - PERSONS - new.lexicon.pronouns
    if len(said) < 2 or not rest or not rest <= old.topic:
        return None
    if not new.cues & _ENDED and (veto(old, new, same_values=False) or not _stops(new)):
        return None
    # "We cancelled the order" may end what another person does.
    is_same = _subject(old) in said or len(rest) >= 3 or bool(said & PERSONS and "stopped" in cues)
    return "the new text says that it no longer holds" if is_same else None


def _stops(new: Claim) -> bool:
    """Return whether the subject of the text ends something: "we cancelled", not "if cancelled"."""
    words = new.lexicon
    for kind, phrase in new.marks:
        start = phrase_place(new, phrase) if kind == "stopped" else -1
        if set(new.keys[: max(start, 0)]) & words.limits:
            return False
        if start > 0 and phrase[0] in words.be | {"has", "have"}:
            return True
        if 0 <= start <= MAX_SUBJECT_UNITS:
            return not start or new.keys[start - 1] not in words.be
    return False


def _flipped(old: Claim, new: Claim) -> str | None:
    """Return the reason if the new text says that the claim holds again, or not now."""
    if "now" not in new.cues or new.cues & _ENDED:
        return None
    if old.cues & _ENDED and _plain(old) == _plain(new):
        return "the new text says that it holds again"
    olds, news = old.negation_count, new.negation_count
    if old.cues & _ENDED or abs(olds - news) != 1 or _plain(old) != _plain(new):
        return None
    held = "does not hold now" if news > olds else "holds now"
    return f"the new text says that it {held}"


def _opposite(old: Claim, new: Claim) -> str | None:
    """Return the reason if one text denies the other, or they differ in "on" and "off" only."""
    olds, news = old.negation_count, new.negation_count
    if bool(olds) != bool(news) and _plain(old) == _plain(new):
        return "one text denies the other"
    if len(old.keys) != len(new.keys) or olds != news:
        return None
    pairs = [(a, b) for a, b in zip(old.keys, new.keys, strict=True) if a != b]
    if len(pairs) == 1 and pairs[0][1] in old.lexicon.antonyms.get(pairs[0][0], ()):
        return f"the opposite: {pairs[0][0]} is now {pairs[0][1]}"
    return None


def _plain(claim: Claim) -> tuple[str, ...]:
    """Return the stems of a claim without its negations."""
    words = claim.lexicon
    pairs = zip(claim.keys, claim.stems, strict=True)
    silent = words.negations | {"not", "does"}
    return tuple(stem for key, stem in pairs if key not in silent)


def _subject(claim: Claim) -> str:
    """Return the stem of the first unit with a topic."""
    return claim.stems[claim.content[0]] if claim.content else ""


# -- the old value is named -------------------------------------------------------------------


def _named(old: Claim, new: Claim, cues: frozenset[str]) -> str | None:
    """Return the reason if the new text names the old value as replaced, and is about the same."""
    if old.cues & _ENDED or old.negation_count or not cues & _NAMING:
        return None
    verbs = change_stems(new, cues)
    for gone in _gone(new, cues, verbs):
        if gone <= old.topic and _replaces(old, new, gone, verbs):
            return "the new text names the old value as replaced"
    return None


def _replaces(old: Claim, new: Claim, gone: frozenset[str], verbs: frozenset[str]) -> bool:
    """Return whether the rest of the new text is about what the old one is about."""
    words = new.lexicon
    named = {
        words.stem(key) for key in new.keys if words.stem(words.nominals.get(key, "")) in old.topic
    }
    without = old.topic | verbs | gone | PERSONS | {"1"} | named
    found = runs(new, without=without)
    added = one_value(found)
    listed = words.one_valued | words.many_valued | words.companions
    held = {words.stem(words.same.get(verb, verb)) for verb in listed}
    spot = next(index for index, stem in enumerate(old.stems) if stem in gone)
    before = {old.stems[index] for index in old.content if index < spot}
    if len(found) > len(added) and before - new.topic - verbs - held:
        # "We buy eggs from the shop instead of the farm" says nothing about milk.
        return False
    if len(added) > 1 or any(len(run) > MAX_VALUE_UNITS for run in added):
        return False
    common = (new.topic & old.topic) - gone
    if MIN_SHARED * (len(common) + len(gone)) < len(old.topic - PERSONS):
        return False
    subject, last = _subject(old), old.stems[old.content[-1]]
    if subject in gone and last not in gone and not common:
        # "Redis is fast" does not end with "we replaced Redis".
        return False
    first = new.stems[new.content[0]]
    starts_with_value = bool(added) and new.content[0] in added[0]
    if first not in old.topic | PERSONS | verbs and not starts_with_value:
        return False
    # "load_all was renamed" is about what "the function is called load_all" says.
    is_name = last in gone and bool(set(old.keys) & {"is", "named"}) and bool(verbs & _RENAMED)
    return subject in new.topic | PERSONS or bool(common) or is_name


def _taken_over(old: Claim, new: Claim, cues: frozenset[str]) -> str | None:
    """Return the reason if another person took over a role that the old text names."""
    if "change" not in cues or not {"take", "tak"} & new.topic | {"over"} & set(new.keys):
        return None
    words = new.lexicon
    if not any(kind == "change" and "over" in phrase for kind, phrase in new.marks):
        return None
    if old.negation_count or new.negation_count or veto(old, new, same_values=False):
        return None
    verbs = change_stems(new, cues) | {
        words.stem(key) for key in ("took", "taken", "takes", "over")
    }
    named = {words.stem(words.nominals.get(key, key)) for key in new.keys}
    added = runs(
        new, without=old.topic | verbs | {s for s in new.topic if s not in named} | PERSONS
    )
    held = {words.stem(verb) for verb in words.roles | words.one_valued}
    removed = runs(old, without=new.topic | named | held)
    if len(added) == 1 and len(removed) == 1 and len(new.topic & old.topic | named & old.topic) > 0:
        return "the new text says who took over"
    return None


def _gone(new: Claim, cues: frozenset[str], verbs: frozenset[str]) -> Iterator[frozenset[str]]:
    """Yield the stems with which the new text may name the replaced value."""
    for kind, phrase in sorted(new.marks):
        if kind not in cues & _NAMING or (kind == "origin" and "change" not in cues):
            continue
        # "I will not quit the band" ends nothing; "in Ulm, not in Kiel" does.
        if kind in {"gone", "left"} and new.negation_count:
            continue
        before, _, after = " ".join(phrase).partition(GAP)
        start = phrase_place(new, tuple(before.split()))
        if start < 0 or (kind == "contrast" and new.units[start].before[:1] not in {",", "，"}):
            continue
        if kind == "gone" and start and new.keys[start - 1] in new.lexicon.be:
            # "Tickets are sold at the church" names what holds.
            continue
        following = range(start + len(before.split()), len(new.keys))
        if after:
            end = phrase_place(new, tuple(after.split()))
            following = range(following.start, end)
        preceding = range(start - 1, -1, -1)
        found = _named_stems(new, preceding if kind == "left" else following, verbs)
        if found:
            yield found
        if len(found) > 1 and kind == "gone" and new.language == "de":
            # "Statt Butter Margarine": the new value follows the old one.
            heads = (i for i in following if i in new.content)
            yield frozenset(new.stems[i] for i in islice(heads, 1))


def _named_stems(new: Claim, indexes: range, verbs: frozenset[str]) -> frozenset[str]:
    """Return the stems of the first thing that is named along these indexes."""
    words = new.lexicon
    stops = words.prepositions | words.agents | {"and", "instead"}
    found: list[str] = []
    for index in indexes:
        key = new.keys[index]
        is_end = key in stops - _LINKS or (indexes.step > 0 and new.units[index].before[:1] == ",")
        is_end = is_end or (index not in new.content and key not in _LINKS)
        is_end = is_end or (indexes.step < 0 and key in TITLES)
        if len(found) >= MAX_NAMED_UNITS or (found and is_end):
            break
        if index in new.content and new.stems[index] not in verbs:
            found.append(new.stems[index])
    # "The small one" is about what the text has named.
    return frozenset(found) - ({"1"} if len(found) > 1 else NONE)
